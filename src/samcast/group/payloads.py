"""What a data server holds: payloads without a number, and payloads by number.

The unnumbered ones are found by sender (to see overlaps), by birth (to drop what has expired), and
by deadline (to repeat reports); each look costs the same however many wait.
"""

from bisect import bisect_left, bisect_right, insort
from heapq import heappop, heappush

from samcast.group.listing import FoundBatch, StoredRuns
from samcast.group.run_map import ByNumber, RunMap
from samcast.group.sent_times import stretch_within
from samcast.group.storage import BatchKey, RunSlice
from samcast.group.usage import Usage
from samcast.machine.ports import NEVER_MS, NodeId
from samcast.machine.ranges import Ranges
from samcast.wire.batch import Batch
from samcast.wire.group import Asked, Span
from samcast.wire.rows import RUNS_MAX, SHORT_RUN_MAX
from samcast.wire.stretch import SINGLE_RUNS_MAX, SINGLE_RUNS_MIN


def key_of(batch: Batch) -> BatchKey:
    """By what a payload is found."""
    return (batch.group, batch.sender, batch.incarnation, batch.counter_first, batch.stage)


class Held:
    """A payload without a number: stored, or on its way to the disk."""

    __slots__ = (
        "birth", "client", "confirmed_below", "count", "digest", "due_ms", "is_durable",
        "is_reserved", "origin", "sent_ms", "size", "wait_ms",
    )  # fmt: skip

    def __init__(self, count: int, birth: int, digest: bytes, sent_ms: int, size: int = 0) -> None:
        self.size = size  # of the payload; 0: not known here
        self.sent_ms = sent_ms
        self.count = count
        self.birth = birth
        self.digest = digest
        self.confirmed_below = 0
        self.is_durable = False
        self.origin: NodeId = 0  # who sent it, and so who wants to know its number
        self.client: NodeId = 0  # in whose share it is; 0: in nobody's
        self.is_reserved = False  # it came in from the reserve
        self.due_ms = NEVER_MS  # next repeat of its report
        self.wait_ms = 0


class Counters:
    """Where the runs of one sender begin, in order; they mostly come at the end and go in front."""

    __slots__ = ("_counters", "_start")

    def __init__(self) -> None:
        self._counters: list[int] = []
        self._start = 0  # what lies before it is gone

    def __len__(self) -> int:
        return len(self._counters) - self._start

    def add(self, counter: int) -> None:
        """One more."""
        insort(self._counters, counter, self._start)

    def remove(self, counter: int) -> None:
        """One less; it must be there."""
        at = bisect_left(self._counters, counter, self._start)
        if at > self._start:
            del self._counters[at]
            return
        self._start += 1
        if 2 * self._start > len(self._counters):
            del self._counters[: self._start]
            self._start = 0

    def around(self, counter: int) -> tuple[int | None, int | None]:
        """The last one up to a counter, and the first one above it."""
        at = bisect_right(self._counters, counter, self._start)
        before = self._counters[at - 1] if at > self._start else None
        return before, self._counters[at] if at < len(self._counters) else None


class Unnumbered:
    """Payloads that wait for a number or for a decision."""

    def __init__(self) -> None:
        self._held: dict[BatchKey, Held] = {}
        self._counters: dict[tuple[int, bytes, int], Counters] = {}  # runs of a sender
        self._owners: dict[bytes, dict[BatchKey, None]] = {}  # stages of an owner
        self._births: dict[int, list[tuple[int, BatchKey]]] = {}  # per group, lowest first
        self._due: list[tuple[int, BatchKey]] = []
        self.usage = Usage()

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: BatchKey) -> bool:
        return key in self._held

    def get(self, key: BatchKey) -> Held | None:
        """One payload."""
        return self._held.get(key)

    def all(self) -> list[BatchKey]:
        """All of them."""
        return list(self._held)

    def add(self, key: BatchKey, held: Held) -> None:
        """A payload came in."""
        self._held[key] = held
        self.usage.change(key, held, 1)
        if key[4]:
            self._owners.setdefault(key[1], {})[key] = None
            return
        counters = self._counters.get(key[:3])
        if counters is None:
            counters = self._counters[key[:3]] = Counters()
        counters.add(key[3])
        heappush(self._births.setdefault(key[0], []), (held.birth, key))

    def pop(self, key: BatchKey) -> Held | None:
        """A payload got its number, or goes."""
        held = self._held.pop(key, None)
        if held is None:
            return None
        self.usage.change(key, held, -1)
        if key[4]:
            owned = self._owners[key[1]]
            del owned[key]
            if not owned:
                del self._owners[key[1]]
        else:
            counters = self._counters[key[:3]]
            counters.remove(key[3])
            if not counters:
                del self._counters[key[:3]]
        return held

    def runs_of(self, key: BatchKey) -> int:
        """How many runs of the same sender and incarnation wait."""
        counters = self._counters.get(key[:3])
        return len(counters) if counters is not None else 0

    def overlaps(self, key: BatchKey, count: int) -> bool:
        """Runs of one incarnation must be equal or apart."""
        counters = self._counters.get(key[:3])
        if counters is None:
            return False
        first = key[3]
        before, after = counters.around(first)
        if after is not None and after < first + count:
            return True
        if before is None:
            return False
        return before < first < before + self._held[(*key[:3], before, 0)].count

    def born_below(self, group: int, floor: int) -> list[BatchKey]:
        """Runs of a group that can never be numbered, since the floor has passed them."""
        births = self._births.get(group)
        found: list[BatchKey] = []
        while births and births[0][0] < floor:
            birth, key = heappop(births)
            held = self._held.get(key)
            if held is not None and held.birth == birth:
                found.append(key)
        return found

    def of_group(self, group: int) -> list[BatchKey]:
        """All runs of a group (used when it is removed)."""
        return [key for _, key in self._births.pop(group, []) if key in self._held]

    def of_owner(self, owner: bytes) -> list[BatchKey]:
        """All stages of an owner."""
        return list(self._owners.get(owner, ()))

    def owners(self) -> list[bytes]:
        """Who has stages here."""
        return list(self._owners)

    def remind(self, key: BatchKey, held: Held, due_ms: int) -> None:
        """Have a payload come up again at a time."""
        held.due_ms = due_ms
        heappush(self._due, (due_ms, key))

    def due(self, now_ms: int) -> list[BatchKey]:
        """What comes up now."""
        found: list[BatchKey] = []
        while self._due and self._due[0][0] <= now_ms:
            due_ms, key = heappop(self._due)
            held = self._held.get(key)
            if held is not None and held.due_ms == due_ms:
                found.append(key)
        return found

    def due_ms(self) -> int:
        """When the next one comes up; those that have gone in the meantime are passed over."""
        while self._due:
            due_ms, key = self._due[0]
            held = self._held.get(key)
            if held is not None and held.due_ms == due_ms:
                return due_ms
            heappop(self._due)
        return NEVER_MS


class Lacking:
    """Committed numbers of one group whose payload isn't here."""

    __slots__ = ("expected", "numbers", "ranges")

    def __init__(self) -> None:
        self.ranges = Ranges()
        self.expected: dict[int, tuple[BatchKey, bytes]] = {}  # number -> id and digest, if known
        self.numbers: dict[BatchKey, int] = {}  # the way back

    def collect(self, number: int) -> None:
        """Nothing up to a number is wanted any more."""
        self.ranges.remove(0, number + 1)
        below = sorted(n for n in self.expected if n <= number)
        if below and self.ranges.contiguous_end(number + 1) > number + 1:
            below.pop()  # The last one may reach beyond: the rest of it is still wanted.
        for first in below:
            self.numbers.pop(self.expected.pop(first)[0], None)


class Numbered:
    """Payloads by number, per group, and which numbers lack theirs."""

    def __init__(self) -> None:
        self._at = RunMap("QID")  # number_first, count, digest
        self._runs: dict[int, ByNumber] = {}
        self._lacking: dict[int, Lacking] = {}
        self._collected: dict[int, int] = {}  # up to which number nothing is lacking, being gone

    def __contains__(self, key: BatchKey) -> bool:
        return key in self._at

    def number_of(self, key: BatchKey) -> int:
        """The first number of a payload, 0 if it has none here."""
        found = self._at.get(key)
        return found[0] if found is not None else 0

    def digest_of(self, key: BatchKey) -> bytes:
        """The digest of a payload that is here."""
        found = self._at.get(key)
        assert found is not None
        digest: bytes = found[2]
        return digest

    def add(
        self, key: BatchKey, number_first: int, count: int, digest: bytes, sent_ms: int
    ) -> None:
        """A payload has its number."""
        self._at.put(key, number_first, count, digest)
        self._runs_of(key[0]).put(number_first, count, sent_ms, key)
        lacking = self._lacking.get(key[0])
        if lacking is not None:
            lacking.ranges.remove(number_first, number_first + count)
            expected = lacking.expected.pop(number_first, None)
            if expected is not None:
                lacking.numbers.pop(expected[0], None)
            if not lacking.ranges:
                del self._lacking[key[0]]

    def _runs_of(self, group: int) -> ByNumber:
        runs = self._runs.get(group)
        if runs is None:
            runs = self._runs[group] = ByNumber(group)
        return runs

    def recover(self, runs: StoredRuns, numbers: bytes) -> None:
        """Runs that a disk gave back, with their first numbers. When all have been told, `sort`."""
        group, sender, incarnation = runs.sender
        self._at.extend(runs.sender, runs.counters, numbers, runs.counts, runs.digests)
        by_number = self._runs_of(group)
        by_number.extend((sender, incarnation), runs.counters, numbers, runs.counts, runs.sents)

    def recover_one(self, found: FoundBatch, number_first: int) -> None:
        """The same for one payload."""
        self._at.append(found.key, number_first, found.count, found.digest)
        runs = self._runs_of(found.key[0])
        runs.append(number_first, found.count, found.sent_ms, found.key)

    def sort(self) -> None:
        """All that a disk gave back has been told."""
        self._at.sort()
        for runs in self._runs.values():
            runs.sort()

    def lose(self, key: BatchKey) -> None:
        """A payload is gone from the disk: its numbers are lacking."""
        found = self._at.pop(key)
        assert found is not None
        number_first, count, digest = found
        self._runs[key[0]].remove(number_first)
        self.lack(key[0], number_first, count, key, digest)

    def collect(self, group: int, number: int, most: int = 2**31) -> list[BatchKey]:
        """Give up what lies at or below a number, so many runs at most; what that was."""
        self._collected[group] = max(number, self._collected.get(group, 0))
        lacking = self._lacking.get(group)
        if lacking is not None:
            lacking.collect(number)
            if not lacking.ranges:
                del self._lacking[group]
        runs = self._runs.get(group)
        keys = runs.cut(number, most) if runs is not None else []
        # Somebody may have used an id again, long after: its later payload stays.
        self._at.drop([key for key in keys if self.number_of(key) <= number])
        return [key for key in keys if key not in self._at]

    def is_collected(self, group: int, number: int) -> bool:
        """Whether nothing is left at or below a number."""
        runs = self._runs.get(group)
        return not runs or not runs.firsts or runs.firsts[0] + runs.counts[0] - 1 > number

    def lack(self, group: int, number_first: int, count: int, key: BatchKey, digest: bytes) -> None:
        """A committed run isn't here; remember what it must be."""
        lacking = self._lacking.setdefault(group, Lacking())
        lacking.ranges.add(number_first, number_first + count)
        lacking.expected[number_first] = (key, digest)
        lacking.numbers[key] = number_first

    def lack_span(self, group: int, first: int, end: int) -> None:
        """Of these numbers nothing is known but that they are committed."""
        runs = self._runs_of(group)
        at = first = max(first, self._collected.get(group, 0) + 1)
        for here in range(max(0, runs.place_of(first)), len(runs.firsts)):
            number_first = runs.firsts[here]
            if number_first >= end:
                break
            if at < number_first:
                self._lacking.setdefault(group, Lacking()).ranges.add(at, number_first)
            at = max(at, number_first + runs.counts[here])
        if at < end:
            self._lacking.setdefault(group, Lacking()).ranges.add(at, end)

    def at(self, group: int, number: int) -> tuple[BatchKey, int, int] | None:
        """The payload that holds a number, with its first number and its count."""
        runs = self._runs.get(group)
        at = runs.place_of(number) if runs is not None else -1
        if runs is None or at < 0:
            return None
        number_first, count = runs.firsts[at], runs.counts[at]
        return (runs.key_at(at), number_first, count) if number < number_first + count else None

    def single_runs(self, group: int, number: int, end: int) -> RunSlice | None:
        """The runs from a number on, up to another, if all are of one message and follow each
        other, and there are many of them."""
        runs = self._runs.get(group)
        at = runs.place_of(number) if runs is not None else -1
        if runs is None or at < 0 or runs.firsts[at] != number:
            return None
        many = min(SINGLE_RUNS_MAX, end - number, len(runs.counts) - at)
        if many < SINGLE_RUNS_MIN:
            return None
        is_single = runs.counts[at : at + many].count(1) == many
        is_whole = is_single and runs.firsts[at + many - 1] == number + many - 1
        return runs.slice(at, at + many) if is_whole else None

    def short_runs(self, group: int, number: int, end: int) -> tuple[int, RunSlice | None]:
        """The runs from the one that holds a number on, up to another, that follow each other and
        are short; and the number with which the first of them begins. None if it is a long one."""
        runs = self._runs.get(group)
        at = runs.place_of(number) if runs is not None else -1
        if runs is None or at < 0 or number >= runs.firsts[at] + runs.counts[at]:
            return number, None
        firsts = runs.firsts[at : at + RUNS_MAX].tolist()
        counts = runs.counts[at : at + RUNS_MAX].tolist()
        most, follows = 0, firsts[0]
        for first, count in zip(firsts, counts, strict=True):
            if first != follows or first >= end or count >= SHORT_RUN_MAX:
                break
            follows += count
            most += 1
        return firsts[0], runs.slice(at, at + most) if most else None

    def sent_within(
        self, group: int, number: int, end: int, bounds: tuple[int, int]
    ) -> tuple[int, int]:
        """Of the messages from a number up to another: from where and up to where the next ones go
        that may have been sent within these times. What is before them is here, and was not."""
        runs = self._runs.get(group)
        at = runs.place_of(number) if runs is not None else -1
        if runs is None or at < 0 or number >= runs.firsts[at] + runs.counts[at]:
            return number, end
        first, stop = stretch_within(runs, at, bounds)
        return min(end, max(number, first)), min(end, stop)

    @property
    def is_whole(self) -> bool:
        """Nothing that is known to be committed is lacking."""
        return not self._lacking

    def is_whole_in(self, group: int) -> bool:
        """The same of one group."""
        return group not in self._lacking

    def lacking_spans(self, most: int) -> list[Span]:
        """The first holes, over all groups."""
        spans: list[Span] = []
        for group, lacking in self._lacking.items():
            for first, end in lacking.ranges.pairs()[: most - len(spans)]:
                spans.append((group, first, end - first))
        return spans

    def wants(self, key: BatchKey, number_first: int, count: int, digest: bytes) -> bool:
        """Whether a payload fills a hole, being what must be there as far as that is known."""
        lacking = self._lacking.get(key[0])
        at = max(number_first, self._collected.get(key[0], 0) + 1)
        if lacking is None or at >= number_first + count:
            return False
        if lacking.ranges.contiguous_end(at) < number_first + count:
            return False
        expected = lacking.expected.get(number_first)
        return expected is None or expected == (key, digest)

    def expects(self, key: BatchKey, digest: bytes) -> int:
        """The number at which this very payload is lacking, 0 if it isn't."""
        lacking = self._lacking.get(key[0])
        number_first = lacking.numbers.get(key, 0) if lacking is not None else 0
        if lacking is None or lacking.expected.get(number_first) != (key, digest):
            return 0
        return number_first


def asked_of(batch: Batch) -> Asked:
    """What a transmission asks about, apart from its payload."""
    return Asked(
        batch.group,
        batch.sender,
        batch.incarnation,
        batch.counter_first,
        batch.count,
        batch.birth,
        batch.confirmed_below,
        batch.seen,
        batch.digest,
    )
