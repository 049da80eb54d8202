"""Facts about stored runs, packed: a few dozen bytes each, where objects would take hundreds.

A disk holds millions of runs, and a data server must find each by its key and by its number. The
runs of one sender have rising counters, and a group's runs rising numbers, so sorted arrays do, and
what is new goes to their ends.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, compress, islice
from operator import itemgetter, lt, ne
from struct import iter_unpack
from typing import Any

from samcast.group.storage import BatchKey, RunSlice, SenderKey

DIGEST_BYTES = 16
SENDERS_SPARE = 1000
AHEAD = 64  # runs of a sender that are looked at together


class Digests:
    """A column of digests, used as arrays are."""

    __slots__ = ("_packed",)

    def __init__(self) -> None:
        self._packed = bytearray()

    def __getitem__(self, at: int) -> bytes:
        return bytes(self._packed[DIGEST_BYTES * at : DIGEST_BYTES * (at + 1)])

    def __setitem__(self, at: int, digest: bytes) -> None:
        self._packed[DIGEST_BYTES * at : DIGEST_BYTES * (at + 1)] = digest

    def __delitem__(self, at: int | slice) -> None:
        first, end = (at.start, at.stop) if isinstance(at, slice) else (at, at + 1)
        del self._packed[DIGEST_BYTES * first : DIGEST_BYTES * end]

    def append(self, digest: bytes) -> None:
        """At the end."""
        self._packed += digest

    def extend(self, digests: Iterable[bytes]) -> None:
        """Many at the end."""
        self._packed += b"".join(digests)

    def insert(self, at: int, digest: bytes) -> None:
        """Before a place."""
        self._packed[DIGEST_BYTES * at : DIGEST_BYTES * at] = digest

    def tolist(self) -> list[bytes]:
        """Each for itself."""
        return list(chain.from_iterable(iter_unpack(f"{DIGEST_BYTES}s", self._packed)))

    def frombytes(self, digests: bytes) -> None:
        """The same, as they lie one behind the other."""
        self._packed += digests


Column = Any  # an array, or Digests
DIGESTS = "D"  # the code of a column of digests, beside those of arrays


class _Sender:
    """The runs of one incarnation of a sender."""

    __slots__ = ("columns", "counters")

    def __init__(self, codes: str) -> None:
        self.counters = array("Q")
        self.columns: list[Column] = [
            Digests() if code == DIGESTS else array(code) for code in codes
        ]


class RunMap:
    """From the key of a run to a few numbers and digests: a column for each, of a given code."""

    __slots__ = ("_codes", "_count", "_senders", "_stages")

    def __init__(self, codes: str) -> None:
        self._codes = codes
        self._senders: dict[SenderKey, _Sender] = {}
        self._stages: dict[BatchKey, tuple[Any, ...]] = {}  # of transactions: few, gone with them
        self._count = 0

    def __len__(self) -> int:
        return self._count + len(self._stages)

    def __contains__(self, key: BatchKey) -> bool:
        if key[4]:
            return key in self._stages
        sender = self._senders.get(key[:3])
        if sender is None:
            return False
        at = bisect_left(sender.counters, key[3])
        return at < len(sender.counters) and sender.counters[at] == key[3]

    def get(self, key: BatchKey) -> tuple[Any, ...] | None:
        """What is known of a run."""
        if key[4]:
            return self._stages.get(key)
        sender = self._senders.get(key[:3])
        if sender is None:
            return None
        at = bisect_left(sender.counters, key[3])
        if at == len(sender.counters) or sender.counters[at] != key[3]:
            return None
        return tuple([column[at] for column in sender.columns])

    def get_many(self, keys: Iterable[BatchKey]) -> list[Any]:
        """The same of many runs, of a map with three columns; none of them is copied twice."""
        found: list[Any] = []
        ahead: dict[SenderKey, Iterator[tuple[int, Any, Any, Any]]] = {}
        for key in keys:
            name, counter, stage = key[:3], key[3], key[4]
            if stage:
                found.append(self._stages.get(key))
                continue
            rest = ahead.get(name)  # Mostly the next one of a sender is the next one wanted of it.
            here = next(rest, None) if rest is not None else None
            if here is None or here[0] != counter:
                rest = ahead[name] = self._from(name, counter)
                here = next(rest, None)
            found.append(here[1:] if here is not None and here[0] == counter else None)
        return found

    def _from(self, name: SenderKey, counter: int) -> Iterator[tuple[int, Any, Any, Any]]:
        sender = self._senders.get(name)
        if sender is None:
            return iter(())
        at = bisect_left(sender.counters, counter)
        columns = (sender.counters, *sender.columns)
        return zip(*(column[at : at + AHEAD] for column in columns), strict=True)

    def of_sender(self, key: SenderKey) -> tuple["array[int]", list[Column]] | None:
        """The counters of a sender's runs and what is known of them, in columns: to be read."""
        sender = self._senders.get(key)
        return None if sender is None else (sender.counters, sender.columns)

    def put(self, key: BatchKey, *values: Any) -> None:
        """Know this of a run from now on."""
        if key[4]:
            self._stages[key] = values
            return
        sender = self._sender(key[:3])
        counters = sender.counters
        if not counters or counters[-1] < key[3]:  # as nearly always
            counters.append(key[3])
            for column, value in zip(sender.columns, values, strict=True):
                column.append(value)
            self._count += 1
            return
        at = bisect_left(counters, key[3])
        if counters[at] == key[3]:
            for column, value in zip(sender.columns, values, strict=True):
                column[at] = value
            return
        counters.insert(at, key[3])
        for column, value in zip(sender.columns, values, strict=True):
            column.insert(at, value)
        self._count += 1

    def _sender(self, key: SenderKey) -> _Sender:
        sender = self._senders.get(key)
        if sender is None:
            sender = self._senders[key] = _Sender(self._codes)
        return sender

    def extend(self, key: SenderKey, counters: bytes, *columns: bytes) -> None:
        """The same of many runs of a sender, in any order. When all have been told, `sort`: nothing
        is found before."""
        sender = self._sender(key)
        sender.counters.frombytes(counters)
        for column, added in zip(sender.columns, columns, strict=True):
            column.frombytes(added)
        self._count += len(counters) // 8

    def append(self, key: BatchKey, *values: Any) -> None:
        """The same of one run or stage."""
        if key[4]:
            self._stages[key] = values
            return
        sender = self._sender(key[:3])
        sender.counters.append(key[3])
        for column, value in zip(sender.columns, values, strict=True):
            column.append(value)
        self._count += 1

    def sort(self) -> None:
        """Bring what was added into order; of what was told twice the later one counts."""
        for sender in self._senders.values():
            order = order_of(sender.counters)
            if order is not None:
                self._count -= len(sender.counters) - len(order)
                sender.counters = _picked(sender.counters, order)
                sender.columns = [_picked(column, order) for column in sender.columns]

    def pop(self, key: BatchKey) -> tuple[Any, ...] | None:
        """Forget a run; what was known of it."""
        found = self.get(key)
        if found is None:
            return None
        if key[4]:
            del self._stages[key]
            return found
        sender = self._senders[key[:3]]
        at = bisect_left(sender.counters, key[3])
        for column in (sender.counters, *sender.columns):
            del column[at]
        self._count -= 1
        if not sender.counters:
            del self._senders[key[:3]]
        return found

    def drop(self, keys: Iterable[BatchKey]) -> list[Any]:
        """Forget many runs; what the first column held for them. Runs of one sender mostly lie one
        behind the other."""
        dropped: list[Any] = []
        counters: dict[SenderKey, list[int]] = {}
        for key in keys:
            if not key[4] and key[:3] in self._senders:
                counters.setdefault(key[:3], []).append(key[3])
            elif (found := self.pop(key)) is not None:
                dropped.append(found[0])
        for name, wanted in counters.items():
            dropped += self._drop_runs(name, wanted)
        return dropped

    def _drop_runs(self, name: SenderKey, wanted: list[int]) -> list[Any]:
        sender = self._senders[name]
        wanted.sort()
        first = bisect_left(sender.counters, wanted[0])
        end = bisect_right(sender.counters, wanted[-1])
        dropped: list[Any] = []
        for begin, stop in reversed(_stretches(sender.counters[first:end].tolist(), wanted)):
            dropped += sender.columns[0][first + begin : first + stop].tolist()
            for column in (sender.counters, *sender.columns):
                del column[first + begin : first + stop]
        self._count -= len(dropped)
        if not sender.counters:
            del self._senders[name]
        return dropped

    def column(self, at: int) -> Iterator[Any]:
        """One column, sender by sender."""
        for sender in self._senders.values():
            yield from sender.columns[at].tolist()
        for values in self._stages.values():
            yield values[at]

    def keys(self) -> Iterator[BatchKey]:
        """All runs; what changes meanwhile may or may not be among them."""
        for (group, name, incarnation), sender in list(self._senders.items()):
            for counter in sender.counters.tolist():
                yield (group, name, incarnation, counter, 0)
        yield from list(self._stages)


class ByNumber:
    """From the numbers of one group to its runs."""

    __slots__ = (
        "_counters", "_index", "_senders", "_stages", "_who", "counts", "firsts", "group", "sents",
    )  # fmt: skip

    def __init__(self, group: int) -> None:
        self.group = group
        self.firsts = array("Q")  # sorted
        self.counts = array("I")
        self.sents = array("Q")  # when each was sent, in ms by its sender's clock; 0: not known
        self._who = array("I")  # which of the senders
        self._counters = array("Q")
        self._stages = array("I")
        self._senders: list[tuple[bytes, int]] = []
        self._index: dict[tuple[bytes, int], int] = {}

    def key_at(self, at: int) -> BatchKey:
        """The run at a place."""
        sender, incarnation = self._senders[self._who[at]]
        return (self.group, sender, incarnation, self._counters[at], self._stages[at])

    def slice(self, at: int, end: int) -> RunSlice:
        """The runs at these places."""
        columns = (self._who[at:end], self._counters[at:end], self._stages[at:end])
        return RunSlice(self.group, self._senders, *columns)

    def place_of(self, number: int) -> int:
        """Where the last run lies that begins at a number or before it; -1: there is none."""
        return bisect_right(self.firsts, number) - 1

    def _number_of_sender(self, sender: tuple[bytes, int]) -> int:
        who = self._index.get(sender)
        if who is None:
            who = self._index[sender] = len(self._senders)
            self._senders.append(sender)
        return who

    def put(self, number_first: int, count: int, sent_ms: int, key: BatchKey) -> None:
        """A run begins at this number, in the place of what began there before."""
        who = self._number_of_sender(key[1:3])
        firsts = self.firsts
        if not firsts or firsts[-1] < number_first:  # as nearly always
            firsts.append(number_first)
            self.counts.append(count)
            self.sents.append(sent_ms)
            self._who.append(who)
            self._counters.append(key[3])
            self._stages.append(key[4])
            return
        at = bisect_left(firsts, number_first)
        if firsts[at] == number_first:
            self.counts[at], self.sents[at], self._who[at] = count, sent_ms, who
            self._counters[at], self._stages[at] = key[3], key[4]
            return
        firsts.insert(at, number_first)
        self.counts.insert(at, count)
        self.sents.insert(at, sent_ms)
        self._who.insert(at, who)
        self._counters.insert(at, key[3])
        self._stages.insert(at, key[4])

    def extend(self, sender: tuple[bytes, int], counters: bytes, *numbered: bytes) -> None:
        """Runs of one sender with their first numbers, counts and times, in any order: `sort` must
        follow before anything is looked for."""
        firsts, counts, sents = numbered
        self._counters.frombytes(counters)
        self.firsts.frombytes(firsts)
        self.counts.frombytes(counts)
        added = len(counters) // 8
        self.sents.frombytes(sents or bytes(8 * added))
        self._who.extend(array("I", [self._number_of_sender(sender)]) * added)
        self._stages.frombytes(bytes(4 * added))

    def append(self, number_first: int, count: int, sent_ms: int, key: BatchKey) -> None:
        """The same for one run or stage."""
        self.firsts.append(number_first)
        self.counts.append(count)
        self.sents.append(sent_ms)
        self._who.append(self._number_of_sender(key[1:3]))
        self._counters.append(key[3])
        self._stages.append(key[4])

    def sort(self) -> None:
        """Bring what was added into the order of numbers; of runs that begin at the same number
        the one that was added last stays."""
        order = order_of(self.firsts)
        if order is not None:
            self.firsts, self.counts = _picked(self.firsts, order), _picked(self.counts, order)
            self._who, self._stages = _picked(self._who, order), _picked(self._stages, order)
            self._counters, self.sents = _picked(self._counters, order), _picked(self.sents, order)

    def cut(self, number: int, most: int = 2**31) -> list[BatchKey]:
        """Forget the runs all of whose numbers are at or below one, so many at most; which they
        were."""
        end = min(most, bisect_right(self.firsts, number))
        while end and self.firsts[end - 1] + self.counts[end - 1] - 1 > number:
            end -= 1
        keys = [self.key_at(at) for at in range(end)]
        for column in self._columns():
            del column[:end]
        self._forget_senders()
        return keys

    def _forget_senders(self) -> None:
        """Those that have no run here any more, when they are many."""
        if len(self._senders) < 2 * len(self.firsts) + SENDERS_SPARE:
            return
        still = sorted(set(self._who))
        place = {who: at for at, who in enumerate(still)}
        self._who = array("I", [place[who] for who in self._who])
        self._senders = [self._senders[who] for who in still]
        self._index = {sender: at for at, sender in enumerate(self._senders)}

    def remove(self, number_first: int) -> None:
        """No run begins at this number any more."""
        at = bisect_left(self.firsts, number_first)
        for column in self._columns():
            del column[at]

    def _columns(self) -> "tuple[array[int], ...]":
        numbered = (self.firsts, self.counts, self.sents)
        return (*numbered, self._who, self._counters, self._stages)


def _stretches(values: list[int], wanted: list[int]) -> list[tuple[int, int]]:
    """Where the wanted ones lie among the values, as stretches [first, end)."""
    if values == wanted:
        return [(0, len(values))]
    chosen = dict.fromkeys(wanted)
    found: list[tuple[int, int]] = []
    for at, value in enumerate(values):
        if value not in chosen:
            continue
        if found and found[-1][1] == at:
            found[-1] = (found[-1][0], at + 1)
        else:
            found.append((at, at + 1))
    return found


def order_of(values: "array[int]") -> list[int] | None:
    """The places of values in rising order, of equal ones the last; None if they rise already."""
    if all(map(lt, values, islice(values, 1, None))):
        return None
    plain = values.tolist()
    order = sorted(range(len(plain)), key=plain.__getitem__)  # equal ones as they came
    risen = itemgetter(*order)(plain)
    return list(compress(order, map(ne, risen, (*risen[1:], None))))


def _picked(column: Column, order: list[int]) -> Column:
    picked = Digests() if isinstance(column, Digests) else array(column.typecode)
    picked.extend(map(column.tolist().__getitem__, order))
    return picked
