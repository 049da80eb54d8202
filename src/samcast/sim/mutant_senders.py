"""The unsafe rules that mutants put back: senders, lifetimes, names and transactions."""

from collections.abc import Sequence
from typing import Any

from samcast.group import (
    core,
    data_server,
    entry,
    numbering,
    order_queries,
    outcomes,
    rows,
    sequencer,
)
from samcast.group.owner import Owner
from samcast.group.rows import Admission, GroupRows
from samcast.group.sender import Outgoing, Sender
from samcast.group.storage import DropBatch
from samcast.machine.ports import Effect, Multicast, NodeId, Send
from samcast.sim.mutant import Mutant, replace
from samcast.wire.batch import Batch, columns_from_messages, make_batch, messages_of
from samcast.wire.group import (
    AnswerKind,
    Asked,
    Commit,
    CommitSubmit,
    DecisionRequest,
    OpenRequest,
    Outcome,
    OutcomeKind,
    Propose,
)
from samcast.wire.order import AbortEntry, DecisionEntry, OpenEntry, SenderRemovedEntry, is_named

Core = core.Core
DataServer = data_server.DataServer


def _again(batch: Batch, **changed: Any) -> Batch:
    """The same batch with something of its identity changed."""
    fields: dict[str, Any] = {
        "group": batch.group, "sender": batch.sender, "incarnation": batch.incarnation,
        "counter_first": batch.counter_first, "count": batch.count, "birth": batch.birth,
        "confirmed_below": batch.confirmed_below, "seen": batch.seen, "sent_ms": batch.sent_ms,
        "configuration": batch.configuration, "columns": batch.columns, "stage": batch.stage,
    }  # fmt: skip
    fields.update(changed)
    return make_batch(**fields)


def birth_refreshed() -> None:
    """A retransmission is stamped with what the sender knows now."""

    def repeated(self: Any, batch: Batch) -> Batch:
        again = _again(batch, birth=self._head, seen=self._head,
                       confirmed_below=self._confirmed_below())  # fmt: skip
        self._runs[batch.counter_first].batch = again
        return again

    replace(Sender, "repeated", repeated)


def expired_without_memory() -> None:
    """EXPIRED is told whenever nothing is known of a run."""
    before = GroupRows._answer_without_row

    def answer(self: Any, asked: Asked) -> Any:
        told = before(self, asked)
        if told is not None and told[0] is AnswerKind.FORGOTTEN:
            return (AnswerKind.EXPIRED, 0)
        return told

    replace(GroupRows, "_answer_without_row", answer)


def batched_anew() -> None:
    """A retransmission has other boundaries than the first transmission."""
    before = Sender._transmit

    def transmit(self: Any, run: Outgoing, batch: Batch, out: list[Effect]) -> None:
        is_repeat = run.wait_ms > self._settings.retry_ms
        if not is_repeat or batch.count == 1:
            before(self, run, batch, out)
            return
        at = batch.counter_first
        for message in messages_of(batch):
            columns = columns_from_messages([message])
            before(self, run, _again(batch, counter_first=at, count=1, columns=columns), out)
            at += 1

    replace(Sender, "_transmit", transmit)


def restart_only_asks() -> None:
    """A process that comes back asks how far it was, and goes on with counters of its own."""
    before = outcomes.open_outcome

    def open_outcome(
        core: core.Core, nonce: int, request: OpenRequest, is_settled: bool
    ) -> Outcome | None:
        rows_ = core.groups.get(request.scope)
        row = rows_.named.get(request.sender) if rows_ is not None and request.scope else None
        if row is not None and row.nonce != request.nonce and not request.after:
            return Outcome(nonce, OutcomeKind.OPENED, row.next)
        return before(core, nonce, request, is_settled)

    replace(outcomes, "open_outcome", open_outcome)
    on_outcome = Sender._on_outcome

    def outcome_heard(self: Any, outcome: Outcome, out: list[Effect]) -> None:
        on_outcome(self, outcome, out)
        if outcome.kind == OutcomeKind.OPENED and outcome.value > 1 and self.is_named:
            self.id, self.counter_next, self.is_named = self._fresh_id(), 1, False

    replace(Sender, "_on_outcome", outcome_heard)
    handlers = Sender.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        handlers(self, *args, **kwargs)
        self._handlers[Outcome] = self._on_outcome

    replace(Sender, "__init__", init)


def open_told_behind() -> None:
    """A server tells who goes on from an incarnation that it doesn't know that it can't."""
    before = outcomes.open_outcome

    def open_outcome(
        core: core.Core, nonce: int, request: OpenRequest, is_settled: bool
    ) -> Outcome | None:
        return before(core, nonce, request, is_settled or request.after > 0)

    replace(outcomes, "open_outcome", open_outcome)


def open_not_committed() -> None:
    """An OPEN is answered from the sequencer's own log before it is committed."""
    before = order_queries.OrderQueries.on_propose

    def on_propose(self: Any, sender_: NodeId, propose: Propose, out: list[Effect]) -> None:
        server = self._server
        before(self, sender_, propose, out)
        if server.sequencer is not None:
            outcome = server.sequencer.tail.outcome(propose.nonce, propose.request)
            if outcome is not None:
                out.append(Send(propose.origin or sender_, outcome))

    replace(order_queries.OrderQueries, "on_propose", on_propose)


def _uncommitted_answers() -> None:
    """Whoever overhears a submit tells the sender its number."""
    before = entry.Entry.__init__

    def init(self: Any, *args: Any) -> None:
        before(self, *args)

        def on_submit(sender_: NodeId, submit: CommitSubmit, out: list[Effect]) -> None:
            commit = Commit(
                submit.configuration, submit.epoch, submit.index_first, submit.entries,
                submit.committed, submit.committed_hash,
            )  # fmt: skip
            self._on_commit(sender_, commit, out)

        self._handlers[CommitSubmit] = on_submit

    replace(entry.Entry, "__init__", init)


def reopen_without_seen() -> None:
    """REOPEN is told by a server that may be behind what the sender already knows."""
    before = GroupRows._answer_without_row

    def answer(self: Any, asked: Asked) -> Any:
        blind = Asked(
            asked.group, asked.sender, asked.incarnation, asked.counter_first, asked.count,
            asked.birth, asked.confirmed_below, 0, asked.digest,
        )  # fmt: skip
        return before(self, blind)

    replace(GroupRows, "_answer_without_row", answer)


def open_after_anybody() -> None:
    """After EXPIRED a process opens its name again, whoever has opened it meanwhile."""
    before = Sender._open_again
    replace(Sender, "_open_again", lambda self, incarnation, after: before(self, incarnation, 0))


def no_tombstone() -> None:
    """A name that is given up leaves nothing behind."""

    def fold(self: Any, removed: SenderRemovedEntry) -> bool:
        rows_ = self.groups.get(removed.scope)
        if rows_ is None:
            return False
        rows_.anonymous.pop(removed.sender, None)
        return rows_.named.pop(removed.sender, None) is not None

    replace(Core, "_fold_sender_removed", fold)
    before = Core.__init__

    def init(self: Any, *args: Any) -> None:
        before(self, *args)
        self._folds[SenderRemovedEntry] = self._fold_sender_removed

    replace(Core, "__init__", init)


def named_without_row() -> None:
    """A run of a name without a row is taken for the first of a new sender."""
    before = GroupRows.admission

    def admission(self: Any, sender_: bytes, incarnation: int, counter: int, birth: int) -> Any:
        if is_named(sender_) and self.named.get(sender_) is None and not self.is_removed:
            is_first = counter == 1 and birth >= self.admission_floor()
            return Admission.NUMBER if is_first else Admission.HOLD
        return before(self, sender_, incarnation, counter, birth)

    replace(GroupRows, "admission", admission)
    row = GroupRows.number

    def number(self: Any, run: Any) -> bool:
        if is_named(run.sender) and run.sender not in self.named and run.counter_first == 1:
            self.named[run.sender] = rows.Row(run.incarnation)
        return row(self, run)

    replace(GroupRows, "number", number)


def first_expired_heard() -> None:
    """The sender goes on from the expired message that it heard of first."""

    def go_on(self: Any) -> None:
        runs = list(self._runs.values())
        for at, run in enumerate(runs):
            if run.is_expired:
                self.begin_again(runs[at:])
                return

    replace(Sender, "_go_on_if_expired", go_on)


def fenced_gets_answers() -> None:
    """A run of a lower incarnation is answered as if it were the row's."""
    before = GroupRows.answer

    def answer(self: Any, asked: Asked) -> Any:
        row = self.row(asked.sender)
        if row is not None and asked.incarnation < row.incarnation:
            if asked.counter_first < row.next:
                return (AnswerKind.CONFIRMED, 0)
            return None
        return before(self, asked)

    replace(GroupRows, "answer", answer)


def open_equal() -> None:
    """An OPEN of the incarnation in force takes effect."""
    before = Core.can_open

    def can_open(self: Any, request: OpenEntry | OpenRequest) -> bool:
        rows_ = self.groups.get(request.scope)
        row = rows_.named.get(request.sender) if rows_ is not None else None
        if row is not None and request.incarnation == row.incarnation:
            return bool(row.nonce != request.nonce)
        return before(self, request)

    replace(Core, "can_open", can_open)


def open_any() -> None:
    """An OPEN of any incarnation takes effect, a lower one too."""
    before = Core.can_open

    def can_open(self: Any, request: OpenEntry | OpenRequest) -> bool:
        rows_ = self.groups.get(request.scope)
        row = rows_.named.get(request.sender) if rows_ is not None else None
        if row is not None:
            return bool(request.incarnation != row.incarnation)
        return before(self, request)

    replace(Core, "can_open", can_open)


def rows_not_rebuilt() -> None:
    """A new sequencer doesn't look into the uncommitted entries that it adopts."""
    before = sequencer.Sequencer.__init__

    def init(self: Any, server: Any, epoch: Any, log: Any, promises: Any, out: Any) -> None:
        before(self, server, epoch, log, promises, out)
        tail = self.tail
        blind = server.core.copy()
        for group, rows_ in tail.groups.items():
            if group in blind.groups:
                blind.groups[group].head = rows_.head
        blind.index, blind.hash, blind.epoch = tail.index, tail.hash, tail.epoch
        blind.configuration = tail.configuration
        self.tail = blind

    replace(sequencer.Sequencer, "__init__", init)


def named_rows_evicted() -> None:
    """Named rows go like any other when the floor passes them."""
    before = GroupRows.raise_floors

    def raise_floors(self: Any) -> None:
        before(self)
        for name in [s for s, row in self.named.items() if 0 < row.last < self.memory_floor]:
            del self.named[name]
            self.anonymous.pop(name, None)

    replace(GroupRows, "raise_floors", raise_floors)


def stages_not_held() -> None:
    """A decision is numbered although its stages are on too few disks."""
    replace(numbering.Numbering, "holds_all", lambda self, request: True)


def stages_of_others() -> None:
    """A decision may name stages of an incarnation before its own, so an owner that opens again
    doesn't stage again unless it has to."""

    def holds_all(self: Any, request: DecisionRequest) -> bool:
        held = {(k[0], k[1], k[3], k[4]) for k in self._held}
        return all(
            (group, request.owner, request.tx, ref.stage) in held
            for group, refs in request.parts
            for ref in refs
        )

    replace(numbering.Numbering, "holds_all", holds_all)
    before = Owner._stage

    def stage(self: Any, out: list[Effect]) -> None:
        is_again = self._current is not None
        before(self, out)
        if is_again:
            out[:] = [effect for effect in out if type(effect) is not Multicast]

    replace(Owner, "_stage", stage)


def stage_dropped_by_entry() -> None:
    """A stage goes when any single entry about its owner is heard, before the prefix is known."""
    before = DataServer._on_claim

    def on_claim(self: Any, sender_: NodeId, claim: Any, out: list[Effect]) -> None:
        for heard in getattr(claim, "entries", ()):
            if type(heard) is OpenEntry:
                for key in self.unnumbered.of_owner(heard.sender):
                    if key[2] < heard.incarnation:
                        self.dropping.drop(key, out)
            elif type(heard) is DecisionEntry:
                for key in self.unnumbered.of_owner(heard.owner):
                    if key[3] < heard.tx:
                        self.dropping.drop(key, out)
        before(self, sender_, claim, out)

    replace(DataServer, "_on_claim", on_claim)


def decided_stage_dropped() -> None:
    """A stage goes on a later decision even if an earlier one named it."""
    before = DataServer._on_decided

    def on_decided(self: Any, decision: DecisionEntry) -> None:
        for key in self.unnumbered.of_owner(decision.owner):
            if key[3] <= decision.tx:
                self.dropping.drop(key, [])
                self.dropped.append(DropBatch(key))
        before(self, decision)

    drained = DataServer._on_drained

    def on_drained(self: Any, out: list[Effect]) -> None:
        drained(self, out)
        out.extend(self.__dict__.pop("dropped", []))
        self.dropped = []

    init = DataServer.__init__

    def begin(self: Any, *args: Any) -> None:
        self.dropped = []
        init(self, *args)

    replace(DataServer, "_on_decided", on_decided)
    replace(DataServer, "_on_drained", on_drained)
    replace(DataServer, "__init__", begin)


def abort_consumes() -> None:
    """ABORT takes the transaction's counter in place of ending the incarnation."""

    def fold(self: Any, abort: AbortEntry) -> bool:
        if not self.can_abort(abort):
            return False
        row = self.groups[0].own(abort.owner)
        row.next = abort.tx + 1
        return True

    replace(Core, "_fold_abort", fold)
    before = Core.__init__

    def init(self: Any, *args: Any) -> None:
        before(self, *args)
        self._folds[AbortEntry] = self._fold_abort

    replace(Core, "__init__", init)


def abort_does_nothing() -> None:
    """Stages go on an ABORT, but the decision may still be numbered."""

    def fold(self: Any, abort: AbortEntry) -> bool:
        if not self.can_abort(abort):
            return False
        self.__dict__.setdefault("aborted", {})[(abort.owner, abort.incarnation, abort.tx)] = None
        return True

    replace(Core, "_fold_abort", fold)
    before = Core.__init__

    def init(self: Any, *args: Any) -> None:
        before(self, *args)
        self._folds[AbortEntry] = self._fold_abort

    replace(Core, "__init__", init)
    may_drop = Core.may_drop_stage

    def dropped(self: Any, owner: bytes, incarnation: int, tx: int, birth: int) -> bool:
        aborted = self.__dict__.get("aborted", {})
        return (owner, incarnation, tx) in aborted or may_drop(self, owner, incarnation, tx, birth)

    replace(Core, "may_drop_stage", dropped)


SENDER_MUTANTS: Sequence[Mutant] = (
    Mutant("CE-13-birth-refreshed", "CE-13", birth_refreshed),
    Mutant("CE-20-expired-without-memory", "CE-20", expired_without_memory),
    Mutant("CE-21-batched-anew", "CE-21", batched_anew),
    Mutant("CE-22-restart-only-asks", "CE-22", restart_only_asks),
    Mutant("CE-22-open-not-committed", "CE-22", open_not_committed),
    Mutant("CE-22-open-told-behind", "CE-22", open_told_behind),
    Mutant("CE-24-uncommitted-answers", "CE-24", _uncommitted_answers),
    Mutant("CE-26-reopen-without-seen", "CE-26", reopen_without_seen),
    Mutant("CE-27-open-after-anybody", "CE-27", open_after_anybody),
    Mutant("CE-27-fenced-gets-answers", "CE-27", fenced_gets_answers),
    Mutant("CE-27-open-equal", "CE-27", open_equal),
    Mutant("CE-27-open-any", "CE-27", open_any),
    Mutant("CE-28-no-tombstone", "CE-28", no_tombstone),
    Mutant("CE-28-named-without-row", "CE-28", named_without_row),
    Mutant("CE-28-named-rows-evicted", "CE-28", named_rows_evicted),
    Mutant("CE-29-first-expired-heard", "CE-29", first_expired_heard),
    Mutant("CE-6-rows-not-rebuilt", "CE-6", rows_not_rebuilt),
    Mutant("CE-30-stages-not-held", "CE-30", stages_not_held),
    Mutant("CE-30-stages-of-others", "CE-30", stages_of_others),
    Mutant("CE-30-dropped-by-one-entry", "CE-30", stage_dropped_by_entry),
    Mutant("CE-30-decided-stage-dropped", "CE-30", decided_stage_dropped),
    Mutant("CE-31-abort-consumes", "CE-31", abort_consumes),
    Mutant("CE-31-abort-does-nothing", "CE-31", abort_does_nothing),
)
