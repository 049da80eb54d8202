"""The log in memory: a base (index and chain hash) and the entries above it."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from samcast.limits import ORDER_PIECE_BYTES_MAX
from samcast.wire.group import HashAt
from samcast.wire.order import HASH_NONE, AnyEntry, chain_link, chained_bytes


class OrderLog:
    """Entries from `base` + 1 to `length`; what is at or below the base is decided and gone."""

    __slots__ = ("_entries", "_hashes", "_sizes", "base", "length")

    def __init__(self, base: int = 0, base_hash: bytes = HASH_NONE) -> None:
        self.base = base
        self.length = base  # index of the last entry
        self._entries: list[AnyEntry] = []
        self._sizes: list[int] = []  # of the entries, in bytes
        self._hashes: list[bytes] = [base_hash]  # of base, base + 1, ...

    @property
    def last_hash(self) -> bytes:
        """Chain hash of the whole log."""
        return self._hashes[-1]

    def append(self, entry: AnyEntry) -> None:
        """Add the next entry."""
        encoded = chained_bytes(entry)
        self._hashes.append(chain_link(self._hashes[-1], encoded))
        self._sizes.append(len(encoded))
        self._entries.append(entry)
        self.length += 1

    def extend(self, entries: Iterable[AnyEntry]) -> None:
        """Add the next entries."""
        for entry in entries:
            self.append(entry)

    def entry(self, index: int) -> AnyEntry:
        """One entry above the base."""
        assert self.base < index <= self.length
        return self._entries[index - self.base - 1]

    def hash_at(self, index: int) -> bytes | None:
        """Chain hash at an index, None where it isn't known here."""
        at = index - self.base
        return self._hashes[at] if 0 <= at < len(self._hashes) else None

    def slice(
        self, first: int, most: int, bytes_max: int = ORDER_PIECE_BYTES_MAX
    ) -> Sequence[AnyEntry]:
        """At most `most` entries from index `first` on, of so many bytes together, but always one;
        `first` must be above the base."""
        assert first > self.base
        at = first - self.base - 1
        sizes = self._sizes[at : at + most]
        if sum(sizes) > bytes_max:
            most = max(1, bisect_right(list(accumulate(sizes)), bytes_max))
        return self._entries[at : at + most]

    def size_at(self, index: int) -> int:
        """Bytes of one entry above the base."""
        return self._sizes[index - self.base - 1]

    def cut(self, length: int) -> None:
        """Forget what is above `length`."""
        assert length >= self.base
        at = length - self.base
        del self._entries[at:], self._sizes[at:]
        del self._hashes[at + 1 :]
        self.length = min(self.length, length)

    def drop(self, base: int) -> None:
        """Forget what is at or below `base`."""
        assert self.base <= base <= self.length
        at = base - self.base
        del self._entries[:at], self._sizes[:at]
        del self._hashes[:at]
        self.base = base

    def copy(self) -> "OrderLog":
        """A log of its own with the same entries."""
        log = OrderLog(self.base)
        log._entries, log._sizes = self._entries.copy(), self._sizes.copy()
        log._hashes = self._hashes.copy()
        log.length = self.length
        return log

    def landmarks(self) -> tuple[HashAt, ...]:
        """Hashes at a few indexes, dense near the end, so that two logs find where they part."""
        marks: list[HashAt] = []
        back = 0
        while self.length - back > self.base:
            index = self.length - back
            marks.append((index, self._hashes[index - self.base]))
            back = 2 * back + 1
        marks.append((self.base, self._hashes[0]))
        return tuple(marks)

    def agrees_up_to(self, landmarks: Iterable[HashAt]) -> int | None:
        """The highest landmark at which both logs are equal, None if there is none."""
        common = [i for i, h in landmarks if self.hash_at(i) == h]
        return max(common, default=None)
