"""Puts stages of a transaction on enough disks, for a decision that another process will make
(SAFETY 2.12).

An owner stages and decides in one place, so the decision's outcome tells it everything. Where many
processes stage and one decides, each must know that its stages are safe before it ends: a decision
that names a stage which nobody has would wait for ever. So data servers are asked, and whoever has
not heard of a stage gets it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from samcast.group.payloads import key_of
from samcast.group.stage_window import StageWindow
from samcast.machine.ports import (
    NEVER_MS,
    Channel,
    Effect,
    Event,
    NodeId,
    Received,
    Ticked,
)
from samcast.machine.quorum import lists, newer
from samcast.wire.batch import Batch, make_batch
from samcast.wire.blocked import Blocked
from samcast.wire.change import Moved
from samcast.wire.order import ROLE_DATA, Configuration, StageRef
from samcast.wire.stages import StageKey, Stages

WINDOW_BYTES = 32 * 1024 * 1024  # of one process; several share a link that takes twice that
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


class Stager:
    """The stages of one process in one transaction."""

    def __init__(
        self, node: NodeId, configuration: Configuration, place: Place, clock_ms: int = 0
    ) -> None:
        self.node = node
        self._configuration = configuration
        self._window = StageWindow(
            configuration,
            Channel.DATA,
            WINDOW_BYTES,
            (AGAIN_MS, AGAIN_MS),
        )
        self._place = place
        self._clock_ms = clock_ms  # what the host's clock lacks to be the wall's
        self._stage_next = place.stage_first
        self._lacking: dict[StageKey, Batch] = {}  # on enough disks
        self._now_ms = 0
        self._is_over = False
        self.blocked: tuple[int, int] | None = None  # why a data server took none of ours, lately
        self._handlers = {
            Stages: self._on_stages,
            Blocked: self._on_blocked,
            Moved: self._on_moved,
        }

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Received and type(event.message) is Stages:
                self._on_stages(event.sender, event.message, out)
            elif type(event) is Received and type(event.message) is Blocked:
                self._on_blocked(event.message)
            elif type(event) is Received and type(event.message) is Moved:
                self._on_moved(event.message)
            elif type(event) is Stage:
                self._stage(event, out)
            elif type(event) is Ticked:
                self._now_ms = event.now_ms
        if self._now_ms >= self.due_ms():
            self._window.ask(self._now_ms, out)
        return out

    def due_ms(self) -> int:
        """The next question."""
        return self._window.due_ms if self._lacking and not self._is_over else NEVER_MS

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
        self._lacking[key_of(batch)] = batch
        self._window.add([batch])
        self._window.send(self._now_ms, out)

    def _on_stages(self, server: NodeId, said: Stages, out: list[Effect]) -> None:
        if not lists(self._configuration, server, said.uuid, ROLE_DATA):
            return
        for key in self._window.on_stages(server, said, self._now_ms, out):
            batch = self._lacking.pop(key)
            self._window.forget(key)
            self.blocked = None
            ref = StageRef(batch.stage, batch.count, batch.digest)
            out.append(StageHeld(batch.group, ref, len(batch.columns)))
        if any(key in self._lacking for key in said.over) and not self._is_over:
            self._is_over = True
            out.append(StagingOver())

    def _on_moved(self, moved: Moved) -> None:
        configuration = newer(self._configuration, moved.configuration)
        if configuration is not self._configuration:
            self._configuration = configuration
            self._window.serve(configuration)

    def _on_blocked(self, blocked: Blocked) -> None:
        """No outcome: others may have taken it, and this one may later."""
        for key, reason, bound in blocked.batches:
            if key in self._lacking:
                self.blocked = (reason, bound)
