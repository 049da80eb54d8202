"""Rows of Spark as columns of messages: of a group as they are, of a table as changes.

What a sink takes is told by the columns' names; what doesn't fit is refused when the query is
planned.
"""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from samcast.errors import ConfigError
from samcast.limits import BATCH_COLUMNS_BYTES_MAX, BATCH_MESSAGES_MAX
from samcast.wire.arrow import columns_from_arrow
from samcast.wire.batch import columns_from_cells
from samcast.wire.table import KEY_BYTES_MAX, Change, Delete, Put, encode_change

if TYPE_CHECKING:
    import pyarrow

# Stages begin short, so that a small batch is few bytes, and grow, so that a large one is few
# stages: a decision names each of them.
STAGE_BYTES_FIRST = 1024 * 1024
STAGE_BYTES_MAX = 16 * 1024 * 1024
PIECE_BYTES_MAX = (BATCH_COLUMNS_BYTES_MAX - STAGE_BYTES_MAX) // 2  # goes on top of a full stage
WRITES_PER_CHANGE = 1000
CHANGE_BYTES_MAX = 4 * 1024 * 1024

Columns = tuple[bytes, int]  # of messages, and how many
OF_GROUP = {"body": True, "key": False, "headers": False}  # and whether it must be there
OF_TABLE = {"key": True, "value": True}
TEXT = ("string", "binary")


def check_columns(fields: Iterable[tuple[str, str]], takes: dict[str, bool], what: str) -> None:
    """Refuse rows that don't fit, from the names and types of their columns."""
    found = dict(fields)
    there = ", ".join(f"{name} {kind}" for name, kind in found.items())
    wanted = ", ".join(takes)
    for name, must in takes.items():
        if must and name not in found:
            raise ConfigError(
                f"{what} needs a column {name!r} (string or binary), and the rows have: {there};"
                f" for example `to_json(struct('*')).alias({name!r})`"
            )
    for name, kind in found.items():
        if name not in takes:
            raise ConfigError(
                f"{what} has no place for column {name!r}; select those that it takes: {wanted}"
            )
        if kind not in TEXT:
            raise ConfigError(f"column {name!r} is {kind}; cast it to string or binary")


def stages_of_group(batches: "Iterable[pyarrow.RecordBatch]") -> Iterator[Columns]:
    """Messages as they are, in stages of growing length."""
    import pyarrow as arrow

    waiting: list[Any] = []
    size, rows, most = 0, 0, STAGE_BYTES_FIRST
    for batch in batches:
        for piece in _cut(batch, PIECE_BYTES_MAX, BATCH_MESSAGES_MAX // 4):
            waiting.append(piece)
            size, rows = size + piece.nbytes, rows + piece.num_rows
            if size >= most or rows >= BATCH_MESSAGES_MAX // 2:
                yield _columns(arrow, waiting)
                waiting, size, rows, most = [], 0, 0, min(2 * most, STAGE_BYTES_MAX)
    if rows:
        yield _columns(arrow, waiting)


def _columns(arrow: Any, batches: list[Any]) -> Columns:
    whole = arrow.Table.from_batches(batches).combine_chunks().to_batches()[0]
    return columns_from_arrow(whole), whole.num_rows


def _cut(
    batch: "pyarrow.RecordBatch", bytes_max: int, rows_max: int
) -> "Iterator[pyarrow.RecordBatch]":
    """In halves until each is short enough, or a single row."""
    if not batch.num_rows:
        return
    if batch.num_rows == 1 or (batch.nbytes <= bytes_max and batch.num_rows <= rows_max):
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half), bytes_max, rows_max)
    yield from _cut(batch.slice(half), bytes_max, rows_max)


def stages_of_table(batches: "Iterable[pyarrow.RecordBatch]") -> Iterator[Columns]:
    """Changes of a table: a row with a value puts it, one without deletes its key."""
    bodies: list[bytes] = []
    size, most = 0, STAGE_BYTES_FIRST
    for batch in batches:
        for piece in _cut(batch, CHANGE_BYTES_MAX, WRITES_PER_CHANGE):
            body = _change(piece)
            if bodies and size + len(body) > most:
                yield columns_from_cells(bodies), len(bodies)
                bodies, size, most = [], 0, min(2 * most, STAGE_BYTES_MAX)
            bodies.append(body)
            size += len(body)
    if bodies:
        yield columns_from_cells(bodies), len(bodies)


def _change(rows: "pyarrow.RecordBatch") -> bytes:
    import pyarrow as arrow

    keys = rows.column("key").cast(arrow.binary()).to_pylist()
    values = rows.column("value").cast(arrow.binary()).to_pylist()
    for key in keys:
        if key is None or len(key) > KEY_BYTES_MAX:
            what = "null" if key is None else f"{len(key)} bytes long ({key[:40]!r}...)"
            raise ConfigError(f"a key is {what}; a table's keys have 0 to {KEY_BYTES_MAX} bytes")
    writes = tuple(
        Put(key, value) if value is not None else Delete(key)
        for key, value in zip(keys, values, strict=True)
    )
    return encode_change(Change(writes, clock_ms=round(time.time() * 1000)))
