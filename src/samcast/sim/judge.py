"""The judge: watches every process from outside, turns what it sees into facts, asks the
checkers.
"""

from collections.abc import Callable

from samcast.group.commit_server import CommitServer
from samcast.group.data_server import DataServer
from samcast.group.listing import DataRecovery
from samcast.group.member import Deliver, Member
from samcast.group.owner import Owner
from samcast.group.sender import Sender
from samcast.group.sequencer import Sequencer
from samcast.group.storage import (
    DropBatch,
    DropCollected,
    RewriteOrder,
    StoreBatch,
    StoreOrder,
    StoreSnapshot,
)
from samcast.machine.ports import Effect, Role, Store
from samcast.sim.checkers import (
    Agreement,
    Bounded,
    Collection,
    CommittedOnly,
    Copies,
    Durable,
    Facts,
    Fencing,
    Identity,
    Monotone,
    Names,
    Order,
    Soundness,
    Transactions,
    Uniqueness,
    Violation,
    configuration_of,
    numbered_of,
)
from samcast.sim.disk import Device
from samcast.sim.folding import Advertised
from samcast.sim.reading import Reading
from samcast.sim.sizes import Records
from samcast.sim.trace import Trace
from samcast.sim.world import Process, World
from samcast.wire.batch import Batch, messages_of
from samcast.wire.control import Control
from samcast.wire.group import AnswerKind, CommitAck, Promise, StartReply
from samcast.wire.order import CELL, Configuration, Epoch, EpochEntry


class Judge:
    """All checkers of one world."""

    def __init__(self, world: World, configuration: Configuration, trace: Trace) -> None:
        self._world = world
        self.trace = trace
        self.facts = Facts(configuration)
        self.agreement = Agreement(self.facts)
        self.uniqueness = Uniqueness(self.facts)
        self.order = Order(self.facts)
        self.committed_only = CommittedOnly(self.facts)
        self.copies = Copies(self.facts)
        self.fencing = Fencing(self.facts)
        self.soundness = Soundness(self.facts)
        self.monotone = Monotone()
        self.transactions = Transactions(self.facts)
        self.durable = Durable(self.facts)
        self.collection = Collection(self.facts)
        self.advertised = Advertised(self.facts)
        self.names = Names()
        self.bounded = Bounded()
        self.records = Records()
        self._claimed: dict[Epoch, int] = {}
        self.on_stop_sign: Callable[[Process, Sequencer], None] = lambda process, sequencer: None
        self.on_progress: Callable[[Process, Sequencer], None] = lambda process, sequencer: None
        self._stopped: dict[Epoch, None] = {}
        self._leading: dict[tuple[int, int], Sequencer] = {}
        self._folded: dict[tuple[int, int, str], bytes] = {}
        self._storing: dict[str, list[tuple[int, StoreBatch]]] = {}
        self._first_seen: dict[int, int] = {}  # group -> numbers seen in order up to here
        self.reading: Reading | None = None  # of some seeds
        self.elections = 0
        self.elections_with_suffix = 0
        self.runs_committed = 0
        self.payloads_collected = 0
        world.on_step = self.on_step
        world.on_vote = self.on_vote
        world.on_store = self.on_store
        world.on_synced = self.on_synced

    # servers

    def on_step(self, process: Process, role: Role) -> None:
        """After each turn of each role."""
        if type(role) is CommitServer:
            self._on_commit_server(process, role)
        elif isinstance(role, DataServer):
            core = role.follower.core
            self._on_folded(process, "data", core.index, core.hash)
            self._on_held(process, role)
        elif isinstance(role, Member):
            what = f"undelivered runs of group {role.group}"
            self.bounded.on_size(process.name, process.life, what, *role.load())

    def _on_held(self, process: Process, role: DataServer) -> None:
        limits, keys = role.settings, role.unnumbered.all()
        stages = sum(1 for key in keys if key[4])
        # Beyond the bound, one reserve for runs that are next and one for what is fetched.
        beside = 2 * limits.held_runs_reserve
        most = limits.held_runs_max + beside
        what = "unnumbered runs"
        self.bounded.on_size(process.name, process.life, what, len(keys) - stages, most, beside)
        most = limits.held_stages_max + limits.held_runs_reserve
        self.bounded.on_size(process.name, process.life, "undecided stages", stages, most)

    def _on_commit_server(self, process: Process, role: CommitServer) -> None:
        # One that was stopped in this very turn may have committed, and said so, before.
        before = self._leading.pop((process.node, process.life), None)
        if before is not None:
            self._on_sequencer(process, role, before)
        if role.sequencer is not None:
            self._leading[(process.node, process.life)] = role.sequencer
            self._on_sequencer(process, role, role.sequencer)
        self._on_folded(process, "commit", role.core.index, role.core.hash)
        cell, most = role.core.groups[CELL], role.settings
        who, size = (process.name, process.life), self.bounded.on_size
        size(*who, "anonymous owners", len(cell.anonymous), most.anonymous_max)
        size(*who, "tombstones", len(cell.tombstones), most.tombstones_max)
        self.monotone.on_disk(role.uuid, role.vote_durable)
        self.monotone.on_log(role.uuid, role.log.base, is_known=not role.unknown_from)

    def _on_sequencer(self, process: Process, role: CommitServer, sequencer: Sequencer) -> None:
        epoch = sequencer.epoch
        if epoch not in self._claimed:
            self._on_elected(process, role, sequencer)
        if sequencer.changing.stop_at and epoch not in self._stopped:
            self._stopped[epoch] = None
            self.on_stop_sign(process, sequencer)
        for index in range(self._claimed[epoch] + 1, sequencer.committed + 1):
            entry_hash = sequencer.log.hash_at(index)
            if entry_hash is None:
                continue
            self.agreement.on_committed(index, entry_hash)
            self.committed_only.on_committed(epoch, index, sequencer.configuration)
            if index > self.facts.committed:
                self._on_committed(index, entry_hash, sequencer)
        if self._claimed[epoch] < sequencer.committed:
            self._claimed[epoch] = sequencer.committed
            self.on_progress(process, sequencer)

    def _on_elected(self, process: Process, role: CommitServer, sequencer: Sequencer) -> None:
        epoch = sequencer.epoch
        self.fencing.on_elected(epoch, process.node, process.life)
        self._claimed[epoch] = role.core.index
        self.elections += 1
        if sequencer.epoch_index - 1 > self.facts.committed:
            self.elections_with_suffix += 1
        self.trace.add(
            self._world.now_us, process.name, "elected", number=sequencer.epoch_index,
            incarnation=epoch[0],
        )  # fmt: skip

    def _on_committed(self, index: int, entry_hash: bytes, sequencer: Sequencer) -> None:
        facts = self.facts
        entry = sequencer.log.entry(index)
        if index != facts.committed + 1:
            raise Violation("O", f"index {index} was committed after {facts.committed}")
        facts.entries.append(entry)
        facts.hashes.append(entry_hash)
        for key, number, count, digest in numbered_of(entry):
            self.order.on_numbered(key[0], number, count)
            gone = self.collection.gone(key)
            if gone and digest not in gone:  # An id that is used again: another run.
                facts.number_of_run.pop(key, None)
                facts.digest_of_run.pop(key, None)
            self.uniqueness.on_numbered(key, number)
            facts.digest_of_run.setdefault(key, digest)
            self.copies.on_numbered(key, digest, facts.configuration)
            self.runs_committed += 1
        if self.reading is not None:
            runs = [(key, digest) for key, _, _, digest in numbered_of(entry)]
            self.reading.on_committed(index, entry_hash, runs, facts.configuration)
        self.transactions.on_decided(entry)
        self.names.on_committed(entry)
        self.collection.on_committed(entry)
        self.advertised.on_committed(entry)
        if type(entry) is EpochEntry:
            facts.settled = facts.configuration.number
        after = configuration_of(entry)
        if after is not None:
            wanted = [key for key in facts.digest_of_run if not self.collection.gone(key)]
            self.copies.on_changed(facts.configuration, after, wanted)
            facts.configuration = after

    def _on_folded(self, process: Process, what: str, index: int, entry_hash: bytes) -> None:
        if self._folded.get((process.life, process.node, what)) == entry_hash:
            return
        self._folded[(process.life, process.node, what)] = entry_hash
        who = f"{process.name}/{what}"
        self.monotone.on_folded(who, process.life, index)
        self.committed_only.on_folded(who, index)
        self.agreement.on_folded(who, index, entry_hash)

    def on_vote(self, process: Process, message: Control) -> None:
        """A message that counts towards a quorum leaves."""
        if type(message) is Promise:
            self.fencing.on_promised(message.uuid, message.epoch)
            return
        if type(message) is CommitAck:
            index = message.index
        else:
            assert type(message) is StartReply
            if not message.is_started:
                return
            index = message.length
        self.fencing.on_accepted(message.uuid, message.epoch)
        accepted = self.facts.accepted.setdefault(message.epoch, {})
        accepted[message.uuid] = max(accepted.get(message.uuid, 0), index)

    # disks

    def on_store(self, process: Process, effect: Store) -> None:
        """Something is on its way to a disk."""
        if type(effect) is StoreBatch:
            self._storing.setdefault(process.name, []).append((effect.token, effect))
        elif type(effect) is StoreSnapshot:
            self.agreement.on_snapshot(process.name, effect.index, effect.state)
        elif type(effect) is StoreOrder or type(effect) is RewriteOrder:
            self.records.on_store(process.name, effect.records)

    def on_synced(self, process: Process, device: Device, token: int) -> None:
        """A sync has ended."""
        assert process.disk is not None
        if device is not process.disk.data:
            return
        storing = self._storing.get(process.name, [])
        while storing and storing[0][0] <= token:
            _, effect = storing.pop(0)
            self._hold(process.disk.uuid, effect.key, effect.batch.digest)

    def _hold(self, uuid: int, key: tuple[int, bytes, int, int, int], digest: bytes) -> None:
        self.facts.payloads.setdefault((key, digest), {})[uuid] = True

    def on_start(self, process: Process, recovery: DataRecovery | None) -> None:
        """A server begins a life with what its disk gave back."""
        self._storing.pop(process.name, None)
        if recovery is not None:
            for found in recovery.found():
                self._hold(recovery.uuid, found.key, found.digest)

    def on_dropped(self, process: Process, effect: DropBatch) -> None:
        """A data server gave a payload up of its own will."""
        assert process.disk is not None
        storing = self._storing.get(process.name, [])
        held = [store.batch.digest for _, store in storing if store.key == effect.key]
        for (key, digest), disks in self.facts.payloads.items():
            if key == effect.key and disks.pop(process.disk.uuid, False):
                held.append(digest)
        self.collection.on_dropped(process.name, effect.key, held)

    def on_collected(self, process: Process, effect: DropCollected) -> None:
        """A data server gave payloads up because the order says so."""
        assert process.disk is not None
        for key in effect.keys:
            self.collection.on_collected(process.name, key)
            for digest in self.collection.gone(key):
                self.facts.payloads.get((key, digest), {}).pop(process.disk.uuid, None)
            self.payloads_collected += 1

    # clients

    def on_sent(self, process: Process, identity: Identity, body: bytes, group: int) -> None:
        """An application hands a message over."""
        self.facts.sent[body] = identity

    def on_member(self, process: Process, member: Member) -> None:
        """A member begins, at its saved position."""
        self.order.on_member(process.name, member.number_next)

    def on_effect(self, process: Process, effect: Effect) -> None:
        """What roles tell their applications."""
        if type(effect) is Deliver:
            for number_first, batch in effect.runs:
                self._on_delivered(process, effect.group, number_first, batch)
            end = effect.runs[-1][0] + effect.runs[-1][1].count
            self.transactions.on_position(process.name, effect.group, end)
        elif type(effect) is DropBatch:
            self.on_dropped(process, effect)
        elif type(effect) is DropCollected:
            self.on_collected(process, effect)

    def _on_delivered(self, process: Process, group: int, first: int, batch: Batch) -> None:
        who = process.name
        self.trace.add(
            self._world.now_us, who, "delivered", group=group, sender=batch.sender.hex(),
            incarnation=batch.incarnation, counter=batch.counter_first, count=batch.count,
            number=first, digest=batch.digest.hex(),
        )  # fmt: skip
        for number, message in enumerate(messages_of(batch), first):
            self.order.on_delivered(who, number)
            self.committed_only.on_delivered(who, group, number)
            identity = self.soundness.on_delivered(who, group, number, message.body)
            self.agreement.on_delivered(who, group, number, message.body)
            if not identity[0].startswith(b"twin"):
                # Who reuses an id goes on from what its former self has under way: it may be told
                # to begin again, and what it repeats then may have been numbered, too.
                self.uniqueness.on_delivered(identity, group, number)
        self._see_in_order(group)

    def _see_in_order(self, group: int) -> None:
        """Once per number, in number order: the senders' own order, and transactions."""
        facts = self.facts
        number = self._first_seen.get(group, 0) + 1
        while (body := facts.body_at.get((group, number))) is not None:
            identity = facts.sent[body]
            fields = body.split(b":")
            if fields[0].startswith(b"tx"):
                tx = (fields[0], int(fields[1]))
                self.transactions.on_seen(tx, fields[2], int(fields[3]))
            elif not fields[0].startswith(b"twin"):  # its counters are somebody else's
                self.order.on_first_seen(identity, group, number)
            number += 1
        self._first_seen[group] = number - 1

    def on_confirmed(self, identity: Identity, body: bytes, group: int, number: int) -> None:
        """A sender was told that its message is committed, and its number unless that is 0."""
        self.committed_only.on_confirmed(identity, group, number)
        self.agreement.on_confirmed(identity, group, number)
        if number or identity not in self.facts.confirmed:
            self.facts.confirmed[identity] = (group, number)
        self.facts.confirmed_bodies[body] = identity

    def on_stopped(self, process: Process, role: Sender | Owner, kind: str) -> None:
        """A process that had opened its name heard why it can't go on under it."""
        scope = role.group if isinstance(role, Sender) else CELL
        if kind == AnswerKind.REMOVED.name:
            self.names.on_removed(process.name, scope, role.id, role.opened)
        elif kind == AnswerKind.FENCED.name:
            self.names.on_fenced(process.name, scope, role.id, role.incarnation, role.nonce)

    def check_end(self) -> None:
        """When every member has delivered everything that is committed."""
        self.durable.check()
        self.advertised.check()
        self.transactions.check_whole()
