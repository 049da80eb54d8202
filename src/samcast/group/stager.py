"""Puts stages of a transaction on enough disks, for a decision that another process will make
(SAFETY 2.12).

An owner stages and decides in one place, so the decision's outcome tells it everything. Where many
processes stage and one decides, each must know that its stages are safe before it ends: a decision
that names a stage which nobody has would wait for ever. So data servers are asked, and whoever has
not heard of a stage gets it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

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
from samcast.machine.quorum import lists, servers_with
from samcast.wire.batch import Batch, make_batch
from samcast.wire.blocked import Blocked
from samcast.wire.order import ROLE_DATA, Configuration, StageRef
from samcast.wire.stages import StageKey, Stages, StagesRequest

ASK_MS = 8  # after a stage was sent; then longer and longer
ASK_MAX_MS = 100
AGAIN_MS = 500  # before a stage is sent again to one who has not heard of it


@dataclass(frozen=True, slots=True)
class Place:
    """Where stages belong: an owner's transaction, as it was opened."""

    owner: bytes
    incarnation: int
    tx: int
    birth: int
    stage_first: int  # of this stager, whose numbers no other one uses


class Stage(Event, frozen=True, gc=False):
    """The application wants this staged."""

    group: int
    columns: bytes
    count: int


class StageHeld(Effect, frozen=True, gc=False):
    """It is on `k_data` disks."""

    group: int
    ref: StageRef
    size: int


class StagingOver(Effect, frozen=True, gc=False):
    """The transaction was decided or aborted, or its name has been taken over."""


@dataclass(slots=True)
class Sent:
    """A stage under way."""

    batch: Batch
    holders: dict[NodeId, None] = field(default_factory=dict)
    sent_ms: dict[NodeId, int] = field(default_factory=dict)


class Stager:
    """The stages of one process in one transaction."""

    def __init__(
        self, node: NodeId, configuration: Configuration, place: Place, clock_ms: int = 0
    ) -> None:
        self.node = node
        self._configuration = configuration
        self._keepers = [server.node for server in servers_with(configuration, ROLE_DATA)]
        self._place = place
        self._clock_ms = clock_ms  # what the host's clock lacks to be the wall's
        self._stage_next = place.stage_first
        self._sent: dict[StageKey, Sent] = {}
        self._now_ms = 0
        self._due_ms = NEVER_MS
        self._wait_ms = ASK_MS
        self._is_over = False
        self.blocked: tuple[int, int] | None = None  # why a data server took none of ours, lately
        self._handlers = {Stages: self._on_stages, Blocked: self._on_blocked}

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Received and type(event.message) is Stages:
                self._on_stages(event.sender, event.message, out)
            elif type(event) is Received and type(event.message) is Blocked:
                self._on_blocked(event.message)
            elif type(event) is Stage:
                self._stage(event, out)
            elif type(event) is Ticked:
                self._now_ms = event.now_ms
        if self._sent and not self._is_over and self._now_ms >= self._due_ms:
            self._ask(out)
        return out

    def due_ms(self) -> int:
        """The next question."""
        return self._due_ms if self._sent and not self._is_over else NEVER_MS

    def _stage(self, stage: Stage, out: list[Effect]) -> None:
        place = self._place
        batch = make_batch(
            group=stage.group,
            sender=place.owner,
            incarnation=place.incarnation,
            counter_first=place.tx,
            count=stage.count,
            birth=place.birth,
            confirmed_below=place.tx,
            seen=0,
            sent_ms=self._now_ms + self._clock_ms,
            configuration=self._configuration.number,
            stage=self._stage_next,
            columns=stage.columns,
        )
        self._stage_next += 1
        key = (batch.group, batch.sender, batch.incarnation, batch.counter_first, batch.stage)
        sent_ms = dict.fromkeys(self._keepers, self._now_ms)
        self._sent[key] = Sent(batch, sent_ms=sent_ms)
        out.append(Multicast(Channel.DATA, batch))
        self._wait_ms = ASK_MS
        self._due_ms = self._now_ms + ASK_MS

    def _ask(self, out: list[Effect]) -> None:
        self._due_ms = self._now_ms + self._wait_ms
        self._wait_ms = min(2 * self._wait_ms, ASK_MAX_MS)
        for server in self._keepers:
            lacking = [key for key, sent in self._sent.items() if server not in sent.holders]
            if lacking:
                digests = tuple(self._sent[key].batch.digest for key in lacking)
                out.append(Send(server, StagesRequest(tuple(lacking), digests)))

    def _on_stages(self, server: NodeId, said: Stages, out: list[Effect]) -> None:
        if not lists(self._configuration, server, said.uuid, ROLE_DATA):
            return
        for key in said.durable:
            self._note(server, key, out)
        if any(key in self._sent for key in said.over) and not self._is_over:
            self._is_over = True
            out.append(StagingOver())
        for key in said.unknown:
            sent = self._sent.get(key)
            if sent is not None and self._now_ms >= sent.sent_ms.get(server, 0) + AGAIN_MS:
                sent.sent_ms[server] = self._now_ms
                out.append(Send(server, sent.batch))

    def _on_blocked(self, blocked: Blocked) -> None:
        """No outcome: others may have taken it, and this one may later."""
        for key, reason, bound in blocked.batches:
            if key in self._sent:
                self.blocked = (reason, bound)

    def _note(self, server: NodeId, key: StageKey, out: list[Effect]) -> None:
        sent = self._sent.get(key)
        if sent is None:
            return
        sent.holders[server] = None
        if len(sent.holders) >= self._configuration.k_data:
            batch = sent.batch
            ref = StageRef(batch.stage, batch.count, batch.digest)
            out.append(StageHeld(batch.group, ref, len(batch.columns)))
            del self._sent[key]
            self.blocked = None
