"""One segment file of the order journal as it was read: its sectors, groups and flaws.

The format, and what is made of it, are told in `wire.journal`.
"""

import struct

import msgspec
from crc32c import crc32c

from samcast.limits import (
    JOURNAL_SEGMENT_BYTES_MAX,
    JOURNAL_TAIL_DOUBT_SECTORS,
    SECTOR_BYTES,
)

MAGIC = 0x314A4353  # "SCJ1"
TAG = struct.Struct("<II")  # generation, check
TAG_NATIVE = struct.Struct("=Q")  # the same as one number, to read all tags of a segment in one go
CHECKS = struct.Struct("<II")  # of the group, of the header
FIELDS = struct.Struct("<9I4Q")
PLACE = struct.Struct("<III")  # generation, segment, sector
LENGTH = struct.Struct("<I")

BODY_BYTES = SECTOR_BYTES - TAG.size
CHECKED_FROM = TAG.size + CHECKS.size
PAYLOAD_FROM = CHECKED_FROM + FIELDS.size
FIRST_BYTES = SECTOR_BYTES - PAYLOAD_FROM  # of the payload, in the first sector
OVERHEAD_BYTES = BODY_BYTES - FIRST_BYTES  # of a group, beside its tags
HEAD_MARK = 0x5A3C96E1  # 16 bits, so that few flips can't make a head of a body
ID_MAX, SEQUENCE_MAX = 2**31 - 1, 2**63 - 1  # of generations and segments; of groups
UNWRITTEN, SPOILT = 0, -1  # codes of sectors; all others are generation * 2 + is_head
NO_GENERATION = -2  # unlike that of any code


class GroupHeader(msgspec.Struct):
    magic: int = MAGIC
    chain: int = 0  # the generation of its first life; 0 before the first group
    chain_segment: int = 0  # where it begins
    chain_durable: int = 0  # the newest one known closed and synced when this one began
    generation_base: int = 0  # other chains up to here were given up before this one began
    generation_previous: int = 0  # the life before this one in its chain; 0: this is the first
    segment_next: int = 0
    payload_bytes: int = 0
    record_count: int = 0
    sequence: int = 0
    synced: int = 0
    chain_first: int = 0
    closing: int = 0  # the group that closes a fresh chain; 0 for a first one, which needs none


def tags(generation: int, segment: int) -> tuple[bytes, bytes]:
    """The tag of a sector that begins a group, and of the others."""
    check = crc32c(TAG.pack(generation, segment))
    return TAG.pack(generation, check ^ HEAD_MARK), TAG.pack(generation, check)


def sectors_of(payload_bytes: int) -> int:
    return -(-(OVERHEAD_BYTES + payload_bytes) // BODY_BYTES)


def sectors_in(segment_bytes: int) -> int:
    if segment_bytes % SECTOR_BYTES or not 0 < segment_bytes <= JOURNAL_SEGMENT_BYTES_MAX:
        raise ValueError(f"a journal segment of {segment_bytes} bytes is no multiple of a sector")
    return segment_bytes // SECTOR_BYTES


class Segment:
    """A segment file as it was read: the life that its newest tags tell of, and older remains."""

    def __init__(self, number: int, raw: bytes, sectors: int) -> None:
        size = sectors * SECTOR_BYTES
        self.number = number
        self.data = raw[:size].ljust(size, b"\0")
        self.codes = self._codes()
        whole = len(raw) // SECTOR_BYTES
        if whole < sectors and any(self.codes):  # A file that was used has lost its end.
            self.codes[whole:] = [SPOILT] * (sectors - whole)
        self.generation = max([0, *self.codes[: self._written]]) >> 1
        self.headers: dict[int, GroupHeader] = {}  # those that can be read, of any life
        for sector, code in enumerate(self.codes[: self._written]):
            if code > 0 and code & 1 and (header := self._header(sector, code >> 1)):
                self.headers[sector] = header

    def _codes(self) -> list[int]:
        tags = memoryview(self.data).cast("Q")[:: SECTOR_BYTES // 8].tolist()
        written = len(tags)
        while written and not tags[written - 1]:
            written -= 1
        if self.data[written * SECTOR_BYTES :] != bytes((len(tags) - written) * SECTOR_BYTES):
            written = len(tags)
        self._written = written  # sectors; behind them is nothing
        known = {0: UNWRITTEN}
        for sector, tag in enumerate(tags[:written]):
            if tag not in known:
                known[tag] = self._code(TAG_NATIVE.pack(tag))
            start = sector * SECTOR_BYTES
            is_odd = not tag and any(self.data[start : start + SECTOR_BYTES])
            tags[sector] = SPOILT if is_odd else known[tag]
        return tags

    def _code(self, tag: bytes) -> int:
        generation: int = TAG.unpack(tag)[0]
        head, body = tags(generation, self.number)
        is_tag = 0 < generation <= ID_MAX and tag in (head, body)
        return generation * 2 + (tag == head) if is_tag else SPOILT

    def _header(self, sector: int, generation: int) -> GroupHeader | None:
        """What was written just here to begin a group."""
        start = sector * SECTOR_BYTES
        fields = self.data[start + CHECKED_FROM : start + PAYLOAD_FROM]
        _, check = CHECKS.unpack_from(self.data, start + TAG.size)
        if check != crc32c(fields, crc32c(PLACE.pack(generation, self.number, sector))):
            return None
        header = GroupHeader(*FIELDS.unpack(fields))
        is_ours = header.magic == MAGIC and header.synced < header.sequence < SEQUENCE_MAX
        is_ours &= header.generation_previous < generation >= header.chain
        is_ours &= sector + sectors_of(header.payload_bytes) <= len(self.codes)
        return header if is_ours else None

    def own(self, sector: int) -> GroupHeader | None:
        """The header here, if it is of the newest life."""
        header = self.headers.get(sector)
        return header if header and self.codes[sector] >> 1 == self.generation else None

    def records(self, sector: int, header: GroupHeader) -> list[bytes] | None:
        """The records of the group that begins here; None if it isn't whole."""
        count = sectors_of(header.payload_bytes)
        start, end = sector * SECTOR_BYTES, (sector + count) * SECTOR_BYTES
        check, check_head = CHECKS.unpack_from(self.data, start + TAG.size)
        if check != crc32c(self.data[start + CHECKED_FROM : end], check_head):
            return None
        bodies = range(start + SECTOR_BYTES + TAG.size, end, SECTOR_BYTES)
        parts = [self.data[start + PAYLOAD_FROM : start + SECTOR_BYTES]]
        parts += [self.data[body : body + BODY_BYTES] for body in bodies]
        return _split(b"".join(parts)[: header.payload_bytes], header.record_count)

    def reach(self, sector: int, generation: int) -> int:
        """The end of what this life wrote at or behind a sector."""
        places = range(self._written - 1, sector - 1, -1)
        return next((p + 1 for p in places if self.codes[p] >> 1 == generation), sector)

    def flaw(self, sector: int, generation: int, sequence: int = 0) -> str:
        """Why what stands where a life would go on can't be left by a crash; empty if it can."""
        codes, body = self.codes, generation * 2
        reach = max(self.reach(sector, generation), sector + JOURNAL_TAIL_DOUBT_SECTORS)
        header = self.own(sector) if sequence else None
        group = codes[sector : sector + sectors_of(header.payload_bytes)] if header else []
        for place, code in enumerate(codes[sector : max(reach, sector + len(group))], sector):
            is_head = code == body + 1 or (code == body and place == sector)
            if code == SPOILT or (is_head and place not in self.headers):
                return f"sector {place} of segment {self.number} is malformed"
        if group and group.count(body) == len(group) - 1:
            return f"group {sequence} of segment {self.number} is all there and fails its checksum"
        return ""


def _split(payload: bytes, record_count: int) -> list[bytes] | None:
    records: list[bytes] = []
    place, end = 0, len(payload)
    while place < end:
        start = place + LENGTH.size
        place = start + int.from_bytes(payload[place:start], "little")
        records.append(payload[start:place])
    return records if place == end and len(records) == record_count else None
