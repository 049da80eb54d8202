"""The data server: keeps payloads, reports them, and serves them to whoever lacks them (GRP-01,
02).

It stores a run, and reports it to the sequencer once it is durable; it repeats reports of what is
not numbered, and all of them in each new epoch. It follows the committed log, so that it knows
which number each payload got, answers retransmissions, fetches from its peers what it lacks, and
drops only what can never be numbered: born below the floor, or a stage that no decision can name
any more.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from samcast.group.admission import Admitting
from samcast.group.collecting import Collecting
from samcast.group.dropping import Dropping
from samcast.group.election import speaks_for
from samcast.group.follower import Follower
from samcast.group.joining import Joining
from samcast.group.listing import DataRecovery, FoundBatch, with_marks
from samcast.group.payloads import Held, Numbered, Unnumbered
from samcast.group.repair import Repairs
from samcast.group.reports import Reports
from samcast.group.settings import GroupSettings
from samcast.group.storage import (
    BatchKey,
    Filled,
    Freed,
    Rotted,
    StoreBatch,
)
from samcast.group.streams import Streams
from samcast.machine.ports import (
    Effect,
    Event,
    NodeId,
    Received,
    Send,
    Stored,
    Ticked,
    Warn,
)
from samcast.machine.quorum import newer, servers_with
from samcast.wire.batch import Batch
from samcast.wire.change import Moved
from samcast.wire.control import Control
from samcast.wire.group import (
    Answer,
    AnswerKind,
    Answers,
    Asked,
    Commit,
    CommitSubmit,
    FetchPlease,
    Follow,
    Head,
    HeadRequest,
    Heartbeat,
    OrderReply,
    PayloadRequest,
    Repair,
    SnapshotReply,
)
from samcast.wire.order import (
    CELL,
    ROLE_DATA,
    AbortEntry,
    AnyEntry,
    CollectEntry,
    Configuration,
    DecisionEntry,
    GroupRemovedEntry,
    OpenEntry,
    RunEntry,
    SenderRemovedEntry,
)
from samcast.wire.retention import Collected
from samcast.wire.rows import RowsRequest
from samcast.wire.session import node_of
from samcast.wire.stages import StagesRequest

Handler = Callable[[NodeId, Any, list[Effect]], None]


class DataServer:
    """One data server of a cell."""

    def __init__(
        self,
        node: NodeId,
        configuration: Configuration,
        settings: GroupSettings,
        recovery: DataRecovery,
    ) -> None:
        self.node = node
        self.uuid = recovery.uuid
        self.settings = settings
        self.now_ms = 0
        self.follower = Follower(node, configuration, settings)
        self.unnumbered = Unnumbered()
        self.numbered = Numbered()
        self._token = 0
        self._writing: deque[tuple[int, BatchKey]] = deque()
        self._answers: dict[NodeId, list[Answer]] = {}
        self.is_full = False
        self._peers_of: Configuration | None = None
        self._peers: list[NodeId] = []  # the data servers of that configuration
        self.repairs = Repairs(self)
        self.reports = Reports(self)
        self.streams = Streams(self)
        self.collecting = Collecting(self)
        self.dropping = Dropping(self)
        self.admitting = Admitting(self)
        self._joining = Joining(node, self.uuid, ROLE_DATA, settings)
        self._recover(recovery)
        self._handlers: dict[type, Handler] = {
            Batch: self.admitting.on_batch,
            Commit: self._on_claim,
            Heartbeat: self._on_claim,
            CommitSubmit: self._on_submit,
            OrderReply: self._on_order_reply,
            SnapshotReply: self._on_snapshot_reply,
            FetchPlease: self.repairs.on_fetch_please,
            PayloadRequest: self.repairs.on_payload_request,
            StagesRequest: self.repairs.on_stages_request,
            RowsRequest: self.repairs.on_rows_request,
            Repair: self.repairs.on_repair,
            HeadRequest: self._on_head_request,
            Follow: self.streams.on_follow,
            Moved: self._on_moved,
            Collected: lambda sender, said, out: None,  # Our own fold tells us, in its time.
        }

    def _recover(self, recovery: DataRecovery) -> None:
        """In columns where all runs have a number, which is nearly everywhere."""
        marks = dict(recovery.marks)
        for runs in recovery.runs:
            numbers = with_marks(runs, marks, recovery.marked)
            if 0 not in numbers:
                self.numbered.recover(runs, numbers.tobytes())
                continue
            for found, number in zip(runs.found(), numbers, strict=True):
                self._recover_one(found, number)
        for found in recovery.stages:
            self._recover_one(found, recovery.number_of(marks, found))
        self.numbered.sort()
        self.collecting.recover(recovery)
        for key in self.unnumbered.all():  # One of two copies may be marked, the other not.
            if key in self.numbered:
                self.unnumbered.pop(key)

    def _recover_one(self, found: FoundBatch, number: int) -> None:
        if number:
            self.numbered.recover_one(found, number)
        else:
            # What came later counts: it was only taken because what was there had been given up.
            self.unnumbered.pop(found.key)
            held = Held(found.count, found.birth, found.digest, found.sent_ms)
            held.is_durable = True
            self.unnumbered.add(found.key, held)

    # the door

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn; reports and answers are said at its end."""
        out: list[Effect] = []
        handler_of = self._handlers.get
        for event in events:
            if type(event) is Received:
                message = event.message
                handler = handler_of(type(message))
                if handler is not None:
                    handler(event.sender, message, out)
                elif isinstance(message, Control):
                    out.append(Warn("misdirected", f"{type(message).__name__} {event.sender}"))
            elif type(event) is Stored:
                self._on_stored(event.token)
            elif type(event) is Ticked:
                self.now_ms = event.now_ms
            elif type(event) is Rotted:
                self._on_rotted(event.key)
            elif type(event) is Filled or type(event) is Freed:
                self.is_full = type(event) is Filled
        self._on_drained(out)
        return out

    def due_ms(self) -> int:
        """The next report, repair or question."""
        due = min(self.follower.due_ms(), self.unnumbered.due_ms())
        due = min(due, self.collecting.due_ms(due), self.admitting.due_ms())
        if not self.numbered.is_whole:
            due = min(due, self.repairs.due_ms)
        return max(due, self.now_ms + 1)

    def _on_drained(self, out: list[Effect]) -> None:
        self.follower.on_tick(self.now_ms, out)
        self.admitting.on_drained(self.now_ms, out)  # What waits may be what is lacking.
        self.repairs.ask(self.now_ms, out)
        self.dropping.on_drained(out)
        self._joining.see(self.follower.configuration, out)
        self._joining.ask(self.now_ms, out)
        self.reports.on_drained(self.now_ms, out)
        self.streams.on_drained(out)
        self.collecting.on_drained(self.now_ms, out)
        self._send_answers(out)

    @property
    def applied(self) -> int:
        """Everything up to this index is held here and marked, durably."""
        return self.reports.applied

    def next_token(self) -> int:
        """Stores are numbered in the order in which they become durable."""
        self._token += 1
        return self._token

    # payloads coming in

    def store(
        self,
        sender: NodeId,
        key: BatchKey,
        batch: Batch,
        out: list[Effect],
        *,
        is_reserved: bool = False,
    ) -> None:
        """A payload without a number has been admitted."""
        facts = (batch.count, batch.birth, batch.digest, batch.sent_ms)
        held = Held(*facts, len(batch.columns))
        held.origin = held.client = sender
        held.is_reserved = is_reserved
        held.confirmed_below = batch.confirmed_below
        self.unnumbered.add(key, held)
        self._write(key, batch, out)

    def _write(self, key: BatchKey, batch: Batch, out: list[Effect]) -> None:
        token = self.next_token()
        self._writing.append((token, key))
        out.append(StoreBatch(token, key, batch))

    def store_numbered(
        self, key: BatchKey, batch: Batch, number_first: int, out: list[Effect]
    ) -> None:
        """A committed payload that we lacked."""
        self.unnumbered.pop(key)
        self.numbered.add(key, number_first, batch.count, batch.digest, batch.sent_ms)
        self._note(key, number_first + batch.count - 1, len(batch.columns))
        self.reports.mark(key, number_first, batch.digest)
        self._write(key, batch, out)

    def _note(self, key: BatchKey, number_last: int, size: int) -> None:
        self.collecting.note(key[0], number_last, size, self.now_ms)

    def _on_stored(self, token: int) -> None:
        while self._writing and self._writing[0][0] <= token:
            key = self._writing.popleft()[1]
            held = self.unnumbered.get(key)
            if held is not None:
                held.is_durable = True
                self.reports.add(key)
        self.reports.on_stored(token)

    # following the order

    def _on_claim(self, sender: NodeId, claim: Commit | Heartbeat, out: list[Effect]) -> None:
        if not speaks_for(sender, claim.epoch, out):
            return
        committed: list[tuple[int, AnyEntry]] = []
        self.follower.on_claim(claim, self.now_ms, committed)
        self._apply(committed, out)
        self._joining.on_claim(sender, claim.configuration, self.now_ms, out)

    def _on_moved(self, sender: NodeId, moved: Moved, out: list[Effect]) -> None:
        self.follower.told = newer(self.follower.told, moved.configuration)

    def _on_submit(self, sender: NodeId, submit: CommitSubmit, out: list[Effect]) -> None:
        if not speaks_for(sender, submit.epoch, out):
            return
        committed: list[tuple[int, AnyEntry]] = []
        self.follower.on_submit(submit, self.now_ms, committed)
        self._apply(committed, out)

    def _on_order_reply(self, sender: NodeId, reply: OrderReply, out: list[Effect]) -> None:
        committed: list[tuple[int, AnyEntry]] = []
        self.follower.on_order_reply(sender, reply, self.now_ms, committed, out)
        self._apply(committed, out)

    def _on_snapshot_reply(self, sender: NodeId, reply: SnapshotReply, out: list[Effect]) -> None:
        if not self.follower.on_snapshot_reply(sender, reply, self.now_ms, out):
            return
        for group, rows in self.follower.core.groups.items():
            # What came before the snapshot is known by number only.
            if group != CELL and not rows.is_removed:
                self.collecting.collect(group, out)
                self.numbered.lack_span(group, 1, rows.head + 1)
        self._settle_skipped()
        self.dropping.on_skipped()
        self.reports.hurry_all()
        self.admitting.on_folded()

    def _settle_skipped(self) -> None:
        """Of what we hold some may have been numbered in the stretch that the snapshot skipped."""
        for key in self.unnumbered.all():
            held = self.unnumbered.get(key)
            if held is None or key[4]:
                continue
            asked = Asked(*key[:4], held.count, held.birth, 0, 0, held.digest)
            answer = self.follower.core.answer(asked)
            if answer is not None and answer[0] is AnswerKind.NUMBER:
                self._on_numbered(key, held.count, held.digest, answer[1])

    def _apply(self, committed: list[tuple[int, AnyEntry]], out: list[Effect]) -> None:
        groups: dict[int, None] = {}
        owners: dict[bytes, None] = {}
        for _, entry in committed:
            if type(entry) is RunEntry:
                key = (entry.group, entry.sender, entry.incarnation, entry.counter_first, 0)
                self._on_numbered(key, entry.count, entry.digest, entry.number_first)
                self.reports.hurry((*key[:3], entry.counter_first + entry.count, 0))
                groups[entry.group] = None
            elif type(entry) is DecisionEntry:
                groups.update(dict.fromkeys(part.group for part in entry.parts))
                owners[entry.owner] = None
                self._on_decided(entry)
            elif type(entry) is AbortEntry:
                owners[entry.owner] = None
            elif type(entry) is OpenEntry or type(entry) is SenderRemovedEntry:
                owners.update(dict.fromkeys(self.dropping.owners_ended(entry)))
                self._hurry_opened(entry)
            elif type(entry) is CollectEntry:
                self.collecting.collect(entry.group, out)
            elif type(entry) is GroupRemovedEntry:
                self.dropping.on_group_removed(entry.group, out)
        # The fold is at the last of these entries: only now may what it rules out be dropped.
        for group in groups:
            self.dropping.drop_expired(group, out)
        for owner in owners:
            self.dropping.drop_stages(owner, out)
        self.admitting.on_folded()

    def _hurry_opened(self, entry: OpenEntry | SenderRemovedEntry) -> None:
        """The next run of a name that was opened may be here already."""
        rows = self.follower.core.groups.get(entry.scope)
        row = rows.named.get(entry.sender) if rows is not None else None
        if row is not None:
            self.reports.hurry((entry.scope, entry.sender, row.incarnation, row.next, 0))

    def _on_decided(self, entry: DecisionEntry) -> None:
        for part in entry.parts:
            number = part.number_first
            for ref in part.stages:
                key = (part.group, entry.owner, entry.incarnation, entry.tx, ref.stage)
                self._on_numbered(key, ref.count, ref.digest, number)
                number += ref.count

    def _on_numbered(self, key: BatchKey, count: int, digest: bytes, number_first: int) -> None:
        if key in self.numbered:
            self._compare(key, count, digest, number_first)
            return
        held = self.unnumbered.get(key)
        self.reports.forget(key)
        if held is not None:
            self.unnumbered.pop(key)
        if held is None or held.digest != digest:
            self.numbered.lack(key[0], number_first, count, key, digest)
            return
        self.numbered.add(key, number_first, count, digest, held.sent_ms)
        self._note(key, number_first + count - 1, held.size)
        self.reports.mark(key, number_first, digest)
        if held.origin and self._is_my_turn(key, held.origin):
            answer = Answer(AnswerKind.NUMBER, *key[:4], count, number_first, digest)
            self.answer(held.origin, answer)

    def _compare(self, key: BatchKey, count: int, digest: bytes, number_first: int) -> None:
        """Our marks gave a number to what we hold; the order says what that must be (CE-11)."""
        is_meant = self.numbered.number_of(key) == number_first
        if is_meant and self.numbered.digest_of(key) != digest:
            self.numbered.lose(key)
            self.numbered.lack(key[0], number_first, count, key, digest)
            self.reports.on_lost()

    def _is_my_turn(self, key: BatchKey, origin: NodeId) -> bool:
        """One data server tells the sender at once, the one it is connected to if there is such;
        the others answer only if it asks again."""
        if key[4]:
            return False
        configuration = self.follower.configuration
        if configuration is not self._peers_of:
            self._peers_of = configuration
            self._peers = [s.node for s in servers_with(configuration, ROLE_DATA)]
        nodes = self._peers
        near = node_of(origin)
        return self.node == (near if near in nodes else nodes[key[3] % len(nodes)])

    # answers

    def answer(self, to: NodeId, answer: Answer) -> None:
        """Have a sender told, at the end of the turn."""
        self._answers.setdefault(to, []).append(answer)

    def _send_answers(self, out: list[Effect]) -> None:
        for to, answers in self._answers.items():
            group = answers[0].group
            head = self.follower.core.head(group)
            out.append(Send(to, Answers(tuple(answers), group, head)))
        self._answers.clear()

    def _on_head_request(self, sender: NodeId, request: HeadRequest, out: list[Effect]) -> None:
        core = self.follower.core
        if self.follower.is_current and core.has_heard_of(request.group):
            out.append(Send(sender, Head(request.group, core.head(request.group))))

    # for `repair`

    def has(self, key: BatchKey) -> bool:
        """Whether a payload is here, with or without a number."""
        return key in self.numbered or key in self.unnumbered

    def _on_rotted(self, key: BatchKey) -> None:
        """The disk lost a payload: it is missing, nothing worse."""
        if key in self.numbered:
            self.numbered.lose(key)
            self.reports.on_lost()
        else:
            self.unnumbered.pop(key)
