"""Facts about stored runs, packed: a few dozen bytes each, where objects would take hundreds.

A disk holds millions of runs, and a data server must find each by its key and by its number. The
runs of one sender have rising counters, and a group's runs rising numbers, so sorted arrays do, and
what is new goes to their ends.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import Any

from samcast.group.storage import BatchKey

SenderKey = tuple[int, bytes, int]  # group, sender, incarnation


class _Sender:
    """The runs of one incarnation of a sender."""

    __slots__ = ("counters", "packed")

    def __init__(self) -> None:
        self.counters = array("Q")
        self.packed = bytearray()


class RunMap:
    """From the key of a run to a few numbers and bytes, of a fixed format."""

    __slots__ = ("_count", "_senders", "_stages", "_struct")

    def __init__(self, fields: str) -> None:
        self._struct = Struct("<" + fields)
        self._senders: dict[SenderKey, _Sender] = {}
        self._stages: dict[BatchKey, bytes] = {}  # of transactions: few, and gone with them
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self._stages)

    def __contains__(self, key: BatchKey) -> bool:
        return self.get(key) is not None

    def get(self, key: BatchKey) -> tuple[Any, ...] | None:
        """What is known of a run."""
        if key[4]:
            packed = self._stages.get(key)
            return None if packed is None else self._struct.unpack(packed)
        sender = self._senders.get(key[:3])
        if sender is None:
            return None
        at = bisect_left(sender.counters, key[3])
        if at == len(sender.counters) or sender.counters[at] != key[3]:
            return None
        return self._struct.unpack_from(sender.packed, at * self._struct.size)

    def put(self, key: BatchKey, *values: Any) -> None:
        """Know this of a run from now on."""
        packed = self._struct.pack(*values)
        if key[4]:
            self._stages[key] = packed
            return
        sender = self._senders.get(key[:3])
        if sender is None:
            sender = self._senders[key[:3]] = _Sender()
        counters = sender.counters
        if not counters or counters[-1] < key[3]:  # as nearly always
            counters.append(key[3])
            sender.packed += packed
            self._count += 1
            return
        at, size = bisect_left(counters, key[3]), self._struct.size
        if counters[at] == key[3]:
            sender.packed[at * size : (at + 1) * size] = packed
            return
        counters.insert(at, key[3])
        sender.packed[at * size : at * size] = packed
        self._count += 1

    def pop(self, key: BatchKey) -> tuple[Any, ...] | None:
        """Forget a run; what was known of it."""
        found = self.get(key)
        if found is None:
            return None
        if key[4]:
            del self._stages[key]
            return found
        sender, size = self._senders[key[:3]], self._struct.size
        at = bisect_left(sender.counters, key[3])
        del sender.counters[at]
        del sender.packed[at * size : (at + 1) * size]
        self._count -= 1
        if not sender.counters:
            del self._senders[key[:3]]
        return found

    def keys(self) -> Iterator[BatchKey]:
        """All runs; what changes meanwhile may or may not be among them."""
        for (group, name, incarnation), sender in list(self._senders.items()):
            for counter in sender.counters.tolist():
                yield (group, name, incarnation, counter, 0)
        yield from list(self._stages)


class ByNumber:
    """From the numbers of one group to its runs."""

    __slots__ = ("_counters", "_index", "_senders", "_stages", "_who", "counts", "firsts", "group")

    def __init__(self, group: int) -> None:
        self.group = group
        self.firsts = array("Q")  # sorted
        self.counts = array("I")
        self._who = array("I")  # which of the senders
        self._counters = array("Q")
        self._stages = array("I")
        self._senders: list[tuple[bytes, int]] = []
        self._index: dict[tuple[bytes, int], int] = {}

    def key_at(self, at: int) -> BatchKey:
        """The run at a place."""
        sender, incarnation = self._senders[self._who[at]]
        return (self.group, sender, incarnation, self._counters[at], self._stages[at])

    def place_of(self, number: int) -> int:
        """Where the last run lies that begins at a number or before it; -1: there is none."""
        return bisect_right(self.firsts, number) - 1

    def put(self, number_first: int, count: int, key: BatchKey) -> None:
        """A run begins at this number, in the place of what began there before."""
        who = self._index.get(key[1:3])
        if who is None:
            who = self._index[key[1:3]] = len(self._senders)
            self._senders.append(key[1:3])
        firsts = self.firsts
        if not firsts or firsts[-1] < number_first:  # as nearly always
            firsts.append(number_first)
            self.counts.append(count)
            self._who.append(who)
            self._counters.append(key[3])
            self._stages.append(key[4])
            return
        at = bisect_left(firsts, number_first)
        if firsts[at] == number_first:
            self.counts[at], self._who[at] = count, who
            self._counters[at], self._stages[at] = key[3], key[4]
            return
        firsts.insert(at, number_first)
        self.counts.insert(at, count)
        self._who.insert(at, who)
        self._counters.insert(at, key[3])
        self._stages.insert(at, key[4])

    def remove(self, number_first: int) -> None:
        """No run begins at this number any more."""
        at = bisect_left(self.firsts, number_first)
        del self.firsts[at], self.counts[at]
        del self._who[at], self._counters[at], self._stages[at]
