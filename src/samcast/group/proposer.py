"""The proposer: has one thing ordered, and repeats it until it hears the outcome."""

from collections.abc import Callable, Sequence

from samcast.machine.ports import NEVER_MS, Effect, Event, NodeId, Received, Send, Ticked
from samcast.machine.quorum import servers_with
from samcast.wire.group import AnyRequest, Outcome, Propose
from samcast.wire.order import ROLE_COMMIT, Configuration

REPEAT_MS = 60


class Settled(Effect, frozen=True):
    """The outcome of what was proposed."""

    outcome: Outcome


class Proposer:
    """One proposal. The same nonce is the same proposal, however often it is heard."""

    def __init__(
        self, node: NodeId, configuration: Configuration, nonce: int, request: AnyRequest
    ) -> None:
        self.node = node
        self._servers = [s.node for s in servers_with(configuration, ROLE_COMMIT)]
        self._nonce = nonce
        self._request = request
        self._due_ms = 0
        self._now_ms = 0
        self._turn = node
        self.outcome: Outcome | None = None
        self._handlers: dict[type, Callable[..., None]] = {Outcome: self._on_outcome}

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Received and type(event.message) is Outcome:
                self._on_outcome(event.message, out)
            elif type(event) is Ticked:
                self._now_ms = event.now_ms
        if self.outcome is None and self._now_ms >= self._due_ms:
            self._due_ms = self._now_ms + REPEAT_MS
            self._turn += 1
            server = self._servers[self._turn % len(self._servers)]
            out.append(Send(server, Propose(self._nonce, self._request)))
        return out

    def _on_outcome(self, outcome: Outcome, out: list[Effect]) -> None:
        if outcome.nonce == self._nonce and self.outcome is None:
            self.outcome = outcome
            out.append(Settled(outcome))

    def due_ms(self) -> int:
        """The next repeat."""
        return NEVER_MS if self.outcome is not None else self._due_ms
