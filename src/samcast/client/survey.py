"""What one server has of a group, run by run, for who compares servers."""

import queue
from collections.abc import Iterator

from samcast.client.ending import Arrivals
from samcast.client.engine import Engine
from samcast.errors import WaitTimeoutError
from samcast.group.surveying import Kind, Surveyed, Surveyor, Taken
from samcast.machine.ports import NodeId

SILENCE_S = 60.0


def survey(
    engine: Engine, server: NodeId, kind: Kind, group: int, first: int, end: int
) -> Iterator[Surveyed]:
    """All that this server has of the messages from `first` up to, but not with, `end`."""
    came = Arrivals()
    at = engine.call(engine.add_role(Surveyor(server, kind, group, first, end), came.put))
    try:
        while True:
            try:
                found = came.get(timeout=SILENCE_S)
            except queue.Empty:
                raise WaitTimeoutError(
                    f"server {server} said nothing for {SILENCE_S:.0f} s"
                ) from None
            if not isinstance(found, Surveyed):
                continue
            yield found
            if found.is_over:
                return
            engine.post(at, Taken())
    finally:
        if not engine.is_closed:
            engine.call(engine.remove_role(at))
