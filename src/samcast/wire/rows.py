"""Ranges of a group's messages for those who want columns and not batches.

Where runs are long they are sent as they are. Where they are short, as many slow senders make them,
a data server puts many into one answer: columns of all their messages as in a batch, and beside
them one cell per run of what its messages have in common.

Tags go on from those of `wire.stages`.
"""

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from samcast.wire.arrow import arrow_cells
from samcast.wire.batch import (
    ABSENT,
    BATCH_HEADER_BYTES,
    SENDER_BYTES,
    Source,
    assemble,
    check_columns,
    check_count,
    spans_of,
)
from samcast.wire.control import Control
from samcast.wire.errors import WireError
from samcast.wire.order import Natural

if TYPE_CHECKING:
    import pyarrow

ANY_TIME = (0, 2**62)
SHORT_RUN_MAX = 256  # messages; longer ones are cheap as they are
RUNS_MAX = 2048  # of an answer: a few milliseconds of a server's time

# Of a stored run: sender, counter_first, count, stage, sent_ms, and the prefix of its columns.
_RUN = struct.Struct("<8x16sQ8xII16xQ8xIIII")
_ONE_BODY = 1  # flags of a run that has bodies and nothing else
_ONE_BODY_FROM = BATCH_HEADER_BYTES + 16 + 8  # of a run of one message


class RowsRequest(Control, frozen=True, gc=False, array_like=True, tag=41):
    """Anyone -> data server: messages from a number on, up to another."""

    group: Natural
    number_first: Natural
    number_end: Natural
    sent: tuple[Natural, Natural] = ANY_TIME  # in ms: not before, and before
    as_stored: bool = False  # runs of one message may come as a `Stretch`


class Rows(Control, frozen=True, gc=False, array_like=True, tag=42):
    """Data server -> who asked: short runs that follow each other; none: it can't go on from
    there."""

    group: Natural
    number_first: Natural
    counts: bytes = b""  # of messages, u32 for each run
    counters: bytes = b""  # the first one's, u64
    sent_ms: bytes = b""  # u64
    who: bytes = b""  # which of the senders, u32
    stages: bytes = b""  # u32, as of batches
    senders: bytes = b""  # 16 bytes each
    columns: bytes = b""  # as of one batch


class Skipped(Control, frozen=True, gc=False, array_like=True, tag=43):
    """Data server -> who asked for messages of some time: these are all here, and of another."""

    group: Natural
    number_first: Natural
    number_end: Natural


def gather(group: int, number_first: int, payloads: Sequence[bytes]) -> Rows:
    """One answer from stored runs, the first of which has this number."""
    if not payloads:
        return Rows(group, number_first)
    heads = zip(*map(_RUN.unpack_from, payloads), strict=True)  # in columns, and not run by run
    names, counters, counts, stages, sent, lengths, _, _, flags = heads
    senders: dict[bytes, int] = {}
    who = [senders.setdefault(name, len(senders)) for name in names]
    columns = (Gathered(), Gathered(), Gathered())
    bodies = columns[0]
    if max(counts) == 1 and set(flags) == {_ONE_BODY}:
        ends = [_ONE_BODY_FROM + length for length in lengths]
        bodies.cells = [p[_ONE_BODY_FROM:end] for p, end in zip(payloads, ends, strict=True)]
        bodies.lengths = list(lengths)
    else:
        for payload, count in zip(payloads, counts, strict=True):
            _add_run(payload, count, columns)
    return Rows(
        group,
        number_first,
        array("I", counts).tobytes(),
        array("Q", counters).tobytes(),
        array("Q", sent).tobytes(),
        array("I", who).tobytes(),
        array("I", stages).tobytes(),
        b"".join(senders),
        assemble([column.source() for column in columns]),
    )


class Gathered:
    """One column of many runs."""

    def __init__(self) -> None:
        self.lengths: list[int] = []  # of each message's cell
        self.cells: list[bytes] = []  # of runs, or of messages

    def source(self) -> Source:
        """As `assemble` takes it."""
        if not self.cells:
            return ABSENT
        offsets = array("i", accumulate(self.lengths, initial=0))
        return offsets.tobytes(), offsets[-1], self.cells


def _add_run(payload: bytes, count: int, columns: Sequence[Gathered]) -> None:
    stored = payload[BATCH_HEADER_BYTES:]
    for column, (offsets_at, block_at, length) in zip(
        columns, spans_of(stored, count)[0], strict=True
    ):
        if not length:
            column.lengths += [0] * count
            continue
        offsets = array("i", stored[offsets_at : offsets_at + 4 * (count + 1)])
        column.lengths += [b - a for a, b in pairwise(offsets)]
        column.cells.append(stored[block_at : block_at + length])


def count_of(rows: Rows) -> int:
    """How many messages these are; a `WireError` if they don't fit together, for what is read from
    them goes by these lengths."""
    runs = len(rows.counts) // 4
    is_short = any(len(cells) != 4 * runs for cells in (rows.counts, rows.who, rows.stages))
    is_short |= any(len(cells) != 8 * runs for cells in (rows.counters, rows.sent_ms))
    if is_short or len(rows.senders) % SENDER_BYTES:
        raise WireError("rows-lengths", f"columns of {runs} runs don't fit together; drop them")
    if not runs:
        return 0
    count = sum(array("I", rows.counts))
    is_of_nobody = max(array("I", rows.who)) >= len(rows.senders) // SENDER_BYTES
    if is_of_nobody or 0 in array("I", rows.counts):
        raise WireError("rows-senders", "a run is of nobody, or of nothing; drop them")
    check_count(count)
    check_columns(rows.columns, count)
    return count


def arrow_of_rows(rows: Rows) -> "pyarrow.RecordBatch":
    """The same columns as `wire.arrow.arrow_of` gives, but for the incarnation."""
    import pyarrow as arrow
    import pyarrow.compute  # as `arrow.compute`

    counts = array("I", rows.counts)
    count = sum(counts)
    runs = len(counts)
    senders = arrow.FixedSizeBinaryArray.from_buffers(
        arrow.binary(SENDER_BYTES),
        len(rows.senders) // SENDER_BYTES,
        [None, arrow.py_buffer(rows.senders)],
    )
    who = _column(arrow, arrow.uint32(), runs, rows.who)
    counters = _column(arrow, arrow.uint64(), runs, rows.counters)
    sent_ms = _column(arrow, arrow.int64(), runs, rows.sent_ms)
    numbers = arrow.arange(rows.number_first, rows.number_first + count)
    if runs != count:
        ends = arrow.array(accumulate(counts), arrow.int32())
        each = arrow.RunEndEncodedArray.from_arrays(ends, arrow.arange(0, runs))
        at = arrow.compute.run_end_decode(each)
        firsts = arrow.array(accumulate(counts[:-1], initial=0), arrow.int64())
        within = arrow.compute.subtract(arrow.arange(0, count), firsts.take(at))
        # The messages of a transaction share its counter.
        is_run = arrow.compute.equal(_column(arrow, arrow.uint32(), runs, rows.stages), 0)
        within = arrow.compute.multiply(within, is_run.cast(arrow.int64()).take(at))
        who, sent_ms = who.take(at), sent_ms.take(at)
        counters = arrow.compute.add(counters.take(at), within.cast(arrow.uint64()))
    cells = arrow_cells(rows.columns, count)
    names = ["number", "sender", "counter", "sent_ms", "key", "headers", "body"]
    return arrow.RecordBatch.from_arrays(
        [numbers, senders.take(who), counters, sent_ms, *cells], names=names
    )


def _column(arrow: Any, kind: Any, count: int, data: bytes) -> Any:
    return arrow.Array.from_buffers(kind, count, [None, arrow.py_buffer(data)])
