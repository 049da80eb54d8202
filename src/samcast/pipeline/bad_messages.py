"""Messages that a fold can't take: counted, and kept aside with their numbers, if somebody wants
them; or the end of the job."""

from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from samcast.errors import DiskError, FoldError

ASIDE = pa.schema([("number", pa.int64()), ("key", pa.large_binary()), ("body", pa.large_binary())])


class BadMessages:
    """Of one job."""

    def __init__(self, fold: str, stops: bool, aside: Path | None) -> None:
        self._fold = fold
        self._stops = stops
        self._aside = aside
        self._writer: pq.ParquetWriter | None = None
        self.count = self.first = 0

    def __enter__(self) -> "BadMessages":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    def take(self, messages: pa.Table, numbers: list[int]) -> None:
        """These of the messages are bad."""
        if not numbers:
            return
        self.count += len(numbers)
        self.first = self.first or numbers[0]
        if self._stops:
            raise FoldError(
                f"message {numbers[0]} is nothing that fold {self._fold!r} can take, and the job is"
                " to stop then (--bad stop); look at it, or go on without (--bad skip)"
            )
        if self._aside is not None:
            rows = messages.filter(pc.is_in(messages["number"], pa.array(numbers, pa.int64())))
            try:
                if self._writer is None:
                    self._writer = pq.ParquetWriter(self._aside, ASIDE)
                self._writer.write_table(rows.select(ASIDE.names).cast(ASIDE))
            except OSError as error:
                raise DiskError(f"{self._aside} can't be written: {error}") from None
