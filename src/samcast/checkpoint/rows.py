"""Messages and rows as Arrow tables: what folds are given, what they give, and how rows of one key
are found. Cells are `large_binary`, since a state may be larger than 2 GB."""

import pyarrow as pa
import pyarrow.compute as pc

MESSAGES = pa.schema(
    [
        ("number", pa.int64()),
        ("sent_ms", pa.int64()),
        ("key", pa.large_binary()),
        ("headers", pa.large_binary()),
        ("body", pa.large_binary()),
    ]
)
ROWS = pa.schema(
    [
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),  # null: the key is gone
        ("number", pa.int64()),
        ("expires_ms", pa.int64()),  # 0: never
    ]
)


def in_order(rows: pa.Table) -> pa.Table:
    """By key; for one key as they were, which must be the order of their numbers."""
    return rows.take(pc.sort_indices(rows, [("key", "ascending")])) if len(rows) > 1 else rows


def ends_of_keys(keys: pa.ChunkedArray) -> pa.Array:
    """Of keys in order: for each whether it is the last one of its kind."""
    if not len(keys):
        return pa.array([], pa.bool_())
    ends = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1))
    last = pa.array([True])
    return pa.concat_arrays([*(ends.chunks if isinstance(ends, pa.ChunkedArray) else [ends]), last])


def last_of_each(rows: pa.Table) -> pa.Table:
    """Of rows in order, the last one of each key."""
    return rows.filter(ends_of_keys(rows["key"]))
