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
- Where segments are laid out, each is there before any group names it: one that is named and not
  there, or none at all, is ROT too.
Nobody can know of a synced group whose sector the disk forgot, with no later group to tell: it
looks torn. An empty `append` after a sync closes this gap for the groups before it.

After TORN the writer goes on in another life, which takes over at the first sequence cut, so that
remains are never looked at again. After ROT it may only start afresh, in segments not yet used.
"""

import copy
import enum
from collections.abc import Mapping, Sequence

import msgspec
from crc32c import crc32c

from samcast.limits import JOURNAL_GROUP_BYTES_MAX, SECTOR_BYTES
from samcast.wire.journal_segment import (
    BODY_BYTES,
    CHECKED_FROM,
    CHECKS,
    FIELDS,
    FIRST_BYTES,
    ID_MAX,
    LENGTH,
    NO_GENERATION,
    OVERHEAD_BYTES,
    PLACE,
    SPOILT,
    GroupHeader,
    Segment,
    sectors_in,
    sectors_of,
    tags,
)

FIRST_SEGMENT = 1  # where segments are laid out


class Verdict(enum.Enum):
    CLEAN = "clean"  # nothing was in flight
    TORN = "torn"  # what was in flight is cut; it was never acknowledged
    ROT = "rot"  # behind the records something acknowledged may be missing: unknown from there


class Write(msgspec.Struct, frozen=True, gc=False):
    """Bytes for a segment file; an id that no file has yet asks for a new, zeroed one."""

    segment: int
    offset: int
    data: bytes


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


class JournalWriter:
    """Turns records into writes, and never overwrites what a scan might still need.

    The caller carries out the writes in order, and syncs all files written to before `note_synced`.
    After a scan it syncs all files and notes that, before it acts on the records.
    """

    def __init__(self, *, segment_bytes: int, state: JournalState | None = None) -> None:
        self._sectors = sectors_in(segment_bytes)
        room = min(JOURNAL_GROUP_BYTES_MAX, self._sectors * BODY_BYTES) - OVERHEAD_BYTES
        self._payload_bytes_max, self.record_bytes_max = room, room - LENGTH.size
        self._state = copy.deepcopy(state) if state else JournalState(GroupHeader())
        self._header = self._state.header
        self._base = self._state.generation_max
        self._tags = tags(self._state.generation, self._state.segment)
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

    @property
    def segment_ahead(self) -> int:
        """What will be named as the next one once the one that is named now is written to."""
        free = self._state.free
        return free[1] if len(free) > 1 else self._state.segment_max + 1

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
            room -= size + LENGTH.size
            if room < 0:
                groups.append((b"".join(parts), len(parts) // 2))
                parts, room = [], self._payload_bytes_max - size - LENGTH.size
            parts += (LENGTH.pack(size), record)
        groups.append((b"".join(parts), len(parts) // 2))
        return groups

    def _write(self, payload: bytes, record_count: int) -> Write:
        state, header = self._state, self._header
        count = sectors_of(len(payload))
        if state.sector < 0 or state.sector + count > self._sectors:
            self._move()
        sector = state.sector
        state.sector += count
        header.sequence += 1
        header.payload_bytes, header.record_count = len(payload), record_count
        fields = FIELDS.pack(*msgspec.structs.astuple(header))
        check_head = crc32c(fields, crc32c(PLACE.pack(state.generation, state.segment, sector)))
        tag_head, tag_body = self._tags
        parts = [fields, payload[:FIRST_BYTES]]
        for start in range(FIRST_BYTES, len(payload), BODY_BYTES):
            parts += (tag_body, payload[start : start + BODY_BYTES])
        rest = b"".join(parts).ljust(count * SECTOR_BYTES - CHECKED_FROM, b"\0")
        checks = CHECKS.pack(crc32c(rest, check_head), check_head)
        return Write(state.segment, sector * SECTOR_BYTES, tag_head + checks + rest)

    def _move(self) -> None:
        """Begin the next life, in the segment that the last group named."""
        state, header = self._state, self._header
        assert state.generation_max < ID_MAX
        state.segment, state.sector = state.free.pop(0), 0
        state.generation_max += 1
        header.generation_previous, state.generation = state.generation, state.generation_max
        if not header.generation_previous:
            header.chain = state.generation
            header.chain_first = header.sequence + 1
            header.chain_segment = state.segment
        state.live.append(state.segment)
        self._tags = tags(state.generation, state.segment)
        self._reserve()

    def _reserve(self) -> None:
        if not self._state.free:
            self._state.segment_max += 1
            self._state.free.append(self._state.segment_max)
        self._header.segment_next = self._state.free[0]


class _Walk(msgspec.Struct):
    """One chain, from its first group to the first that isn't there."""

    chain: GroupHeader  # any header of it
    expected: int  # sequence of the first group that isn't there
    records: list[bytes] = []
    segment: Segment | None = None  # where that group would begin
    sector: int = 0
    successor: Segment | None = None
    last: GroupHeader | None = None  # of the last group that stands
    live: list[Segment] = []  # have groups that stand


class _Reader:
    def __init__(self, segments: Mapping[int, bytes], sectors: int, is_laid_out: bool) -> None:
        self._is_laid_out = is_laid_out
        self._all = [Segment(n, bytes(segments[n]), sectors) for n in sorted(segments)]
        self._headers = [header for segment in self._all for header in segment.headers.values()]
        alive = [segment for segment in self._all if segment.generation]
        self._lives = {s.generation: s for s in sorted(alive, key=lambda s: s.generation)}
        self._generation_max = max(self._lives, default=0)
        self._successors: dict[tuple[int, int], Segment] = {}  # of a chain and a life: the newest
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

    def _walk_life(self, walk: _Walk, segment: Segment, takes_over: int) -> None:
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
            walk.sector += sectors_of(header.payload_bytes)

    def _synced(self, chain: int) -> int:
        """The last group of a chain that any of its headers says was synced."""
        return max((h.synced for h in self._headers if h.chain == chain), default=0)

    def _flaw(self, walk: _Walk) -> str:
        if self._synced(walk.chain.chain) >= max(walk.expected, walk.chain.closing):
            return f"group {walk.expected} was synced and can't be read"
        if self._is_laid_out and not self._has_next(walk):
            return "a segment that was there is missing"
        generation = walk.segment.generation if walk.segment else max(0, walk.chain.chain - 1)
        flaw = walk.segment.flaw(walk.sector, generation, walk.expected) if walk.segment else ""
        # Where else it may begin: in the segment named for it, or in any if there never was one.
        named = walk.chain.chain_segment if walk.chain.chain_durable else 0
        named = walk.last.segment_next if walk.last else named
        for segment in self._all:
            is_behind = segment.number == named or segment is walk.successor or not named
            if not flaw and is_behind and segment is not walk.segment:
                is_newer = segment.generation > generation
                flaw = segment.flaw(0, segment.generation if is_newer else NO_GENERATION)
        return flaw

    def _has_next(self, walk: _Walk) -> bool:
        """Whether the segment is there in which the chain goes on, or the very first one begins."""
        named = walk.last.segment_next if walk.last else FIRST_SEGMENT
        return any(segment.number == named for segment in self._all)

    def _is_torn(self, walk: _Walk) -> bool:
        if not walk.segment or self._generation_max > walk.segment.generation:
            return self._generation_max > 0
        return walk.segment.reach(walk.sector, walk.segment.generation) > walk.sector

    def _state(self, walk: _Walk, verdict: Verdict) -> JournalState:
        state = JournalState(GroupHeader(), generation_max=self._generation_max)
        numbers = [segment.number for segment in self._all]
        state.segment_max = max(numbers, default=0)
        state.spoilt = [segment.number for segment in self._all if SPOILT in segment.codes]
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
            if verdict is Verdict.CLEAN and SPOILT not in segment.codes[walk.sector :]:
                state.sector = walk.sector
            state.live = [segment.number for segment in walk.live]
            state.free = [walk.last.segment_next]
            state.segment_max = max(state.segment_max, walk.last.segment_next)
            state.retired = [n for n in numbers if n not in state.live + state.free]
        return state


def scan_journal(
    segments: Mapping[int, bytes], *, segment_bytes: int, is_laid_out: bool = False
) -> Scan:
    """What a journal holds, given all its files by segment id."""
    if not all(0 < number <= ID_MAX for number in segments):
        raise ValueError(f"segment ids are from 1 to {ID_MAX}: {sorted(segments)}")
    return _Reader(segments, sectors_in(segment_bytes), is_laid_out).scan()
