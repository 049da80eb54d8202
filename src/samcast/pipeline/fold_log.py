"""What messages mean to a fold, as rows for Spark: one frame for all kinds of folds.

A row is what a message says of a key, a message that the fold can't take, a change that has
conditions, or the sum over a span of messages.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from samcast.checkpoint.folds import Fold, TableFold, fold_of
from samcast.checkpoint.merging import rows_of
from samcast.pipeline.consolidation import Plan
from samcast.pipeline.local_fold import messages_of
from samcast.pipeline.reading import record_batches, turned
from samcast.wire.errors import WireError
from samcast.wire.table import Change, Put, decode_change, encode_change

ROWS_AT_ONCE = 65_536
LOG = (
    "kind int, span int, key binary, value binary, number long, at int, ttl_ms long,"
    " clock_ms long, is_conditional boolean"
)
_TYPES = {"int": pa.int32(), "long": pa.int64(), "binary": pa.binary(), "boolean": pa.bool_()}
SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, LOG.split(", "))])
Row = tuple[int, int, bytes | None, bytes | None, int, int, int, int, bool]


class Kind(IntEnum):
    """Of a row."""

    ROW = 0
    BAD = 1  # its key and body
    SUM = 2  # in JSON
    CHANGE = 3  # its body


@dataclass(slots=True)
class Sum:
    """Over the messages of a span."""

    span: int
    writes: int = 0
    bad: int = 0
    clock_ms: int = 0
    has_ttl: bool = False
    has_checks: bool = False


def read_log(
    plan: Plan, spans: Sequence[tuple[int, int]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: the messages of its spans."""
    fold = fold_of(*plan.about[2:])
    for batch in batches:
        for at in batch.column(0).to_pylist():
            total = Sum(at)
            first, end = spans[at]
            cluster = turned(plan.cluster, at)
            for found in record_batches(cluster, plan.name, first, end, ROWS_AT_ONCE):
                messages = messages_of(found)
                if isinstance(fold, TableFold):
                    yield _of_changes(messages, total)
                else:
                    yield from _of_messages(fold, messages, total)
            yield _batch([_sum_row(total)])


def _sum_row(total: Sum) -> Row:
    said = json.dumps({name: getattr(total, name) for name in Sum.__slots__}).encode()
    return (Kind.SUM, total.span, None, said, 0, 0, 0, 0, False)


def sum_of(value: bytes) -> Sum:
    """As it was said."""
    return Sum(**json.loads(bytes(value)))


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(one, kind) for one, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _of_messages(fold: Fold, messages: pa.Table, total: Sum) -> Iterator[pa.RecordBatch]:
    rows, refused = rows_of(fold, messages)
    total.writes += len(messages)
    count = len(rows)

    def same(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), count)

    columns = [
        same(Kind.ROW.value, pa.int32()), same(total.span, pa.int32()), rows["key"],
        rows["value"], rows["number"], pa.array(range(count), pa.int32()),
        same(0, pa.int64()), same(0, pa.int64()), same(False, pa.bool_()),
    ]  # fmt: skip
    yield from pa.Table.from_arrays(columns, names=SCHEMA.names).cast(SCHEMA).to_batches()
    if refused:
        total.bad += len(refused)
        bad = messages.filter(pc.is_in(messages["number"], pa.array(refused, pa.int64())))
        yield _batch([_bad_row(total.span, *one.values()) for one in bad.to_pylist()])


def _bad_row(span: int, number: int, sent_ms: int, key: bytes, headers: bytes, body: bytes) -> Row:
    return (Kind.BAD, span, key, body, number, 0, 0, 0, False)


def _bare(change: Change) -> bytes:
    """Without its values, which no condition asks for."""
    writes = [replace(one, value=b"") if isinstance(one, Put) else one for one in change.writes]
    return encode_change(replace(change, writes=tuple(writes)))


def _of_changes(messages: pa.Table, total: Sum) -> pa.RecordBatch:
    """Changes of a table. Clocks are those of the span so far; those before it come on top."""
    rows: list[Row] = []
    span = total.span
    columns = (messages[name].to_pylist() for name in ("number", "key", "body"))
    for number, key, body in zip(*columns, strict=True):
        try:
            change = decode_change(body)
        except WireError:
            total.bad += 1
            total.writes += 1
            rows.append((Kind.BAD, span, key, body, number, 0, 0, 0, False))
            continue
        clock = total.clock_ms = max(total.clock_ms, change.clock_ms)
        total.writes += max(1, len(change.writes))
        is_conditional = bool(change.checks)
        if is_conditional:
            total.has_checks = True
            rows.append((Kind.CHANGE, span, None, _bare(change), number, 0, 0, clock, True))
        for at, write in enumerate(change.writes):
            is_put = isinstance(write, Put)
            value, ttl = (write.value, write.ttl_ms) if isinstance(write, Put) else (None, 0)
            total.has_ttl |= is_put and ttl > 0
            rows.append((Kind.ROW, span, write.key, value, number, at, ttl, clock, is_conditional))
    return _batch(rows)
