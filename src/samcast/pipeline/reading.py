"""Ranges of a group's messages as Arrow record batches, for whoever wants columns and not messages.

A batch of messages becomes Arrow without a look at single messages; many short ones are put
together before they are handed on.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from samcast.client.blocking import Client, Group, connect
from samcast.errors import CollectedError, WaitTimeoutError
from samcast.pipeline.options import NEWEST, OLDEST, ReadOptions
from samcast.wire.arrow import arrow_of

if TYPE_CHECKING:
    import pyarrow

SILENCE_S = 60.0  # without a message that is known to be there, before a task gives up


def open_group(client: Client, name: str) -> Group:
    """A group that is there; reading doesn't make any."""
    return client.group(name, create=False)


def connected(cluster: str) -> Client:
    """To the cluster that the option means."""
    return connect(cluster or None)


def first_number(group: Group, options: ReadOptions) -> int:
    """Where to begin."""
    oldest = group.oldest()
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
            ("sent", arrow.timestamp("us", tz="UTC")),
            ("sender", arrow.binary()),
            ("key", arrow.binary()),
            ("headers", arrow.binary()),
            ("body", arrow.binary()),
        ]
    )


def record_batches(
    cluster: str, name: str, first: int, end: int, rows: int
) -> "Iterator[pyarrow.RecordBatch]":
    """The messages from `first` up to, but not with, `end`."""
    if first >= end:
        return
    with connected(cluster) as client:
        group = open_group(client, name)
        waiting: list[Any] = []
        count = 0
        for number_first, batch in group.read_batches(first, timeout=SILENCE_S):
            found = arrow_of(batch, number_first)
            skip = max(0, first - number_first)
            found = found.slice(skip, min(found.num_rows, end - number_first) - skip)
            waiting.append(found)
            count += found.num_rows
            is_last = number_first + batch.count >= end
            if count >= rows or is_last:
                yield from _joined(waiting, rows)
                waiting, count = [], 0
            if is_last:
                return
    raise WaitTimeoutError(
        f"no message of group {name!r} came for {SILENCE_S:.0f} s, though there are some up to"
        f" {end - 1}; are enough nodes up (`samcast doctor`)?"
    )


def _joined(batches: list[Any], rows: int) -> "Iterator[pyarrow.RecordBatch]":
    import pyarrow as arrow
    import pyarrow.compute as compute

    table = arrow.Table.from_batches(batches).combine_chunks()
    micros = compute.multiply(table["sent_ms"], arrow.scalar(1000, arrow.int64()))
    columns = [
        table["number"],
        micros.cast(arrow.timestamp("us", tz="UTC")),
        table["sender"].cast(arrow.binary()),
        table["key"],
        table["headers"],
        table["body"],
    ]
    whole = arrow.Table.from_arrays(columns, schema=schema())
    yield from whole.to_batches(max_chunksize=rows)
