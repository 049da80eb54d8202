"""Ranges of a group's messages in large parts, for who wants columns and not messages."""

import queue
from collections.abc import Iterator

from samcast.client.ending import Arrivals
from samcast.client.engine import Engine
from samcast.errors import CollectedError, WaitTimeoutError
from samcast.group.row_reader import RowReader, RowsCame, RowsGone, Taken
from samcast.wire.rows import ANY_TIME


def read_range(
    engine: Engine,
    group: int,
    first: int,
    end: int,
    silence_s: float,
    sent: tuple[int, int] = ANY_TIME,
) -> Iterator[RowsCame]:
    """What there is from `first` up to, but not with, `end`, in order; the first part may begin
    before and the last may end behind it. All of it must be there already. With `sent`, runs that
    were sent at other times, in ms, are left out."""
    came = Arrivals()
    span = (group, first, end)
    reader = RowReader(0, engine.configuration, engine.data_node, span, sent, as_stored=True)
    at = engine.call(engine.add_role(reader, came.put))
    try:
        while first < end:
            try:
                part = came.get(timeout=silence_s)
            except queue.Empty:
                raise WaitTimeoutError(
                    f"no node has brought message {first} for {silence_s:.0f} s, though it is"
                    f" there; are enough of them up (`samcast doctor`)?"
                ) from None
            if isinstance(part, RowsGone):
                raise CollectedError(f"messages up to {part.number} are gone in the meantime")
            if isinstance(part, RowsCame):
                first = part.end
                engine.post(at, Taken())
                yield part
    finally:
        if not engine.is_closed:
            engine.call(engine.remove_role(at))
