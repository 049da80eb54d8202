"""A replicated table as rows: what it holds when the query is planned, or later."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader

from samcast.client.blocking import TABLES, Client
from samcast.errors import ConfigError
from samcast.pipeline.options import ReadOptions
from samcast.pipeline.reading import all_nodes, connected

if TYPE_CHECKING:
    import pyarrow

SCHEMA = "key binary, value binary"


def check_table(client: Client, name: str) -> None:
    """An error that says which tables there are."""
    groups = client.groups()
    if TABLES + name not in groups:
        tables = [group[len(TABLES) :] for group in groups if group.startswith(TABLES)]
        there = ", ".join(sorted(tables)[:10]) or "none"
        raise ConfigError(f"there is no table {name!r} here; there are: {there}")


class TableReader(DataSourceReader):
    """All of its rows, in one task: every member holds all of them anyway."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        with connected(options.cluster) as client:
            check_table(client, options.table)
            self._cluster = all_nodes(client)

    def read(self, partition: Any) -> "Iterator[pyarrow.RecordBatch]":
        """In a worker."""
        import pyarrow as arrow

        kind = arrow.schema([("key", arrow.binary()), ("value", arrow.binary())])
        with connected(self._cluster) as client:
            rows = iter(client.table(self._options.table).items())
            while part := list(islice(rows, self._options.rows_per_batch)):
                keys, values = zip(*part, strict=True)
                yield arrow.RecordBatch.from_arrays(
                    [arrow.array(keys, arrow.binary()), arrow.array(values, arrow.binary())],
                    schema=kind,
                )
