"""A fold at work in one process that wants speed: the whole state is one Arrow table, and messages
are merged into it in large portions."""

import pyarrow as pa

from samcast.checkpoint.folds import Fold
from samcast.checkpoint.merging import living, merged, rows_of
from samcast.checkpoint.rows import ROWS

PORTION = 2_000_000  # rows, or as many as the state has, before they are merged
PORTION_BYTES = 1024**3


class Columns:
    """A state, from a checkpoint or from nothing on."""

    def __init__(self, fold: Fold, rows: pa.Table | None = None) -> None:
        self._fold = fold
        self._state = rows.cast(ROWS) if rows is not None else ROWS.empty_table()
        self._waiting: list[pa.Table] = []
        self._count = self._bytes = 0

    def take(self, messages: pa.Table) -> list[int]:
        """Fold messages in; the numbers of those that the fold can't take."""
        rows, refused = rows_of(self._fold, messages)
        self._waiting.append(rows)
        self._count += len(rows)
        self._bytes += rows.nbytes
        enough = max(PORTION, len(self._state)), max(PORTION_BYTES, self._state.nbytes)
        if self._count >= enough[0] or self._bytes >= enough[1]:
            self._merge()
        return refused

    def rows(self) -> pa.Table:
        """The state as it is now, in the order of keys."""
        self._merge()
        return self._state

    def _merge(self) -> None:
        if self._waiting:
            self._state = living(
                merged(self._fold, pa.concat_tables([self._state, *self._waiting]))
            )
            self._waiting, self._count, self._bytes = [], 0, 0
