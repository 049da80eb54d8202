"""Data segments as files: what each holds, told by its footer, or by a scan if it has none.

A sealed segment ends with a footer, so a start reads a few bytes per payload of it and not the
payloads. One that a crash left without is scanned once, and sealed then.
"""

import os
from pathlib import Path

import msgspec

from samcast.group.recovery import Listing, list_segment
from samcast.limits import SEGMENT_ALIGN_BYTES
from samcast.runtime.folder import sync_folder
from samcast.runtime.sync_thread import write_all
from samcast.wire.segment import FOOTER_TAIL_BYTES, encode_footer, footer_offset, read_footer

PREFIX = "segment-"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Listing).decode


def segment_path(folder: Path, generation: int) -> Path:
    """Where a segment is."""
    return folder / f"{PREFIX}{generation:010d}"


def segments_in(folder: Path) -> list[tuple[int, Path]]:
    """All segments, oldest first."""
    return sorted((int(p.name.removeprefix(PREFIX)), p) for p in folder.glob(PREFIX + "*"))


def begin_segment(folder: Path, generation: int) -> int:
    """An empty segment that is there to stay; its descriptor."""
    path = segment_path(folder, generation)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
    os.fsync(fd)
    sync_folder(folder)
    return fd


def footer_of(listing: Listing, generation: int, end: int) -> bytes:
    """The last record of a segment that ends here."""
    return encode_footer([_encode(listing)], generation=generation, offset=end)


def read_listing(fd: int, generation: int) -> Listing:
    """What a segment of an earlier life holds; it is sealed if a crash had left it open."""
    size = os.fstat(fd).st_size
    listing = _listing_from_footer(fd, generation, size)
    if listing is None:
        listing = _listing_from_scan(fd, generation, size)
    return listing


def _listing_from_footer(fd: int, generation: int, size: int) -> Listing | None:
    tail = os.pread(fd, FOOTER_TAIL_BYTES, max(0, size - FOOTER_TAIL_BYTES))
    begin = footer_offset(tail)
    if begin is None or not 0 <= begin < size:
        return None
    image = os.pread(fd, size - begin, begin)
    entries = read_footer(image, generation=generation, offset=begin)
    if not entries:
        return None
    try:
        return _decode(entries[0])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def _listing_from_scan(fd: int, generation: int, size: int) -> Listing:
    image = os.pread(fd, size, 0)
    while len(image) < size and (more := os.pread(fd, size - len(image), len(image))):
        image += more  # One call reads at most 2 GiB.
    listing, scan = list_segment(generation, image)
    is_torn_only = all(begin >= scan.end for begin, _ in scan.damaged)
    if size and is_torn_only:
        # Behind whatever a torn write left: nothing is cut off. Rot is looked at in every start.
        end = -(-size // SEGMENT_ALIGN_BYTES) * SEGMENT_ALIGN_BYTES
        write_all(fd, end, [footer_of(listing, generation, end)])
        os.fdatasync(fd)
    return listing
