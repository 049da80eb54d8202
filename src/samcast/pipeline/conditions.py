"""Changes of a table that have conditions: which of them took effect?

That is asked of the state at each one's number, so one task goes through them in their order. It
needs no values, and of other changes only those of keys that some condition names.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from samcast.group.table import end_of
from samcast.pipeline.fold_log import Kind
from samcast.wire.table import Change, Put, decode_change

FAILED = "number long"
KEYS = "key binary"
STEPS = "kind int, key binary, body binary, number long, at int, clock_ms long, is_put boolean"


def named_keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the keys that conditions name."""
    for batch in batches:
        keys = {
            check.key
            for body in batch.column(0).to_pylist()
            for check in decode_change(body).checks
        }
        yield pa.RecordBatch.from_arrays([pa.array(sorted(keys), pa.binary())], names=["key"])


def failed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In one task: steps in the order of their numbers to the numbers of changes that had no
    effect. For rows, `clock_ms` is when they end; 0: never."""
    state: dict[bytes, tuple[int, int]] = {}  # a key's number, and when it ends
    for batch in batches:
        numbers = [step["number"] for step in batch.to_pylist() if not _takes_effect(state, step)]
        yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], names=["number"])


def _takes_effect(state: dict[bytes, tuple[int, int]], step: dict[str, Any]) -> bool:
    if step["kind"] == Kind.ROW:
        if step["is_put"]:
            state[step["key"]] = (step["number"], step["clock_ms"])
        else:
            state.pop(step["key"], None)
        return True
    change = decode_change(step["body"])
    clock_ms = step["clock_ms"]
    if not _holds(state, change, clock_ms):
        return False
    for write in change.writes:
        if isinstance(write, Put):
            state[write.key] = (step["number"], end_of(clock_ms, write))
        else:
            state.pop(write.key, None)
    return True


def _holds(state: dict[bytes, tuple[int, int]], change: Change, clock_ms: int) -> bool:
    for check in change.checks:
        number, ends_ms = state.get(check.key, (0, 0))
        if ends_ms and ends_ms <= clock_ms:
            number = 0
        if number != check.number:
            return False
    return True
