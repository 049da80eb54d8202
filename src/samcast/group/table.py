"""The replicated table: a fold of a group's messages, equal wherever it is computed.

A change takes effect or not by what the table holds at its number, and by nothing else: no clock
but the table's own, which is the latest that any change has told, and no chance. So every member
agrees on each of them without a word.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from heapq import heappop, heappush
from struct import Struct

import msgspec

from samcast.group.retained import interval_at
from samcast.wire.errors import WireError
from samcast.wire.table import Change, Put, decode_change

HASH_SPACE = 2**256
HASH_BYTES = 32
END_MAX = 2**63 - 1  # so that any engine can count with it
_LENGTH = Struct("<I")
_STAMPS = Struct("<QQ")
CHANGED_MAX = 10_000  # rows, and a quarter of all, before their sum is forgotten
INTERVAL = 50_000  # messages between two checkpoints, where nothing is said
WRITES_PER_ROW = 2  # between two checkpoints, at least


class Row(msgspec.Struct, frozen=True, gc=False):
    """A key's value, the number that gave it, and until when it lasts; 0: for ever."""

    value: bytes
    number: int
    expires_ms: int = 0


class Changed(msgspec.Struct, frozen=True, gc=False):
    """What became of a key; no value: it is gone."""

    number: int
    key: bytes
    value: bytes | None


class Table:
    """All keys at one number."""

    def __init__(self) -> None:
        self.number = 0  # up to which messages are folded in
        self.clock_ms = 0
        self._rows: dict[bytes, Row] = {}
        self._sorted: list[bytes] = []  # keys in order, some of them gone
        self._unsorted: list[bytes] = []
        self._expiring: list[tuple[int, bytes]] = []  # a heap; some are put anew meanwhile
        self._hashing = Hashing(self._rows)
        self.size = 0  # bytes of keys and values
        self.writes = 0  # folded in so far, with an effect or not; a message is at least one
        self.malformed = 0
        self.effective = 0  # the newest message that took effect

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: bytes) -> Row | None:
        """What a key holds."""
        return self._rows.get(key)

    def apply(self, number: int, body: bytes) -> list[Changed] | None:
        """Fold a message in: what changed, or None if nothing did. Values may end by the clock of a
        message that has no effect itself: whether it had one is what `effective` tells."""
        assert number > self.number, "numbers rise"
        self.number = number
        try:
            change = decode_change(body)
        except WireError:
            self.malformed += 1
            self.writes += 1
            return None
        self.clock_ms = max(self.clock_ms, change.clock_ms)
        self.writes += max(1, len(change.writes))
        expired = self._expire(number)
        if not self._holds(change):
            return expired or None
        self.effective = number
        for write in change.writes:
            if isinstance(write, Put):
                self._put(write.key, Row(write.value, number, end_of(self.clock_ms, write)))
                expired.append(Changed(number, write.key, write.value))
            elif self._remove(write.key):
                expired.append(Changed(number, write.key, None))
        return expired

    def _holds(self, change: Change) -> bool:
        for check in change.checks:
            row = self._rows.get(check.key)
            if (row.number if row is not None else 0) != check.number:
                return False
        return True

    def _put(self, key: bytes, row: Row) -> None:
        before = self._rows.get(key)
        if before is None:
            self._unsorted.append(key)
        else:
            self.size -= len(key) + len(before.value)
        self.size += len(key) + len(row.value)
        self._rows[key] = row
        self._hashing.note(key, before)
        if row.expires_ms:
            heappush(self._expiring, (row.expires_ms, key))

    def _remove(self, key: bytes) -> bool:
        row = self._rows.pop(key, None)
        if row is None:
            return False
        self._hashing.note(key, row)
        self.size -= len(key) + len(row.value)
        return True

    def _expire(self, number: int) -> list[Changed]:
        gone: list[Changed] = []
        while self._expiring and self._expiring[0][0] <= self.clock_ms:
            expires_ms, key = heappop(self._expiring)
            row = self._rows.get(key)
            if row is not None and row.expires_ms == expires_ms:
                self._remove(key)
                gone.append(Changed(number, key, None))
        return gone

    def merge(
        self,
        number: int,
        writes: int,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        numbers: Sequence[int],
    ) -> None:
        """Take what a fold has made of the messages up to a number; no value: the key is gone."""
        assert number > self.number, "numbers rise"
        self.number = number
        self.writes += writes
        for key, value, of in zip(keys, values, numbers, strict=True):
            if value is None:
                self._remove(key)
            else:
                self._put(key, Row(value, of))

    # checkpoints

    def load(self, rows: Sequence[tuple[bytes, Row]], rows_hash: int) -> None:
        """Rows of a checkpoint that aren't here yet, and the sum of their hashes: whoever has
        checked them knows it already. A wrong one shows in the hash of the whole."""
        self._rows.update(rows)
        self._unsorted += [key for key, _ in rows]
        self.size += sum(len(key) + len(row.value) for key, row in rows)
        for key, row in rows:
            if row.expires_ms:
                heappush(self._expiring, (row.expires_ms, key))
        self._hashing.add(rows_hash)

    def state_hash(self) -> bytes:
        """Of all that decides what becomes of later messages: the rows, the clock, and what the
        next checkpoint is counted from."""
        return state_hash(self._hashing.total(), self.clock_ms, self.writes)

    # looking through it

    def keys(self, first: bytes = b"", end: bytes | None = None) -> Iterator[bytes]:
        """Keys from `first` on, in order, below `end`."""
        self._sort()
        for at in range(bisect_left(self._sorted, first), len(self._sorted)):
            key = self._sorted[at]
            if end is not None and key >= end:
                return
            if key in self._rows:
                yield key

    def _sort(self) -> None:
        """New keys into their places: sorting what is nearly sorted costs little."""
        if self._unsorted or len(self._sorted) > 2 * len(self._rows) + 1000:
            self._sorted = sorted({*self._sorted, *self._unsorted} & self._rows.keys())
            self._unsorted = []

    def content_hash(self) -> str:
        """Equal for equal content, whatever way led to it."""
        return f"{len(self._rows)}-{self._hashing.total():064x}"


def end_of(clock_ms: int, put: Put) -> int:
    """When a value ends that is put now; 0: never."""
    return min(clock_ms + put.ttl_ms, END_MAX) if put.ttl_ms else 0


class Hashing:
    """The sum of the rows' hashes, computed when somebody asks for it: of what has changed since,
    or, where that is much, of all rows, which is less work than to follow each change."""

    def __init__(self, rows: dict[bytes, Row]) -> None:
        self._rows = rows
        self._total = 0
        self._is_known = True  # `_total` is right but for these:
        self._before: dict[bytes, Row | None] = {}  # rows that have changed, as they were then

    def note(self, key: bytes, before: Row | None) -> None:
        """A row has changed, or gone."""
        if self._is_known and key not in self._before:
            self._before[key] = before
            if len(self._before) > CHANGED_MAX + len(self._rows) // 4:
                self._is_known = False
                self._before.clear()

    def add(self, rows_hash: int) -> None:
        """Rows have come whose hashes are known."""
        self._total += rows_hash

    def total(self) -> int:
        """As of now."""
        if self._is_known:
            for key, before in self._before.items():
                self._total += _hash_in(key, self._rows.get(key)) - _hash_in(key, before)
        else:
            self._total = sum(_hash_in(key, row) for key, row in self._rows.items())
        self._total %= HASH_SPACE
        self._before.clear()
        self._is_known = True
        return self._total


def _hash_in(key: bytes, row: Row | None) -> int:
    return row_hash(key, row.value, row.number, row.expires_ms) if row is not None else 0


def row_hash(key: bytes, value: bytes, number: int, expires_ms: int) -> int:
    """Of one row; the table's is their sum, so that it can follow changes."""
    # One call: each of several would cost as much as the hash.
    packed = b"".join((_LENGTH.pack(len(key)), key, _STAMPS.pack(number, expires_ms), value))
    return int.from_bytes(blake2b(packed, digest_size=HASH_BYTES).digest(), "little")


def state_hash(rows_hash: int, clock_ms: int, writes: int) -> bytes:
    """From the sum over all rows, and the rest."""
    rest = clock_ms.to_bytes(8, "little") + writes.to_bytes(8, "little")
    digest = blake2b(rest, digest_size=HASH_BYTES, person=b"samcast-rest").digest()
    total = (rows_hash + int.from_bytes(digest, "little")) % HASH_SPACE
    return total.to_bytes(HASH_BYTES, "little")


def next_due(intervals: Sequence[tuple[int, int]], number: int, last: int) -> tuple[int, int]:
    """The first number from `number` to `last` at which a checkpoint may be due, and the interval
    that says so; or `last`, and none."""
    while number <= last:
        interval = interval_at(intervals, number) or INTERVAL
        changes = [head for head, _ in intervals if head >= number]
        until = min([last, *changes])
        due = -(-number // interval) * interval
        if due <= until:
            return due, interval
        number = until + 1
    return last, 0


class Schedule:
    """When a checkpoint is taken: at a multiple of the interval, when enough has been written since
    the one before to be worth it. Nothing but the state at these numbers decides, so all servers
    choose alike, whenever they began."""

    def __init__(self, table: Table) -> None:
        self._before = table.writes

    def is_due(self, table: Table, interval: int) -> bool:
        """Asked after each message."""
        interval = interval or INTERVAL
        if table.number % interval:
            return False
        step = interval
        while step < WRITES_PER_ROW * len(table):
            step *= 2
        before, self._before = self._before, table.writes
        return table.writes // step > before // step
