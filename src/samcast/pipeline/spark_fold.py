"""The engine for what outgrows one machine: a fold on Spark.

Tasks read the messages in ranges and the checkpoint in blocks; rows are brought together by ranges
of keys, each range is merged in order, cut into blocks, and handed in by its own task. The driver
sees lists, never rows.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from samcast.checkpoint.blocks import (
    BlockList,
    EncodedBlock,
    column_blocks,
    encode_block,
    encode_list,
    list_of,
    read_columns,
    read_list,
)
from samcast.checkpoint.folds import Fold, LatestFold, TableFold, fold_of
from samcast.checkpoint.merging import living, merged
from samcast.checkpoint.rows import ROWS, ends_of_keys
from samcast.client.blocking import Client
from samcast.client.handing import HandingIn
from samcast.client.joining import Fetch
from samcast.group.table import END_MAX
from samcast.pipeline.bad_messages import ASIDE, BadMessages
from samcast.pipeline.conditions import FAILED, KEYS, failed, named_keys
from samcast.pipeline.consolidation import Folded, Plan, Progress
from samcast.pipeline.fold_log import LOG, ROWS_AT_ONCE, Kind, Sum, read_log, sum_of
from samcast.pipeline.reading import connected, ranges, turned

SPAN = 250_000  # messages of one task
SPANS_MAX = 2000
PART_ROWS = 2_000_000  # that one task merges
BLOCKS_AT_ONCE = 16  # of the checkpoint, for one task
STATE = "key binary, value binary, number long, at int, expires_ms long"
BLOCKS = "part int, at int, rows long, size long, hash string"


def fold_on_spark(
    spark: Any, client: Client, plan: Plan, bad: BadMessages, show: Progress
) -> Folded:
    """Fold, and hand the result in to the plan's servers."""
    from pyspark import StorageLevel

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_AT_ONCE))
    base = read_list(plan.listed, plan.base) if plan.base is not None else None
    spans = _spans(spark, plan)
    log = spark.range(0, len(spans), 1, len(spans)).mapInArrow(partial(read_log, plan, spans), LOG)
    log = log.persist(StorageLevel.DISK_ONLY)
    state = _state(spark, plan, base).persist(StorageLevel.DISK_ONLY)
    try:
        state.count()  # first, since its servers keep two checkpoints and no more
        sums = _sums(log)
        show("messages", plan.number + 1 - plan.first, plan.number + 1 - plan.first)
        _take_bad(log, sums, bad)
        clock_ms = max([base.clock_ms if base else 0, *(total.clock_ms for total in sums)])
        writes = (base.writes if base else 0) + sum(total.writes for total in sums)
        rows = _rows(state, base, log, sums)
        made = _blocks(spark, plan, base, rows, clock_ms)
    finally:
        log.unpersist()
        state.unpersist()
    listed = list_of(made, plan.about, plan.number, clock_ms, writes)
    with ExitStack() as stack:
        handings = [stack.enter_context(one) for one in _handings(client, plan)]
        for handing in handings:  # All look at it at the same time.
            handing.give_list(encode_list(listed))
        for handing in handings:
            handing.await_taken(encode_list(listed), listed.checkpoint())
    show("blocks handed in", len(made), len(made))
    return Folded(listed, bad.count, bad.first)


def _spans(spark: Any, plan: Plan) -> list[tuple[int, int]]:
    count = plan.number + 1 - plan.first
    parts = max(spark.sparkContext.defaultParallelism, min(SPANS_MAX, count // SPAN))
    return ranges(plan.first, plan.number + 1, parts)


def _sums(log: Any) -> list[Sum]:
    """By span."""
    found = log.where(f"kind = {Kind.SUM.value}").select("value").collect()
    return sorted((sum_of(row.value) for row in found), key=lambda total: total.span)


def _take_bad(log: Any, sums: list[Sum], bad: BadMessages) -> None:
    """In the order of their numbers, one after the other: there may be many."""
    if not any(total.bad for total in sums):
        return
    found = log.where(f"kind = {Kind.BAD.value}").select("number", "key", "value")
    for row in found.orderBy("number").toLocalIterator():
        columns = [pa.array([cell]) for cell in (row.number, bytes(row.key), bytes(row.value))]
        messages = pa.Table.from_arrays(columns, names=ASIDE.names).cast(ASIDE)
        bad.take(messages, [row.number])


def _rows(state: Any, base: BlockList | None, log: Any, sums: list[Sum]) -> Any:
    """All that counts, of the checkpoint and of the messages."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    rows = log.where(f"kind = {Kind.ROW.value}")
    changes = log.where(f"kind = {Kind.CHANGE.value}")
    clock_at = F.col("clock_ms")
    if any(total.has_ttl or total.has_checks for total in sums):
        # The table's clock is the latest that was told before, in whatever span.
        begun = base.clock_ms if base is not None else 0
        before = list(accumulate((total.clock_ms for total in sums), max, initial=begun))
        known = F.element_at(F.array(*(F.lit(ms) for ms in before)), F.col("span") + 1)
        clock_at = F.greatest(known, F.col("clock_ms")).cast("long")
    ends = F.least(clock_at, F.lit(END_MAX) - F.col("ttl_ms")) + F.col("ttl_ms")
    expires = F.when(F.col("ttl_ms") > 0, ends).otherwise(F.lit(0))
    rows = rows.withColumn("expires_ms", expires.cast("long"))
    columns = ["key", "value", "number", "at", "expires_ms"]
    if any(total.has_checks for total in sums):
        changes = changes.select("number", clock_at.alias("clock_ms"), F.col("value").alias("body"))
        others = state.unionByName(rows.where("not is_conditional").select(columns))
        rows = rows.join(_failed(changes, others), "number", "left_anti")
    return state.unionByName(rows.select(columns))


def _failed(changes: Any, others: Any) -> Any:
    """The numbers of changes whose conditions didn't hold."""
    from pyspark.sql import functions as F  # noqa: N812

    keys = changes.select("body").mapInArrow(named_keys, KEYS).distinct()
    named = others.join(keys, "key", "left_semi").select(
        F.lit(Kind.ROW.value).alias("kind"), "key", F.lit(None).cast("binary").alias("body"),
        "number", "at", F.col("expires_ms").alias("clock_ms"),
        F.col("value").isNotNull().alias("is_put"),
    )  # fmt: skip
    conditional = changes.select(
        F.lit(Kind.CHANGE.value).alias("kind"), F.lit(None).cast("binary").alias("key"), "body",
        "number", F.lit(0).alias("at"), "clock_ms", F.lit(False).alias("is_put"),
    )  # fmt: skip
    steps = named.unionByName(conditional).repartition(1)
    return steps.sortWithinPartitions("number", "at").mapInArrow(failed, FAILED)


def _state(spark: Any, plan: Plan, base: BlockList | None) -> Any:
    """The checkpoint's rows."""
    if base is None:
        return spark.createDataFrame([], STATE)
    blocks = range(1, len(base.blocks) + 1)
    parts = [
        list(blocks[first : first + BLOCKS_AT_ONCE])
        for first in range(0, len(blocks), BLOCKS_AT_ONCE)
    ]
    frame = spark.range(0, len(parts), 1, max(1, len(parts)))
    return frame.mapInArrow(partial(_read_blocks, plan, parts), STATE)


def _blocks(
    spark: Any, plan: Plan, base: BlockList | None, rows: Any, clock_ms: int
) -> list[EncodedBlock]:
    count = plan.number + 1 - plan.first + (base.rows if base is not None else 0)
    parts = max(spark.sparkContext.defaultParallelism, count // PART_ROWS)
    ordered = rows.repartitionByRange(parts, "key").sortWithinPartitions("key", "number", "at")
    found = ordered.mapInArrow(partial(_hand_in, plan, clock_ms), BLOCKS).collect()
    found.sort(key=lambda row: (row.part, row.at))
    return [EncodedBlock(b"", row.rows, row.size, row.hash) for row in found]


# in Spark's workers


def _read_blocks(
    plan: Plan, parts: list[list[int]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    assert plan.base is not None
    for batch in batches:
        for at in batch.column(0).to_pylist():
            with (
                connected(turned(plan.cluster, at)) as client,
                Fetch(client.engine, plan.group, plan.base, plan.listed) as fetch,
            ):
                for _, (columns, _) in fetch.blocks(parts[at], read_columns):
                    yield from _as_state(columns)


def _as_state(columns: pa.Table) -> Iterator[pa.RecordBatch]:
    arrays = [
        columns["key"], columns["value"], columns["number"].cast(pa.int64()),
        pa.repeat(pa.scalar(0, pa.int32()), len(columns)), columns["expires_ms"].cast(pa.int64()),
    ]  # fmt: skip
    names = ["key", "value", "number", "at", "expires_ms"]
    yield from pa.Table.from_arrays(arrays, names=names).to_batches(max_chunksize=ROWS_AT_ONCE)


def _hand_in(
    plan: Plan, clock_ms: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Merge a range of keys, and give its blocks to the servers."""
    from pyspark import TaskContext

    fold = fold_of(*plan.about[2:])
    context = TaskContext.get()
    assert context is not None
    part = context.partitionId() + 1
    # Which change of a table counts is settled by now; the last one of each key does.
    pieces = merged_pieces(LatestFold() if isinstance(fold, TableFold) else fold, batches)
    lasting = (unexpired(piece, clock_ms) for piece in pieces)
    with ExitStack() as stack:
        handings: list[HandingIn] = []
        if plan.servers:
            client = stack.enter_context(connected(plan.cluster))
            handings = [stack.enter_context(one) for one in _handings(client, plan)]
        for at, rows in enumerate(column_blocks(lasting), 1):
            block = encode_block(rows)
            for handing in handings:
                handing.give(part, at, block.data)
            said = (part, at, block.rows, block.size, block.hash)
            names = [name.split()[0] for name in BLOCKS.split(", ")]
            kinds = (pa.int32(), pa.int32(), pa.int64(), pa.int64(), pa.string())
            arrays = [pa.array([one], kind) for one, kind in zip(said, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=names)


def _handings(client: Client, plan: Plan) -> Iterator[HandingIn]:
    for server in plan.servers:
        yield HandingIn(client.engine, server, plan.group, plan.number, plan.job)


def merged_pieces(fold: Fold, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows in order, merged; those of a key that may go on in the next batch wait for it."""
    held = ROWS.empty_table()
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = pa.concat_tables(
            [held, pa.Table.from_batches([batch]).select(ROWS.names).cast(ROWS)]
        )
        ends = pc.indices_nonzero(ends_of_keys(rows["key"]))
        begun = ends[-2].as_py() + 1 if len(ends) > 1 else 0
        if begun:
            yield living(merged(fold, rows.slice(0, begun)))
        held = merged(fold, rows.slice(begun))
    yield living(merged(fold, held))


def unexpired(rows: pa.Table, clock_ms: int) -> pa.Table:
    """Without what has ended by the table's clock."""
    ends = rows["expires_ms"]
    return rows.filter(pc.or_(pc.equal(ends, 0), pc.greater(ends, clock_ms)))
