"""The sender: freezes batches, repeats them until their outcome is certain, and keeps their order.

A batch is frozen at its first transmission: boundaries, birth and bytes never change; only what the
sender has heard since (`confirmed_below`, `seen`) is stamped anew. When a run can never be numbered
(EXPIRED, REOPEN), the incarnation is over, and the sender goes on from its *lowest* unconfirmed
message: an unnamed one under a fresh id, a named one by OPEN after its own incarnation. What nobody
can know any more (FORGOTTEN) is told to the application and never resent (GRP-18, 19, 26).
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from enum import Enum
from heapq import heappop, heappush
from typing import Any

from samcast.group.settings import GroupSettings
from samcast.machine.ports import (
    NEVER_MS,
    Chance,
    Channel,
    Effect,
    Event,
    Multicast,
    NodeId,
    Received,
    Send,
    Ticked,
    Warn,
)
from samcast.machine.quorum import servers_with
from samcast.wire.batch import Batch, make_batch, restamp
from samcast.wire.blocked import Blocked
from samcast.wire.group import (
    Answer,
    AnswerKind,
    Answers,
    Head,
    HeadRequest,
    OpenRequest,
    Outcome,
    OutcomeKind,
    Propose,
)
from samcast.wire.order import (
    INCARNATION_MAX,
    ROLE_COMMIT,
    Configuration,
    named_sender,
    unnamed_sender,
)


class Submitted(Event, frozen=True, gc=False):
    """The application wants these messages sent, as one batch."""

    token: int
    columns: bytes
    count: int


class Reconnected(Event, frozen=True, gc=False):
    """What was on its way may be lost: repeat it now instead of waiting."""


class Confirmed(Effect, frozen=True, gc=False):
    """The batch is committed; `number_first` is 0 where the number is no longer kept."""

    token: int
    number_first: int


class Failed(Effect, frozen=True, gc=False):
    """The batch's outcome can't be known (`forgotten`, `removed`), or another process took over."""

    token: int
    kind: AnswerKind


class Opened(Effect, frozen=True, gc=False):
    """A named sender may go on: `counter_next` messages minus one were numbered before."""

    incarnation: int
    counter_next: int
    runs: tuple[tuple[int, int, int, bytes], ...]


class Stopped(Effect, frozen=True, gc=False):
    """The sender can't go on under this name; `limit`: there are so many, and it is not one."""

    kind: AnswerKind
    limit: int = 0


class State(Enum):
    """Where a sender stands."""

    OPENING = "opening"
    SENDING = "sending"
    STOPPED = "stopped"


class Outgoing:
    """A batch on its way."""

    __slots__ = ("batch", "columns", "count", "due_ms", "is_expired", "token", "wait_ms")

    def __init__(self, token: int, columns: bytes, count: int) -> None:
        self.token = token
        self.columns = columns
        self.count = count
        self.batch: Batch | None = None
        self.is_expired = False
        self.due_ms = 0
        self.wait_ms = 0


class Sender:
    """One sender of one group."""

    def __init__(
        self,
        node: NodeId,
        configuration: Configuration,
        settings: GroupSettings,
        chance: Chance,
        group: int,
        name: str = "",
        contacts: tuple[NodeId, ...] = (),
        channel: Channel = Channel.DATA,
        clock_ms: int = 0,
    ) -> None:
        self.node = node
        self.group = group
        self._clock_ms = clock_ms  # what the host's clock lacks to be the wall's
        self._configuration = configuration
        self._settings = settings
        self._chance = chance
        self._contacts = contacts  # entries; without any, data servers are reached directly
        self._channel = channel
        self._turn = node
        self._now_ms = 0
        self._head = -1  # highest number of the group that we know
        self._head_ms = -NEVER_MS
        self._head_due_ms = 0
        self._queue: deque[Outgoing] = deque()
        self._runs: OrderedDict[int, Outgoing] = OrderedDict()  # by counter, in order
        self._due: list[tuple[int, int]] = []  # when to repeat which counter; the first is valid
        self.is_named = bool(name)
        self.label = name
        self.id = named_sender(name) if name else self._fresh_id()
        self.incarnation = 1
        self.opened = 0  # the last incarnation of a name that we know to be ours
        self.counter_next = 1
        self.state = State.OPENING if name else State.SENDING
        self._after = 0
        self.nonce = self._fresh_nonce()
        self._open_due_ms = 0
        self._open_birth = -1
        self.blocked: tuple[int, int] | None = None  # why a data server took none of ours, lately
        self._handlers: dict[type, Callable[[Any, list[Effect]], None]] = {
            Answers: self._on_answers,
            Head: self._on_head,
            Outcome: self._on_outcome,
            Blocked: self._on_blocked,
        }

    def _fresh_id(self) -> bytes:
        high, low = self._chance.below(2**62), self._chance.below(2**62)
        return unnamed_sender(high.to_bytes(8, "little") + low.to_bytes(8, "little"))

    def _fresh_nonce(self) -> int:
        return 1 + self._chance.below(2**62)

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Received:
                handler = self._handlers.get(type(event.message))
                if handler is not None:
                    handler(event.message, out)
            elif type(event) is Submitted:
                self._queue.append(Outgoing(event.token, event.columns, event.count))
            elif type(event) is Ticked:
                self._now_ms = event.now_ms
            elif type(event) is Reconnected:
                self._on_reconnected()
        self._on_drained(out)
        return out

    def _on_reconnected(self) -> None:
        self._head_due_ms = self._open_due_ms = self._now_ms
        for counter, run in self._runs.items():
            run.due_ms = self._now_ms
            run.wait_ms = self._settings.retry_ms
            heappush(self._due, (self._now_ms, counter))

    def due_ms(self) -> int:
        """The next repeat."""
        if self.state is State.STOPPED:
            return NEVER_MS
        due = NEVER_MS
        if self._needs_head():
            due = self._head_due_ms
        elif self.state is State.OPENING:
            due = self._open_due_ms
        if self._due:
            due = min(due, self._due[0][0])
        return max(due, self._now_ms + 1)

    @property
    def unconfirmed(self) -> int:
        """Batches whose outcome isn't known yet."""
        return len(self._queue) + len(self._runs)

    def _on_drained(self, out: list[Effect]) -> None:
        if self.state is State.STOPPED:
            return
        if self._needs_head():
            self._ask_head(out)
        elif self.state is State.OPENING:
            self._open(out)
        else:
            self._send_new(out)
        if self.state is State.SENDING:
            self._repeat(out)

    # the head

    def _needs_head(self) -> bool:
        """A birth must be stamped and what we know is old, or nothing."""
        is_stamping = bool(self._queue) or self.state is State.OPENING
        return is_stamping and self._now_ms - self._head_ms > 4 * self._settings.retry_max_ms

    def _ask_head(self, out: list[Effect]) -> None:
        if self._now_ms >= self._head_due_ms:
            self._head_due_ms = self._now_ms + self._settings.retry_ms
            out.append(Send(self._server(), HeadRequest(self.group)))

    def _server(self) -> NodeId:
        self._turn += 1
        if self._contacts:
            return self._contacts[self._turn % len(self._contacts)]
        servers = servers_with(self._configuration, ROLE_COMMIT)
        return servers[self._turn % len(servers)].node

    def _on_head(self, head: Head, out: list[Effect]) -> None:
        if head.group == self.group:
            self._see_head(head.number)

    def _see_head(self, number: int) -> None:
        self._head = max(self._head, number)
        self._head_ms = self._now_ms

    # opening a name

    def _open(self, out: list[Effect]) -> None:
        if self._now_ms < self._open_due_ms:
            return
        if self._open_birth < 0:
            self._open_birth = self._head
        self._open_due_ms = self._now_ms + 2 * self._settings.retry_ms
        request = OpenRequest(
            self.group, self.id, self.incarnation, self._after, self._open_birth, self.nonce,
            self.label,
        )  # fmt: skip
        out.append(Send(self._server(), Propose(self.nonce, request)))

    def _ask_whether_open(self, out: list[Effect]) -> None:
        """Nobody answers: the name may have been given up long ago, in a group where nothing
        happens since. The very OPEN that we have is answered without being ordered again."""
        request = OpenRequest(
            self.group, self.id, self.incarnation, 0, self._open_birth, self.nonce, self.label
        )
        out.append(Send(self._server(), Propose(self.nonce, request)))

    def _on_outcome(self, outcome: Outcome, out: list[Effect]) -> None:
        if outcome.nonce != self.nonce or not self.is_named:
            return
        if self.state is State.SENDING and outcome.kind == OutcomeKind.REMOVED:
            self._stop(AnswerKind.REMOVED, out)
        if self.state is not State.OPENING:
            return
        most = INCARNATION_MAX if outcome.kind is OutcomeKind.FENCED else 2**62 - 1
        if outcome.value > most or outcome.head >= 2**62:
            out.append(Warn("outcome-range", f"value {outcome.value}, head {outcome.head}"))
            return
        if outcome.kind == OutcomeKind.OPENED and outcome.value >= 1:
            self.state = State.SENDING
            self.opened = self.incarnation
            self.counter_next = outcome.value
            self._see_head(outcome.head)  # what we send is `seen` from after our OPEN on
            out.append(Opened(self.incarnation, outcome.value, outcome.runs))
        elif outcome.kind == OutcomeKind.FENCED and not self._after:
            if outcome.value < INCARNATION_MAX:
                # We come after whoever holds the name now; an OPEN of our own would not say so.
                self._open_again(outcome.value + 1, 0)
            else:
                self._stop(AnswerKind.REMOVED, out)  # Nobody can come after that one.
        elif outcome.kind == OutcomeKind.FENCED:
            self._stop(AnswerKind.FENCED, out)
        elif outcome.kind != OutcomeKind.OPENED:
            limit = outcome.value if outcome.kind is OutcomeKind.REFUSED else 0
            self._stop(AnswerKind.REMOVED, out, limit)

    def _open_again(self, incarnation: int, after: int) -> None:
        self.state = State.OPENING
        self.incarnation = incarnation
        self._after = after
        self.nonce = self._fresh_nonce()
        self._open_due_ms = self._now_ms
        self._open_birth = -1

    def _stop(self, kind: AnswerKind, out: list[Effect], limit: int = 0) -> None:
        self.state = State.STOPPED
        for run in [*self._runs.values(), *self._queue]:
            out.append(Failed(run.token, kind))
        self._runs.clear()
        self._due.clear()
        self._queue.clear()
        out.append(Stopped(kind, limit))

    # sending

    def _send_new(self, out: list[Effect]) -> None:
        while self._queue and len(self._runs) < self._settings.sender_runs_max:
            run = self._queue.popleft()
            run.batch = make_batch(
                group=self.group,
                sender=self.id,
                incarnation=self.incarnation,
                counter_first=self.counter_next,
                count=run.count,
                birth=self._head,
                confirmed_below=self._confirmed_below(),
                seen=self._head,
                sent_ms=self._now_ms + self._clock_ms,
                configuration=self._configuration.number,
                stage=0,
                columns=run.columns,
            )
            self._runs[self.counter_next] = run
            self.counter_next += run.count
            run.wait_ms = self._settings.retry_ms
            self._transmit(run, run.batch, out)

    def _confirmed_below(self) -> int:
        """Everything below this counter has an outcome that we know."""
        return next(iter(self._runs), self.counter_next)

    def _transmit(self, run: Outgoing, batch: Batch, out: list[Effect]) -> None:
        run.due_ms = self._now_ms + run.wait_ms
        heappush(self._due, (run.due_ms, batch.counter_first))
        if self._contacts:
            to = self._contacts[self._turn % len(self._contacts)]
            out.append(Send(to, batch))
        else:
            out.append(Multicast(self._channel, batch))

    def _repeat(self, out: list[Effect]) -> None:
        due = self._take_due()
        if due:
            self._turn += 1  # Another entry may be better off.
            if self.is_named and due[0].wait_ms >= self._settings.retry_max_ms:
                self._ask_whether_open(out)
        for run in due:
            assert run.batch is not None
            run.wait_ms = min(2 * run.wait_ms, self._settings.retry_max_ms)
            self._transmit(run, self.repeated(run.batch), out)

    def _take_due(self) -> list[Outgoing]:
        """Runs to be repeated now; also passes over what has an outcome or a later time by now."""
        found: dict[int, Outgoing] = {}
        while self._due:
            due_ms, counter = self._due[0]
            run = self._runs.get(counter)
            if run is not None and run.due_ms == due_ms:
                if due_ms > self._now_ms:
                    break
                found[counter] = run
            heappop(self._due)
        return [found[counter] for counter in sorted(found)]

    def repeated(self, batch: Batch) -> Batch:
        """The same frozen batch; only what we have heard since is new."""
        return restamp(
            batch,
            confirmed_below=self._confirmed_below(),
            seen=self._head,
            sent_ms=batch.sent_ms,
            configuration=batch.configuration,
        )

    # outcomes

    def _on_answers(self, answers: Answers, out: list[Effect]) -> None:
        if answers.group != self.group or self.state is not State.SENDING:
            return
        self._see_head(answers.head)
        for answer in answers.answers:
            if answer.sender != self.id or answer.incarnation != self.incarnation:
                continue
            run = self._runs.get(answer.counter_first)
            if run is None or run.batch is None:
                continue
            end = answer.number_first + answer.count
            if answer.digest != run.batch.digest or answer.count != run.count or end >= 2**62:
                out.append(Warn("answer-of-other", f"counter {answer.counter_first}"))
                continue
            self._on_answer(run, answer, out)
            if self.state is not State.SENDING:
                return

    def _on_blocked(self, blocked: Blocked, out: list[Effect]) -> None:
        """No outcome: others may have taken it, and this one may later. We go on repeating."""
        for (group, sender, incarnation, counter, stage), reason, bound in blocked.batches:
            is_ours = (group, sender, incarnation, stage) == (
                self.group,
                self.id,
                self.incarnation,
                0,
            )
            if is_ours and counter in self._runs:
                self.blocked = (reason, bound)

    def _on_answer(self, run: Outgoing, answer: Answer, out: list[Effect]) -> None:
        kind = AnswerKind(answer.kind)
        if kind in (AnswerKind.NUMBER, AnswerKind.CONFIRMED):
            del self._runs[answer.counter_first]
            self.blocked = None
            if kind is AnswerKind.NUMBER:
                self._see_head(answer.number_first + answer.count - 1)
            out.append(Confirmed(run.token, answer.number_first))
            self._go_on_if_expired()
        elif kind in (AnswerKind.EXPIRED, AnswerKind.REOPEN):
            run.is_expired = True
            self._go_on_if_expired()
        elif kind is AnswerKind.FORGOTTEN:
            del self._runs[answer.counter_first]
            out.append(Failed(run.token, kind))
            self._go_on_if_expired()
        else:
            self._stop(kind, out)

    def _go_on_if_expired(self) -> None:
        """Once the lowest unconfirmed run is known never to be numbered, begin again from it."""
        lowest = next(iter(self._runs.values()), None)
        if lowest is not None and lowest.is_expired:
            self.begin_again(list(self._runs.values()))

    def begin_again(self, runs: list[Outgoing]) -> None:
        """Send these anew, in order, under an id that has never been used."""
        for run in reversed(runs):
            again = Outgoing(run.token, run.columns, run.count)
            self._queue.appendleft(again)
        self._runs.clear()
        self._due.clear()
        if self.is_named:
            self._open_again(self.incarnation + 1, self.incarnation)
        else:
            self.id = self._fresh_id()
            self.counter_next = 1
