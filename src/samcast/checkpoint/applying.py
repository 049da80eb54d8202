"""A fold at work in a server: its state is a `Table`, and messages are folded in as they come.

Those of a replicated table go in one by one, by the table's own rules. Others are gathered and
merged as columns, together with the rows that they meet.
"""

from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from samcast.checkpoint.folds import AnyFold, Fold, TableFold
from samcast.checkpoint.merging import merged, rows_of
from samcast.checkpoint.rows import MESSAGES, ROWS
from samcast.group.table import Row, Table
from samcast.wire.arrow import SENT_MS_MAX, arrow_of
from samcast.wire.batch import Batch, cells_of

GATHERED_MAX = 32_768  # messages
GATHERED_BYTES = 16 * 1024 * 1024


class Applying:
    """Of one group."""

    def __init__(self, fold: AnyFold, table: Table) -> None:
        self._fold = fold
        self.table = table
        self.reached = table.number  # some of it may still be waiting
        self.refused = self.refused_first = 0  # messages that the fold couldn't take
        self._waiting: list[pa.Table] = []
        self._count = self._bytes = 0

    def take(self, number_first: int, batch: Batch, last: int) -> None:
        """The messages of a batch up to the number `last`, without what is folded in already."""
        skip = self.reached + 1 - number_first
        count = last - self.reached
        assert skip >= 0, "messages come without a gap"
        if isinstance(self._fold, TableFold):
            bodies = islice(cells_of(batch)[0], skip, skip + count)
            for number, body in enumerate(bodies, self.reached + 1):
                malformed = self.table.malformed
                self.table.apply(number, body)
                if self.table.malformed != malformed:
                    self._refuse([number])
        else:
            self._waiting.append(messages_of(arrow_of(batch, number_first).slice(skip, count)))
            self._count += count
            self._bytes += len(batch.columns) * count // batch.count
        self.reached = last
        if self._count >= GATHERED_MAX or self._bytes >= GATHERED_BYTES:
            self.settle()

    def settle(self) -> None:
        """Have the table hold all that was taken."""
        if not self._waiting:
            return
        assert not isinstance(self._fold, TableFold)
        messages = pa.concat_tables(self._waiting)
        self._waiting, self._count, self._bytes = [], 0, 0
        self._refuse(fold_in(self._fold, self.table, messages))

    def _refuse(self, numbers: list[int]) -> None:
        if numbers:
            self.refused_first = self.refused_first or numbers[0]
            self.refused += len(numbers)


def messages_of(batch: pa.RecordBatch) -> pa.Table:
    """What a fold is told of messages."""
    table = pa.Table.from_batches([batch]).select(MESSAGES.names)
    sent_ms = pc.min_element_wise(table["sent_ms"], pa.scalar(SENT_MS_MAX, pa.int64()))
    at = MESSAGES.get_field_index("sent_ms")
    return table.set_column(at, "sent_ms", sent_ms).cast(MESSAGES)


def fold_in(fold: Fold, table: Table, messages: pa.Table) -> list[int]:
    """Merge messages into a table; the numbers of those that the fold can't take."""
    rows, refused = rows_of(fold, messages)
    if not getattr(fold, "replaces", False):
        keys = rows["key"].unique().to_pylist()
        there = [(key, row) for key in keys if (row := table.get(key)) is not None]
        rows = pa.concat_tables([_columns(there), rows])
    result = merged(fold, rows).to_pydict()
    table.merge(messages["number"][-1].as_py(), len(messages), *list(result.values())[:3])
    return refused


def _columns(rows: list[tuple[bytes, Row]]) -> pa.Table:
    lists = (
        [key for key, _ in rows],
        [row.value for _, row in rows],
        [row.number for _, row in rows],
        [row.expires_ms for _, row in rows],
    )
    arrays = [pa.array(one, kind) for one, kind in zip(lists, ROWS.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ROWS)
