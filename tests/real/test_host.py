"""The host of roles: places are used again, nothing goes to a role that is gone, and what roles of
one process tell each other waits until others have been sent what is theirs."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from samcast.machine.ports import NEVER_MS, Channel, Effect, Event, Multicast, Received, Send
from samcast.runtime.host import ROUNDS_MAX, Host
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

    def flush(self) -> None:
        """Nothing was sent."""


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


class Noted:
    """A network and a role that write down, in one list, what happens when."""

    def __init__(self, rounds: int) -> None:
        self.happened: list[str] = []
        self._rounds = rounds
        self._handlers: dict[type, Callable[..., None]] = {Head: lambda: None}

    def send(self, to: int, message: Any) -> None:
        self.happened.append(f"send {message.number}")

    def multicast(self, channel: Channel, message: Any) -> None:
        self.happened.append(f"multicast {message.number}")

    def flush(self) -> None:
        self.happened.append("flush")

    def step(self, events: Sequence[Event]) -> list[Effect]:
        effects: list[Effect] = []
        for event in events:
            if isinstance(event, Received) and isinstance(event.message, Head):
                number = event.message.number
                self.happened.append(f"heard {number}")
                if number < self._rounds:
                    effects += [
                        Multicast(Channel.GLOBAL, Head(1, number + 1)),
                        Send(9, Head(1, number + 1)),
                    ]
        return effects

    def due_ms(self) -> int:
        return NEVER_MS


async def tell_itself(rounds: int) -> tuple[list[str], int]:
    noted = Noted(rounds)
    host = Host(1, noted, lambda at, effect: None)
    host.start([noted], [Channel.GLOBAL])
    host.deliver(9, Head(1, 1))
    for _ in range(rounds):  # each turn hears at least one more
        await asyncio.sleep(0)
    host.stop()
    return noted.happened, host.turns


def test_others_are_sent_what_is_theirs_before_a_role_hears_its_own_multicast() -> None:
    happened, turns = asyncio.run(tell_itself(2))
    assert happened == ["heard 1", "multicast 2", "send 2", "flush", "heard 2", "flush"]
    assert turns == 1


def test_roles_that_keep_telling_each_other_something_let_the_loop_go_on_in_between() -> None:
    happened, turns = asyncio.run(tell_itself(3 * ROUNDS_MAX))
    heard = [what for what in happened if what.startswith("heard")]
    assert heard == [f"heard {n}" for n in range(1, 3 * ROUNDS_MAX + 1)]
    assert turns == 3
