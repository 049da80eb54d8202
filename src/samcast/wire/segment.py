"""Data segments as bytes: payloads that are either sound or MISSING, and never cost a vote (CE-25).

Record: a header of 24 bytes, a body, zeros to the next multiple of 64. The header has a checksum of
its own, so that a record with a damaged body still tells where the next one begins, and one of the
body. Both are seeded with generation and offset: bytes copied from elsewhere, such as a segment
inside a payload, are no record, whatever has happened to the record around them.

A segment holds one generation's records; what an earlier life left behind is not damage, just not
there. A sealed segment ends, file and all, with a footer, so that a start needn't scan it. A footer
that can't be read means scan; it never means empty.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import repeat

import msgspec
from crc32c import crc32c

from samcast.limits import SEGMENT_ALIGN_BYTES, SEGMENT_BODY_BYTES_MAX

KIND_FOOTER = 255
FOOTER_TAIL_BYTES = 20  # at the end of a sealed file; says where the footer begins
MAGIC = 0x31444353  # "SCD1"
_MAGIC_BYTES = MAGIC.to_bytes(4, "little")
_FIELDS = struct.Struct("<IBBHIII")  # magic, kind, flags, reserved, length, generation, body check
_CHECK = struct.Struct("<I")
_PLACE = struct.Struct("<IQ")  # generation, offset
_TAIL = struct.Struct("<QII")  # offset and bytes of the footer, magic; then a check
_LENGTH = struct.Struct("<I")
_BODY_FROM = _FIELDS.size + _CHECK.size
_GENERATION_MAX = 2**32 - 1
_ZEROS = bytes(4096)


class Found(msgspec.Struct, frozen=True, gc=False):
    """A sound record: its place in the segment, and its body's."""

    kind: int
    offset: int
    length: int  # of the body
    body_offset: int


class SegmentScan(msgspec.Struct, frozen=True):
    found: list[Found]  # all but the footer
    damaged: list[tuple[int, int]]  # stretches that held something and can't be read: MISSING
    end: int  # where the last sound record ends, footer included
    is_sealed: bool  # a footer is the last sound record


class _Header(msgspec.Struct, frozen=True, gc=False):
    kind: int
    length: int
    generation: int
    check_body: int
    place: int
    offset: int


def record_bytes(length: int) -> int:
    """The room that a body of this length takes in a segment."""
    return -(-(_BODY_FROM + length) // SEGMENT_ALIGN_BYTES) * SEGMENT_ALIGN_BYTES


def encode_record(kind: int, body: bytes, *, generation: int, offset: int) -> bytes:
    """A record for just this place; `end` of a scan, or of the record before, is the next one."""
    return b"".join(record_parts(kind, (body,), generation=generation, offset=offset))


def record_parts(
    kind: int, body: Sequence[bytes], *, generation: int, offset: int
) -> tuple[bytes, ...]:
    """The same from a body in parts, and in parts: none of the body's is copied."""
    if not 0 <= kind < KIND_FOOTER:
        raise ValueError(f"a record's kind is from 0 to {KIND_FOOTER - 1}, not {kind}")
    return _parts(kind, body, generation, offset)


def read_record(data: bytes, *, generation: int, offset: int) -> tuple[int, bytes] | None:
    """Kind and body of the record that was written at this offset and begins these bytes."""
    header = _header(data, 0, offset)
    if not header or header.generation != generation or not _is_sound(data, header):
        return None
    return header.kind, bytes(data[_BODY_FROM : _BODY_FROM + header.length])


def bodies_at(
    data: bytes, first: int, offsets: Iterable[int], generation: int
) -> list[bytes | None]:
    """The same from the middle of what was read from an offset on, and fast, for who reads many.
    A body's check covers its header, too: it is over the place, and just where the header says."""
    unpack, pack, size = _FIELDS.unpack_from, _PLACE.pack, len(data)
    found: list[bytes | None] = []
    for offset in offsets:
        start = offset - first + _BODY_FROM
        if start > size:
            found.append(None)
            continue
        magic, _, _, _, length, written, check = unpack(data, offset - first)
        body = data[start : start + length]
        is_ours = magic == MAGIC and written == generation and len(body) == length
        is_sound = is_ours and crc32c(body, crc32c(pack(generation, offset))) == check
        found.append(body if is_sound else None)
    return found


def checks_of(
    data: bytes, generation: int, offsets: Iterable[int], spans: Iterable[tuple[int, int]]
) -> list[int]:
    """What the checks of records at these offsets must be if their bodies are these spans."""
    seeds = map(crc32c, map(_PLACE.pack, repeat(generation), offsets))
    return list(map(crc32c, [data[begin:end] for begin, end in spans], seeds))


def scan_segment(data: bytes, generation: int) -> SegmentScan:
    """Every sound record of this generation, and where there may have been more."""
    found: list[Found] = []
    damaged: list[tuple[int, int]] = []
    place = end = 0
    is_sealed = False
    while place < len(data):
        header = _header(data, place, place)
        if not header:
            after = _next_header(data, place, len(data))
            held = _without_zeros(data, place, after)
            if held > place:
                damaged.append((place, held))
        elif header.generation != generation:  # An earlier life; a record of ours may lie inside.
            after = min(place + record_bytes(header.length), len(data))
            after = _next_header(data, place, after, generation)
        elif not _is_sound(data, header):
            after = min(place + record_bytes(header.length), len(data))
            damaged.append((place, after))
        else:
            after = end = place + record_bytes(header.length)
            is_sealed = header.kind == KIND_FOOTER
            if not is_sealed:
                found.append(Found(header.kind, place, header.length, place + _BODY_FROM))
        place = after
    return SegmentScan(found, damaged, end, is_sealed)


def encode_footer(entries: Sequence[bytes], *, generation: int, offset: int) -> bytes:
    """The last record of a sealed segment; the file must end where it ends."""
    parts = [_LENGTH.pack(len(entries))]
    for entry in entries:
        parts += (_LENGTH.pack(len(entry)), entry)
    listed = b"".join(parts)
    room = record_bytes(len(listed) + FOOTER_TAIL_BYTES)
    body = listed.ljust(room - _BODY_FROM - FOOTER_TAIL_BYTES, b"\0")
    tail = _TAIL.pack(offset, room, MAGIC)
    whole = body + tail + _CHECK.pack(crc32c(tail))
    return b"".join(_parts(KIND_FOOTER, (whole,), generation, offset))


def footer_offset(tail: bytes) -> int | None:
    """Where the footer begins, by the last FOOTER_TAIL_BYTES of a file; None: it has none."""
    if len(tail) < FOOTER_TAIL_BYTES:
        return None
    fields = tail[-FOOTER_TAIL_BYTES : -_CHECK.size]
    offset, _, magic = _TAIL.unpack(fields)
    is_tail = magic == MAGIC and tail[-_CHECK.size :] == _CHECK.pack(crc32c(fields))
    return offset if is_tail else None


def read_footer(data: bytes, *, generation: int, offset: int = 0) -> list[bytes] | None:
    """The entries, given the end of a file from `offset` on; None: scan the segment."""
    begin = footer_offset(data)
    if begin is None or not offset <= begin < offset + len(data):
        return None
    record = read_record(data[begin - offset :], generation=generation, offset=begin)
    if not record or record[0] != KIND_FOOTER:
        return None
    body = record[1]
    if _BODY_FROM + len(body) != offset + len(data) - begin:
        return None  # Something was written behind it: sealed no longer.
    return _entries(body[:-FOOTER_TAIL_BYTES])


def _entries(listed: bytes) -> list[bytes] | None:
    if len(listed) < _LENGTH.size:
        return None
    entries: list[bytes] = []
    place = _LENGTH.size
    for _ in range(_LENGTH.unpack_from(listed)[0]):
        start = place + _LENGTH.size
        if start > len(listed):
            return None
        place = start + _LENGTH.unpack_from(listed, start - _LENGTH.size)[0]
        entries.append(listed[start:place])
    return entries if place <= len(listed) else None


def _parts(kind: int, body: Sequence[bytes], generation: int, offset: int) -> tuple[bytes, ...]:
    length = sum(map(len, body))
    if length > SEGMENT_BODY_BYTES_MAX:
        raise ValueError(f"a body of {length} bytes; {SEGMENT_BODY_BYTES_MAX} fit a record")
    if not 0 < generation <= _GENERATION_MAX:
        raise ValueError(f"a generation is from 1 to {_GENERATION_MAX}, not {generation}")
    if offset < 0 or offset % SEGMENT_ALIGN_BYTES:
        raise ValueError(f"a record begins at a multiple of {SEGMENT_ALIGN_BYTES}, not {offset}")
    seed = check = crc32c(_PLACE.pack(generation, offset))
    for part in body:
        check = crc32c(part, check)
    fields = _FIELDS.pack(MAGIC, kind, 0, 0, length, generation, check)
    header = fields + _CHECK.pack(crc32c(fields, seed))
    return (header, *body, bytes(record_bytes(length) - length - _BODY_FROM))


def _header(data: bytes, place: int, offset: int) -> _Header | None:
    """The header at a place in these bytes, if it was written for this offset of a segment."""
    fields = data[place : place + _FIELDS.size]
    check = data[place + _FIELDS.size : place + _BODY_FROM]
    if fields[:4] != _MAGIC_BYTES or len(check) < _CHECK.size:
        return None
    _, kind, flags, reserved, length, generation, check_body = _FIELDS.unpack(fields)
    if check != _CHECK.pack(crc32c(fields, crc32c(_PLACE.pack(generation, offset)))):
        return None
    is_ours = not flags and not reserved and length <= SEGMENT_BODY_BYTES_MAX
    return _Header(kind, length, generation, check_body, place, offset) if is_ours else None


def _is_sound(data: bytes, header: _Header) -> bool:
    start = header.place + _BODY_FROM
    body = memoryview(data)[start : start + header.length]
    seed = crc32c(_PLACE.pack(header.generation, header.offset))
    return len(body) == header.length and crc32c(body, seed) == header.check_body


def _next_header(data: bytes, place: int, end: int, generation: int = 0) -> int:
    """The next place behind this one, before `end`, with a header (of a generation), or `end`."""
    place += SEGMENT_ALIGN_BYTES
    while (place := data.find(_MAGIC_BYTES, place, end)) >= 0:
        if not place % SEGMENT_ALIGN_BYTES:
            header = _header(data, place, place)
            if header and generation in (0, header.generation):
                return place
        place += SEGMENT_ALIGN_BYTES - place % SEGMENT_ALIGN_BYTES
    return end


def _without_zeros(data: bytes, start: int, end: int) -> int:
    """Where a stretch ends if its closing zeros are left off."""
    while end - start >= len(_ZEROS) and data[end - len(_ZEROS) : end] == _ZEROS:
        end -= len(_ZEROS)
    return start + len(data[start:end].rstrip(b"\0"))
