"""Questions to the commit servers, each repeated to one after the other until it is answered."""

from collections.abc import Callable, Sequence
from typing import Any

from samcast.machine.ports import NEVER_MS, Effect, Event, NodeId, Received, Send, Ticked
from samcast.machine.quorum import servers_with
from samcast.wire.control import Control
from samcast.wire.group import AnyRequest, Head, HeadRequest, Outcome, Propose
from samcast.wire.names import Names, NamesRequest
from samcast.wire.order import ROLE_COMMIT, Configuration
from samcast.wire.retention import Checkpoints, CheckpointsRequest

REPEAT_MS = 60


class Answered(Effect, frozen=True):
    """What was asked for."""

    answer: Any


class Asker:
    """One question."""

    def __init__(
        self, node: NodeId, configuration: Configuration, question: Control, kind: type
    ) -> None:
        self.node = node
        self._servers = [s.node for s in servers_with(configuration, ROLE_COMMIT)]
        self._question = question
        self._kind = kind  # of its answer
        self._due_ms = 0
        self._now_ms = 0
        self._turn = node
        self.answer: Any = None
        self._handlers: dict[type, Callable[..., None]] = {kind: self._on_answer}

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Received and type(event.message) is self._kind:
                self._on_answer(event.message, out)
            elif type(event) is Ticked:
                self._now_ms = event.now_ms
        if self.answer is None and self._now_ms >= self._due_ms:
            self._due_ms = self._now_ms + REPEAT_MS
            self._turn += 1
            server = self._servers[self._turn % len(self._servers)]
            out.append(Send(server, self._question))
        return out

    def _on_answer(self, answer: Any, out: list[Effect]) -> None:
        if self.answer is None and self.is_mine(answer):
            self.answer = answer
            out.append(Answered(answer))

    def is_mine(self, answer: Any) -> bool:
        """Whether this answers just this question."""
        raise NotImplementedError

    def due_ms(self) -> int:
        """The next repeat."""
        return NEVER_MS if self.answer is not None else self._due_ms


class Proposer(Asker):
    """Has one thing ordered. The same nonce is the same proposal, however often it is heard."""

    def __init__(
        self, node: NodeId, configuration: Configuration, nonce: int, request: AnyRequest
    ) -> None:
        super().__init__(node, configuration, Propose(nonce, request), Outcome)
        self._nonce = nonce

    def is_mine(self, answer: Any) -> bool:
        """By its nonce."""
        return bool(answer.nonce == self._nonce)

    @property
    def outcome(self) -> Outcome | None:
        """What became of it, once that is final."""
        outcome: Outcome | None = self.answer
        return outcome


class HeadAsker(Asker):
    """Asks how far a group is, as of some moment after the question."""

    def __init__(self, node: NodeId, configuration: Configuration, group: int) -> None:
        super().__init__(node, configuration, HeadRequest(group), Head)
        self._group = group

    def is_mine(self, answer: Any) -> bool:
        """By its group."""
        return bool(answer.group == self._group)


class NamesAsker(Asker):
    """Asks who has a name in a group, or in the cell."""

    def __init__(
        self, node: NodeId, configuration: Configuration, scope: int, above: bytes
    ) -> None:
        super().__init__(node, configuration, NamesRequest(scope, above), Names)
        self._asked = (scope, above)

    def is_mine(self, answer: Any) -> bool:
        """By what was asked for."""
        return bool((answer.scope, answer.above) == self._asked)


class CheckpointsAsker(Asker):
    """Asks what there is of a group."""

    def __init__(self, node: NodeId, configuration: Configuration, group: int) -> None:
        super().__init__(node, configuration, CheckpointsRequest(group), Checkpoints)
        self._group = group

    def is_mine(self, answer: Any) -> bool:
        """By its group."""
        return bool(answer.group == self._group)
