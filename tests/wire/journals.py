"""Journals for tests: synced ones, recycled ones, and every way in which a crash may end one."""

import itertools
from collections.abc import Callable, Iterable

from samcast.limits import SECTOR_BYTES
from tests.wire.test_fuzz_journal import (
    SEGMENT_BYTES,
    Disk,
)

FIRST_ROOM = 428  # payload bytes in the first sector of a group; a record takes 4 more than it has


def choices(sectors: int) -> Iterable[Callable[[], bool]]:
    """Every way in which a crash may keep or lose so many sectors."""
    for kept in itertools.product((False, True), repeat=sectors):
        yield iter(kept).__next__


def sectors_in_flight(disk: Disk) -> int:
    return sum(len(write.data) for write in disk.pending) // SECTOR_BYTES


def synced(*sizes: int, segment_bytes: int = SEGMENT_BYTES) -> Disk:
    """A journal with one synced group per size."""
    disk = Disk(segment_bytes)
    for number, size in enumerate(sizes):
        disk.append(bytes([number + 1]) * size)
        disk.sync()
    return disk


def recycled(*sizes: int) -> Disk:
    """The same, in segments that had a former life full of other records."""
    disk = Disk()
    for _ in range(16):
        disk.append(b"former life" * 30)
        disk.sync()
    disk.fresh()
    disk.sync()
    for number, size in enumerate(sizes):
        disk.append(bytes([number + 1]) * size)
        disk.sync()
    return disk


def edges(sectors: int) -> Iterable[tuple[bool, ...]]:
    """Too many sectors for all ways: every prefix, every suffix, one lost, one kept."""
    for cut in range(sectors + 1):
        yield tuple(place < cut for place in range(sectors))
        yield tuple(place >= cut for place in range(sectors))
        yield tuple(place == cut for place in range(sectors))
        yield tuple(place != cut for place in range(sectors))
