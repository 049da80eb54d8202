"""How a node's process, or one that reads much, treats its memory.

What was imported and recovered stays, and roles make next to no cycles: the collector looks for
them seldom, and only among what is new. A batch of a megabyte is a few allocations of that size; by
default the C library gives each of them back to the system and gets it again, page by page and
zeroed, which costs a third of the rate. So a node keeps some megabytes instead.
"""

import contextlib
import ctypes
import gc

GC_THRESHOLD = 50_000
KEPT_BYTES = 64 * 1024 * 1024  # free at the end of the heap; what is beyond goes back
# Of glibc's mallopt; any other C library has its own ways, and no such call.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
MMAP_BYTES = 32 * 1024 * 1024  # the most that glibc takes


def prepare_start() -> None:
    """While a node starts, all that it makes is going to stay."""
    gc.disable()
    gc.set_threshold(GC_THRESHOLD, 20, 100)
    keep_freed()


def keep_freed() -> None:
    """Don't give large pieces back to the system, to get them again with the next batch."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def settle() -> None:
    """The node has started: don't look at what it made so far again."""
    gc.freeze()
    gc.enable()
