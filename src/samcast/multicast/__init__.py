"""Frames over multicast: cut into datagrams, put together again, asked for where they lack."""
