"""The commit server: keeps the order, votes, and may be elected to sequence (GRP-06, 07, 21).

It accepts entries of the epoch whose log it holds, never below what it promised, and acknowledges
what is durable. Its committed prefix is folded into the core state, from which it answers proposals
and questions. `election` and `sequencer` are its two other hats, each with a state of its own.

A server whose disk is new (lost, replaced, restored, cloned) is a learner: it promises and
acknowledges nothing until a committed configuration lists its new uuid. One whose journal rotted
promises with `unknown_from`, acknowledges nothing, and is whole again after an install.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from samcast.group.core_state import index_of
from samcast.group.election import Election, speaks_for
from samcast.group.installing import Install, Installing, Stamp
from samcast.group.joining import Joining, answer_join
from samcast.group.order_log import OrderLog
from samcast.group.order_queries import OrderQueries
from samcast.group.order_writer import OrderWriter
from samcast.group.sequencer import Sequencer
from samcast.group.settings import GroupSettings
from samcast.group.snapshots import Snapshots, recover_core
from samcast.group.storage import (
    OrderRecovery,
    RewriteOrder,
    StoreOrder,
    StoreVote,
    replay,
)
from samcast.machine.ports import (
    Chance,
    Configured,
    Effect,
    Event,
    NodeId,
    Reachable,
    Received,
    Send,
    Stored,
    Ticked,
    Unreachable,
    Warn,
)
from samcast.machine.quorum import newer
from samcast.wire.batch import Batch
from samcast.wire.change import Join, Moved
from samcast.wire.control import Control
from samcast.wire.group import (
    Commit,
    CommitAck,
    CommitSubmit,
    DataReport,
    Heartbeat,
    LogReply,
    LogRequest,
    OrderRequest,
    PreVote,
    PreVoteReply,
    Promise,
    Propose,
    Refusal,
    Seal,
    SnapshotReply,
    SnapshotRequest,
    Start,
    StartReply,
)
from samcast.wire.order import EPOCH_NONE, ROLE_COMMIT, Configuration, Epoch, rivals, same_rank
from samcast.wire.records import VoteRecord, encode_record
from samcast.wire.retention import CheckpointReport, Holdings

Handler = Callable[[NodeId, Any, list[Effect]], None]


class CommitServer:
    """One commit server of a cell."""

    def __init__(
        self,
        node: NodeId,
        configuration: Configuration,
        settings: GroupSettings,
        recovery: OrderRecovery,
        chance: Chance,
    ) -> None:
        self.node = node
        self.uuid = recovery.uuid
        self.settings = settings
        vote = recovery.vote
        self.promised: Epoch = vote.promised if vote else EPOCH_NONE
        self.log_epoch: Epoch = vote.log_epoch if vote else EPOCH_NONE
        self.log_configuration = vote.log_configuration if vote else 0
        known = vote.configuration if vote else configuration
        self.now_ms = 0
        replayed = replay(recovery.records, self.log_epoch, recovery.is_rotten)
        states = {index_of(state): state for state in recovery.snapshots}
        self.core = recover_core(configuration, settings, replayed, states)
        self.configuration = known
        self._joining = Joining(node, self.uuid, ROLE_COMMIT, settings)
        self._see_whether_listed()
        self.is_invited = False
        self.log = replayed.log
        self.unknown_from = replayed.unknown_from
        self.writer = OrderWriter(settings, replayed, self.log_epoch)
        self.durable_length = self.log.length
        self.vote_durable = self.promised
        self._token = 0
        self._waiting: deque[tuple[int, Callable[[list[Effect]], None]]] = deque()
        self._accepted = False  # something was appended in this turn
        self._ack_to: NodeId | None = None  # a sequencer that must hear where we are
        self._is_behind = False
        self.snapshots = Snapshots(self, states)
        self.installing = Installing(self)
        self.queries = OrderQueries(self)
        self.election = Election(self, chance)
        self.sequencer: Sequencer | None = None
        self._handlers = self._make_handlers()

    def _make_handlers(self) -> dict[type[Control], Handler]:
        return {
            Seal: self._on_seal,
            Start: self.installing.on_start,
            SnapshotReply: self.installing.on_snapshot_reply,
            CommitSubmit: self._on_submit,
            Commit: self._on_commit,
            Heartbeat: self._on_heartbeat,
            Refusal: self._on_refusal,
            Moved: lambda sender, moved, out: self.adopt_configuration(moved.configuration, out),
            PreVote: self.election.on_pre_vote,
            PreVoteReply: self.election.on_pre_vote_reply,
            Promise: self.election.on_promise,
            LogReply: self.election.on_log_reply,
            LogRequest: self.queries.on_log_request,
            OrderRequest: self.queries.on_order_request,
            **self.queries.handlers(),
            SnapshotRequest: self.queries.on_snapshot_request,
            Propose: self.queries.on_propose,
            DataReport: self._to_sequencer(Sequencer.on_data_report),
            CommitAck: self._to_sequencer(Sequencer.on_commit_ack),
            StartReply: self._to_sequencer(Sequencer.on_start_reply),
            Holdings: self._to_sequencer(Sequencer.on_holdings),
            CheckpointReport: self._to_sequencer(Sequencer.on_checkpoint_report),
            Join: lambda sender, join, out: answer_join(self, sender, join, out),
        }

    def _to_sequencer(self, handler: Callable[..., None]) -> Handler:
        def deliver(sender: NodeId, message: Control, out: list[Effect]) -> None:
            if self.sequencer is not None:
                handler(self.sequencer, sender, message, out)

        return deliver

    # the door

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn; what can be joined is said once at its end."""
        out: list[Effect] = []
        handler_of = self._handlers.get
        for event in events:
            if type(event) is Received:
                message = event.message
                handler = handler_of(type(message))  # type: ignore[arg-type]
                if handler is not None:
                    handler(event.sender, message, out)
                elif type(message) is not Batch:
                    out.append(Warn("misdirected", f"{type(message).__name__} {event.sender}"))
            elif type(event) is Stored:
                self._on_stored(event.token, out)
            elif type(event) is Ticked:
                self.now_ms = event.now_ms
            elif type(event) is Unreachable or type(event) is Reachable:
                self.election.on_connection(event)
        self._on_drained(out)
        self._check_invariants()
        return out

    def due_ms(self) -> int:
        """The next deadline of any hat."""
        due = min(self.election.due_ms(), self._joining.due_ms(), self.snapshots.due_ms())
        if self.sequencer is not None:
            due = min(due, self.sequencer.due_ms())
        return due

    def _on_drained(self, out: list[Effect]) -> None:
        if self.sequencer is not None:
            self.sequencer.on_drained(out)
        self._store_accepted(out)
        self.snapshots.on_drained(out)
        if self.core.truncated > self.log.base:
            self.snapshots.truncate(self.core.truncated, out)
        if self._ack_to is not None:
            self._ack(self._ack_to, out)
        self._ack_to = None
        self._joining.ask(self.now_ms, out)
        self.election.on_drained(out)

    def _check_invariants(self) -> None:
        assert self.durable_length <= self.log.length
        assert self.log.base <= self.core.index <= self.log.length

    def _see_whether_listed(self) -> None:
        """A learner's disk is not (yet) the one that the configuration lists."""
        self._joining.see(self.configuration)
        self.is_learner = not self._joining.is_listed

    def may_vote(self) -> bool:
        """Learners keep out of election quorums ..."""
        return not self.is_learner

    def may_accept(self) -> bool:
        """... and of commit quorums: they neither install, nor accept, nor acknowledge, unless a
        sequencer wants them for the next configuration, and counts them for that alone."""
        return not self.is_learner or self.is_invited

    def accept_invitation(self) -> None:
        """A sequencer sends us its log. If nobody of our name is listed, that is for the next
        configuration; if another disk is, it is meant for that."""
        self.is_invited = not any(s.node == self.node for s in self.configuration.servers)

    @property
    def stamp(self) -> Stamp:
        """Whose log ours is. An epoch of an older configuration may be higher than one of a newer,
        and has still decided less."""
        return (self.log_configuration, self.log_epoch)

    def is_fenced(self, epoch: Epoch) -> bool:
        """A promise holds against everything of a lower epoch."""
        return epoch < self.promised

    def store(
        self, effect: Callable[[int], Effect], then: Callable[[list[Effect]], None]
    ) -> Effect:
        """Number a store and remember what to do when it is durable."""
        self._token += 1
        self._waiting.append((self._token, then))
        return effect(self._token)

    def _on_stored(self, token: int, out: list[Effect]) -> None:
        while self._waiting and self._waiting[0][0] <= token:
            self._waiting.popleft()[1](out)

    # promises

    def _on_seal(self, sender: NodeId, seal: Seal, out: list[Effect]) -> None:
        if self._is_other_configuration(sender, seal.configuration, out) or not self.may_vote():
            return
        if not speaks_for(sender, seal.epoch, out):
            return
        if seal.epoch < self.promised or (
            same_rank(seal.epoch, self.promised) and seal.epoch != self.promised
        ):
            out.append(Send(sender, Refusal(seal.epoch, self.promised, self.configuration)))
            return
        if seal.epoch == self.promised:
            if self.vote_durable == seal.epoch:
                self.send_promise(sender, out)
            return
        self.promise(seal.epoch, out)
        self.save_vote(lambda o: self._promised(sender, seal.epoch, o), out)

    def _is_other_configuration(self, sender: NodeId, number: int, out: list[Effect]) -> bool:
        """Turn away what speaks for another configuration; tell an older one what is in force."""
        if number < self.configuration.number:
            out.append(Send(sender, Moved(self.configuration)))
        return number != self.configuration.number

    def promise(self, epoch: Epoch, out: list[Effect]) -> None:
        """Refuse everything below this epoch from now on."""
        self.promised = epoch
        self.election.on_epoch_seen(epoch)
        if self.sequencer is not None and self.sequencer.epoch != epoch:
            self.sequencer = None

    def save_vote(
        self,
        then: Callable[[list[Effect]], None],
        out: list[Effect],
        stamp: Stamp | None = None,
    ) -> None:
        """Make promise, configuration and the log's stamp (by default the present one) durable."""
        promised = self.promised
        number, epoch = stamp or self.stamp
        record = encode_record(VoteRecord(promised, epoch, self.configuration, number))

        def stored(o: list[Effect]) -> None:
            self.vote_durable = promised
            then(o)

        out.append(self.store(lambda token: StoreVote(token, record), stored))

    def _promised(self, sender: NodeId, epoch: Epoch, out: list[Effect]) -> None:
        if self.promised == epoch:
            self.send_promise(sender, out)

    def send_promise(self, to: NodeId, out: list[Effect]) -> None:
        """Say what log we have; the fence is already on disk."""
        promise = Promise(
            self.configuration.number,
            self.promised,
            self.uuid,
            self.log_epoch,
            self.log.length,
            self.log.base,
            self.unknown_from,
            self.log.landmarks(),
            self.log_configuration,
        )
        out.append(Send(to, promise))

    # accepting

    def _on_submit(self, sender: NodeId, submit: CommitSubmit, out: list[Effect]) -> None:
        if self._is_other_configuration(sender, submit.configuration, out):
            return
        if not speaks_for(sender, submit.epoch, out) or not submit.index_first:
            return
        if self.is_fenced(submit.epoch):
            out.append(Send(sender, Refusal(submit.epoch, self.promised, self.configuration)))
            return
        self.election.on_sequencer_heard(submit.epoch)
        if self.installing.is_writing:
            return  # Nothing may be appended behind what is just being installed.
        if submit.epoch != self.log_epoch or self.unknown_from or not self.may_accept():
            self.installing.ask(sender, submit.epoch, out)
            return
        self._accept(sender, submit)
        self.on_claim(submit.epoch, submit.committed, submit.committed_hash, out)

    def _accept(self, sender: NodeId, submit: CommitSubmit) -> None:
        skip = self.log.length + 1 - submit.index_first
        if skip < 0:
            self._is_behind = True  # A hole: say where we are, the sequencer sends it again.
            self._ack_to = sender
        elif len(submit.entries) > skip:
            self.log.extend(submit.entries[skip:])
            self._accepted = True
        else:
            self._ack_to = sender  # All known: the acknowledgement may have been lost.

    def _store_accepted(self, out: list[Effect]) -> None:
        """One group write for all that was appended in this turn."""
        if not self._accepted:
            return
        self._accepted = False
        epoch, length = self.log_epoch, self.log.length
        records = self.writer.accepted(self.log)
        out.append(
            self.store(
                lambda token: StoreOrder(token, records),
                lambda o: self.on_entries_stored(epoch, length, o),
            )
        )

    def on_entries_stored(self, epoch: Epoch, length: int, out: list[Effect]) -> None:
        """The log up to `length` is durable, if it still is the one of that epoch."""
        if epoch != self.log_epoch:
            return  # Another install has replaced it since.
        self.durable_length = max(self.durable_length, min(length, self.log.length))
        self._ack(epoch[1], out)

    def _ack(self, sequencer: NodeId, out: list[Effect]) -> None:
        if self.is_fenced(self.log_epoch) or self.unknown_from or not self.may_accept():
            return
        ack = CommitAck(
            self.configuration.number,
            self.log_epoch,
            self.uuid,
            self.durable_length,
            self._is_behind,
            self.snapshots.index,
            self.snapshots.hash,
        )
        self._is_behind = False
        out.append(Send(sequencer, ack))

    # leading

    def lead(
        self, epoch: Epoch, log: OrderLog, promises: dict[NodeId, Promise], out: list[Effect]
    ) -> None:
        """We are elected, with this log."""
        sequencer = Sequencer(self, epoch, log, promises, out)
        if sequencer.tail.configuration.number < self.configuration.number:
            # Nobody may lead in a configuration without the entry that made it.
            out.append(Warn("configuration-unknown", f"to the log of epoch {epoch}"))
            return
        self.sequencer = sequencer

    # what is committed

    def _on_commit(self, sender: NodeId, commit: Commit, out: list[Effect]) -> None:
        if not speaks_for(sender, commit.epoch, out):
            return
        self._heard(sender, commit.epoch, commit.configuration, out)
        self.on_claim(commit.epoch, commit.committed, commit.committed_hash, out)

    def _on_heartbeat(self, sender: NodeId, beat: Heartbeat, out: list[Effect]) -> None:
        if not speaks_for(sender, beat.epoch, out):
            return
        self._heard(sender, beat.epoch, beat.configuration, out)
        self.on_claim(beat.epoch, beat.committed, beat.committed_hash, out)
        self._joining.on_claim(sender, beat.configuration, self.now_ms, out)
        is_ours = beat.configuration == self.configuration.number and beat.epoch >= self.promised
        if not is_ours:
            return
        if beat.epoch != self.log_epoch or self.unknown_from:
            self.installing.ask(sender, beat.epoch, out)
        else:
            self._is_behind = self._is_behind or beat.committed > self.log.length
            self._ack_to = sender

    def _heard(self, sender: NodeId, epoch: Epoch, configuration: int, out: list[Effect]) -> None:
        is_other = self._is_other_configuration(sender, configuration, out)
        if epoch < self.promised:
            out.append(Send(sender, Refusal(epoch, self.promised, self.configuration)))
        elif not is_other:
            self.election.on_sequencer_heard(epoch)

    def on_claim(self, epoch: Epoch, index: int, index_hash: bytes, out: list[Effect]) -> None:
        """Fold what a commit claim covers of our log; another epoch's claim must match by hash."""
        self.queries.claimed = max(self.queries.claimed, index)
        if self.committed_by_claim(epoch, index, index_hash):
            self._fold_up_to(min(index, self.log.length), out)

    def committed_by_claim(self, epoch: Epoch, index: int, index_hash: bytes) -> bool:
        """A bare index commits nothing: the claim must be about the very log that we hold."""
        return epoch == self.log_epoch or self.log.hash_at(index) == index_hash

    def _fold_up_to(self, index: int, out: list[Effect]) -> None:
        core, log = self.core, self.log
        while core.index < index:
            at = core.index + 1
            entry = log.entry(at)
            is_effective = core.apply(entry, log.hash_at(at))
            self.queries.note(at, entry, core, is_effective, out)
            self.adopt_configuration(core.configuration, out)
            self.snapshots.on_folded(core, out)

    # installs, done by `installing`

    def write_install(
        self, install: Install, then: Callable[[list[Effect]], None], out: list[Effect]
    ) -> None:
        """Put a new end of the log on disk without letting it take effect yet."""
        self._store_accepted(out)
        if not self.unknown_from:
            records = self.writer.install(install)
            out.append(self.store(lambda token: StoreOrder(token, records), then))
            return
        records = self.writer.install_over_unknown(
            install, self.log, self.log_epoch, self.unknown_from
        )
        out.append(self.store(lambda token: RewriteOrder(token, records), then))

    def switch_log(self, install: Install) -> None:
        """The install is durable, log epoch included: from now on this is our log."""
        self.log = install.log
        if install.core is not None and install.core.index > self.core.index:
            self.core = install.core
        self.queries.forget_below(self.log.base)
        self.log_configuration, self.log_epoch = install.stamp
        self.unknown_from = 0
        self.durable_length = self.log.length
        self._accepted = False
        self.writer.installed(install)

    # configuration

    def _on_refusal(self, sender: NodeId, refusal: Refusal, out: list[Effect]) -> None:
        self.election.on_epoch_seen(refusal.promised)
        self.adopt_configuration(refusal.configuration, out)
        sequencer = self.sequencer
        if sequencer is not None and rivals(refusal.promised, sequencer.epoch):
            self.sequencer = None  # Promised to somebody else, or to a life of ours before this.

    def adopt_configuration(self, configuration: Configuration, out: list[Effect]) -> None:
        """A committed configuration is in force; whoever leads in an older one stops."""
        if newer(self.configuration, configuration) is self.configuration:
            return
        self.configuration = configuration
        self._see_whether_listed()
        out.append(Configured(configuration))
        self.election.on_reconfigured()
        if self.sequencer is not None:
            self.sequencer = None
            self.election.stand_at_once()
        self.save_vote(lambda o: None, out)
