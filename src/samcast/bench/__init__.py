"""What a cluster on this machine does, measured through the shipped client.

A rate counts from the first send until the last confirm has come back; what was confirmed is then
read back by another process and compared by its hash.
"""
