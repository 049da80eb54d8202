"""A fold at work on columns, the same for every engine: messages to rows, rows of one key to one.

Whatever a fold gives is looked at before it counts: it is anybody's code.
"""

import pyarrow as pa
import pyarrow.compute as pc

from samcast.checkpoint.folds import Fold
from samcast.checkpoint.rows import ROWS, ends_of_keys, in_order
from samcast.errors import FoldError

NAMES = ["key", "value", "number"]


def rows_of(fold: Fold, messages: pa.Table) -> tuple[pa.Table, list[int]]:
    """The rows that messages make, and the numbers of those that the fold can't take."""
    numbers = messages["number"]
    try:
        made = _taken(fold.rows(messages), NAMES)
    except MemoryError:
        raise  # That says nothing about the fold.
    except Exception as error:
        raise FoldError(f"{_where(fold, numbers)}: {error!r}") from error
    if len(made) and not _covers(numbers, made["number"]):
        raise FoldError(f"{_where(fold, numbers)}: rows with numbers of other messages")
    made = _by_number(made)
    is_taken = pc.is_valid(made["key"])
    refused = made.filter(pc.invert(is_taken))["number"].to_pylist()
    rows = made.filter(is_taken) if refused else made
    forever = pa.repeat(pa.scalar(0, pa.int64()), len(rows))
    return rows.append_column("expires_ms", forever).cast(ROWS), sorted(set(refused))


def merged(fold: Fold, rows: pa.Table) -> pa.Table:
    """One row for each key, in their order; its number is that of the last row it was made of."""
    rows = in_order(rows)
    if not len(rows):
        return rows
    ends = ends_of_keys(rows["key"])
    last = rows.select(["key", "number", "expires_ms"]).filter(ends)
    try:
        found = _taken(fold.merge(rows.select(NAMES)), NAMES[:2])
    except MemoryError:
        raise
    except Exception as error:
        raise FoldError(f"{_where(fold, rows['number'])}: {error!r}") from error
    if not found["key"].equals(last["key"]):
        found = found.take(pc.sort_indices(found, [("key", "ascending")]))
    if not found["key"].equals(last["key"]):
        raise FoldError(
            f"{_where(fold, rows['number'])}: its merge must give one row for each key it was"
            f" given: {len(last)}, and gave {len(found)}, or others"
        )
    columns = [last["key"], found["value"], last["number"], last["expires_ms"]]
    return pa.Table.from_arrays(columns, schema=ROWS)


def living(rows: pa.Table) -> pa.Table:
    """Of a whole state, the keys that are there."""
    return rows.filter(pc.is_valid(rows["value"])) if rows["value"].null_count else rows


def _taken(made: object, names: list[str]) -> pa.Table:
    if not isinstance(made, pa.Table):
        raise TypeError(f"it gave a {type(made).__name__}, not an Arrow table")
    lacking = [name for name in names if name not in made.column_names]
    if lacking:
        raise ValueError(f"its table has no column {', '.join(lacking)}")
    kinds = pa.schema([ROWS.field(name) for name in names])
    return made.select(names).cast(kinds)


def _by_number(made: pa.Table) -> pa.Table:
    """In the order of numbers, and for one number as the fold gave them."""
    numbers = made["number"]
    rises = pc.less_equal(numbers.slice(0, max(0, len(numbers) - 1)), numbers.slice(1))
    if pc.all(rises, min_count=0).as_py():
        return made
    return made.take(pc.sort_indices(made, [("number", "ascending")]))


def _covers(numbers: pa.ChunkedArray, others: pa.ChunkedArray) -> bool:
    """A group's numbers have no holes, so their bounds say it all."""
    outer, inner = pc.min_max(numbers).as_py(), pc.min_max(others).as_py()
    is_within = outer["min"] <= inner["min"] and inner["max"] <= outer["max"]
    return is_within and not others.null_count


def _where(fold: Fold, numbers: pa.ChunkedArray) -> str:
    bounds = pc.min_max(numbers).as_py()
    return f"fold {fold.name!r}, messages {bounds['min']} to {bounds['max']}"
