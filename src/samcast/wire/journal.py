"""The order journal as bytes: what to write where, and after a start what of it was ever promised.

A crash may cost only votes that were never given: a torn tail is cut, rot never is (SAFETY 2.6,
CE-18, CE-25). Segment files have one fixed size and are created durably (zeroed, directory synced)
before the first write to them.

Sector: written whole or not at all. A tag, then 504 bytes of a group. The tag is a generation and a
checksum of it and the segment id, with a mark of its own where a group begins, so that no payload
can pose as a header. All zero: never written. Each life of a segment has a new generation, and
within a life each sector is written once.
Group: one append. Two checksums, seeded with generation, segment and sector: one of the header, so
that a length is never believed by chance, and one of all its sectors, tags and padding included.
Chain: the lives of one journal. `start_fresh` begins another; each of its groups names its closing
group, and it replaces the chains before it when all up to that one are there.

Scan: take the chain of the newest life and walk it to the first group that isn't there.
- A header of its chain says that it was synced: ROT.
- Sectors are missing (never written, or of an earlier life), the rest is well formed: TORN. Sync is
  cumulative, so nothing behind it was synced either; complete or not, that is cut as well.
- Any other flaw, in it, as far as writes in flight have visibly come, in the few sectors behind the
  tail (JOURNAL_TAIL_DOUBT_SECTORS), or likewise where the segment begins that comes next: ROT.
- Flaws further out do no harm: the sound old sector before them shows that nothing was synced.
Nobody can know of a synced group whose sector the disk forgot, with no later group to tell: it
looks torn. An empty `append` after a sync closes this gap for the groups before it.

After TORN the writer goes on in another life, which takes over at the first sequence cut, so that
remains are never looked at again. After ROT it may only start afresh, in segments not yet used.
"""

import copy
import enum
import struct
from collections.abc import Mapping, Sequence

import msgspec
from crc32c import crc32c

from samcast.limits import (
    JOURNAL_GROUP_BYTES_MAX,
    JOURNAL_SEGMENT_BYTES_MAX,
    JOURNAL_TAIL_DOUBT_SECTORS,
    SECTOR_BYTES,
)

_MAGIC = 0x314A4353  # "SCJ1"
_TAG = struct.Struct("<II")  # generation, check
_TAG_NATIVE = struct.Struct("=Q")  # the same as one number, to read all tags of a segment in one go
_CHECKS = struct.Struct("<II")  # of the group, of the header
_FIELDS = struct.Struct("<9I4Q")
_PLACE = struct.Struct("<III")  # generation, segment, sector
_LENGTH = struct.Struct("<I")

_BODY_BYTES = SECTOR_BYTES - _TAG.size
_CHECKED_FROM = _TAG.size + _CHECKS.size
_PAYLOAD_FROM = _CHECKED_FROM + _FIELDS.size
_FIRST_BYTES = SECTOR_BYTES - _PAYLOAD_FROM  # of the payload, in the first sector
_OVERHEAD_BYTES = _BODY_BYTES - _FIRST_BYTES  # of a group, beside its tags
_HEAD_MARK = 0x5A3C96E1  # 16 bits, so that few flips can't make a head of a body
_ID_MAX, _SEQUENCE_MAX = 2**31 - 1, 2**63 - 1  # of generations and segments; of groups
_UNWRITTEN, _SPOILT = 0, -1  # codes of sectors; all others are generation * 2 + is_head
_NO_GENERATION = -2  # unlike that of any code


class Verdict(enum.Enum):
    CLEAN = "clean"  # nothing was in flight
    TORN = "torn"  # what was in flight is cut; it was never acknowledged
    ROT = "rot"  # behind the records something acknowledged may be missing: unknown from there


class Write(msgspec.Struct, frozen=True, gc=False):
    """Bytes for a segment file; an id that no file has yet asks for a new, zeroed one."""

    segment: int
    offset: int
    data: bytes


class GroupHeader(msgspec.Struct):
    magic: int = _MAGIC
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


class JournalState(msgspec.Struct):
    """Where a writer goes on after a scan."""

    header: GroupHeader  # of the last group that stands, with `synced` as far as headers tell
    generation: int = 0  # of its life
    generation_max: int = 0
    segment: int = 0
    sector: int = -1  # where the next group goes; -1: to another segment
    segment_max: int = 0
    live: list[int] = []
    retired: list[int] = []  # of chains before this one, needed until this one is synced
    free: list[int] = []  # the first is named by the last group as the one that comes next
    spoilt: list[int] = []  # hold malformed sectors: never recycled
    is_rotten: bool = False


class Scan(msgspec.Struct, frozen=True):
    records: list[bytes]
    verdict: Verdict
    detail: str
    state: JournalState


def _tags(generation: int, segment: int) -> tuple[bytes, bytes]:
    """The tag of a sector that begins a group, and of the others."""
    check = crc32c(_TAG.pack(generation, segment))
    return _TAG.pack(generation, check ^ _HEAD_MARK), _TAG.pack(generation, check)


def _sectors_of(payload_bytes: int) -> int:
    return -(-(_OVERHEAD_BYTES + payload_bytes) // _BODY_BYTES)


def _sectors_in(segment_bytes: int) -> int:
    if segment_bytes % SECTOR_BYTES or not 0 < segment_bytes <= JOURNAL_SEGMENT_BYTES_MAX:
        raise ValueError(f"a journal segment of {segment_bytes} bytes is no multiple of a sector")
    return segment_bytes // SECTOR_BYTES


class JournalWriter:
    """Turns records into writes, and never overwrites what a scan might still need.

    The caller carries out the writes in order, and syncs all files written to before `note_synced`.
    After a scan it syncs all files and notes that, before it acts on the records.
    """

    def __init__(self, *, segment_bytes: int, state: JournalState | None = None) -> None:
        self._sectors = _sectors_in(segment_bytes)
        room = min(JOURNAL_GROUP_BYTES_MAX, self._sectors * _BODY_BYTES) - _OVERHEAD_BYTES
        self._payload_bytes_max, self.record_bytes_max = room, room - _LENGTH.size
        self._state = copy.deepcopy(state) if state else JournalState(GroupHeader())
        self._header = self._state.header
        self._base = self._state.generation_max
        self._tags = _tags(self._state.generation, self._state.segment)
        self.note_synced(self.synced)
        self._reserve()

    @property
    def sequence(self) -> int:
        """The last group written."""
        return self._header.sequence

    @property
    def synced(self) -> int:
        return self._header.synced

    @property
    def segments_live(self) -> tuple[int, ...]:
        """What a scan needs. A file that is neither live nor free is unfit, and may be deleted."""
        return (*self._state.retired, *self._state.live)

    @property
    def segments_free(self) -> tuple[int, ...]:
        """What will be written to, in this order; the first may be an id that no file has yet."""
        return tuple(self._state.free)

    def append(self, records: Sequence[bytes]) -> list[Write]:
        """One group, there whole or not at all after a crash; several if no segment holds them.

        Without records it is a mark: it tells a later scan how far the journal was synced.
        """
        if self._state.is_rotten:
            raise ValueError("this journal is rotten: only start_fresh may write to it")
        return [self._write(payload, count) for payload, count in self._groups(records)]

    def start_fresh(self, records: Sequence[bytes]) -> list[Write]:
        """A chain that holds just these records, and replaces all before it once it is whole."""
        groups = [*self._groups(records), (b"", 0)]
        state, header = self._state, self._header
        is_durable = header.synced >= max(header.closing, header.chain_first)
        if is_durable or header.chain <= self._base:
            header.chain_durable = header.chain
        header.generation_base = self._base
        header.closing = header.sequence + len(groups)
        state.is_rotten = False
        state.generation, state.sector = 0, -1  # The next life is the first of its chain.
        state.retired, state.live = state.retired + state.live, []
        return [self._write(payload, count) for payload, count in groups]

    def note_synced(self, sequence: int) -> None:
        """All groups up to this one are durable."""
        state, header = self._state, self._header
        if sequence > header.sequence:
            raise ValueError(f"group {sequence} is none: the last one is {header.sequence}")
        if state.is_rotten:
            return  # What is durable is unknown; all segments stay until a fresh chain is whole.
        header.synced = max(header.synced, sequence)
        if state.retired and header.synced >= header.closing:
            state.free += [segment for segment in state.retired if segment not in state.spoilt]
            state.retired = []

    def _groups(self, records: Sequence[bytes]) -> list[tuple[bytes, int]]:
        """The payloads of as few groups as hold the records in order, and their record counts."""
        groups: list[tuple[bytes, int]] = []
        parts: list[bytes] = []
        room = self._payload_bytes_max
        for record in records:
            if (size := len(record)) > self.record_bytes_max:
                raise ValueError(f"a record of {size} bytes; {self.record_bytes_max} fit a group")
            room -= size + _LENGTH.size
            if room < 0:
                groups.append((b"".join(parts), len(parts) // 2))
                parts, room = [], self._payload_bytes_max - size - _LENGTH.size
            parts += (_LENGTH.pack(size), record)
        groups.append((b"".join(parts), len(parts) // 2))
        return groups

    def _write(self, payload: bytes, record_count: int) -> Write:
        state, header = self._state, self._header
        count = _sectors_of(len(payload))
        if state.sector < 0 or state.sector + count > self._sectors:
            self._move()
        sector = state.sector
        state.sector += count
        header.sequence += 1
        header.payload_bytes, header.record_count = len(payload), record_count
        fields = _FIELDS.pack(*msgspec.structs.astuple(header))
        check_head = crc32c(fields, crc32c(_PLACE.pack(state.generation, state.segment, sector)))
        tag_head, tag_body = self._tags
        parts = [fields, payload[:_FIRST_BYTES]]
        for start in range(_FIRST_BYTES, len(payload), _BODY_BYTES):
            parts += (tag_body, payload[start : start + _BODY_BYTES])
        rest = b"".join(parts).ljust(count * SECTOR_BYTES - _CHECKED_FROM, b"\0")
        checks = _CHECKS.pack(crc32c(rest, check_head), check_head)
        return Write(state.segment, sector * SECTOR_BYTES, tag_head + checks + rest)

    def _move(self) -> None:
        """Begin the next life, in the segment that the last group named."""
        state, header = self._state, self._header
        assert state.generation_max < _ID_MAX
        state.segment, state.sector = state.free.pop(0), 0
        state.generation_max += 1
        header.generation_previous, state.generation = state.generation, state.generation_max
        if not header.generation_previous:
            header.chain = state.generation
            header.chain_first = header.sequence + 1
            header.chain_segment = state.segment
        state.live.append(state.segment)
        self._tags = _tags(state.generation, state.segment)
        self._reserve()

    def _reserve(self) -> None:
        if not self._state.free:
            self._state.segment_max += 1
            self._state.free.append(self._state.segment_max)
        self._header.segment_next = self._state.free[0]


class _Segment:
    """A segment file as it was read: the life that its newest tags tell of, and older remains."""

    def __init__(self, number: int, raw: bytes, sectors: int) -> None:
        size = sectors * SECTOR_BYTES
        self.number = number
        self.data = raw[:size].ljust(size, b"\0")
        self.codes = self._codes()
        whole = len(raw) // SECTOR_BYTES
        if whole < sectors and any(self.codes):  # A file that was used has lost its end.
            self.codes[whole:] = [_SPOILT] * (sectors - whole)
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
        known = {0: _UNWRITTEN}
        for sector, tag in enumerate(tags[:written]):
            if tag not in known:
                known[tag] = self._code(_TAG_NATIVE.pack(tag))
            start = sector * SECTOR_BYTES
            is_odd = not tag and any(self.data[start : start + SECTOR_BYTES])
            tags[sector] = _SPOILT if is_odd else known[tag]
        return tags

    def _code(self, tag: bytes) -> int:
        generation: int = _TAG.unpack(tag)[0]
        head, body = _tags(generation, self.number)
        is_tag = 0 < generation <= _ID_MAX and tag in (head, body)
        return generation * 2 + (tag == head) if is_tag else _SPOILT

    def _header(self, sector: int, generation: int) -> GroupHeader | None:
        """What was written just here to begin a group."""
        start = sector * SECTOR_BYTES
        fields = self.data[start + _CHECKED_FROM : start + _PAYLOAD_FROM]
        _, check = _CHECKS.unpack_from(self.data, start + _TAG.size)
        if check != crc32c(fields, crc32c(_PLACE.pack(generation, self.number, sector))):
            return None
        header = GroupHeader(*_FIELDS.unpack(fields))
        is_ours = header.magic == _MAGIC and header.synced < header.sequence < _SEQUENCE_MAX
        is_ours &= header.generation_previous < generation >= header.chain
        is_ours &= sector + _sectors_of(header.payload_bytes) <= len(self.codes)
        return header if is_ours else None

    def own(self, sector: int) -> GroupHeader | None:
        """The header here, if it is of the newest life."""
        header = self.headers.get(sector)
        return header if header and self.codes[sector] >> 1 == self.generation else None

    def records(self, sector: int, header: GroupHeader) -> list[bytes] | None:
        """The records of the group that begins here; None if it isn't whole."""
        count = _sectors_of(header.payload_bytes)
        start, end = sector * SECTOR_BYTES, (sector + count) * SECTOR_BYTES
        check, check_head = _CHECKS.unpack_from(self.data, start + _TAG.size)
        if check != crc32c(self.data[start + _CHECKED_FROM : end], check_head):
            return None
        bodies = range(start + SECTOR_BYTES + _TAG.size, end, SECTOR_BYTES)
        parts = [self.data[start + _PAYLOAD_FROM : start + SECTOR_BYTES]]
        parts += [self.data[body : body + _BODY_BYTES] for body in bodies]
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
        group = codes[sector : sector + _sectors_of(header.payload_bytes)] if header else []
        for place, code in enumerate(codes[sector : max(reach, sector + len(group))], sector):
            is_head = code == body + 1 or (code == body and place == sector)
            if code == _SPOILT or (is_head and place not in self.headers):
                return f"sector {place} of segment {self.number} is malformed"
        if group and group.count(body) == len(group) - 1:
            return f"group {sequence} of segment {self.number} is all there and fails its checksum"
        return ""


def _split(payload: bytes, record_count: int) -> list[bytes] | None:
    records: list[bytes] = []
    place, end = 0, len(payload)
    while place < end:
        start = place + _LENGTH.size
        place = start + int.from_bytes(payload[place:start], "little")
        records.append(payload[start:place])
    return records if place == end and len(records) == record_count else None


class _Walk(msgspec.Struct):
    """One chain, from its first group to the first that isn't there."""

    chain: GroupHeader  # any header of it
    expected: int  # sequence of the first group that isn't there
    records: list[bytes] = []
    segment: _Segment | None = None  # where that group would begin
    sector: int = 0
    successor: _Segment | None = None
    last: GroupHeader | None = None  # of the last group that stands
    live: list[_Segment] = []  # have groups that stand


class _Reader:
    def __init__(self, segments: Mapping[int, bytes], sectors: int) -> None:
        self._all = [_Segment(n, bytes(segments[n]), sectors) for n in sorted(segments)]
        self._headers = [header for segment in self._all for header in segment.headers.values()]
        alive = [segment for segment in self._all if segment.generation]
        self._lives = {s.generation: s for s in sorted(alive, key=lambda s: s.generation)}
        self._generation_max = max(self._lives, default=0)
        self._successors: dict[tuple[int, int], _Segment] = {}  # of a chain and a life: the newest
        self._chains: dict[int, GroupHeader] = {}  # any header; that of the newest life comes last
        for segment in self._lives.values():
            life = next((own for sector in segment.headers if (own := segment.own(sector))), None)
            if life:
                self._successors[life.chain, life.generation_previous] = segment
                self._chains.pop(life.chain, None)
                self._chains[life.chain] = life

    def scan(self) -> Scan:
        chain = next(reversed(self._chains.values()), GroupHeader())
        cut = ""
        while True:
            walk = self._walk(chain)
            flaw = self._flaw(walk)
            if flaw or walk.expected > chain.closing:
                break
            cut = f"fresh chain {chain.chain} is not closed"
            before = self._before(chain)
            if not before:
                flaw = f"{cut}, and the one before it is gone"
                break
            chain = before
        if not cut and self._is_torn(walk):
            cut = f"group {walk.expected} is torn"
        verdict = Verdict.ROT if flaw else Verdict.TORN if cut else Verdict.CLEAN
        return Scan(walk.records, verdict, flaw or cut, self._state(walk, verdict))

    def _before(self, chain: GroupHeader) -> GroupHeader | None:
        """The chain that stands while this one isn't closed; None if that one is gone."""
        durable = chain.chain_durable
        floor = max(durable, chain.generation_base)
        names = [n for n in self._chains if (n == durable or n > floor) and n < chain.chain]
        return self._chains[max(names)] if names else None if durable else GroupHeader()

    def _walk(self, chain: GroupHeader) -> _Walk:
        walk = _Walk(chain, max(1, chain.chain_first), segment=self._lives.get(chain.chain))
        while walk.segment:
            walk.successor = self._successors.get((chain.chain, walk.segment.generation))
            first = walk.successor.own(0) if walk.successor else None
            takes_over = first.sequence if first else 0
            self._walk_life(walk, walk.segment, takes_over)
            if walk.expected != takes_over:
                break
            walk.segment, walk.sector = walk.successor, 0
        return walk

    def _walk_life(self, walk: _Walk, segment: _Segment, takes_over: int) -> None:
        while walk.expected != takes_over:
            header = segment.own(walk.sector)
            if not header or (header.chain, header.sequence) != (walk.chain.chain, walk.expected):
                return
            records = segment.records(walk.sector, header)
            if records is None:
                return
            if not walk.sector:
                walk.live.append(segment)
            walk.records += records
            walk.last = header
            walk.expected += 1
            walk.sector += _sectors_of(header.payload_bytes)

    def _synced(self, chain: int) -> int:
        """The last group of a chain that any of its headers says was synced."""
        return max((h.synced for h in self._headers if h.chain == chain), default=0)

    def _flaw(self, walk: _Walk) -> str:
        if self._synced(walk.chain.chain) >= max(walk.expected, walk.chain.closing):
            return f"group {walk.expected} was synced and can't be read"
        generation = walk.segment.generation if walk.segment else max(0, walk.chain.chain - 1)
        flaw = walk.segment.flaw(walk.sector, generation, walk.expected) if walk.segment else ""
        # Where else it may begin: in the segment named for it, or in any if there never was one.
        named = walk.chain.chain_segment if walk.chain.chain_durable else 0
        named = walk.last.segment_next if walk.last else named
        for segment in self._all:
            is_behind = segment.number == named or segment is walk.successor or not named
            if not flaw and is_behind and segment is not walk.segment:
                is_newer = segment.generation > generation
                flaw = segment.flaw(0, segment.generation if is_newer else _NO_GENERATION)
        return flaw

    def _is_torn(self, walk: _Walk) -> bool:
        if not walk.segment or self._generation_max > walk.segment.generation:
            return self._generation_max > 0
        return walk.segment.reach(walk.sector, walk.segment.generation) > walk.sector

    def _state(self, walk: _Walk, verdict: Verdict) -> JournalState:
        state = JournalState(GroupHeader(), generation_max=self._generation_max)
        numbers = [segment.number for segment in self._all]
        state.segment_max = max(numbers, default=0)
        state.spoilt = [segment.number for segment in self._all if _SPOILT in segment.codes]
        state.retired = numbers
        if verdict is Verdict.ROT:
            state.header.chain = walk.chain.chain
            state.header.sequence = max((h.sequence for h in self._headers), default=0)
            state.is_rotten = True
        elif walk.last:
            segment = walk.live[-1]
            state.header = copy.copy(walk.last)
            state.header.synced = min(self._synced(walk.chain.chain), walk.last.sequence)
            state.generation, state.segment = segment.generation, segment.number
            if verdict is Verdict.CLEAN and _SPOILT not in segment.codes[walk.sector :]:
                state.sector = walk.sector
            state.live = [segment.number for segment in walk.live]
            state.free = [walk.last.segment_next]
            state.segment_max = max(state.segment_max, walk.last.segment_next)
            state.retired = [n for n in numbers if n not in state.live + state.free]
        return state


def scan_journal(segments: Mapping[int, bytes], *, segment_bytes: int) -> Scan:
    """What a journal holds, given all its files by segment id."""
    if not all(0 < number <= _ID_MAX for number in segments):
        raise ValueError(f"segment ids are from 1 to {_ID_MAX}: {sorted(segments)}")
    return _Reader(segments, _sectors_in(segment_bytes)).scan()
