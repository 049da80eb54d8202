"""Ranges of a group's messages as Arrow record batches, for whoever wants columns and not messages.

A batch of messages becomes Arrow without a look at single messages; many short ones are put
together before they are handed on.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samcast.archive.index import open_archive
from samcast.client.blocking import Client, Group, connect
from samcast.client.history import archive_of
from samcast.client.ranges import read_range
from samcast.errors import CollectedError
from samcast.group.row_reader import RowsCame
from samcast.pipeline.options import NEWEST, OLDEST, ReadOptions
from samcast.wire.arrow import SENT_MS_MAX, arrow_of
from samcast.wire.rows import ANY_TIME, arrow_of_rows

if TYPE_CHECKING:
    import pyarrow

BATCH_BYTES = 64 * 1024 * 1024  # before what has come is handed on
SILENCE_S = 60.0  # without a message that is known to be there, before a task gives up


def open_group(client: Client, name: str) -> Group:
    """A group that is there; reading doesn't make any."""
    return client.group(name, create=False)


def connected(cluster: str) -> Client:
    """To the cluster that the option means."""
    return connect(cluster or None)


def oldest_number(group: Group, options: ReadOptions) -> int:
    """Of those that can be read, be it from an archive."""
    if options.archive:
        return min(archive_of(group, Path(options.archive)).first, group.oldest())
    return group.oldest()


def first_number(group: Group, options: ReadOptions) -> int:
    """Where to begin."""
    oldest = oldest_number(group, options)
    if options.start == OLDEST:
        return oldest
    if options.start == NEWEST:
        return group.head() + 1
    assert isinstance(options.start, int)
    if options.start < oldest:
        raise CollectedError(
            f"messages {options.start} to {oldest - 1} of group {group.name!r} are gone, as its"
            f" settings say; begin with {oldest} (or 'oldest'), or with a checkpoint"
        )
    return options.start


def end_number(group: Group, options: ReadOptions, first: int) -> int:
    """Behind the last message that is read, of those that are there now."""
    end = group.head() + 1
    return max(first, end if options.end is None else min(end, options.end))


def ranges(first: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Contiguous ranges of nearly equal length; none is empty."""
    parts = max(1, min(parts or os.cpu_count() or 1, end - first))
    marks = [first + (end - first) * at // parts for at in range(parts + 1)]
    return [(a, b) for a, b in pairwise(marks) if a < b]


def all_nodes(client: Client) -> str:
    """Their addresses, as an option says them."""
    return ",".join(f"{host}:{port}" for _, host, port in client.nodes)


def turned(cluster: str, turn: int) -> str:
    """The same addresses, beginning with another: tasks spread over the nodes, and go to the next
    one when theirs dies."""
    addresses = cluster.split(",")
    at = turn % len(addresses)
    return ",".join(addresses[at:] + addresses[:at])


def schema() -> "pyarrow.Schema":
    """Of all that is read."""
    import pyarrow as arrow

    return arrow.schema(
        [
            ("number", arrow.int64()),
            ("destination", arrow.string()),
            ("sent", arrow.timestamp("us", tz="UTC")),
            ("sender", arrow.binary()),
            ("counter", arrow.int64()),
            ("key", arrow.binary()),
            ("headers", arrow.binary()),
            ("body", arrow.binary()),
        ]
    )


def record_batches(
    cluster: str, name: str, first: int, end: int, rows: int, sent: tuple[int, int] = ANY_TIME
) -> "Iterator[pyarrow.RecordBatch]":
    """The messages from `first` up to, but not with, `end`; runs that weren't sent within `sent`,
    in ms, are mostly left out."""
    if first >= end:
        return
    with connected(cluster) as client:
        group = open_group(client, name)
        waiting: list[Any] = []
        count = size = 0
        for part in read_range(client.engine, group.id, first, end, SILENCE_S, sent):
            for number_first, found in _arrow_of(part):
                skip = max(0, first - number_first)
                piece = found.slice(skip, max(0, min(found.num_rows, end - number_first) - skip))
                waiting.append(piece)
                count += piece.num_rows
                size += piece.nbytes
            first = part.end  # A late answer may begin with what another one has brought.
            if waiting and (count >= rows or size >= BATCH_BYTES or part.end >= end):
                yield from _joined(waiting, rows, name)
                waiting, count, size = [], 0, 0


def archived_batches(
    folder: str, first: int, end: int, rows: int
) -> "Iterator[pyarrow.RecordBatch]":
    """The same from an archive."""
    from samcast.archive.reading import record_batches as archived

    wanted = schema()
    for batch in archived(open_archive(Path(folder)), first, end, rows):
        columns = [batch.column(name).cast(wanted.field(name).type) for name in wanted.names]
        yield batch.from_arrays(columns, schema=wanted)


def _arrow_of(part: RowsCame) -> "Iterator[tuple[int, pyarrow.RecordBatch]]":
    if part.stretch is not None:
        yield part.stretch
    if part.rows is not None:
        yield part.rows.number_first, arrow_of_rows(part.rows)
    for number_first, batch in part.runs:
        yield number_first, arrow_of(batch, number_first).drop_columns(["incarnation"])


def _joined(batches: list[Any], rows: int, name: str) -> "Iterator[pyarrow.RecordBatch]":
    import pyarrow as arrow
    import pyarrow.compute as compute

    table = arrow.Table.from_batches(batches).combine_chunks()
    sent_ms = compute.min_element_wise(table["sent_ms"], arrow.scalar(SENT_MS_MAX, arrow.int64()))
    micros = compute.multiply(sent_ms, arrow.scalar(1000, arrow.int64()))
    columns = [
        table["number"],
        arrow.repeat(arrow.scalar(name, arrow.string()), len(table)),
        micros.cast(arrow.timestamp("us", tz="UTC")),
        table["sender"].cast(arrow.binary()),
        table["counter"].cast(arrow.int64()),
        table["key"],
        table["headers"],
        table["body"],
    ]
    whole = arrow.Table.from_arrays(columns, schema=schema())
    yield from whole.to_batches(max_chunksize=rows)
