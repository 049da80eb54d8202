"""The engine for what one process can hold: a fold over columns, written as files and handed in."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from samcast.checkpoint.blocks import (
    BlockList,
    column_blocks,
    read_columns,
    read_list,
    write_blocks,
    write_checkpoint,
)
from samcast.checkpoint.columns import Columns
from samcast.checkpoint.folds import Fold, TableFold, fold_of
from samcast.checkpoint.places import LIST, block_name
from samcast.checkpoint.rows import MESSAGES, ROWS
from samcast.client.blocking import Client
from samcast.client.handing import HandingIn
from samcast.client.joining import Fetch, fetch_table
from samcast.group.table import Table
from samcast.pipeline.bad_messages import BadMessages
from samcast.pipeline.consolidation import Folded, Plan, Progress
from samcast.pipeline.reading import record_batches

ROWS_AT_ONCE = 262_144
PART = 1


def fold_here(client: Client, plan: Plan, place: Path, bad: BadMessages, show: Progress) -> Folded:
    """Write the state at the plan's number to a folder."""
    fold = fold_of(*plan.about[2:])
    if isinstance(fold, TableFold):
        table = _table(client, plan, bad, show)
        listed = write_checkpoint(place, table, plan.about)
    else:
        listed = _columns(client, plan, fold, place, bad, show)
    return Folded(listed, bad.count, bad.first)


def _table(client: Client, plan: Plan, bad: BadMessages, show: Progress) -> Table:
    base = plan.base
    table = fetch_table(client.engine, plan.group, base) if base is not None else Table()
    for messages in _messages(plan, show):
        malformed = table.malformed
        bodies = messages["body"].to_pylist()
        refused = []
        for number, body in zip(messages["number"].to_pylist(), bodies, strict=True):
            table.apply(number, body)
            if table.malformed != malformed:
                malformed = table.malformed
                refused.append(number)
        bad.take(messages, refused)
    return table


def _columns(
    client: Client, plan: Plan, fold: Fold, place: Path, bad: BadMessages, show: Progress
) -> BlockList:
    rows, writes = None, 0
    if plan.base is not None:
        with Fetch(client.engine, plan.group, plan.base, plan.listed) as fetch:
            listed = fetch.list()
            wanted = range(1, len(listed.blocks) + 1)
            found = {block: columns for block, (columns, _) in fetch.blocks(wanted, read_columns)}
        pieces = [found[block].cast(ROWS) for block in wanted]
        rows = pa.concat_tables([ROWS.empty_table(), *pieces])
        writes = listed.writes
    state = Columns(fold, rows)
    for messages in _messages(plan, show):
        bad.take(messages, state.take(messages))
        writes += len(messages)
    blocks = column_blocks([state.rows()])
    return write_blocks(place, blocks, plan.about, plan.number, 0, writes)


def _messages(plan: Plan, show: Progress) -> Iterator[pa.Table]:
    end = plan.number + 1
    for batch in record_batches(plan.cluster, plan.name, plan.first, end, ROWS_AT_ONCE):
        messages = messages_of(batch)
        yield messages
        show("messages", messages["number"][-1].as_py() + 1 - plan.first, end - plan.first)


def messages_of(batch: pa.RecordBatch) -> pa.Table:
    """What a fold is told of messages that were read in ranges."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["sent_ms"] = pc.divide(columns["sent"].cast(pa.int64()), 1000)
    arrays = [columns[name] for name in MESSAGES.names]
    return pa.Table.from_arrays(arrays, names=MESSAGES.names).cast(MESSAGES)


def hand_in_folder(client: Client, plan: Plan, place: Path, server: int, show: Progress) -> None:
    """Give a server what is in a folder."""
    data = (place / LIST).read_bytes()
    listed = read_list(data)
    with HandingIn(client.engine, server, plan.group, plan.number, plan.job) as handing:
        for block in range(1, len(listed.blocks) + 1):
            handing.give(PART, block, (place / block_name(block)).read_bytes())
            show("blocks handed in", block, len(listed.blocks))
        handing.give_list(data)
        handing.await_taken(data, listed.checkpoint())
