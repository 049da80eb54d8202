"""The unsafe rules that mutants put back: elections, disks, commits (the rest is in
`mutant_senders`).
"""

from collections.abc import Sequence
from typing import Any

from samcast.disk.order_store import OrderStore
from samcast.group import commit_server, election, joining, member, numbering, storage
from samcast.group.data_server import DataServer
from samcast.group.installing import Install, Installing
from samcast.group.sequencer import Sequencer
from samcast.group.storage import BatchKey, OrderRecovery, Replayed
from samcast.machine.ports import Effect, NodeId, Send
from samcast.machine.quorum import lists
from samcast.sim import disk
from samcast.sim.mutant import Mutant, replace
from samcast.sim.mutant_admission import ADMISSION_MUTANTS
from samcast.sim.mutant_changes import CHANGE_MUTANTS
from samcast.sim.mutant_disk import DISK_MUTANTS
from samcast.sim.mutant_joining import JOINING_MUTANTS
from samcast.sim.mutant_leases import LEASE_MUTANTS
from samcast.sim.mutant_links import LINK_MUTANTS
from samcast.sim.mutant_names import NAME_MUTANTS
from samcast.sim.mutant_retention import RETENTION_MUTANTS
from samcast.sim.mutant_senders import SENDER_MUTANTS
from samcast.sim.mutant_sizes import SIZE_MUTANTS
from samcast.wire.group import CommitSubmit, DataReport, LogRequest, Promise, Start
from samcast.wire.journal import Verdict
from samcast.wire.order import ROLE_COMMIT, Configuration, Epoch
from samcast.wire.records import encode_record

CommitServer = commit_server.CommitServer
Election = election.Election
Member = member.Member


def deliver_on_assignment() -> None:
    def on_submit(self: Any, sender: NodeId, submit: CommitSubmit, out: list[Effect]) -> None:
        for entry in submit.entries:
            self._on_committed(entry)

    replace(Member, "_on_submit", on_submit)


def any_election() -> None:
    replace(Election, "quorum", lambda self: 1)


def no_fence() -> None:
    replace(CommitServer, "is_fenced", lambda self, epoch: False)


def promise_not_stored() -> None:
    """Promises leave before they are durable."""

    def on_seal(self: Any, sender: NodeId, seal: Any, out: list[Effect]) -> None:
        if seal.configuration != self.configuration.number or not self.may_vote():
            return
        if seal.epoch < self.promised:
            return
        self.promise(seal.epoch, out)
        self.vote_durable = seal.epoch
        self.send_promise(sender, out)
        self.save_vote(lambda o: None, out)

    replace(CommitServer, "_on_seal", on_seal)


def _ignore_uuids() -> None:
    def by_node(configuration: Configuration, node: int, uuid: int, role: int) -> bool:
        if role != ROLE_COMMIT:
            return lists(configuration, node, uuid, role)
        return any(s.node == node and s.roles & role for s in configuration.servers)

    for module in (joining, election):
        replace(module, "lists", by_node)

    def listed(self: Sequencer, sender: NodeId, uuid: int, configuration: int, epoch: Epoch) -> Any:
        if epoch != self.epoch or configuration != self.configuration.number:
            return None
        return self.progress.get(sender)

    replace(Sequencer, "_listed", listed)


def lost_disk_votes() -> None:
    _ignore_uuids()


def learner_acknowledges() -> None:
    """It keeps out of elections for good, but acknowledges what it is sent."""
    _ignore_uuids()
    before = commit_server.CommitServer.__init__

    def init(self: Any, node: Any, configuration: Any, *rest: Any) -> None:
        before(self, node, configuration, *rest)
        mine = [s.uuid for s in self.configuration.servers if s.node == node]
        self.is_learner = mine != [self.uuid]

    replace(CommitServer, "__init__", init)
    replace(CommitServer, "may_accept", lambda self: True)

    def see(self: Any) -> None:
        self._joining.see(self.configuration)
        self.is_learner = False

    replace(CommitServer, "_see_whether_listed", see)


def reinstalled_under_old_name() -> None:
    """A lost disk votes again as soon as whoever believes to lead has given it a log."""
    learner_acknowledges()
    before = CommitServer.switch_log

    def switch(self: Any, install: Install) -> None:
        before(self, install)
        self.is_learner = False

    replace(CommitServer, "switch_log", switch)


def count_across_epochs() -> None:
    """What promisers hold of older epochs counts as accepted in this one."""
    before = Sequencer.__init__

    def init(
        self: Any, server: Any, epoch: Epoch, log: Any, promises: dict[NodeId, Promise], out: Any
    ) -> None:
        before(self, server, epoch, log, promises, out)
        self.epoch_index = 0
        for node in promises:
            self.progress[node].acked = self.progress[node].base or 0
        acked = sorted((p.acked for p in self.progress.values()), reverse=True)
        self.advance(acked[self.configuration.k_commit - 1])

    replace(Sequencer, "__init__", init)


def longest_log_wins() -> None:
    replace(election, "rank_of", lambda promise: (promise.length, promise.log_epoch))


def recover_per_index() -> None:
    """Behind the best log, entries of longer logs of lower epochs are taken over."""
    before = Election._fetch

    def fetch(self: Any, out: list[Effect]) -> None:
        log, best = self._adopting, self._best
        if log.length >= best.length:
            longer = [
                (n, p)
                for n, p in self._promises.items()
                if not p.unknown_from and p.length > log.length and p.low_water <= log.length
            ]
            if longer:
                self._best_node, promise = longer[0]
                self._best = Promise(
                    promise.configuration, promise.epoch, promise.uuid, promise.log_epoch,
                    promise.length, promise.low_water, 0, ((promise.length, b"any" * 11),),
                )  # fmt: skip
                self._fetch_due_ms = self._server.now_ms + 20
                out.append(Send(self._best_node, LogRequest(self._epoch, log.length + 1)))
                return
            if best.hashes[0][1] == b"any" * 11:
                self._best = Promise(
                    best.configuration, best.epoch, best.uuid, best.log_epoch, best.length,
                    best.low_water, 0, ((log.length, log.last_hash),),
                )  # fmt: skip
        before(self, out)

    replace(Election, "_fetch", fetch)


def epoch_before_log() -> None:
    """The log epoch is stamped first, the log written after; a crash may come in between."""

    def write(self: Any, install: Install, out: list[Effect]) -> None:
        server = self._server
        if server.log.hash_at(install.base) == install.base_hash:
            log = server.log.copy()
            log.cut(install.base)
            install.log = log
        install.log.extend(install.entries)
        if install.epoch > server.promised:
            server.promise(install.epoch, out)
        self.is_writing = True

        def stamped(o: list[Effect]) -> None:
            if server.promised != install.epoch:
                self._give_up()
                return
            server.write_install(install, lambda p: self._finish(install, p), o)

        server.save_vote(stamped, out, install.stamp)

    replace(Installing, "_write", write)
    _trust_any_log()


def _trust_any_log() -> None:
    """After a start, whatever log is there is taken for the one of the log epoch."""
    before = storage.replay

    def trusting(records: Sequence[Any], log_epoch: Epoch, is_rotten: bool) -> Replayed:
        replayed = before(records, log_epoch, is_rotten)
        if not is_rotten and replayed.unknown_from:
            kept = before(records, _last_epoch(records), False)
            kept.unknown_from = 0
            kept.has_open_install = replayed.has_open_install
            return kept
        return replayed

    replace(commit_server, "replay", trusting)


def _last_epoch(records: Sequence[Any]) -> Epoch:
    epoch: Epoch = (0, 0, 0)
    for record in records:
        if type(record).__name__ in ("BaseRecord", "InstalledRecord"):
            epoch = record.epoch
    return epoch


def epoch_used_again() -> None:
    """A sequencer that restarts counts rounds from what it hears, without a nonce."""
    before = Election.__init__

    def init(self: Any, server: Any, chance: Any) -> None:
        before(self, server, chance)
        self._round_max = 0

    replace(Election, "__init__", init)
    replace(Election, "next_epoch", lambda self: (self._round_max + 1, self._server.node, 1))


def drop_by_timer() -> None:
    """A payload that isn't numbered after a while is dropped."""
    before = DataServer._on_drained

    def on_drained(self: Any, out: list[Effect]) -> None:
        seen: dict[BatchKey, int] = self.__dict__.setdefault("seen_ms", {})
        for key in self.unnumbered.all():
            held = self.unnumbered.get(key)
            if held.is_durable and self.now_ms - seen.setdefault(key, self.now_ms) > 60:
                self.dropping.drop(key, out)
        before(self, out)

    replace(DataServer, "_on_drained", on_drained)


def count_replaced_disks() -> None:
    """Reports count for a node, whichever disk it had and whichever epoch they were made for."""

    def on_data_report(self: Any, sender: NodeId, report: DataReport, out: list[Effect]) -> None:
        self._applied[sender] = max(self._applied.get(sender, 0), report.applied)
        self._numbering.on_reported(sender, report.runs, out)

    replace(Sequencer, "on_data_report", on_data_report)


def ids_without_content() -> None:
    """A number is bound to an id; whatever bytes come under that id are delivered."""
    replace(numbering.Numbering, "content_of", staticmethod(lambda run: (b"", run.count, 0)))
    replace(Member, "matches", staticmethod(lambda slot, batch: batch.count == slot.count))
    before = DataServer._on_numbered

    def on_numbered(self: Any, key: BatchKey, count: int, digest: bytes, number: int) -> None:
        held = self.unnumbered.get(key)
        before(self, key, count, held.digest if held is not None else digest, number)

    replace(DataServer, "_on_numbered", on_numbered)


def truncated_is_empty() -> None:
    """A log counts for what it holds now: what was truncated looks as if it had never been."""
    replace(
        election, "rank_of", lambda promise: (promise.log_epoch, promise.length - promise.low_water)
    )


def _rewrite_as_clean() -> None:
    """A start makes a new journal of what it can read of a rotten one, and believes in that."""
    before = OrderStore.recover

    def recover(self: Any, uuid: int, *, is_laid_out: bool) -> OrderRecovery | None:
        found = before(self, uuid, is_laid_out=is_laid_out)
        if found is None or not found.is_rotten:
            return found
        records = [encode_record(record) for record in found.records]
        writes = self._writer.start_fresh(records)
        self._write_to_new(writes, self._writer.segments_free[0])
        self._writer.note_synced(self._writer.sequence)
        return OrderRecovery(found.uuid, found.vote, found.records, False, found.snapshots)

    replace(OrderStore, "recover", recover)


def truncate_at_bad_checksum() -> None:
    """A start cuts the journal at the first thing that it can't read, and votes with the rest."""
    _rewrite_as_clean()
    _trust_any_log()


def rot_counted_as_torn() -> None:
    """The same mistake made by the scan itself, where the log epoch is still compared."""
    _rewrite_as_clean()


def partial_repair() -> None:
    """A rotten server counts as whole after the first piece of a repair in its own epoch."""
    before = Installing.is_complete

    def is_complete(self: Any, install: Install, start: Start) -> bool:
        server = self._server
        is_same = server.unknown_from and start.epoch == server.log_epoch
        return bool(is_same) or before(self, install, start)

    replace(Installing, "is_complete", is_complete)


def bare_index_commits() -> None:
    replace(CommitServer, "committed_by_claim", lambda self, epoch, index, index_hash: True)


def bare_index_delivers() -> None:
    """A member takes any claim for a commit of what it overheard, whatever the epoch."""

    def on_claim(self: Any, epoch: Epoch, committed: int) -> None:
        for index in [i for i in self._overheard if i <= committed]:
            self._on_committed(self._overheard.pop(index))

    replace(Member, "_on_claim", on_claim)


def torn_is_unknown() -> None:
    """A torn tail of the order counts as rot."""
    before = OrderStore.recover

    def recover(self: Any, uuid: int, *, is_laid_out: bool) -> OrderRecovery | None:
        found = before(self, uuid, is_laid_out=is_laid_out)
        if found is None or self.last_verdict is not Verdict.TORN:
            return found
        return OrderRecovery(found.uuid, found.vote, found.records, True, found.snapshots)

    replace(OrderStore, "recover", recover)


def one_journal() -> None:
    """A torn payload costs the vote, as if payloads and order shared a journal."""
    before = disk.Disk.recover

    def recover(self: Any) -> Any:
        order, data, is_new = before(self)
        is_rotten = order.is_rotten or self.is_data_damaged
        changed = OrderRecovery(order.uuid, order.vote, order.records, is_rotten, order.snapshots)
        return changed, data, is_new

    replace(disk.Disk, "recover", recover)


def ack_before_sync() -> None:
    """Acknowledgements leave before the entries are durable."""
    before = CommitServer._store_accepted

    def store(self: Any, out: list[Effect]) -> None:
        was_accepted = self._accepted
        before(self, out)
        if was_accepted:
            self.durable_length = self.log.length
            self._ack(self.log_epoch[1], out)

    replace(CommitServer, "_store_accepted", store)


def report_before_sync() -> None:
    """A data server reports what isn't durable."""
    before = DataServer.store

    def store(self: Any, sender: NodeId, key: BatchKey, *args: Any, **how: Any) -> None:
        before(self, sender, key, *args, **how)
        self.unnumbered.get(key).is_durable = True
        self.reports.add(key)

    replace(DataServer, "store", store)


def unmarked_truncation() -> None:
    """The order is truncated without waiting for data servers to have marked their payloads."""
    before = Sequencer._propose_truncation

    def propose(self: Any) -> None:
        kept, self._applied = self._applied, dict.fromkeys(range(9), 10**9)
        before(self)
        self._applied = kept

    replace(Sequencer, "_propose_truncation", propose)


MUTANTS: Sequence[Mutant] = (
    Mutant("CE-1-deliver-on-assignment", "CE-1", deliver_on_assignment),
    Mutant("CE-2-any-election", "CE-2", any_election),
    Mutant("CE-3-no-fence", "CE-3", no_fence),
    Mutant("CE-3-promise-not-stored", "CE-3", promise_not_stored),
    Mutant("CE-4-lost-disk-votes", "CE-4", lost_disk_votes),
    Mutant("CE-4-ack-before-sync", "CE-4", ack_before_sync),
    Mutant("CE-4b-learner-acknowledges", "CE-4b", learner_acknowledges),
    Mutant("CE-4c-reinstalled", "CE-4c", reinstalled_under_old_name),
    Mutant("CE-5-count-across-epochs", "CE-5", count_across_epochs),
    Mutant("CE-6-recover-per-index", "CE-6", recover_per_index),
    Mutant("CE-6-longest-log-wins", "CE-6", longest_log_wins),
    Mutant("CE-7-epoch-before-log", "CE-7", epoch_before_log),
    Mutant("CE-8-epoch-used-again", "CE-8", epoch_used_again),
    Mutant("CE-9-drop-by-timer", "CE-9", drop_by_timer),
    Mutant("CE-9-report-before-sync", "CE-9", report_before_sync),
    Mutant("CE-10-count-replaced-disks", "CE-10", count_replaced_disks),
    Mutant("CE-11-ids-without-content", "CE-11", ids_without_content),
    Mutant("CE-15-truncated-is-empty", "CE-15", truncated_is_empty),
    Mutant("CE-15-unmarked-truncation", "CE-15", unmarked_truncation),
    Mutant("CE-18-truncate-at-bad-checksum", "CE-18", truncate_at_bad_checksum),
    Mutant("rot-counted-as-torn", "SAFETY 2.6", rot_counted_as_torn),
    Mutant("CE-19-partial-repair", "CE-19", partial_repair),
    Mutant("CE-23-bare-index-commits", "CE-23", bare_index_commits),
    Mutant("CE-23-bare-index-delivers", "CE-23", bare_index_delivers),
    Mutant("CE-25-one-journal", "CE-25", one_journal),
    Mutant("torn-counted-as-unknown", "SAFETY 2.6", torn_is_unknown),
    *SENDER_MUTANTS,
    *RETENTION_MUTANTS,
    *LEASE_MUTANTS,
    *CHANGE_MUTANTS,
    *DISK_MUTANTS,
    *JOINING_MUTANTS,
    *SIZE_MUTANTS,
    *ADMISSION_MUTANTS,
    *LINK_MUTANTS,
    *NAME_MUTANTS,
)
