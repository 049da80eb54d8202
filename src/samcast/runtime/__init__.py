"""The only place that touches the world: event loop, sockets, disks, clocks."""
