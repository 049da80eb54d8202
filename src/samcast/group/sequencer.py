"""The sequencer: puts runs in order, has the order stored, and says what is committed (GRP-03 to
08).

It leads one epoch with one log and never rewrites it. `numbering` decides what is appended; this
module brings the log to the commit servers, counts their acknowledgements, and commits an index
when `k_commit` listed disks hold it in this epoch. What was adopted commits only together with
the epoch's own first entry. Commits leave in the turn in which the last acknowledgement came.
"""

from typing import TYPE_CHECKING

from samcast.group.changing import Changing
from samcast.group.numbering import Numbering
from samcast.group.order_log import OrderLog
from samcast.group.progress import Progress
from samcast.group.retention import Retention
from samcast.machine.ports import Channel, Effect, Multicast, NodeId, Send, Warn
from samcast.machine.quorum import kth_largest, lists, servers_with
from samcast.wire.change import ChangeRequest, Join
from samcast.wire.control import Control
from samcast.wire.group import (
    AnyRequest,
    Commit,
    CommitAck,
    CommitSubmit,
    DataReport,
    HashAt,
    Heartbeat,
    Promise,
    Start,
    StartReply,
)
from samcast.wire.order import (
    CELL,
    ROLE_COMMIT,
    ROLE_DATA,
    AnyEntry,
    Configuration,
    Epoch,
    EpochEntry,
    TruncateEntry,
)
from samcast.wire.retention import CheckpointReport, Holdings

if TYPE_CHECKING:
    from samcast.group.commit_server import CommitServer

HEADS_MAX = 64  # of one heartbeat; with more groups they take turns


class Sequencer:
    """The leader's hat of a commit server, for one epoch."""

    def __init__(
        self,
        server: "CommitServer",
        epoch: Epoch,
        log: OrderLog,
        promises: dict[NodeId, Promise],
        out: list[Effect],
    ) -> None:
        self._server = server
        self._settings = server.settings
        self.epoch = epoch
        self.configuration: Configuration = server.configuration
        self.log = log
        tail = server.core.copy()
        for index in range(tail.index + 1, log.length + 1):
            tail.apply(log.entry(index), log.hash_at(index))
        self.tail = tail  # the fold over our whole log, committed or not
        self.committed = server.core.index
        self._announced = server.core.index
        self._submitted = log.length
        self._submitted_to_self = 0
        now = server.now_ms
        self.progress = {
            s.node: Progress(s.uuid, now, self._settings.retry_ms)
            for s in servers_with(self.configuration, ROLE_COMMIT)
        }
        self._voters = tuple(self.progress.values())  # learners may come besides
        self._applied: dict[NodeId, int] = {}  # data servers: all held up to this index
        self._applied_ms: dict[NodeId, int] = {}  # when they said so
        self._snapshot_max = 0  # the highest that anybody ever said to have
        self._heartbeat_due_ms = now
        self._heads_turn = 0
        self._numbering = Numbering(self)
        self.retention = Retention(self, self._settings.collect_interval_ms)
        self.changing = Changing(self, self._settings)
        if not self.is_stopped:
            self.append(EpochEntry(epoch))
        self.epoch_index = log.length
        for node, promise in promises.items():
            if not promise.unknown_from:
                self.progress[node].base = self._base_for(promise.hashes)
                self._send_start(node, out)

    # the log

    @property
    def is_stopped(self) -> bool:
        """Behind a stop-sign: nothing more is decided in this configuration."""
        return self.tail.configuration.number != self.configuration.number

    @property
    def is_held(self) -> bool:
        """Nothing is numbered: behind a stop-sign, or just before one."""
        return self.is_stopped or self.changing.is_draining

    @property
    def is_certain(self) -> bool:
        """Our own first entry is committed: what we hold is what counts."""
        return self.committed >= self.epoch_index

    @property
    def may_order(self) -> bool:
        """It is certain, and no stop-sign stands behind it."""
        return self.is_certain and not self.is_held

    @property
    def now_ms(self) -> int:
        """As our server has it."""
        return self._server.now_ms

    @property
    def retry_ms(self) -> int:
        """Before something is said again."""
        return self._settings.retry_ms

    @property
    def few(self) -> int:
        """Entries that are on their way at any time."""
        return self._settings.entries_per_message_max

    @property
    def report_ms(self) -> int:
        """At least so often a data server says what it has."""
        return self._settings.retry_max_ms

    def applied_by(self, node: NodeId, since_ms: int) -> int:
        """A data server has all that is ordered up to this index, as it said since then."""
        return self._applied.get(node, 0) if self._applied_ms.get(node, -1) >= since_ms else 0

    def committed_head(self, group: int) -> int:
        """How far a group is, as far as that is certain."""
        return self._server.core.head(group)

    @property
    def has_room(self) -> bool:
        """Bounds what is submitted and not yet committed."""
        return self.log.length - self.committed < 4 * self._settings.entries_per_message_max

    def append(self, entry: AnyEntry) -> None:
        """The next entry of our epoch."""
        self.log.append(entry)
        self.tail.apply(entry, self.log.last_hash)

    def on_data_report(self, sender: NodeId, report: DataReport, out: list[Effect]) -> None:
        """A data server has something on its disk."""
        self.on_heard(report.uuid)
        if report.epoch != self.epoch:
            return
        if not self.counts_report(sender, report):
            out.append(Warn("report-of-other-disk", f"{sender} with uuid {report.uuid}"))
            self._applied.pop(sender, None)
            return
        if report.applied <= self.log.length:
            self._applied[sender] = report.applied
            self._applied_ms[sender] = self.now_ms
        self._numbering.on_reported(sender, report.runs, out)

    def on_holdings(self, sender: NodeId, holdings: Holdings, out: list[Effect]) -> None:
        """A data server says what needn't stay."""
        self.on_heard(holdings.uuid)
        if holdings.epoch == self.epoch:
            self.retention.on_holdings(sender, holdings)

    def on_checkpoint_report(
        self, sender: NodeId, report: CheckpointReport, out: list[Effect]
    ) -> None:
        """A checkpoint server has a state on its disk."""
        self.on_heard(report.uuid)
        if report.epoch == self.epoch:
            self.retention.on_report(sender, report, out)

    def counts_report(self, sender: NodeId, report: DataReport) -> bool:
        """Only the disks that are listed now count as copies."""
        return lists(self.configuration, sender, report.uuid, ROLE_DATA)

    def on_propose(self, request: AnyRequest, out: list[Effect]) -> None:
        """Order a control entry, if the rules let it take effect."""
        if type(request) is ChangeRequest:
            self.changing.on_request(request)
        elif not self.is_held:
            self._numbering.on_propose(request, out)

    def on_join(self, sender: NodeId, join: Join, out: list[Effect]) -> None:
        """A server has come back with a new disk, or says that it is there."""
        self.on_heard(join.uuid)
        if sender == join.node:
            self.changing.on_join(join, out)

    def on_heard(self, uuid: int) -> None:
        """This disk's server is alive."""
        self.changing.admitting.on_heard(uuid)

    def on_drained(self, out: list[Effect]) -> None:
        """End of a turn: number, submit, commit, and keep everybody informed."""
        self._numbering.number_ready()
        self._propose_truncation()
        self.changing.on_drained()
        self._submit_new(out)
        self._announce(out)
        self._keep_alive(out)

    # submitting

    def _submit_new(self, out: list[Effect]) -> None:
        limit = self.log.length
        if self._settings.is_before:
            self._submit_to_self(out)
            limit = min(limit, self.progress[self._server.node].acked)
        channel = Channel.GLOBAL if self._settings.is_overheard else Channel.COMMIT
        while self._submitted < limit:
            submit = self._submit_from(self._submitted + 1, limit)
            self._submitted += len(submit.entries)
            out.append(Multicast(channel, submit))
            for node in self.changing.learners:
                if self.progress[node].is_started:
                    out.append(Send(node, submit))

    def _tell_learners(self, message: Control, out: list[Effect]) -> None:
        """Those who aren't of the configuration yet hear nothing that goes to all."""
        for node in self.changing.learners:
            out.append(Send(node, message))

    def _submit_to_self(self, out: list[Effect]) -> None:
        own = self.progress[self._server.node]
        first = max(own.acked, self._submitted_to_self) + 1
        if own.is_started and first <= self.log.length:
            submit = self._submit_from(first, self.log.length)
            self._submitted_to_self = first + len(submit.entries) - 1
            out.append(Send(self._server.node, submit))

    def _submit_from(self, first: int, last: int) -> CommitSubmit:
        most = min(self._settings.entries_per_message_max, last - first + 1)
        entries = tuple(self.log.slice(first, most, self._settings.order_bytes_max))
        return CommitSubmit(self.configuration.number, self.epoch, first, entries, *self._claim())

    def _claim(self) -> tuple[int, bytes]:
        """What we may say is committed: index and chain hash there."""
        claim_hash = self.log.hash_at(self.committed)
        assert claim_hash is not None
        return self.committed, claim_hash

    def on_start_reply(self, sender: NodeId, reply: StartReply, out: list[Effect]) -> None:
        """A commit server has our log now, or says where ours and its own agree."""
        progress = self._listed(sender, reply.uuid, reply.configuration, reply.epoch)
        if progress is None:
            return
        if reply.is_started:
            if reply.length > self.log.length:
                out.append(Warn("ack-of-unknown-index", f"{sender} started {reply.length}"))
                return
            progress.is_started = True
            is_further = reply.length > progress.acked
            self._on_acked(progress, reply.length)
            # One whose disk is slow may have all of it, and say so at once, again and again.
            if is_further or self._server.now_ms >= progress.due_ms:
                self._resend(sender, progress, out)
            return
        progress.is_started = False
        progress.heard_ms = self._server.now_ms
        if reply.received and progress.base is not None:
            progress.received = reply.received
        else:
            progress.base = self._base_for(reply.hashes)
            progress.received = 0
        self._send_start(sender, out)

    def _base_for(self, landmarks: tuple[HashAt, ...]) -> int:
        """Where a server's log and ours agree; where they never do, our base."""
        common = self.log.agrees_up_to(landmarks)
        return self.log.base if common is None else common

    def _send_start(self, node: NodeId, out: list[Effect]) -> None:
        """The next chunk of our log."""
        progress = self.progress[node]
        base = progress.base if progress.base is not None else self.log.base
        base_hash = self.log.hash_at(base)
        if base_hash is None:  # truncated since
            progress.base = base = self.log.base
            progress.received = 0
            base_hash = self.log.hash_at(base)
            assert base_hash is not None
        first = max(progress.received, base) + 1
        most, bytes_max = self._settings.entries_per_message_max, self._settings.order_bytes_max
        entries = tuple(self.log.slice(first, most, bytes_max))
        start = Start(
            self.configuration, self.epoch, base, base_hash, first, entries, self.log.length
        )
        self._wait(progress)
        out.append(Send(node, start))

    def _wait(self, progress: Progress) -> None:
        progress.due_ms = self._server.now_ms + progress.wait_ms
        progress.wait_ms = min(2 * progress.wait_ms, self._settings.retry_max_ms)

    # acknowledgements

    def _listed(
        self, sender: NodeId, uuid: int, configuration: int, epoch: Epoch
    ) -> Progress | None:
        self.on_heard(uuid)
        if epoch != self.epoch or configuration != self.configuration.number:
            return None
        progress = self.progress.get(sender)
        return progress if progress is not None and progress.uuid == uuid else None

    def on_commit_ack(self, sender: NodeId, ack: CommitAck, out: list[Effect]) -> None:
        """A commit server holds our log up to an index."""
        progress = self._listed(sender, ack.uuid, ack.configuration, ack.epoch)
        if progress is None:
            return
        if ack.index > self.log.length:
            out.append(Warn("ack-of-unknown-index", f"{sender} acknowledged {ack.index}"))
            return
        progress.is_started = True
        if ack.snapshot <= self.committed:
            progress.snapshot = (ack.snapshot, ack.snapshot_hash)
            self._snapshot_max = max(self._snapshot_max, ack.snapshot)
        self._on_acked(progress, ack.index)
        if ack.is_behind:
            self._resend(sender, progress, out)

    def _on_acked(self, progress: Progress, index: int) -> None:
        progress.heard_ms = self._server.now_ms
        index = min(index, self.log.length)
        if index > progress.acked:
            progress.acked = index
            progress.wait_ms = self._settings.retry_ms
            progress.due_ms = self._server.now_ms + progress.wait_ms
        held = kth_largest((p.acked for p in self._voters), self.configuration.k_commit)
        self.advance(self.changing.decided(held))

    def advance(self, index: int) -> None:
        """Commit up to an index that a quorum holds; never without our own first entry."""
        if index >= self.epoch_index and index > self.committed:
            self.committed = index

    def _resend(self, node: NodeId, progress: Progress, out: list[Effect]) -> None:
        """What a server lacks, from where it stands."""
        first = progress.acked + 1
        if first <= self.log.base:  # What it lacks is truncated: it needs our snapshot.
            progress.is_started = False
            progress.base, progress.received = self.log.base, 0
            self._send_start(node, out)
        elif first <= self._submitted or (node == self._server.node and first <= self.log.length):
            out.append(Send(node, self._submit_from(first, max(self._submitted, first))))
        self._wait(progress)

    # what everybody hears

    def _announce(self, out: list[Effect]) -> None:
        while self._announced < self.committed:
            first = max(self._announced, self.log.base) + 1
            most = min(self._settings.entries_per_message_max, self.committed - first + 1)
            entries = tuple(self.log.slice(first, most, self._settings.order_bytes_max))
            last = first + len(entries) - 1
            last_hash = self.log.hash_at(last)
            assert last_hash is not None
            self._announced = last
            if self._settings.is_overheard:
                entries = ()
            number = self.configuration.number
            commit = Commit(number, self.epoch, first, entries, last, last_hash)
            out.append(Multicast(Channel.GLOBAL, commit))
            self._tell_learners(commit, out)

    def _keep_alive(self, out: list[Effect]) -> None:
        now = self._server.now_ms
        if now < self._heartbeat_due_ms:
            return
        self._heartbeat_due_ms = now + self._settings.heartbeat_interval_ms
        beat = Heartbeat(self.configuration.number, self.epoch, *self._claim(), self._heads())
        out.append(Multicast(Channel.GLOBAL, beat))
        self._tell_learners(beat, out)
        self.changing.on_tick(out)
        for node, progress in self.progress.items():
            if now < progress.due_ms:
                continue
            if progress.is_started and progress.acked < self.log.length:
                self._resend(node, progress, out)
            elif not progress.is_started and progress.base is not None:
                self._send_start(node, out)
        self._numbering.on_tick(now, out)
        self.retention.on_tick(now, out)
        self._check_quorum()

    def _heads(self) -> tuple[tuple[int, int], ...]:
        """Committed numbers of the groups, all or in turns."""
        groups = [(g, r.head) for g, r in self._server.core.groups.items() if g != CELL]
        if len(groups) > HEADS_MAX:
            at = self._heads_turn % len(groups)
            self._heads_turn += HEADS_MAX
            groups = (groups[at:] + groups[:at])[:HEADS_MAX]
        return tuple(groups)

    def _check_quorum(self) -> None:
        """Unheard by a quorum for long: step down, so that those who hear each other may elect."""
        since = self._server.now_ms - 4 * self._settings.suspect_ms
        heard = sum(1 for p in self._voters if p.heard_ms >= since)
        if heard < self.configuration.k_commit:
            self._server.sequencer = None

    def due_ms(self) -> int:
        """The next heartbeat."""
        return self._heartbeat_due_ms

    # truncation

    def _propose_truncation(self) -> None:
        """Order that entries may go which k commit and k data servers have made superfluous."""
        if self._snapshot_max <= self.tail.truncated:
            return
        if not self.may_order:
            return
        held = [p.snapshot for p in self._voters]
        index, state_hash = max(held)
        if index <= self.tail.truncated or held.count((index, state_hash)) < (
            self.configuration.k_commit
        ):
            return
        if kth_largest(self._applied.values(), self.configuration.k_data) >= index:
            self.append(TruncateEntry(index, state_hash))

    def drop_below(self, base: int) -> None:
        """The commit server has truncated; our copy of the log goes with it."""
        if self.log.base < base <= self._announced:
            self.log.drop(base)
