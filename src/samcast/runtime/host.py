"""Runs roles: drains what has arrived, steps them, carries out what they ask for, wakes them.

The same turn as in the simulator. All that arrived while a turn ran is one turn's input, so that
load makes turns larger instead of more.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from samcast.machine.ports import (
    NEVER_MS,
    Channel,
    Effect,
    Event,
    Multicast,
    NodeId,
    Received,
    Role,
    Send,
    Ticked,
    Warn,
)
from samcast.runtime.histogram import Histogram
from samcast.runtime.trail import Trail
from samcast.wire.batch import Batch
from samcast.wire.control import Control

WAKE_MAX_S = 1.0
ROUNDS_MAX = 4  # of one turn; then the loop sees what else has come


class Network(Protocol):
    """Whoever carries messages away."""

    def send(self, to: NodeId, message: Control | Batch) -> None:
        """To one node or client."""
        ...

    def multicast(self, channel: Channel, message: Control | Batch) -> None:
        """To all others of a channel."""
        ...

    def flush(self) -> None:
        """Have it leave now, before the roles of this process go on."""
        ...


Apply = Callable[[int, Effect], None]


class Gone:
    """In the place of a role that was removed."""

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Nothing happens."""
        return []

    def due_ms(self) -> int:
        """Never."""
        return NEVER_MS


class Host:
    """The roles of one process."""

    def __init__(self, node: NodeId, network: Network, apply: Apply) -> None:
        self.node = node
        self._network = network
        self._apply = apply  # effects that are neither messages nor warnings, with their role
        self._roles: list[Role] = []
        self._inbox: list[list[Event]] = []
        self._dues: list[int] = []
        self._routes: dict[type, list[int]] = {}
        self._free: list[int] = []  # places of roles that are gone
        self._channels: dict[Channel, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_planned = False
        self._wake: asyncio.TimerHandle | None = None
        self._wake_ms = 0
        self.warnings: dict[str, int] = {}
        self.last_warnings: dict[str, str] = {}  # by code
        self.on_warn: Callable[[Warn], None] | None = None
        self.turns = 0
        self.turn_s = Histogram()
        self.trail: Trail | None = None  # of a node: what happened to whom
        self.on_bug: Callable[[BaseException], None] | None = None

    def start(self, roles: Sequence[Role], channels: Sequence[Channel] = ()) -> None:
        """Begin; within the running loop."""
        self._loop = asyncio.get_running_loop()
        self._roles = []
        self._channels = dict.fromkeys(channels)
        for role in roles:
            self.add(role)

    def add(self, role: Role) -> int:
        """One more role; where it stands."""
        if self._free:
            at = self._free.pop()
            self._roles[at], self._inbox[at], self._dues[at] = role, [], role.due_ms()
        else:
            at = len(self._roles)
            self._roles.append(role)
            self._inbox.append([])
            self._dues.append(role.due_ms())
        for kind in role._handlers:  # type: ignore[attr-defined]
            self._routes.setdefault(kind, []).append(at)
        self.plan()
        return at

    def remove(self, at: int) -> None:
        """A role goes; its place is given to the next one."""
        for places in self._routes.values():
            if at in places:
                places.remove(at)
        self._roles[at], self._inbox[at], self._dues[at] = Gone(), [], NEVER_MS
        self._free.append(at)

    def stop(self) -> None:
        """No turn any more."""
        self._loop = None
        if self._wake is not None:
            self._wake.cancel()

    # what arrives

    def post(self, at: int, event: Event) -> None:
        """Something for one role."""
        self._inbox[at].append(event)
        self.plan()

    def deliver(self, source: NodeId, message: Control | Batch) -> None:
        """A message: to every role that knows its kind."""
        routes = self._routes.get(type(message))
        if not routes:
            self.warn(Warn("misdirected", f"{type(message).__name__} from {source}"))
            return
        if self.trail is not None:
            self.trail.heard(source, message)
        event = Received(source, message)
        for at in routes:
            self._inbox[at].append(event)
        self.plan()

    def knows(self, kind: type) -> bool:
        """Whether messages of this kind are for one of our roles."""
        return bool(self._routes.get(kind))

    def is_on(self, channel: Channel) -> bool:
        """Whether a multicast on this channel is for us, too."""
        return channel in self._channels

    # turns

    def plan(self) -> None:
        """Have a turn as soon as the loop is through with what it does."""
        if not self._is_planned and self._loop is not None:
            self._is_planned = True
            self._plan_turn()

    def _plan_turn(self) -> None:
        if self._loop is not None:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._loop is None:
            return
        try:
            self._step_all()
        except BaseException as error:
            self._is_planned = False
            if self.on_bug is None:
                raise
            self.on_bug(error)

    def _step_all(self) -> None:
        """What roles of this process tell each other is heard in the same turn, but only after
        others have been sent what they wait for."""
        self.turns += 1
        began_s = time.monotonic()
        now_ms = int(began_s * 1000)
        ticked = Ticked(now_ms)
        for _ in range(ROUNDS_MAX):
            self._step_each(now_ms, ticked)
            self._network.flush()
            if not any(self._inbox):
                self._is_planned = False
                break
        else:
            self._plan_turn()
        self._plan_wake(now_ms)
        self.turn_s.note(time.monotonic() - began_s)

    def _step_each(self, now_ms: int, ticked: Ticked) -> None:
        for at, role in enumerate(self._roles):
            events = self._inbox[at]
            if not events and self._dues[at] > now_ms:
                continue
            self._inbox[at] = []
            events.insert(0, ticked)
            effects = role.step(events)
            if effects and self.trail is not None:
                self.trail.done(effects)
            for effect in effects:
                self._carry_out(at, effect)
            self._dues[at] = role.due_ms()

    def _plan_wake(self, now_ms: int) -> None:
        due = min(self._dues, default=NEVER_MS)
        if self._loop is None or (self._wake is not None and now_ms < self._wake_ms <= due):
            return
        if self._wake is not None:
            self._wake.cancel()
        wait_s = min(max((due - now_ms) / 1000, 0.001), WAKE_MAX_S)
        self._wake_ms = now_ms + int(wait_s * 1000)
        self._wake = self._loop.call_later(wait_s, self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        self.plan()

    def _carry_out(self, at: int, effect: Effect) -> None:
        kind = type(effect)
        if kind is Send:
            assert isinstance(effect, Send)
            if effect.to == self.node:
                self.deliver(self.node, effect.message)
            else:
                self._network.send(effect.to, effect.message)
        elif kind is Multicast:
            assert isinstance(effect, Multicast)
            self._network.multicast(effect.channel, effect.message)
            if effect.channel in self._channels:
                self.deliver(self.node, effect.message)
        elif kind is Warn:
            assert isinstance(effect, Warn)
            self.warn(effect)
        else:
            self._apply(at, effect)

    def warn(self, warn: Warn) -> None:
        """Count a coded warning; the last one of each code is kept for whoever asks."""
        self.warnings[warn.code] = self.warnings.get(warn.code, 0) + 1
        self.last_warnings[warn.code] = warn.detail
        if self.on_warn is not None:
            self.on_warn(warn)
