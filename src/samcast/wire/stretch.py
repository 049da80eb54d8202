"""A piece of a data segment as it lies on a disk, for those who want columns.

Of runs of one message each, as slow senders make them, there are as many records as messages. A
data server that looked at each would do little else; so it tells where they begin, and who reads
them checks them and picks their parts, in columns.

Tags go on from those of `wire.handing`.
"""

import struct
from typing import TYPE_CHECKING, Any

from samcast.limits import SEGMENT_ALIGN_BYTES
from samcast.wire.batch import COUNTER_END_MAX, SENDER_BYTES
from samcast.wire.control import Control
from samcast.wire.errors import WireError
from samcast.wire.order import Natural
from samcast.wire.segment import MAGIC, checks_of

if TYPE_CHECKING:
    import pyarrow

SINGLE_RUNS_MAX = 8192  # of an answer
SINGLE_RUNS_MIN = 64  # fewer are soon looked at

# Where things are in a record that holds a run of one message: the u32 of its header, of the run's
# and of the prefix of its columns, and the u64 among them.
_MAGIC, _LENGTH, _GENERATION, _CHECK, _GROUP, _COUNT, _LENGTHS = 0, 2, 3, 4, 6, 16, (26, 27, 28)
_SENDER, _COUNTER, _SENT = (4, 5), 6, 11
_BODY_FROM = 24  # bytes of a record's header
_HEADERS_BYTES = 80 + 16  # of the run and of its columns' prefix
_OFFSETS_BYTES = 8  # of a column that is there: two offsets


class Stretch(Control, frozen=True, gc=False, array_like=True, tag=48):
    """Data server -> who asked for messages as they are stored: runs of one message each, which
    follow each other. Nobody has looked at what was read from the disk."""

    group: Natural
    number_first: Natural
    generation: Natural  # of the segment
    offset: Natural  # of `data` in it
    who: bytes  # which sender's, u32 for each run, in order
    counters: bytes  # u64, in order
    listed: bytes  # the senders, by the same u32
    senders: bytes  # and by name, 16 bytes each
    offsets: bytes  # u64, of the first sender's records in the segment, then of the next one's
    data: bytes


def arrow_of_stretch(stretch: Stretch) -> "pyarrow.RecordBatch":
    """The same columns as `wire.rows.arrow_of_rows` gives; a `WireError` if any record isn't the
    one that it should be, as it was written."""
    import pyarrow as arrow

    try:
        return _unpacked(stretch)
    except (arrow.ArrowException, OverflowError, struct.error) as error:
        raise _unsound(f"numbers out of range ({error})") from None


def _unpacked(stretch: Stretch) -> "pyarrow.RecordBatch":
    import pyarrow as arrow

    records = _Records(stretch)
    records.check()
    first, count = stretch.number_first, records.count
    names = ["number", "sender", "counter", "sent_ms", "key", "headers", "body"]
    bodies, keys, headers = records.cells()
    columns = [
        arrow.arange(first, first + count),
        records.senders(),
        records.counters,
        records.long(_SENT).cast(arrow.int64()),
        keys,
        headers,
        bodies,
    ]
    return arrow.RecordBatch.from_arrays(columns, names=names)


class _Records:
    """Where everything is, in columns."""

    def __init__(self, stretch: Stretch) -> None:
        import pyarrow as arrow
        import pyarrow.compute  # as `arrow.compute`

        self._arrow = arrow
        self._compute = arrow.compute
        self._stretch = stretch
        self.count = _checked_count(stretch)
        size = len(stretch.data)
        self._data = arrow.py_buffer(stretch.data)
        self._words = _view(arrow.uint32(), size // 4, self._data)
        self._longs = _view(arrow.uint64(), size // 8, self._data)
        self._who = self._which()
        self._at = self._places()
        self._order = arrow.compute.array_sort_indices(self._at)  # as they lie
        self.counters = _view(arrow.uint64(), self.count, stretch.counters)
        self._lengths = [self.word(at).cast(arrow.int64()) for at in _LENGTHS]

    def _which(self) -> Any:
        """Which of the senders that are listed sent each."""
        arrow, stretch = self._arrow, self._stretch
        listed = _view(arrow.uint32(), len(stretch.listed) // 4, stretch.listed)
        who = _view(arrow.uint32(), self.count, stretch.who)
        found = self._compute.index_in(who, value_set=listed)
        if found.null_count:
            raise _unsound("a run is of nobody")
        return found

    def _places(self) -> Any:
        """Where in the data each begins. The offsets are told sender by sender, so it is a sender's
        next one for each of its runs."""
        arrow, compute, stretch = self._arrow, self._compute, self._stretch
        offsets = _view(arrow.int64(), self.count, stretch.offsets)
        by_sender = compute.array_sort_indices(self._who)  # which keeps the order of each
        offsets = offsets.take(compute.array_sort_indices(by_sender))
        ends = compute.min_max(offsets).as_py()
        last = stretch.offset + len(stretch.data) - _BODY_FROM - _HEADERS_BYTES
        if ends["min"] < stretch.offset or ends["max"] > last:
            raise _unsound("a record begins beyond what came")
        at = compute.subtract(offsets, stretch.offset)
        if compute.max(compute.bit_wise_and(at, SEGMENT_ALIGN_BYTES - 1)).as_py():
            raise _unsound("a record begins where none can")
        return at

    def word(self, at: int) -> Any:
        """One u32 of each record."""
        return self._words.take(self._compute.add(self._compute.shift_right(self._at, 2), at))

    def long(self, at: int) -> Any:
        """One u64 of each record."""
        return self._longs.take(self._compute.add(self._compute.shift_right(self._at, 3), at))

    def check(self) -> None:
        """Each is what it should be, whole, and as it was written."""
        stretch = self._stretch
        for at, wanted in (
            (_MAGIC, MAGIC), (_GENERATION, stretch.generation), (_GROUP, stretch.group), (_COUNT, 1)
        ):  # fmt: skip
            self._compare(self.word(at), wanted)
        self._compare(self.long(_COUNTER), self.counters)
        names = _view(self._arrow.uint64(), len(stretch.senders) // 8, stretch.senders)
        for half, at in enumerate(_SENDER):
            which = self._compute.add(self._compute.multiply(self._who, 2), half)
            self._compare(self.long(at), names.take(which))
        length = self.word(_LENGTH).cast(self._arrow.int64())
        self._compare(length, self._compute.add(self._rooms()[-1], _HEADERS_BYTES))
        begins = self._compute.add(self._at, _BODY_FROM)
        ends = self._compute.add(begins, length)
        if self._compute.max(ends).as_py() > len(stretch.data):
            raise _unsound("a record goes beyond what came")
        if self._overlap(begins.take(self._order), ends.take(self._order)):
            raise _unsound("a record is told twice")  # Each copy would take memory.
        for numbers in (self.counters, self.long(_SENT)):
            if self._compute.max(numbers).as_py() >= COUNTER_END_MAX:
                raise _unsound("a counter or a time is out of range")
        offsets = self._compute.add(self._at, stretch.offset).to_pylist()
        spans = zip(begins.to_pylist(), ends.to_pylist(), strict=True)
        checks = checks_of(stretch.data, stretch.generation, offsets, spans)
        if checks != self.word(_CHECK).to_pylist():
            raise _unsound("a record isn't as it was written")

    def _overlap(self, begins: Any, ends: Any) -> bool:
        if self.count == 1:
            return False
        is_free = self._compute.less(ends.slice(0, self.count - 1), begins.slice(1))
        return not self._compute.all(is_free).as_py()

    def _compare(self, found: Any, wanted: Any) -> None:
        if not self._compute.all(self._compute.equal(found, wanted)).as_py():
            raise _unsound("a record is another one than was told")

    def _rooms(self) -> list[Any]:
        """For each column, and behind the last: how much those before it take."""
        compute, rooms = self._compute, [self._arrow.repeat(0, self.count)]
        for length in self._lengths:
            padded = compute.bit_wise_and(compute.add(length, 7), -8)
            is_there = compute.min_element_wise(length, 1)
            taken = compute.add(padded, compute.multiply(is_there, _OFFSETS_BYTES))
            rooms.append(compute.add(rooms[-1], taken))
        return rooms

    def senders(self) -> Any:
        """The sender of each."""
        stretch, arrow = self._stretch, self._arrow
        count = len(stretch.senders) // SENDER_BYTES
        return _view(arrow.binary(SENDER_BYTES), count, stretch.senders).take(self._who)

    def cells(self) -> list[Any]:
        """Bodies, keys and headers."""
        compute, order = self._compute, self._order
        picks = compute.multiply(compute.array_sort_indices(order), 2)
        first = compute.add(self._at, _BODY_FROM + _HEADERS_BYTES + _OFFSETS_BYTES)
        return [
            self._cells_at(compute.add(first, room).take(order), length, order, picks)
            for room, length in zip(self._rooms(), self._lengths, strict=False)
        ]

    def _cells_at(self, begins: Any, length: Any, order: Any, picks: Any) -> Any:
        """All that came as one array of binaries, in which each cell and each gap between two is
        one: so Arrow can pick the cells."""
        compute, arrow = self._compute, self._arrow
        if not compute.max(length).as_py():
            return _view(arrow.binary(), self.count, bytes(4 * self.count + 4), b"")
        ends = compute.add(begins, length.take(order))
        pairs = compute.add(begins, compute.multiply(ends, 2**32))  # as two u32 lie
        parts = _view(arrow.binary(), 2 * self.count - 1, pairs.buffers()[1], self._data)
        return parts.take(picks)


def _checked_count(stretch: Stretch) -> int:
    count, senders = len(stretch.who) // 4, len(stretch.listed) // 4
    is_short = any(len(cells) != 8 * count for cells in (stretch.counters, stretch.offsets))
    is_short |= len(stretch.who) != 4 * count or len(stretch.listed) != 4 * senders
    if (
        is_short
        or not 0 < count <= SINGLE_RUNS_MAX
        or len(stretch.senders) != SENDER_BYTES * senders
    ):
        raise _unsound("columns don't fit together")
    return count


def _unsound(why: str) -> WireError:
    return WireError("stretch-unsound", f"{why}; have its server look at it")


def _view(kind: Any, count: int, *buffers: Any) -> Any:
    import pyarrow as arrow

    return arrow.Array.from_buffers(kind, count, [None, *map(arrow.py_buffer, buffers)])
