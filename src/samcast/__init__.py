"""Samcast: one stream of numbered messages, equal for every receiver, through any failure.

Today the package holds the ordering core (`wire`, `machine`, `group`) and the simulator that tries
to break it (`sim`); it opens no socket and no file of its own.
"""

__version__ = "0.1.0.dev0"

__all__ = ["__version__"]
