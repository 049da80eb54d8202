"""Data segments as files: which there are, and what each holds, told by its footer, or by a scan if
it has none.

A sealed segment ends with a footer, so a start reads a few bytes per payload of it and not the
payloads. A footer is written only after all that it lists was synced, and says so: where it
stands, so do the payloads, whatever a crash took. A segment that a crash left without one is
synced, scanned once, and sealed then.

A list says which segments there are. One that is listed and missing was lost, and with it payloads
of which others count on a copy here. It is listed when it is there, before anything is written to
it, and no longer listed before it goes.
"""

import errno
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from operator import itemgetter

import msgspec

from samcast.disk.folder import (
    UNREADABLE,
    Folder,
    Handle,
    numbers_in,
    put_durably,
    read_synced,
    read_whole,
)
from samcast.group.listing import SegmentColumns, columns_of
from samcast.group.recovery import Place, list_segment
from samcast.limits import SEGMENT_ALIGN_BYTES
from samcast.wire.segment import (
    FOOTER_TAIL_BYTES,
    bodies_at,
    encode_footer,
    encode_record,
    footer_offset,
    read_footer,
    read_record,
)

LIST = "list"
PREFIX = "segment-"
MOVING = "moving-"  # begins the name of a segment that is being written anew from another one
KIND_LIST = 4
FULL = (errno.ENOSPC, errno.EDQUOT)
COPY_BYTES = 4096  # the list is there twice, so far apart that no bad sector takes both
OPEN_MAX = 64
WINDOW_BYTES = 1024 * 1024  # read at once, of payloads that lie near each other
SPARSE = 4  # times as much as is wanted is not read along
_OFFSET, _LENGTH = itemgetter(1), itemgetter(2)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SegmentColumns).decode


class SegmentList(msgspec.Struct, array_like=True):
    """Which segments there are, by generation."""

    generations: list[int] = []
    open: int = 0  # of these, the one that is written to, and may be empty


_decode_list = msgspec.msgpack.Decoder(SegmentList).decode


def segment_name(generation: int) -> str:
    """The name of its file."""
    return f"{PREFIX}{generation:010d}"


def segments_in(folder: Folder) -> list[int]:
    """The generations of all segments, oldest first."""
    return numbers_in(folder.names(), PREFIX)


def write_list(folder: Folder, generations: Iterable[int], open_: int = 0) -> None:
    """Say which segments there are."""
    listed = _encode(SegmentList(sorted(generations), open_))
    record = encode_record(KIND_LIST, listed, generation=1, offset=0)
    copy = record.ljust(-(-len(record) // COPY_BYTES) * COPY_BYTES, b"\0")
    put_durably(folder, LIST, copy * 2)


def read_list(folder: Folder) -> SegmentList | None:
    """Which segments there should be; None: that can't be read."""
    handle = folder.open(LIST)
    try:
        data = read_synced(folder, handle)
    finally:
        folder.close(handle)
    half = len(data) // 2
    for copy in (data[:half], data[half:]):
        found = read_record(copy, generation=1, offset=0)
        if found is not None:
            return _decode_list(found[1])
    return None


class SegmentReader:
    """Reads payloads back. Few segments are open at a time, however many there are."""

    def __init__(self, folder: Folder, open_max: int = OPEN_MAX) -> None:
        self._folder = folder
        self._open_max = open_max
        self._handles: OrderedDict[int, Handle] = OrderedDict()  # last used last

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
        handle = self._open(generation)
        if handle is None:
            return b""
        try:
            return self._folder.read(handle, offset, length)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""  # A sector that can't be read any more is the usual form of rot.

    def _open(self, generation: int) -> Handle | None:
        handle = self._handles.get(generation)
        if handle is not None:
            self._handles.move_to_end(generation)
            return handle
        try:
            handle = self._folder.open(segment_name(generation))
        except FileNotFoundError:
            return None
        self._handles[generation] = handle
        if len(self._handles) > self._open_max:
            self._folder.close(self._handles.popitem(last=False)[1])
        return handle

    def let_go(self, generation: int) -> None:
        """A segment is about to be deleted."""
        handle = self._handles.pop(generation, None)
        if handle is not None:
            self._folder.close(handle)

    def close(self) -> None:
        """Close what is open."""
        while self._handles:
            self._folder.close(self._handles.popitem()[1])


def footer_of(columns: SegmentColumns, generation: int, end: int) -> bytes:
    """The last record of a segment that ends here, and all of which is synced."""
    columns.is_synced = True
    return encode_footer([_encode(columns)], generation=generation, offset=end)


def read_columns(folder: Folder, generation: int) -> SegmentColumns:
    """What a segment of an earlier life holds; it is sealed if a crash had left it open."""
    handle = folder.open(segment_name(generation))
    try:
        columns = _columns_from_footer(folder, handle, generation)
        return columns or _columns_from_scan(folder, handle, generation)
    finally:
        folder.close(handle)


def look_at_columns(folder: Folder, generation: int) -> SegmentColumns:
    """The same for a segment of this life, which may just be getting its footer: it is left as it
    is."""
    handle = folder.open(segment_name(generation))
    try:
        columns = _columns_from_footer(folder, handle, generation)
        return columns or columns_of(list_segment(generation, read_whole(folder, handle))[0])
    finally:
        folder.close(handle)


def _columns_from_footer(folder: Folder, handle: Handle, generation: int) -> SegmentColumns | None:
    size = folder.size(handle)
    try:
        tail = folder.read(handle, max(0, size - FOOTER_TAIL_BYTES), FOOTER_TAIL_BYTES)
        begin = footer_offset(tail)
        if begin is None or not 0 <= begin < size:
            return None
        image = folder.read(handle, begin, size - begin)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None
    entries = read_footer(image, generation=generation, offset=begin)
    if not entries:
        return None
    try:
        columns = _decode(entries[0])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    is_sound = columns.is_synced and all(runs.is_sound for runs in columns.runs)
    return columns if is_sound else None


def _columns_from_scan(folder: Folder, handle: Handle, generation: int) -> SegmentColumns:
    image = read_synced(folder, handle)
    listing, scan = list_segment(generation, image)
    columns = columns_of(listing)
    is_torn_only = all(begin >= scan.end for begin, _ in scan.damaged)
    is_readable = UNREADABLE * SEGMENT_ALIGN_BYTES not in image[scan.end :]  # another time, perhaps
    if image and is_torn_only and is_readable:
        # Behind whatever a torn write left: nothing is cut off. Rot is looked at in every start.
        write_footer(folder, handle, columns, generation, len(image))
    return columns


def write_footer(
    folder: Folder, handle: Handle, columns: SegmentColumns, generation: int, end: int
) -> None:
    """Seal a segment, all of which is synced. Nobody waits for it: who finds none looks for
    himself, so it needn't be synced, and on a full disk it isn't there."""
    end = -(-end // SEGMENT_ALIGN_BYTES) * SEGMENT_ALIGN_BYTES
    try:
        folder.write(handle, end, [footer_of(columns, generation, end)])
    except OSError as error:
        if error.errno not in FULL:
            raise
