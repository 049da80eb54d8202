"""Asks how far a group is, until somebody answers."""

from collections.abc import Callable, Sequence

from samcast.machine.ports import NEVER_MS, Effect, Event, NodeId, Received, Send, Ticked
from samcast.machine.quorum import servers_with
from samcast.wire.group import Head, HeadRequest
from samcast.wire.order import ROLE_COMMIT, Configuration

REPEAT_MS = 60


class HeadSeen(Effect, frozen=True, gc=False):
    """The newest number of the group, as of some moment after the question."""

    number: int


class HeadAsker:
    """One question."""

    def __init__(self, node: NodeId, configuration: Configuration, group: int) -> None:
        self._servers = [s.node for s in servers_with(configuration, ROLE_COMMIT)]
        self._group = group
        self._turn = node
        self._due_ms = 0
        self._now_ms = 0
        self._handlers: dict[type, Callable[..., None]] = {Head: self._on_head}

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Received and type(event.message) is Head:
                self._on_head(event.message, out)
            elif type(event) is Ticked:
                self._now_ms = event.now_ms
        if self._now_ms >= self._due_ms:
            self._due_ms = self._now_ms + REPEAT_MS
            self._turn += 1
            server = self._servers[self._turn % len(self._servers)]
            out.append(Send(server, HeadRequest(self._group)))
        return out

    def _on_head(self, head: Head, out: list[Effect]) -> None:
        if head.group == self._group and self._due_ms < NEVER_MS:
            self._due_ms = NEVER_MS
            out.append(HeadSeen(head.number))

    def due_ms(self) -> int:
        """The next repeat."""
        return self._due_ms
