"""A node's disk: which files there are, in which order they are written and synced, and what a
start makes of them. All of it goes through one port, so that the simulator plays what ships."""
