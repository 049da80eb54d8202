"""Data segments as files: what each holds, told by its footer, or by a scan if it has none.

A sealed segment ends with a footer, so a start reads a few bytes per payload of it and not the
payloads. One that a crash left without is scanned once, and sealed then.
"""

import errno
import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

import msgspec

from samcast.group.listing import SegmentColumns, columns_of
from samcast.group.recovery import Place, list_segment
from samcast.limits import SEGMENT_ALIGN_BYTES
from samcast.runtime.folder import sync_folder
from samcast.runtime.sync_thread import write_all
from samcast.wire.segment import (
    FOOTER_TAIL_BYTES,
    bodies_at,
    encode_footer,
    footer_offset,
    read_footer,
    read_record,
)

PREFIX = "segment-"
OPEN_MAX = 64
WINDOW_BYTES = 1024 * 1024  # read at once, of payloads that lie near each other
SPARSE = 4  # times as much as is wanted is not read along
_OFFSET, _LENGTH = itemgetter(1), itemgetter(2)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SegmentColumns).decode


def segment_path(folder: Path, generation: int) -> Path:
    """Where a segment is."""
    return folder / f"{PREFIX}{generation:010d}"


def segments_in(folder: Path) -> list[tuple[int, Path]]:
    """All segments, oldest first."""
    return sorted((int(p.name.removeprefix(PREFIX)), p) for p in folder.glob(PREFIX + "*"))


class SegmentReader:
    """Reads payloads back. Few segments are open at a time, however many there are."""

    def __init__(self, folder: Path, open_max: int = OPEN_MAX) -> None:
        self._folder = folder
        self._open_max = open_max
        self._fds: OrderedDict[int, int] = OrderedDict()  # last used last

    def read(self, place: Place) -> bytes | None:
        """The payload at a place, verified; None if it isn't there, or rotten."""
        generation, offset, length = place
        image = self.image(generation, offset, length)
        found = read_record(image, generation=generation, offset=offset)
        return found[1] if found is not None else None

    def read_many(self, places: Sequence[Place]) -> list[bytes | None]:
        """The same for many, which mostly lie near each other: with few reads of the disk."""
        order = sorted(places)  # They mostly are.
        found: list[bytes | None] = []
        at = 0
        while at < len(order):
            generation, first, length = order[at]
            end = bisect_left(order, (generation, first + max(length, WINDOW_BYTES)), at + 1)
            window = order[at:end]
            reach = window[-1][1] + window[-1][2] - first
            if reach > SPARSE * sum(map(_LENGTH, window)):
                found += map(self.read, window)
            else:
                image = self.image(generation, first, reach)
                found += bodies_at(image, first, map(_OFFSET, window), generation)
            at = end
        if order != list(places):
            by_place = dict(zip(order, found, strict=True))
            found = [by_place[place] for place in places]
        return found

    def image(self, generation: int, offset: int, length: int) -> bytes:
        """What lies there, whatever it is."""
        fd = self._open(generation)
        if fd is None:
            return b""
        try:
            return os.pread(fd, length, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""  # A sector that can't be read any more is the usual form of rot.

    def _open(self, generation: int) -> int | None:
        fd = self._fds.get(generation)
        if fd is not None:
            self._fds.move_to_end(generation)
            return fd
        try:
            fd = os.open(segment_path(self._folder, generation), os.O_RDONLY)
        except FileNotFoundError:
            return None
        self._fds[generation] = fd
        if len(self._fds) > self._open_max:
            os.close(self._fds.popitem(last=False)[1])
        return fd

    def let_go(self, generation: int) -> None:
        """A segment is about to be deleted."""
        fd = self._fds.pop(generation, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Close what is open."""
        while self._fds:
            os.close(self._fds.popitem()[1])


def begin_segment(folder: Path, generation: int) -> int:
    """An empty segment that is there to stay; its descriptor."""
    path = segment_path(folder, generation)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
    os.fsync(fd)
    sync_folder(folder)
    return fd


def footer_of(columns: SegmentColumns, generation: int, end: int) -> bytes:
    """The last record of a segment that ends here."""
    return encode_footer([_encode(columns)], generation=generation, offset=end)


def read_columns(fd: int, generation: int) -> SegmentColumns:
    """What a segment of an earlier life holds; it is sealed if a crash had left it open."""
    size = os.fstat(fd).st_size
    return _columns_from_footer(fd, generation, size) or _columns_from_scan(fd, generation, size)


def _columns_from_footer(fd: int, generation: int, size: int) -> SegmentColumns | None:
    tail = os.pread(fd, FOOTER_TAIL_BYTES, max(0, size - FOOTER_TAIL_BYTES))
    begin = footer_offset(tail)
    if begin is None or not 0 <= begin < size:
        return None
    image = os.pread(fd, size - begin, begin)
    entries = read_footer(image, generation=generation, offset=begin)
    if not entries:
        return None
    try:
        columns = _decode(entries[0])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return columns if all(runs.is_sound for runs in columns.runs) else None


def _columns_from_scan(fd: int, generation: int, size: int) -> SegmentColumns:
    image = os.pread(fd, size, 0)
    while len(image) < size and (more := os.pread(fd, size - len(image), len(image))):
        image += more  # One call reads at most 2 GiB.
    listing, scan = list_segment(generation, image)
    columns = columns_of(listing)
    is_torn_only = all(begin >= scan.end for begin, _ in scan.damaged)
    if size and is_torn_only:
        # Behind whatever a torn write left: nothing is cut off. Rot is looked at in every start.
        end = -(-size // SEGMENT_ALIGN_BYTES) * SEGMENT_ALIGN_BYTES
        write_all(fd, end, [footer_of(columns, generation, end)])
        os.fdatasync(fd)
    return columns
