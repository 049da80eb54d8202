"""The host of roles: places are used again, and nothing goes to a role that is gone."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from samcast.machine.ports import NEVER_MS, Channel, Effect, Event, Received
from samcast.runtime.host import Host
from samcast.wire.group import Head, HeadRequest


class Listener:
    def __init__(self) -> None:
        self.heard: list[Event] = []
        self._handlers: dict[type, Callable[..., None]] = {Head: lambda: None}

    def step(self, events: Sequence[Event]) -> list[Effect]:
        self.heard += [e for e in events if isinstance(e, Received)]
        return []

    def due_ms(self) -> int:
        return NEVER_MS


class Nowhere:
    def send(self, to: int, message: Any) -> None:
        raise AssertionError

    def multicast(self, channel: Channel, message: Any) -> None:
        raise AssertionError


async def play() -> tuple[Host, list[Listener]]:
    host = Host(1, Nowhere(), lambda at, effect: None)
    first, second, third = Listener(), Listener(), Listener()
    host.start([first, second])
    host.deliver(9, Head(1, 1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    host.remove(0)
    assert host.add(third) == 0
    host.deliver(9, Head(1, 2))
    host.deliver(9, HeadRequest(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    host.stop()
    return host, [first, second, third]


def test_a_place_is_used_again_and_the_role_before_hears_nothing_more() -> None:
    host, listeners = asyncio.run(play())
    assert [len(listener.heard) for listener in listeners] == [1, 2, 1]
    assert host.warnings == {"misdirected": 1}
