"""What a client's connection tells the roles that it runs."""

import asyncio
from collections.abc import Sequence

import msgspec

from samcast.client.link import Link
from samcast.machine.ports import NEVER_MS, Effect, Event, Received
from samcast.wire.change import Moved
from tests.group.build import CONFIGURATION


class Curious:
    """A role that wants to know who serves."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[Moved] = asyncio.get_running_loop().create_future()
        self._handlers = {Moved: None}

    def step(self, events: Sequence[Event]) -> list[Effect]:
        for event in events:
            if isinstance(event, Received) and isinstance(event.message, Moved):
                self.heard.set_result(event.message)
        return []

    def due_ms(self) -> int:
        return NEVER_MS


async def tell() -> None:
    link = Link([], "c1")
    link.host.start([])
    link._take(CONFIGURATION, ())
    assert link.host.warnings == {}  # Nobody wanted to know.
    role = Curious()
    link.add(role, lambda effect: None)
    later = msgspec.structs.replace(CONFIGURATION, number=CONFIGURATION.number + 1)
    link._take(later, ())
    assert (await asyncio.wait_for(role.heard, 10)).configuration == later
    link._take(CONFIGURATION, ())  # A node that is behind: nothing is told a second time.
    link.host.stop()


def test_roles_hear_who_serves_by_now() -> None:
    asyncio.run(tell())
