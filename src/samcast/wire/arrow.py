"""Batches and Arrow: columns from record batches and back, without a look at single messages."""

from array import array
from functools import cache
from typing import TYPE_CHECKING, Any

from samcast.wire.batch import (
    ABSENT,
    COLUMN_NAMES,
    COUNTER_END_MAX,
    SENDER_BYTES,
    Batch,
    Source,
    assemble,
    check_count,
    check_size,
    spans_of,
)
from samcast.wire.errors import WireError

if TYPE_CHECKING:
    import pyarrow


SENT_MS_MAX = (2**63 - 1) // 1000  # so that it can be told in microseconds, too


def columns_from_arrow(record_batch: "pyarrow.RecordBatch") -> bytes:
    """Columns of a `pyarrow.RecordBatch` with `body`, and `key` and `headers` if it has them.

    They may be binary, large_binary, string or large_string, and slices. A null key or headers is
    an empty one; a null body is refused. Other columns are left out.
    """
    check_count(record_batch.num_rows)
    return assemble([_source_of_arrow(record_batch, name) for name in COLUMN_NAMES])


def arrow_of(batch: Batch, number_first: int) -> "pyarrow.RecordBatch":
    """A `pyarrow.RecordBatch` of the messages, the first of which has this number.

    Key, headers and body are views of `batch.columns`, which they keep alive. The sender is a plain
    fixed-size column: a dictionary would be smaller, but batches of several senders would then
    need unified dictionaries before they could be written to one file.
    """
    count = batch.count
    assert 1 <= number_first <= COUNTER_END_MAX - count, f"no number of {count}: {number_first}"
    arrow = _pyarrow()
    if batch.stage == 0:
        counters = _consecutive(arrow, batch.counter_first, count)
    else:
        counters = arrow.py_buffer(batch.counter_first.to_bytes(8, "little") * count)
    fixed = (
        _consecutive(arrow, number_first, count),
        arrow.py_buffer(batch.sender * count),
        arrow.py_buffer(batch.incarnation.to_bytes(4, "little") * count),
        counters,
        arrow.py_buffer(batch.sent_ms.to_bytes(8, "little") * count),
    )
    schema = _arrow_schema()
    arrays = [
        arrow.Array.from_buffers(kind, count, [None, buffer])
        for kind, buffer in zip(schema.types, fixed, strict=False)
    ]
    arrays += arrow_cells(batch.columns, count)
    return arrow.RecordBatch.from_arrays(arrays, schema=schema)


def arrow_cells(columns: bytes, count: int) -> list[Any]:
    """Keys, headers and bodies as arrays: views of the columns, which must have been checked."""
    arrow = _pyarrow()
    bodies, keys, headers = spans_of(columns, count)[0]
    whole, size = arrow.py_buffer(columns), 4 * (count + 1)
    found: list[Any] = []
    for offsets_at, block_at, length in (keys, headers, bodies):
        offsets = whole.slice(offsets_at, size) if length else arrow.py_buffer(bytes(size))
        buffers = [None, offsets, whole.slice(block_at, length)]
        found.append(arrow.Array.from_buffers(arrow.binary(), count, buffers))
    return found


def _source_of_arrow(record_batch: "pyarrow.RecordBatch", name: str) -> Source:
    places = record_batch.schema.get_all_field_indices(name)
    if not places and name != "body":
        return ABSENT
    if len(places) != 1:
        raise WireError(
            "batch-arrow-column",
            f"{len(places)} columns are called {name!r} among {record_batch.schema.names};"
            " give exactly one",
        )
    arrow = _pyarrow()
    cells = record_batch.column(places[0])
    is_long = cells.type in (arrow.large_binary(), arrow.large_string())
    if not is_long and cells.type not in (arrow.binary(), arrow.string()):
        raise WireError(
            "batch-arrow-type",
            f"column {name!r} is {cells.type}; cast it to binary, large_binary, string or"
            " large_string",
        )
    if cells.null_count:
        if name == "body":
            raise WireError(
                "batch-arrow-null",
                f"{cells.null_count} of {len(cells)} bodies are null; fill or filter them",
            )
        cells = cells.fill_null(arrow.scalar(b"", arrow.binary()).cast(cells.type))
    _, offsets_buffer, block = cells.buffers()
    offsets = arrow.Array.from_buffers(
        arrow.int64() if is_long else arrow.int32(),
        len(cells) + 1,
        [None, offsets_buffer],
        offset=cells.offset,
    )
    first, end = offsets[0].as_py(), offsets[len(cells)].as_py()
    length = end - first
    if not length:
        return ABSENT
    check_size(length)
    if first != 0 or is_long:
        # Typed, since Arrow is slow to guess the type of a Python integer.
        base = arrow.scalar(first, offsets.type)
        offsets = arrow.compute.subtract(offsets, base).cast(arrow.int32())
    view = memoryview(offsets.buffers()[1])[4 * offsets.offset :][: 4 * len(offsets)]
    return view, length, (memoryview(block)[first:end],)


def _consecutive(arrow: Any, first: int, count: int) -> Any:
    """A buffer of int64 that count up; they are uint64 as well."""
    if first + count == COUNTER_END_MAX:
        return arrow.py_buffer(array("q", range(first, first + count)))  # no end for arange
    return arrow.arange(first, first + count).buffers()[1]


@cache
def _arrow_schema() -> Any:
    arrow = _pyarrow()
    return arrow.schema(
        [
            ("number", arrow.int64()),
            ("sender", arrow.binary(SENDER_BYTES)),
            ("incarnation", arrow.uint32()),
            ("counter", arrow.uint64()),
            ("sent_ms", arrow.int64()),
            ("key", arrow.binary()),
            ("headers", arrow.binary()),
            ("body", arrow.binary()),
        ]
    )


@cache
def _pyarrow() -> Any:
    """Imported when it is first needed: a node must start fast, and may do without it."""
    try:
        import pyarrow
        import pyarrow.compute
    except ModuleNotFoundError as error:
        raise ImportError("pyarrow is missing; install samcast[arrow]") from error
    return pyarrow
