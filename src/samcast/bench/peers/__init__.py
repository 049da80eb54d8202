"""What people use today, run as they would run it: three nodes on this machine, a Python client."""
