"""The checkpoint server: reports the states that its fold has come to, and serves them (GRP-15 to
17).

The fold itself runs beside, in a process of its own; what it has written, read again and found
sound comes in as `Written`. A state is reported until the order advertises it, or a later one.
States older than the older advertised one go; one that differs from what is advertised is wrong,
and goes, too.
"""

from collections.abc import Callable, Sequence
from typing import Any

from samcast.group.joining import Joining
from samcast.group.settings import GroupSettings
from samcast.machine.ports import (
    NEVER_MS,
    Effect,
    Event,
    NodeId,
    Received,
    Send,
    Ticked,
    Warn,
)
from samcast.machine.quorum import newer, servers_with
from samcast.wire.change import Moved
from samcast.wire.group import Heartbeat
from samcast.wire.handing import HandIn, States, StatesRequest
from samcast.wire.order import (
    EPOCH_NONE,
    ROLE_CHECKPOINT,
    ROLE_COMMIT,
    Checkpoint,
    Configuration,
    Epoch,
)
from samcast.wire.retention import (
    BlockRequest,
    CheckpointReport,
    Checkpoints,
    CheckpointsRequest,
)

UNADVERTISED_MAX = 3
REMIND = 5  # repeats, after which what is advertised is told again

Handler = Callable[[NodeId, Any, list[Effect]], None]


class Written(Event, frozen=True, gc=False):
    """A state is on our disk, whole, and was found sound when it was read again."""

    group: int
    checkpoint: Checkpoint
    fold: str
    fold_version: int


class SendBlock(Effect, frozen=True, gc=False):
    """Send a piece of a block, or that there is none."""

    to: NodeId
    request: BlockRequest


class TakePiece(Effect, frozen=True, gc=False):
    """A job hands a state in: keep this piece of it, and say so."""

    of: NodeId
    piece: HandIn


class TellStates(Effect, frozen=True, gc=False):
    """Say which states are held."""

    to: NodeId
    group: int


class DropCheckpoint(Effect, frozen=True, gc=False):
    """A state may go; if it is wrong, what the fold holds is wrong as well."""

    group: int
    number: int
    is_wrong: bool


class CheckpointServer:
    """One checkpoint server of a cell."""

    def __init__(
        self, node: NodeId, uuid: int, configuration: Configuration, settings: GroupSettings
    ) -> None:
        self.node = node
        self.uuid = uuid
        self._configuration = configuration
        self._joining = Joining(node, uuid, ROLE_CHECKPOINT, settings)
        self._joining.see(configuration)
        self._repeat_ms = settings.retry_max_ms
        self._now_ms = 0
        self._due_ms = self._remind_ms = 0
        self._turn = node
        self._epoch: Epoch = EPOCH_NONE
        self.held: dict[int, dict[int, Checkpoint]] = {}  # by group and number
        self._folds: dict[int, tuple[str, int]] = {}  # by group: name and version
        self._advertised: dict[int, int] = {}  # by group: the newest
        self._handlers: dict[type, Handler] = {
            Heartbeat: self._on_heartbeat,
            Moved: self._on_moved,
            Checkpoints: self._on_checkpoints,
            BlockRequest: self._on_block_request,
            HandIn: self._on_hand_in,
            StatesRequest: self._on_states_request,
        }

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Received:
                handler = self._handlers.get(type(event.message))
                if handler is not None:
                    handler(event.sender, event.message, out)
            elif type(event) is Written:
                self._on_written(event, out)
            elif type(event) is Ticked:
                self._now_ms = event.now_ms
        self._report(out)
        self._joining.ask(self._now_ms, out)
        return out

    def _on_written(self, written: Written, out: list[Effect]) -> None:
        group, number = written.group, written.checkpoint.number
        fold = (written.fold, written.fold_version)
        if self._folds.get(group) != fold:  # States of another fold are of no use.
            self._folds[group] = fold
            for other in list(self.held.get(group, ())):
                self._drop(group, other, False, out)
        held = self.held.setdefault(group, {})
        held[number] = written.checkpoint
        self._due_ms = self._now_ms
        waiting = sorted(n for n in held if n > self._advertised.get(group, 0))
        for other in waiting[:-UNADVERTISED_MAX]:  # Nobody else comes to them, it seems.
            self._drop(group, other, False, out)

    def due_ms(self) -> int:
        """The next repeat."""
        due = self._due_ms if self._waiting() else NEVER_MS
        if self.held:
            due = min(due, max(self._due_ms, self._remind_ms))
        return min(due, self._joining.due_ms())

    def _newest(self) -> list[tuple[int, Checkpoint]]:
        """The newest state of each group."""
        return [(group, held[max(held)]) for group, held in self.held.items() if held]

    def _waiting(self) -> list[tuple[int, Checkpoint]]:
        """Of these, what is not advertised yet."""
        return [(g, c) for g, c in self._newest() if c.number > self._advertised.get(g, 0)]

    def _report(self, out: list[Effect]) -> None:
        if self._now_ms < self._due_ms:
            return
        self._due_ms = self._now_ms + self._repeat_ms
        is_reminder = self._now_ms >= self._remind_ms
        if is_reminder:  # Who leaves must know who else has what is advertised.
            self._remind_ms = self._now_ms + REMIND * self._repeat_ms
        servers = servers_with(self._configuration, ROLE_COMMIT)
        for group, checkpoint in self._newest() if is_reminder else self._waiting():
            number = self._configuration.number
            said = (group, checkpoint, *self._folds[group])
            report = CheckpointReport(number, self._epoch, self.uuid, *said)
            if self._epoch[1]:
                out.append(Send(self._epoch[1], report))
            self._turn += 1
            asked = servers[self._turn % len(servers)].node
            out.append(Send(asked, CheckpointsRequest(group)))

    def _on_heartbeat(self, sender: NodeId, beat: Heartbeat, out: list[Effect]) -> None:
        if beat.epoch[1] == sender and beat.epoch > self._epoch:
            self._epoch = beat.epoch
            self._due_ms = self._remind_ms = self._now_ms
        if beat.epoch == self._epoch:
            self._joining.stay_heard(sender, self._now_ms, out)
        self._joining.on_claim(sender, beat.configuration, self._now_ms, out)

    def _on_moved(self, sender: NodeId, moved: Moved, out: list[Effect]) -> None:
        self._configuration = newer(self._configuration, moved.configuration)
        self._joining.see(self._configuration, out)

    def _on_checkpoints(self, sender: NodeId, said: Checkpoints, out: list[Effect]) -> None:
        """What the order advertises, from committed state."""
        held = self.held.get(said.group)
        if not held or not said.checkpoints:
            return
        newest = said.checkpoints[-1].number
        self._advertised[said.group] = max(newest, self._advertised.get(said.group, 0))
        for advertised in said.checkpoints:
            own = held.get(advertised.number)
            if own is not None and own != advertised:
                out.append(
                    Warn(
                        "checkpoint-wrong",
                        f"group {said.group} at {own.number}: our state is not the advertised one",
                    )
                )
                for number in [n for n in held if n >= own.number]:  # and what follows from it
                    self._drop(said.group, number, True, out)
        for number in [n for n in held if n < said.checkpoints[0].number]:
            self._drop(said.group, number, False, out)

    def _drop(self, group: int, number: int, is_wrong: bool, out: list[Effect]) -> None:
        del self.held[group][number]
        out.append(DropCheckpoint(group, number, is_wrong))

    def _on_hand_in(self, sender: NodeId, piece: HandIn, out: list[Effect]) -> None:
        out.append(TakePiece(sender, piece))

    def _on_states_request(self, sender: NodeId, request: StatesRequest, out: list[Effect]) -> None:
        out.append(TellStates(sender, request.group))

    def states(self, group: int, job: int = 0, refused: str = "") -> States:
        """What we hold of a group."""
        held = self.held.get(group, {})
        fold = self._folds.get(group, ("", 0))
        return States(group, *fold, tuple(held[n] for n in sorted(held)), job, refused)

    def _on_block_request(self, sender: NodeId, request: BlockRequest, out: list[Effect]) -> None:
        out.append(SendBlock(sender, request))
