"""The entry: where a client that knows one address reaches the whole cell (GRP-12).

It passes batches on unchanged to all data servers, answers back to the client that they concern,
and tells it at once when it hears a commit of its runs. It keeps nothing that a client would
miss: if it dies, the client repeats to another entry.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from samcast.group.settings import GroupSettings
from samcast.machine.ports import (
    NEVER_MS,
    Channel,
    Effect,
    Event,
    Multicast,
    NodeId,
    Received,
    Send,
    Ticked,
)
from samcast.machine.quorum import newer, servers_with
from samcast.wire.batch import Batch
from samcast.wire.group import (
    Answer,
    AnswerKind,
    Answers,
    Commit,
    Head,
    HeadRequest,
    Outcome,
    Propose,
)
from samcast.wire.order import ROLE_COMMIT, ConfigEntry, Configuration, RunEntry

CLIENTS_MAX = 100_000  # senders, questions and proposals that are remembered; the oldest go first


class Entry:
    """One entry of a cell."""

    def __init__(self, node: NodeId, configuration: Configuration, settings: GroupSettings) -> None:
        self.node = node
        self._configuration = configuration
        self._settings = settings
        self._turn = node
        self._senders: OrderedDict[tuple[int, bytes], NodeId] = OrderedDict()
        self._nonces: OrderedDict[int, NodeId] = OrderedDict()
        self._heads: dict[int, dict[NodeId, None]] = {}
        self._handlers: dict[type, Callable[[NodeId, Any, list[Effect]], None]] = {
            Batch: self._on_batch,
            Answers: self._on_answers,
            Commit: self._on_commit,
            Propose: self._on_propose,
            Outcome: self._on_outcome,
            HeadRequest: self._on_head_request,
            Head: self._on_head,
        }

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Received:
                handler = self._handlers.get(type(event.message))
                if handler is not None:
                    handler(event.sender, event.message, out)
            else:
                assert type(event) is Ticked
        return out

    def due_ms(self) -> int:
        """An entry only reacts."""
        return NEVER_MS

    def _server(self) -> NodeId:
        servers = servers_with(self._configuration, ROLE_COMMIT)
        self._turn += 1
        return servers[self._turn % len(servers)].node

    def _on_batch(self, sender: NodeId, batch: Batch, out: list[Effect]) -> None:
        """Pass it on as it is: nobody re-batches."""
        self._senders[(batch.group, batch.sender)] = sender
        self._senders.move_to_end((batch.group, batch.sender))
        if len(self._senders) > CLIENTS_MAX:
            self._senders.popitem(last=False)
        out.append(Multicast(Channel.DATA, batch))

    def _on_answers(self, sender: NodeId, answers: Answers, out: list[Effect]) -> None:
        by_client: dict[NodeId, list[Answer]] = {}
        for answer in answers.answers:
            client = self._senders.get((answer.group, answer.sender))
            if client is not None:
                by_client.setdefault(client, []).append(answer)
        for client, theirs in by_client.items():
            out.append(Send(client, Answers(tuple(theirs), answers.group, answers.head)))

    def _on_commit(self, sender: NodeId, commit: Commit, out: list[Effect]) -> None:
        """Tell clients the numbers of their own runs."""
        by_client: dict[tuple[NodeId, int], list[Answer]] = {}
        for entry in commit.entries:
            if type(entry) is ConfigEntry:
                self._configuration = newer(self._configuration, entry.configuration)
            if type(entry) is not RunEntry or not 1 <= entry.count < 2**32:
                continue
            if not 1 <= entry.number_first < 2**62:
                continue
            client = self._senders.get((entry.group, entry.sender))
            if client is None:
                continue
            answer = Answer(
                AnswerKind.NUMBER,
                entry.group,
                entry.sender,
                entry.incarnation,
                entry.counter_first,
                entry.count,
                entry.number_first,
                entry.digest,
            )
            by_client.setdefault((client, entry.group), []).append(answer)
        for (client, group), theirs in by_client.items():
            head = theirs[-1].number_first + theirs[-1].count - 1
            out.append(Send(client, Answers(tuple(theirs), group, head)))

    def _on_propose(self, sender: NodeId, propose: Propose, out: list[Effect]) -> None:
        self._nonces[propose.nonce] = sender
        if len(self._nonces) > CLIENTS_MAX:
            self._nonces.popitem(last=False)
        out.append(Send(self._server(), Propose(propose.nonce, propose.request)))

    def _on_outcome(self, sender: NodeId, outcome: Outcome, out: list[Effect]) -> None:
        client = self._nonces.pop(outcome.nonce, None)
        if client is not None:
            out.append(Send(client, outcome))

    def _on_head_request(self, sender: NodeId, request: HeadRequest, out: list[Effect]) -> None:
        self._heads.setdefault(request.group, {})[sender] = None
        if len(self._heads) > CLIENTS_MAX:
            self._heads.clear()
        out.append(Send(self._server(), request))

    def _on_head(self, sender: NodeId, head: Head, out: list[Effect]) -> None:
        for client in self._heads.pop(head.group, {}):
            out.append(Send(client, head))
