"""A group made of its archive, with the same numbers and the same content."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from samcast.archive.index import Archive
from samcast.client.backup import begin_at
from samcast.client.blocking import Client
from samcast.errors import SamcastError

if TYPE_CHECKING:
    import pyarrow

    from samcast.client.blocking import Group, NamedSender

ROWS = 1024  # read at once
PIECE_BYTES = 1024 * 1024
WAIT_S = 600.0


def replay(client: Client, archive: Archive, progress: Callable[[int, int], None]) -> "Group":
    """Send all of an archive to a group that is empty, or that an interrupted replay has begun. By
    one sender with a name of its own: who is interrupted goes on where it was."""
    from samcast.archive.reading import record_batches

    group = client.group(archive.about.group)
    base = archive.first - 1
    if base and not group.head():
        begin_at(group, base)
    sender = group.sender(f"replay-{archive.about.id}")
    at = archive.first + sender.sent_before
    if group.head() != at - 1:
        raise SamcastError(
            f"group {group.name!r} has messages up to {group.head()} that are not of this archive;"
            " it is replayed into an empty cluster, to which nobody else sends meanwhile"
        )
    total = archive.end - archive.first
    last = None
    if at < archive.end:
        for batch in record_batches(archive, at, archive.end, ROWS):
            for piece in _pieces(batch.select(["body", "key", "headers"])):
                last = sender.send_arrow(piece)
            at += batch.num_rows
            progress(at - archive.first, total)
    _check(group, sender, last.number(WAIT_S) if last is not None else archive.end - 1, archive)
    return group


def _pieces(rows: "pyarrow.RecordBatch") -> "Iterator[pyarrow.RecordBatch]":
    """Of about a megabyte, or of one large message."""
    most = max(1, rows.num_rows * PIECE_BYTES // max(1, rows.nbytes))
    for first in range(0, rows.num_rows, most):
        yield rows.slice(first, most)


def _check(group: "Group", sender: "NamedSender", number: int, archive: Archive) -> None:
    sender.flush(WAIT_S)
    if number != archive.end - 1 or group.head() < number:
        raise SamcastError(
            f"somebody else has sent to group {group.name!r} meanwhile: its last message has number"
            f" {number}, not {archive.end - 1}. Begin again with an empty cluster"
        )
