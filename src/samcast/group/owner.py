"""The owner of transactions: stages batches, then has them decided all at once (SAFETY 2.12).

Stages are frozen batches without numbers. A decision names them; it is one ordered entry, so
their messages become visible together or not at all, in one group or in several. The
transaction's counter makes it happen once: a repeated decision is answered with the first one's
numbers. An ABORT ends the incarnation; the owner opens again and stages again under the same
counter. Stages leave through a window, so that no link has to take a large transaction at once.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from samcast.group.settings import GroupSettings
from samcast.group.stage_window import StageWindow
from samcast.machine.ports import (
    NEVER_MS,
    Chance,
    Channel,
    Effect,
    Event,
    NodeId,
    Received,
    Send,
    Ticked,
    Warn,
)
from samcast.machine.quorum import newer, servers_with
from samcast.wire.batch import Batch, make_batch
from samcast.wire.change import Moved
from samcast.wire.group import (
    DecisionRequest,
    Head,
    HeadRequest,
    OpenRequest,
    Outcome,
    OutcomeKind,
    Propose,
    Span,
)
from samcast.wire.order import (
    CELL,
    INCARNATION_MAX,
    ROLE_COMMIT,
    Configuration,
    StageRef,
    named_sender,
)
from samcast.wire.stages import Stages

StageContent = tuple[int, bytes, int]  # group, columns, count


class Transacted(Event, frozen=True, gc=False):
    """The application wants these sent all or not at all."""

    token: int
    stages: tuple[StageContent, ...]


class Decided(Effect, frozen=True, gc=False):
    """It happened; `spans` are the numbers, empty where they are no longer kept."""

    token: int
    tx: int
    spans: tuple[Span, ...]


class Forgotten(Effect, frozen=True, gc=False):
    """Nobody can tell any more whether it happened; an owner without a name goes on after it."""

    token: int


class OwnerOpened(Effect, frozen=True, gc=False):
    """The name is ours: transactions below `tx_next` were decided."""

    tx_next: int


class OwnerStopped(Effect, frozen=True, gc=False):
    """Another process took the name over, it was removed, or there are too many (`limit`)."""

    kind: OutcomeKind
    limit: int = 0
    token: int = 0  # of the transaction that was under way


class State(Enum):
    """Where an owner stands."""

    OPENING = "opening"
    READY = "ready"
    DECIDING = "deciding"
    STOPPED = "stopped"


class Owner:
    """One owner of transactions; its name belongs to the cell. Without a name it makes one up that
    nobody uses again; the cell forgets it some time, and then it goes on under another."""

    def __init__(
        self,
        node: NodeId,
        configuration: Configuration,
        settings: GroupSettings,
        chance: Chance,
        name: str,
        channel: Channel = Channel.DATA,
        clock_ms: int = 0,
    ) -> None:
        self.node = node
        self._clock_ms = clock_ms  # what the host's clock lacks to be the wall's
        self._channel = channel
        self.is_anonymous = not name
        self._label = name
        self._chance = chance
        self.id = self._fresh_id() if self.is_anonymous else named_sender(name)
        self._configuration = configuration
        self._settings = settings
        self._turn = node
        self._now_ms = 0
        self.state = State.OPENING
        self._has_opened = False  # ever, under this name
        self.incarnation = 1
        self.opened = 0  # the last incarnation that we know to be ours
        self.tx_next = 1
        self._after = 0
        self.nonce = self._fresh_nonce()
        self._birth = -1
        self._seen = 0  # the highest index that we know of
        self._seen_ms = -1  # when we heard of it
        self._proposed_after = 0  # what we knew when we first proposed the decision
        self._due_ms = 0
        self._wait_ms = settings.retry_ms
        self._queue: deque[Transacted] = deque()
        self._current: Transacted | None = None
        self._batches: list[Batch] = []
        # Whoever serves by now may answer: a hold only lets more leave, and decides nothing.
        self._window = StageWindow(
            configuration,
            channel,
            settings.stage_window_bytes,
            (settings.retry_ms, settings.retry_max_ms),
        )
        self._handlers: dict[type, Callable[[NodeId, Any, list[Effect]], None]] = {
            Head: self._on_head,
            Outcome: self._on_outcome,
            Stages: self._on_stages,
            Moved: self._on_moved,
        }

    def _fresh_nonce(self) -> int:
        return 1 + self._chance.below(2**62)

    def _fresh_id(self) -> bytes:
        return named_sender(f"anonymous {self._fresh_nonce():x} {self._fresh_nonce():x}")

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Received:
                handler = self._handlers.get(type(event.message))
                if handler is not None:
                    handler(event.sender, event.message, out)
            elif type(event) is Transacted:
                self._queue.append(event)
            elif type(event) is Ticked:
                self._now_ms = event.now_ms
        self._on_drained(out)
        return out

    def due_ms(self) -> int:
        """The next repeat."""
        idle = self.state is State.STOPPED or (self.state is State.READY and not self._queue)
        if idle:
            return NEVER_MS
        due = self._due_ms
        if self.state is State.DECIDING and not self._window.are_all_sent:
            due = min(due, self._window.due_ms)
        return max(due, self._now_ms + 1)

    @property
    def unconfirmed(self) -> int:
        """Transactions whose outcome isn't known yet."""
        return len(self._queue) + (self._current is not None)

    def _on_drained(self, out: list[Effect]) -> None:
        if self.state is State.READY and (self._current or self._queue):
            if not self._is_out_of_touch():
                self._stage(out)
            elif self._now_ms >= self._due_ms:
                self._ask_head(out)
        elif self.state is State.DECIDING:
            self._go_on(out)
        elif self.state is State.OPENING and self._now_ms >= self._due_ms:
            self._open(out)

    def _server(self) -> NodeId:
        servers = servers_with(self._configuration, ROLE_COMMIT)
        self._turn += 1
        return servers[self._turn % len(servers)].node

    def _wait(self) -> None:
        self._due_ms = self._now_ms + self._wait_ms
        self._wait_ms = min(2 * self._wait_ms, self._settings.retry_max_ms)

    def _on_moved(self, sender: NodeId, moved: Moved, out: list[Effect]) -> None:
        configuration = newer(self._configuration, moved.configuration)
        if configuration is not self._configuration:
            self._configuration = configuration
            self._window.serve(configuration)

    # opening

    def _on_head(self, sender: NodeId, head: Head, out: list[Effect]) -> None:
        if head.group != CELL or not 0 <= head.number < 2**62:
            return
        self._see(head.number)
        if self._birth < 0:
            self._birth = self._seen
            self._due_ms = self._now_ms

    def _see(self, index: int) -> None:
        if index < 2**62:
            self._seen, self._seen_ms = max(self._seen, index), self._now_ms

    def _is_out_of_touch(self) -> bool:
        """Whether the cell may have forgotten us since we last heard of it. Who knows where the
        log is when it proposes a decision can be told for sure that it came too late."""
        is_old = self._now_ms - self._seen_ms > self._settings.retry_max_ms
        return self.is_anonymous and (self._seen_ms < 0 or is_old)

    def _ask_head(self, out: list[Effect]) -> None:
        self._wait()
        out.append(Send(self._server(), HeadRequest(CELL)))

    def _open(self, out: list[Effect]) -> None:
        if self._birth < 0:
            self._ask_head(out)
            return
        self._wait()
        who = (CELL, self.id, self.incarnation, self._after, self._birth, self.nonce)
        request = OpenRequest(*who, self._label, self.is_anonymous)
        out.append(Send(self._server(), Propose(self.nonce, request)))

    def _open_again(self, incarnation: int, after: int) -> None:
        self.state = State.OPENING
        self.incarnation = incarnation
        self._after = after
        self.nonce = self._fresh_nonce()
        self._birth = -1
        self._wait_ms = self._settings.retry_ms
        self._due_ms = self._now_ms

    def _may_begin_anew(self, removed: Outcome) -> bool:
        return self.is_anonymous or (not self._has_opened and removed.head > self._birth)

    def _begin_anew(self) -> None:
        """Nothing of ours is under way, or known by this name: another one is as good."""
        if self.is_anonymous:
            self.id = self._fresh_id()
            self.opened = 0
        self._open_again(1, 0)

    # staging and deciding

    def _stage(self, out: list[Effect]) -> None:
        """Freeze the stages under our incarnation and counter, and send them with the decision."""
        if self._current is None:
            self._current = self._queue.popleft()
        self.state = State.DECIDING
        self.nonce = self._fresh_nonce()
        self._proposed_after = self._seen
        self._wait_ms = self._settings.retry_ms
        self._batches = [
            make_batch(
                group=group,
                sender=self.id,
                incarnation=self.incarnation,
                counter_first=self.tx_next,
                count=count,
                birth=max(0, self._birth),
                confirmed_below=self.tx_next,
                seen=0,
                sent_ms=self._now_ms + self._clock_ms,
                configuration=self._configuration.number,
                stage=stage,
                columns=columns,
            )
            for stage, (group, columns, count) in enumerate(self._current.stages, 1)
        ]
        self._window.clear()
        self._window.add(self._batches)
        self._window.send(self._now_ms, out)
        self._propose(out)

    def _go_on(self, out: list[Effect]) -> None:
        """Ask for what more must wait for; after a while, propose again. Once all has left, what is
        on the disks is in doubt then, too."""
        is_due = self._now_ms >= self._due_ms
        if is_due:
            self._window.press(self._now_ms, out)
        if self._window.are_all_sent:
            if is_due:
                self._window.doubt()
                self._window.ask(self._now_ms, out)
        elif self._now_ms >= self._window.due_ms:
            self._window.ask(self._now_ms, out)
        if is_due:
            self._propose(out)

    def _propose(self, out: list[Effect]) -> None:
        self._wait()
        out.append(Send(self._server(), Propose(self.nonce, self.decision())))

    def _on_stages(self, sender: NodeId, said: Stages, out: list[Effect]) -> None:
        if self.state is not State.DECIDING:
            return
        was_sending = not self._window.are_all_sent
        self._window.on_stages(sender, said, self._now_ms, out)
        if was_sending and self._window.are_all_sent:
            self._wait_ms = self._settings.retry_ms
            self._propose(out)  # Whoever leads by now may not have heard of it.

    def decision(self) -> DecisionRequest:
        """Names every stage, by group, in the order in which they were given."""
        refs: dict[int, list[StageRef]] = {}
        for batch in self._batches:
            ref = StageRef(batch.stage, batch.count, batch.digest)
            refs.setdefault(batch.group, []).append(ref)
        parts = tuple((group, tuple(stages)) for group, stages in refs.items())
        seen = self._proposed_after
        return DecisionRequest(self.id, self.incarnation, self.tx_next, parts, seen)

    def _on_outcome(self, sender: NodeId, outcome: Outcome, out: list[Effect]) -> None:
        if outcome.nonce != self.nonce:
            return
        kind = OutcomeKind(outcome.kind)
        if self.state is State.OPENING:
            self._on_open_outcome(kind, outcome, out)
        elif self.state is State.DECIDING and self._current is not None:
            if kind in (OutcomeKind.DECIDED, OutcomeKind.CONFIRMED):
                self._see(outcome.head)
                out.append(Decided(self._current.token, self.tx_next, outcome.spans))
                self._forget()
                self.tx_next += 1
                self.state = State.READY
                self._due_ms = self._now_ms
            elif kind is OutcomeKind.ABORTED:
                self._open_again(self.incarnation + 1, self.incarnation)
            elif kind is OutcomeKind.EXPIRED and self.is_anonymous:
                self._begin_anew()
            elif kind is OutcomeKind.REMOVED and self.is_anonymous:
                out.append(Forgotten(self._current.token))
                self._current = None
                self._begin_anew()
            else:
                self._stop(kind, out)

    def _on_open_outcome(self, kind: OutcomeKind, outcome: Outcome, out: list[Effect]) -> None:
        most = INCARNATION_MAX if kind is OutcomeKind.FENCED else 2**62 - 1
        is_told = kind in (OutcomeKind.OPENED, OutcomeKind.FENCED)
        if is_told and not 1 <= outcome.value <= most:
            out.append(Warn("outcome-range", f"value {outcome.value}"))
            return
        if kind is OutcomeKind.OPENED:
            self.state = State.READY
            self.tx_next = outcome.value
            self._has_opened = True
            self.opened = self.incarnation
            self._see(outcome.head)
            out.append(OwnerOpened(outcome.value))
        elif kind is OutcomeKind.FENCED and not self._after:
            if outcome.value < INCARNATION_MAX:
                self._open_again(outcome.value + 1, 0)
            else:
                self._stop(OutcomeKind.REFUSED, out)  # There is no next one.
        elif kind is OutcomeKind.REMOVED and self._may_begin_anew(outcome):
            # Others were so busy that our OPEN came too late, or the name was just given up: who
            # has done nothing under it may begin.
            self._see(outcome.head)
            self._begin_anew()
        else:
            self._stop(kind, out, outcome.value if kind is OutcomeKind.REFUSED else 0)

    def _stop(self, kind: OutcomeKind, out: list[Effect], limit: int = 0) -> None:
        self.state = State.STOPPED
        token = self._current.token if self._current is not None else 0
        self._queue.clear()
        self._forget()
        out.append(OwnerStopped(kind, limit, token))

    def _forget(self) -> None:
        """Payloads that nobody needs any more may be large."""
        self._current = None
        self._batches = []
        self._window.clear()
