"""Random histories of a journal against a simple model, and bytes from nowhere for all formats."""

import itertools
import random
import struct
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from samcast.limits import SECTOR_BYTES, TWIN_RECORD_BYTES_MAX
from samcast.wire.journal import JournalWriter, Scan, Verdict, Write, scan_journal
from samcast.wire.segment import (
    encode_footer,
    encode_record,
    read_footer,
    read_record,
    scan_segment,
)
from samcast.wire.twin import TwinState, decode_twin, encode_twin

SEGMENT_BYTES = 8 * SECTOR_BYTES
COUNT_SEQUENCE_SYNCED = struct.Struct("<IQQ")  # of a group's header, from byte 48 on


class Group:
    """One group as it was written: the truth that a scan is held to."""

    def __init__(self, write: Write, records: list[bytes]) -> None:
        self.write = write
        self.records = records
        _, self.sequence, self.synced = COUNT_SEQUENCE_SYNCED.unpack_from(write.data, 48)


class Chain:
    def __init__(self, groups: list[Group], closing: int = 0) -> None:
        self.groups = groups
        self.closing = closing  # how many groups it takes to replace what was before

    def records(self) -> list[bytes]:
        return [record for group in self.groups for record in group.records]


class Disk:
    """The files of a journal, what is written and not yet synced, and what must come back."""

    def __init__(self, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.segment_bytes = segment_bytes
        self.files: dict[int, bytearray] = {}
        self.pending: list[Write] = []
        self.writer = JournalWriter(segment_bytes=segment_bytes)
        self.chains = [Chain([])]  # the older ones stand while the last isn't closed
        self.given_up: list[Chain] = []

    def append(self, *records: bytes) -> list[Write]:
        writes = self.writer.append(records)
        self.chains[-1].groups += self._groups(writes, records)
        return writes

    def fresh(self, *records: bytes) -> list[Write]:
        writes = self.writer.start_fresh(records)
        groups = self._groups(writes, records)
        self.chains.append(Chain(groups, len(groups)))
        return writes

    def _groups(self, writes: list[Write], records: Iterable[bytes]) -> list[Group]:
        rest = list(records)
        groups = []
        for write in writes:
            count = COUNT_SEQUENCE_SYNCED.unpack_from(write.data, 48)[0]
            groups.append(Group(write, rest[:count]))
            rest = rest[count:]
        assert not rest
        self.pending += writes
        return groups

    def sync(self, *, sequence: int | None = None, is_noted: bool = True) -> None:
        sequence = self.writer.sequence if sequence is None else sequence
        done = [write for write in self.pending if Group(write, []).sequence <= sequence]
        for write in done:
            self.put(write)
        self.pending = [write for write in self.pending if write not in done]
        if is_noted:
            self.writer.note_synced(sequence)

    def put(self, write: Write, keep: Callable[[], bool] = lambda: True) -> None:
        file = self.files.setdefault(write.segment, bytearray(self.segment_bytes))
        for start in range(0, len(write.data), SECTOR_BYTES):
            if keep():
                place = write.offset + start
                file[place : place + SECTOR_BYTES] = write.data[start : start + SECTOR_BYTES]

    def crash(self, keep: Callable[[], bool] = lambda: False) -> None:
        """Of what isn't synced the disk keeps the sectors that `keep` says, in order."""
        for write in self.pending:
            self.put(write, keep)
        self.pending = []

    def scan(self) -> Scan:
        files = {number: bytes(file) for number, file in self.files.items()}
        return scan_journal(files, segment_bytes=self.segment_bytes)

    def survivors(self) -> tuple[int, int]:
        """The chain that stands and how many of its groups, by looking at the bytes they wrote."""
        for index in reversed(range(len(self.chains))):
            chain = self.chains[index]
            whole = list(itertools.takewhile(self._is_there, chain.groups))
            if len(whole) >= chain.closing:
                return index, len(whole)
        return -1, 0

    def _is_there(self, group: Group) -> bool:
        write = group.write
        file = self.files.get(write.segment, b"")
        return file[write.offset : write.offset + len(write.data)] == write.data

    def expected(self) -> list[bytes]:
        index, count = self.survivors()
        return Chain(self.chains[index].groups[:count]).records() if index >= 0 else []

    def recover(self, *, is_noted: bool = True) -> Scan:
        """Start again, as a node does after a crash."""
        scan = self.scan()
        index, count = self.survivors()
        self.given_up += self.chains[index + 1 :]
        chain = self.chains[index] if index >= 0 else Chain([])
        self.chains = [Chain(chain.groups[:count], chain.closing)]
        self.writer = JournalWriter(segment_bytes=self.segment_bytes, state=scan.state)
        if is_noted:
            self.writer.note_synced(self.writer.sequence)
        return scan

    def copy(self) -> "Disk":
        """The same files and the same truth; nothing is in flight and nobody writes."""
        copy = Disk(self.segment_bytes)
        copy.files = {number: bytearray(file) for number, file in self.files.items()}
        copy.chains, copy.given_up = list(self.chains), list(self.given_up)
        return copy


def assert_cut_cleanly(disk: Disk) -> Scan:
    scan = disk.scan()
    assert scan.verdict is not Verdict.ROT, scan.detail
    assert scan.records == disk.expected()
    return scan


def assert_exact_or_rot(disk: Disk, damaged: Disk) -> Verdict:
    scan = damaged.scan()
    truth = disk.expected()
    if scan.verdict is Verdict.ROT:
        assert scan.records == truth[: len(scan.records)]
    else:
        assert scan.records == truth, scan.detail
    return scan.verdict


# Histories.


class History:
    """Appends, syncs, fresh starts, crashes and rot in an order that a seed decides."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = Disk(SECTOR_BYTES * self.chance.choice([2, 3, 4, 8, 16]))
        self.is_rotten = False  # what stood before the last fresh chain was rotten
        self.is_spoilt = False  # flaws that did no harm lie about

    def step(self) -> None:
        what = self.chance.random()
        if what < 0.45:
            self.disk.append(*self.records())
        elif what < 0.65:
            self.sync()
        elif what < 0.72:
            self.disk.fresh(*self.records(), *self.records())
        elif what < 0.95:
            self.restart()
        else:
            self.restart(flips=self.chance.randint(1, 2))

    def records(self) -> list[bytes]:
        sizes = [0, 1, 10, 100, 400, 900, 1500]
        limit = self.disk.writer.record_bytes_max
        chosen = [min(limit, self.chance.choice(sizes)) for _ in range(self.chance.randint(0, 4))]
        return [self.chance.randbytes(size) for size in chosen]

    def sync(self) -> None:
        writer = self.disk.writer
        some = self.chance.randint(writer.synced, writer.sequence)
        sequence = self.chance.choice([some, writer.sequence])
        self.disk.sync(sequence=sequence, is_noted=self.chance.random() < 0.8)

    def restart(self, flips: int = 0) -> None:
        self.disk.crash(self.keep())
        index, _ = self.disk.survivors()
        expected = self.disk.expected()
        is_base = self.is_rotten and index <= 0  # The fresh chain that was to mend it isn't closed.
        for _ in range(flips if self.disk.files else 0):
            self.flip()
        scan = self.disk.scan()
        self.is_spoilt |= flips > 0
        if scan.verdict is Verdict.ROT:
            assert is_base or self.is_spoilt, scan.detail
            # Two flips may hit both headers of a fresh chain; then only the one before it is known.
            assert self.is_prefix_of_some_chain(scan.records, max(index, 0) if flips < 2 else 0)
            self.mend(scan)
            return
        assert not is_base
        assert scan.records == expected, scan.detail
        if self.is_rotten:
            self.is_rotten = False
            self.is_spoilt = flips > 0
        self.disk.recover(is_noted=self.chance.random() < 0.7)

    def keep(self) -> Callable[[], bool]:
        odds = self.chance.choice([0.0, 0.3, 0.7, 0.95, 1.0])
        return lambda: self.chance.random() < odds

    def flip(self) -> None:
        groups = self.disk.chains[-1].groups
        if groups and self.chance.random() < 0.7:
            write = self.chance.choice(groups).write
            file = self.disk.files.get(write.segment)
            place = write.offset + self.chance.randrange(len(write.data))
        else:
            file = self.disk.files[self.chance.choice(sorted(self.disk.files))]
            place = self.chance.randrange(self.disk.segment_bytes)
        if file:
            file[place] ^= 1 << self.chance.randrange(8)

    def is_prefix_of_some_chain(self, records: list[bytes], oldest: int) -> bool:
        chains = [*self.disk.chains[oldest:], *self.disk.given_up]
        return any(records == chain.records()[: len(records)] for chain in chains)

    def mend(self, scan: Scan) -> None:
        """What a server does when its peers have given it back what it lost."""
        disk = self.disk
        disk.given_up += disk.chains
        disk.chains = [Chain(disk.chains[0].groups)]
        disk.writer = JournalWriter(segment_bytes=disk.segment_bytes, state=scan.state)
        with pytest.raises(ValueError, match="rotten"):
            disk.writer.append([])
        disk.fresh(*self.records())
        self.is_rotten = True


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_a_random_history_never_loses_a_synced_record(start: int) -> None:
    for seed in range(start, start + 50):
        history = History(seed)
        for _ in range(60):
            history.step()


def grown(seed: int) -> History:
    """A history without rot, and all of it on disk."""
    history = History(seed)
    while history.disk.writer.sequence < 12:
        what = history.chance.random()
        if what < 0.5:
            history.disk.append(*history.records())
        elif what < 0.6:
            history.disk.fresh(*history.records())
        elif what < 0.9:
            history.sync()
        else:
            history.restart()
    history.restart()
    return history


@pytest.mark.parametrize("start", range(0, 100, 25))
def test_any_single_flip_after_a_random_history_is_rot_or_does_no_harm(start: int) -> None:
    for seed in range(start, start + 25):
        history = grown(seed)
        truth = history.disk.copy()
        for _ in range(80):
            history.disk = truth.copy()
            history.flip()
            scan = history.disk.scan()
            if scan.verdict is Verdict.ROT:
                assert history.is_prefix_of_some_chain(scan.records, 0)
            else:
                assert scan.records == truth.expected()


@pytest.mark.parametrize("start", range(0, 100, 25))
def test_any_sector_forgotten_after_a_group_that_knew_it_synced_is_rot(start: int) -> None:
    for seed in range(start, start + 25):
        disk = grown(seed).disk
        (chain,) = disk.chains
        synced = max([group.synced for group in chain.groups], default=0)
        if synced < max([group.sequence for group in chain.groups[: chain.closing]], default=0):
            continue
        for group in chain.groups:
            for start in range(0, len(group.write.data), SECTOR_BYTES):
                damaged = disk.copy()
                place = group.write.offset + start
                damaged.put(Write(group.write.segment, place, bytes(SECTOR_BYTES)))
                assert group.sequence > synced or damaged.scan().verdict is Verdict.ROT


# Bytes from nowhere.

SOME_JOURNAL = Disk()
for text in (b"a", b"b" * 600, b"c" * 2500, b"d"):
    SOME_JOURNAL.append(text)
    SOME_JOURNAL.sync()
SOME_JOURNAL.fresh(b"e" * 700, b"f")
SOME_JOURNAL.append(b"g")
SOME_JOURNAL.sync()

EDITS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, SEGMENT_BYTES - 1), st.binary(min_size=1)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.integers(1, 2**30), st.binary(max_size=3000), max_size=4))
@example({1: b"SCJ1" * 128, 2: bytes(512) + b"\1"})
def test_no_bytes_crash_a_scan_or_pass_for_records(files: dict[int, bytes]) -> None:
    scan = scan_journal(files, segment_bytes=5 * SECTOR_BYTES)
    assert scan.records == []
    writer = JournalWriter(segment_bytes=5 * SECTOR_BYTES, state=scan.state)
    (first, *_) = writer.start_fresh([b"on"])
    assert first.offset == 0


@settings(max_examples=300, deadline=None)
@given(EDITS)
def test_an_edited_journal_gives_a_prefix_or_says_rot(edits: list[tuple[int, int, bytes]]) -> None:
    """Edits of more than a sector may look like sectors that the disk forgot, but never misread."""
    disk = SOME_JOURNAL.copy()
    for number, place, data in edits:
        file = disk.files.setdefault(number, bytearray(SEGMENT_BYTES))
        file[place : place + len(data)] = data[: SEGMENT_BYTES - place]
    scan = disk.scan()
    chains = [chain.records() for chain in SOME_JOURNAL.chains]
    assert any(scan.records == records[: len(scan.records)] for records in chains)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2000), st.integers(1, 2**32 - 1))
def test_no_bytes_crash_the_reading_of_segments(data: bytes, generation: int) -> None:
    scan = scan_segment(data, generation)
    assert (scan.found, scan.end) == ([], 0)
    assert all(0 <= start < end <= len(data) for start, end in scan.damaged)
    assert read_record(data, generation=generation, offset=0) is None
    assert read_footer(data, generation=generation) is None


BODIES = st.lists(st.binary(max_size=300), min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(BODIES, st.data())
def test_damage_to_a_segment_costs_just_the_records_it_hits(
    bodies: list[bytes], data: st.DataObject
) -> None:
    whole = b""
    spans = []
    for kind, body in enumerate(bodies):
        body = body + whole if len(whole) < 4000 else body  # A segment within a body, ever deeper.
        record = encode_record(kind, body, generation=3, offset=len(whole))
        spans.append((len(whole), len(whole) + len(record), kind, body))
        whole += record
    whole += encode_footer([b"entry"], generation=3, offset=len(whole))
    start = data.draw(st.integers(0, len(whole) - 1))
    damage = data.draw(st.binary(min_size=1, max_size=200))
    rotten = (whole[:start] + damage + whole[start + len(damage) :])[: len(whole)]
    scan = scan_segment(rotten, 3)
    found = {
        (f.offset, f.kind, rotten[f.body_offset : f.body_offset + f.length]) for f in scan.found
    }
    assert found <= {(begin, kind, body) for begin, _, kind, body in spans}
    end = start + len(damage)
    untouched = {(b, k, body) for b, after, k, body in spans if after <= start or b >= end}
    assert untouched <= found


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=1100))
def test_no_bytes_pass_for_a_twin(data: bytes) -> None:
    scan = decode_twin(data)
    assert scan.state is (TwinState.LOST if any(data) else TwinState.EMPTY)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 2**62),
    st.binary(max_size=TWIN_RECORD_BYTES_MAX),
    st.binary(max_size=TWIN_RECORD_BYTES_MAX),
    st.integers(0, 2 * SECTOR_BYTES - 1),
    st.binary(min_size=1, max_size=SECTOR_BYTES),
)
def test_a_damaged_twin_gives_one_of_its_records_or_is_lost(
    sequence: int, old: bytes, new: bytes, place: int, damage: bytes
) -> None:
    data = encode_twin(sequence, old)[:SECTOR_BYTES] + encode_twin(sequence + 1, new)[SECTOR_BYTES:]
    assert decode_twin(data).record == new
    rotten = data[:place] + damage + data[place + len(damage) :]
    scan = decode_twin(rotten[: 2 * SECTOR_BYTES])
    if scan.state is TwinState.FOUND:
        assert (scan.sequence, scan.record) in [(sequence, old), (sequence + 1, new)]
    else:
        assert scan.state is TwinState.LOST
        assert place < SECTOR_BYTES < place + len(damage)
