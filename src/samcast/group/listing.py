"""What a data segment holds: rows while it is written or scanned, columns in its footer.

A start meets millions of runs, and columns are what it takes over without a look at each: one entry
per sender and segment. Stages are few, and stay rows.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from samcast.group.storage import BatchKey, SenderKey
from samcast.wire.records import MARK_BYTES, MarkRecord

DIGEST_BYTES = 16


class FoundBatch(msgspec.Struct, frozen=True, gc=False):
    """A payload that was found intact, apart from its content."""

    key: BatchKey
    count: int
    birth: int
    digest: bytes
    sent_ms: int = 0  # 0: not known


class Listed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A payload in a data segment."""

    key: BatchKey
    count: int
    birth: int
    digest: bytes
    offset: int
    length: int  # of the whole record
    sent_ms: int = 0  # 0: not known, as in segments of earlier versions

    def found(self) -> FoundBatch:
        """Apart from its place."""
        return FoundBatch(self.key, self.count, self.birth, self.digest, self.sent_ms)


class Listing(msgspec.Struct):
    """A segment's payloads, and the numbers that marks in it tell, in the order of their coming."""

    batches: list[Listed] = []
    marks: list[tuple[BatchKey, int]] = []
    marked: dict[BatchKey, bytes] = {}  # how the digest of what has that number begins, if told

    def add_marks(self, record: MarkRecord) -> None:
        """Numbers of payloads, with the content that has them: two may come under one id."""
        marks = [(mark[:5], mark[5]) for mark in record.marks]
        self.marks += marks
        if len(record.digests) == MARK_BYTES * len(marks):
            for at, (key, _) in enumerate(marks):
                self.marked[key] = record.digests[MARK_BYTES * at : MARK_BYTES * (at + 1)]


class StoredRuns(msgspec.Struct, array_like=True, gc=False):
    """Runs of one incarnation of a sender, by rising counter; each field but the first is a column
    of little-endian integers."""

    sender: SenderKey
    counters: bytes  # u64
    counts: bytes  # u32
    births: bytes  # u64
    digests: bytes
    numbers: bytes  # u64: of the first message; 0: this segment doesn't tell
    offsets: bytes  # u64
    lengths: bytes  # u32
    sents: bytes = b""  # u64; none: not known, as in segments of earlier versions

    def __len__(self) -> int:
        return len(self.counters) // 8

    @property
    def stored_bytes(self) -> int:
        """What they take on the disk."""
        return sum(array("I", self.lengths))

    @property
    def is_sound(self) -> bool:
        """Whether the columns are of one length, and the counters rise."""
        n = len(self)
        wide = (self.counters, self.births, self.numbers, self.offsets)
        is_even = all(len(column) == 8 * n for column in wide) and n > 0
        is_even &= len(self.counts) == len(self.lengths) == 4 * n
        is_even &= len(self.sents) in (0, 8 * n)
        counters = array("Q", self.counters[: 8 * n]).tolist()
        return is_even and len(self.digests) == DIGEST_BYTES * n and is_rising(counters)

    def found(self) -> Iterator[FoundBatch]:
        """One by one, for whoever has the time."""
        columns = (array("Q", self.counters), array("I", self.counts), array("Q", self.births),
                   array("Q", self.sents or bytes(8 * len(self))))  # fmt: skip
        for at, (counter, count, birth, sent_ms) in enumerate(zip(*columns, strict=True)):
            digest = self.digests[DIGEST_BYTES * at : DIGEST_BYTES * (at + 1)]
            yield FoundBatch((*self.sender, counter, 0), count, birth, digest, sent_ms)


class SegmentColumns(msgspec.Struct, array_like=True):
    """The content of a footer."""

    runs: list[StoredRuns] = []
    stages: list[Listed] = []
    marks: list[tuple[BatchKey, int]] = []  # of payloads that aren't runs of this segment
    is_synced: bool = False  # all that is listed was, before this was written
    digests: list[bytes] = []  # of these marks, how the digest of the payload begins; "": not known

    def marked(self) -> dict[BatchKey, bytes]:
        """By key, where it is known."""
        pairs = zip(self.marks, self.digests, strict=False)
        return {key: digest for (key, _), digest in pairs if digest}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
        return not (self.runs or self.stages or self.marks)


class DataRecovery(msgspec.Struct, frozen=True):
    """What the disk of a data server gave back."""

    uuid: int
    runs: Sequence[StoredRuns] = ()
    stages: Sequence[FoundBatch] = ()
    marks: Sequence[tuple[BatchKey, int]] = ()  # of whatever the runs' own numbers don't tell
    marked: Mapping[BatchKey, bytes] = {}  # how the digests of what has these numbers begin

    def found(self) -> Iterator[FoundBatch]:
        """All payloads, one by one; those that are there twice, twice."""
        for runs in self.runs:
            yield from runs.found()
        yield from self.stages

    def numbers(self) -> dict[BatchKey, int]:
        """What is known to be numbered, one by one."""
        numbers = dict(self.marks)
        for runs in self.runs:
            for found, number in zip(runs.found(), array("Q", runs.numbers), strict=True):
                if number:
                    numbers[found.key] = number
        return numbers

    def number_of(self, marks: Mapping[BatchKey, int], found: FoundBatch) -> int:
        """What the marks of other segments tell of a payload; 0 if they tell nothing, or mean
        another content under its id."""
        is_meant = found.digest.startswith(self.marked.get(found.key, b""))
        return marks.get(found.key, 0) if is_meant else 0


def with_marks(
    runs: StoredRuns, marks: Mapping[BatchKey, int], marked: Mapping[BatchKey, bytes]
) -> "array[int]":
    """The numbers of these runs, those that another segment tells among them; 0: nobody does, or
    what has that number is another content under the same id."""
    numbers = array("Q", runs.numbers)
    if 0 in numbers:
        counters = array("Q", runs.counters)
        for at, number in enumerate(numbers):
            key = (*runs.sender, counters[at], 0)
            if not number and runs.digests.startswith(marked.get(key, b""), DIGEST_BYTES * at):
                numbers[at] = marks.get(key, 0)
    return numbers


def is_rising(values: list[int]) -> bool:
    """Whether each is larger than the one before."""
    return all(map(int.__lt__, values, values[1:]))


def columns_of(listing: Listing) -> SegmentColumns:
    """The same in columns. Of what is listed twice the later one counts."""
    latest = {listed.key: listed for listed in listing.batches}
    numbers = dict(listing.marks)
    senders: dict[SenderKey, list[Listed]] = {}
    stages: list[Listed] = []
    for key, listed in latest.items():
        if key[4]:
            stages.append(listed)
        else:
            senders.setdefault(key[:3], []).append(listed)
    marked = listing.marked

    def number_of(run: Listed) -> int:
        is_meant = run.digest.startswith(marked.get(run.key, b""))
        return numbers.pop(run.key, 0) if is_meant else 0

    runs = [_runs_of(sender, listed, number_of) for sender, listed in senders.items()]
    digests = [marked.get(key, b"") for key in numbers] if marked else []
    return SegmentColumns(runs, stages, list(numbers.items()), digests=digests)


def _runs_of(
    sender: SenderKey, runs: list[Listed], number_of: Callable[[Listed], int]
) -> StoredRuns:
    runs.sort(key=_counter)
    return StoredRuns(
        sender,
        array("Q", [run.key[3] for run in runs]).tobytes(),
        array("I", [run.count for run in runs]).tobytes(),
        array("Q", [run.birth for run in runs]).tobytes(),
        b"".join([run.digest for run in runs]),
        array("Q", list(map(number_of, runs))).tobytes(),
        array("Q", [run.offset for run in runs]).tobytes(),
        array("I", [run.length for run in runs]).tobytes(),
        array("Q", [run.sent_ms for run in runs]).tobytes(),
    )


def _counter(listed: Listed) -> int:
    return listed.key[3]
