"""The Spark format `samcast`: `spark.read.format("samcast")`, `readStream`, `write`, `writeStream`.

The offset of a stream is the next number. Partitions are ranges of numbers, each begun at another
node. What a query has not read yet is kept for it by a lease.

A source in Python is told neither the query's id nor its checkpoint folder; but its offsets lie in
that folder, so the name of the lease is part of them, and a query that starts again has its own
lease again. Nor is it told why it ends: `stop` is called when the driver is killed, too, and the
lease is there for just that time, so it is not given back then.
"""

import inspect
import secrets
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from samcast.archive.index import open_archive
from samcast.errors import CollectedError, ConfigError
from samcast.pipeline.encoding import OF_GROUP, OF_TABLE, check_columns
from samcast.pipeline.options import COLUMNS, ReadOptions, read_options, write_options
from samcast.pipeline.reading import (
    all_nodes,
    archived_batches,
    connected,
    end_number,
    first_number,
    oldest_number,
    open_group,
    ranges,
    record_batches,
    turned,
)
from samcast.pipeline.sink import StreamWriter, Target, Writer, target_of
from samcast.pipeline.tables import SCHEMA as TABLE_SCHEMA
from samcast.pipeline.tables import TableReader, check_table
from samcast.runtime.memory import keep_freed
from samcast.wire.rows import ANY_TIME

if TYPE_CHECKING:
    import pyarrow

TYPES = {
    "number": "long", "destination": "string", "sent": "timestamp", "sender": "binary",
    "counter": "long", "key": "binary", "headers": "binary", "body": "binary",
}  # fmt: skip
NUMBER = ("number",)
SENT = ("sent",)
Offset = dict[str, int | str]  # the next number, and the lease of the query
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Range(InputPartition):
    """The messages of one task."""

    def __init__(
        self,
        cluster: str,
        first: int,
        end: int,
        sent: tuple[int, int] = ANY_TIME,
        archive: str = "",
    ) -> None:
        super().__init__((first, end))
        self.archive = archive  # in which they are, "": in none
        self.cluster = cluster
        self.first = first
        self.end = end
        self.sent = sent  # in ms: not before, and before


class SamcastSource(DataSource):
    """A group as a table."""

    @classmethod
    def name(cls) -> str:
        return "samcast"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._said = dict(options)  # Whether to read or to write is not known yet.

    def schema(self) -> str:
        """Asked for as soon as a query names us: a mistake is told then, and not by a worker."""
        options = read_options(self._said)
        if options.table:
            with connected(options.cluster) as client:
                check_table(client, options.table)
            return TABLE_SCHEMA
        with connected(options.cluster) as client:
            first_number(open_group(client, options.group), options)
        return ", ".join(f"{column} {TYPES[column]}" for column in options.columns)

    def reader(self, schema: Any) -> DataSourceReader:
        options = read_options(self._said)
        if options.table:
            return TableReader(options)
        return FilteringReader(options) if _pushes_filters() else Reader(options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = read_options(self._said)
        if options.table:
            raise ConfigError(
                "a table is no stream: read it with spark.read, and join that to a stream; or read"
                f" its changes as the group table/{options.table}"
            )
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ConfigError("nothing here is overwritten: write with mode('append')")
        target, name = self._target(schema)
        return Writer(target, name, write_options(self._said).batch)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        target, name = self._target(schema)
        if overwrite and not target.is_table:  # To a table, the whole result is just more puts.
            raise ConfigError("a group is not overwritten: write with outputMode('append')")
        return StreamWriter(target, name)

    def _target(self, schema: StructType) -> tuple[Target, str]:
        options = write_options(self._said)
        takes, what = (OF_TABLE, "a table") if options.table else (OF_GROUP, "a group")
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        check_columns(fields, takes, what)
        return target_of(options), options.name


class Reader(DataSourceReader):
    """What there is now, or a part of it."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._above = 0  # by filters: no number up to this one
        self._below = 2**62  # nor from this one on
        self._sent = ANY_TIME  # by filters, too
        with connected(options.cluster) as client:
            group = open_group(client, options.group)
            self._first = first_number(group, options)
            self._end = end_number(group, options, self._first)
            self._cluster = all_nodes(client)

    def partitions(self) -> Sequence[InputPartition]:
        """One per core, each from another node."""
        first = max(self._first, self._above + 1)
        end = min(self._end, self._below)
        return _partitions(self._cluster, self._options, first, end, self._sent)

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """In a worker."""
        return _rows(self._options, partition)


class FilteringReader(Reader):
    """The same for a session that pushes filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Those about the number become the range that is read; by those about the time servers
        leave out what they can, and Spark looks at the rest."""
        for one in filters:
            attribute, value = getattr(one, "attribute", None), getattr(one, "value", None)
            if attribute == SENT and isinstance(value, datetime):
                self._sent = narrowed(self._sent, one, value)
                yield one
            elif attribute != NUMBER or type(value) is not int or not self._narrow(one, value):
                yield one

    def _narrow(self, one: Filter, value: int) -> bool:
        if type(one) is EqualTo:
            self._above, self._below = max(self._above, value - 1), min(self._below, value + 1)
        elif type(one) is GreaterThan or type(one) is GreaterThanOrEqual:
            self._above = max(self._above, value - (type(one) is GreaterThanOrEqual))
        elif type(one) is LessThan or type(one) is LessThanOrEqual:
            self._below = min(self._below, value + (type(one) is LessThanOrEqual))
        else:
            return False
        return True


def narrowed(sent: tuple[int, int], one: Filter, value: datetime) -> tuple[int, int]:
    """The times, in ms, that are left by a filter on the time; none is lost that it lets pass."""
    if value.tzinfo is None:
        return sent  # Of which zone is Spark's to say.
    first, end = sent
    micros = (value - EPOCH) // timedelta(microseconds=1)
    floor, ceiling = micros // 1000, -(-micros // 1000)
    if type(one) is EqualTo:
        first, end = max(first, floor), min(end, floor + 1)
    elif type(one) is GreaterThan or type(one) is GreaterThanOrEqual:
        first = max(first, ceiling)
    elif type(one) is LessThan or type(one) is LessThanOrEqual:
        end = min(end, floor + 1)
    return first, max(0, end)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What comes, batch by batch."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._lease_new = f"spark-{secrets.token_hex(8)}"  # for a query that has none yet
        self._until: int | None = None  # of an available-now query
        with connected(options.cluster) as client:
            open_group(client, options.group)
            self._cluster = all_nodes(client)

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        with connected(self._cluster) as client:
            first = first_number(open_group(client, self._options.group), self._options)
        return self._offset(first, self._lease_new)

    def _offset(self, number: int, lease: str) -> Offset:
        """A name that the user gave is in the options, each time."""
        return {"number": number} if self._options.lease else {"number": number, "lease": lease}

    def _lease_of(self, offset: Offset) -> str:
        return self._options.lease or str(offset.get("lease") or self._lease_new)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._options.rows_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._until = self._head() + 1

    def _head(self) -> int:
        with connected(self._cluster) as client:
            return open_group(client, self._options.group).head()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """As far as the limit allows; the numbers before are not needed any more."""
        first = int(start["number"])
        with connected(self._cluster) as client:
            group = open_group(client, self._options.group)
            end = self._until if self._until is not None else group.head() + 1
            if self._options.end is not None:
                end = min(end, self._options.end)
            oldest = oldest_number(group, self._options)
            if first < oldest:
                raise CollectedError(
                    f"messages {first} to {oldest - 1} of group {group.name!r} are gone: the query"
                    " came back too late for its lease, or its group lets messages go faster. Go on"
                    " from a checkpoint or an archive, with a new checkpoint folder and option"
                    f" start={oldest}"
                )
            self._hold(group, self._lease_of(start), first - 1)
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        elif not isinstance(limit, ReadAllAvailable):
            end = min(end, first + self._options.rows_per_trigger)
        return self._offset(max(first, end), self._lease_of(start))

    def _hold(self, group: Any, lease: str, number: int) -> None:
        """Have all behind a number stay until we have read it."""
        options = self._options
        if options.archive:  # What is gone is there, and can't be held.
            number = max(number, group.oldest() - 1)
        group.lease(lease, number, ttl=float(options.lease_seconds))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        first, last = int(start["number"]), int(end["number"])
        return _partitions(self._cluster, self._options, first, last)

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """In a worker."""
        return _rows(self._options, partition)

    def commit(self, end: Offset) -> None:
        """Spark has it for good."""
        with connected(self._cluster) as client:
            group = open_group(client, self._options.group)
            self._hold(group, self._lease_of(end), int(end["number"]) - 1)


def _pushes_filters() -> bool:
    """Whether Spark asks so that it can push filters down. A session that isn't set to (as none is,
    if nobody says so) refuses readers that could, so it is not to see one; who asks is known by its
    file alone."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith("data_source_pushdown_filters.py"):
            return True
        frame = frame.f_back
    return False


def _partitions(
    cluster: str, options: ReadOptions, first: int, end: int, sent: tuple[int, int] = ANY_TIME
) -> Sequence[InputPartition]:
    if first >= end:
        return [Range(cluster, first, first)]  # Spark makes one of its own of an empty list.
    parts: list[InputPartition] = []
    archive_end = open_archive(Path(options.archive)).end if options.archive else 0
    for turn, (a, b) in enumerate(ranges(first, end, options.partitions)):
        middle = min(max(a, archive_end), b)
        if a < middle:
            parts.append(Range("", a, middle, sent, options.archive))
        if middle < b:
            parts.append(Range(turned(cluster, turn), middle, b, sent))
    return parts


def _rows(options: ReadOptions, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
    keep_freed()  # A fifth to a third of what reading costs this process otherwise.
    if not isinstance(partition, Range):
        return iter(())
    span = (partition.first, partition.end, options.rows_per_batch)
    if partition.archive:
        found = archived_batches(partition.archive, *span)
    else:
        found = _from_cluster(options, partition)
    if options.columns == COLUMNS:
        return found
    return (batch.select(list(options.columns)) for batch in found)


def _from_cluster(options: ReadOptions, part: Range) -> "Iterator[pyarrow.RecordBatch]":
    """What goes from the cluster while we read was archived before, if there is an archive."""
    at, rows = part.first, options.rows_per_batch
    try:
        for batch in record_batches(part.cluster, options.group, at, part.end, rows, part.sent):
            at = batch.column(0)[batch.num_rows - 1].as_py() + 1
            yield batch
    except CollectedError:
        if not options.archive:
            raise
        yield from archived_batches(options.archive, at, part.end, rows)
