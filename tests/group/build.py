"""What the tests by hand are built from: a configuration, batches, entries, and a small cell.

A `Cell` holds servers that talk in memory, without loss or delay, with disks that are always ready.
It is no simulator: it only brings roles into a state that a test then looks at by hand.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeVar

from samcast.group.commit_server import CommitServer
from samcast.group.data_server import DataServer
from samcast.group.listing import DataRecovery
from samcast.group.settings import GroupSettings
from samcast.group.storage import (
    BatchKey,
    DropBatch,
    OrderRecovery,
    RewriteOrder,
    SendStored,
    StoreBatch,
    StoreOrder,
    StoreSnapshot,
    StoreVote,
)
from samcast.machine.ports import (
    Channel,
    Effect,
    Event,
    Multicast,
    NodeId,
    Received,
    Role,
    Send,
    Store,
    Stored,
    Ticked,
    Warn,
)
from samcast.wire.batch import Batch, Message, columns_from_messages, encode_batch, make_batch
from samcast.wire.control import Control
from samcast.wire.group import (
    AnyRequest,
    Asked,
    CommitAck,
    CommitSubmit,
    DataReport,
    GroupRequest,
    Outcome,
    PreVote,
    PreVoteReply,
    Promise,
    Propose,
    Repair,
    Reported,
    Seal,
)
from samcast.wire.order import (
    HASH_NONE,
    ROLE_COMMIT,
    ROLE_DATA,
    AnyEntry,
    Configuration,
    Epoch,
    GroupEntry,
    OpenEntry,
    RunEntry,
    Server,
    StageRef,
    named_sender,
    unnamed_sender,
)
from samcast.wire.records import AnyRecord, VoteRecord, decode_record, decode_vote

SETTINGS = GroupSettings(rejoin_silence_ms=500)
CONFIGURATION = Configuration(
    1, tuple(Server(node, 100 + node, ROLE_COMMIT | ROLE_DATA) for node in (1, 2, 3)), 2, 2, 2
)
GROUP = 1
GROUP_ENTRY = GroupEntry(GROUP, "orders", 2**30, 1000)
ANN = unnamed_sender(b"ann".ljust(16, b"."))
BOB = unnamed_sender(b"bob".ljust(16, b"."))
NAMED = named_sender("till-7")
OWNER = named_sender("sink-1")
CLIENT = 900  # a node that serves nothing
E = TypeVar("E", bound=Effect)


class Draws:
    """Chance without chance: each node counts up from a place of its own."""

    def __init__(self, first: int) -> None:
        self._next = 10 * first

    def below(self, bound: int) -> int:
        self._next += 1
        return self._next % bound


# Values.


def columns(text: str, count: int = 1) -> bytes:
    return columns_from_messages([Message(text.encode())] * count)


def batch(
    counter: int = 1,
    count: int = 1,
    *,
    sender: bytes = ANN,
    text: str = "a",
    birth: int = 0,
    incarnation: int = 1,
    stage: int = 0,
    group: int = GROUP,
    confirmed_below: int = 1,
    seen: int = 0,
) -> Batch:
    return make_batch(
        group=group,
        sender=sender,
        incarnation=incarnation,
        counter_first=counter,
        count=count,
        birth=birth,
        confirmed_below=confirmed_below,
        seen=seen,
        sent_ms=0,
        configuration=1,
        stage=stage,
        columns=columns(text, count),
    )


def reported(of: Batch) -> Reported:
    return Reported(
        of.group,
        of.sender,
        of.incarnation,
        of.counter_first,
        of.count,
        of.birth,
        of.confirmed_below,
        of.digest,
        of.stage,
    )


def asked(of: Batch) -> Asked:
    return Asked(
        of.group,
        of.sender,
        of.incarnation,
        of.counter_first,
        of.count,
        of.birth,
        of.confirmed_below,
        of.seen,
        of.digest,
    )


def run_entry(of: Batch, number_first: int) -> RunEntry:
    return RunEntry(
        of.group,
        of.sender,
        of.incarnation,
        of.counter_first,
        of.count,
        number_first,
        of.digest,
        of.birth,
        of.confirmed_below,
    )


def open_entry(
    incarnation: int = 1,
    *,
    sender: bytes = NAMED,
    scope: int = GROUP,
    after: int = 0,
    birth: int = 0,
    nonce: int = 7,
) -> OpenEntry:
    return OpenEntry(scope, sender, incarnation, after, birth, nonce)


def stage_ref(of: Batch) -> StageRef:
    return StageRef(of.stage, of.count, of.digest)


def key_of(of: Batch) -> BatchKey:
    return (of.group, of.sender, of.incarnation, of.counter_first, of.stage)


# Looking at effects.


def only(kind: type[E], effects: Iterable[Effect]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def sent(effects: Iterable[Effect], to: NodeId | None = None) -> list[Control | Batch]:
    """Messages that were sent to one node, or to any, multicasts included."""
    return [
        effect.message
        for effect in effects
        if isinstance(effect, Send | Multicast)
        and to in (None, effect.to if isinstance(effect, Send) else None)
    ]


def codes(effects: Iterable[Effect]) -> list[str]:
    return [warn.code for warn in only(Warn, effects)]


def settle(role: Role, events: Sequence[Event]) -> list[Effect]:
    """Step, and go on with what the disk says, until it has nothing more to say."""
    effects = out = role.step(events)
    while stores := only(Store, out):
        out = role.step([Stored(max(store.token for store in stores))])
        effects = [*effects, *out]
    return effects


# Servers.


def commit_server(
    node: NodeId = 1,
    *,
    configuration: Configuration = CONFIGURATION,
    settings: GroupSettings = SETTINGS,
    recovery: OrderRecovery | None = None,
) -> CommitServer:
    recovery = recovery or OrderRecovery(100 + node)
    return CommitServer(node, configuration, settings, recovery, Draws(node))


def data_server(
    node: NodeId = 1,
    *,
    configuration: Configuration = CONFIGURATION,
    settings: GroupSettings = SETTINGS,
    recovery: DataRecovery | None = None,
) -> DataServer:
    recovery = recovery or DataRecovery(100 + node)
    return DataServer(node, configuration, settings, recovery)


class OrderDisk:
    """What a commit server's disk would give back: stores are durable once it is synced."""

    def __init__(self, uuid: int) -> None:
        self._uuid = uuid
        self._vote: VoteRecord | None = None
        self._records: list[AnyRecord] = []
        self._snapshots: dict[int, bytes] = {}
        self._waiting: list[Store] = []

    def take(self, effects: Iterable[Effect]) -> list[Effect]:
        """Write what a step asks for, without a sync."""
        kept = list(effects)
        self._waiting += only(Store, kept)
        return kept

    def sync(self, token: int = 2**62) -> Stored:
        """Make what was written, up to a token, durable; the event to tell the server."""
        done = [store for store in self._waiting if store.token <= token]
        self._waiting = [store for store in self._waiting if store.token > token]
        for store in done:
            if isinstance(store, StoreOrder):
                self._records += [decode_record(record) for record in store.records]
            elif isinstance(store, RewriteOrder):
                self._records = [decode_record(record) for record in store.records]
            elif isinstance(store, StoreVote):
                self._vote = decode_vote(store.record)
            elif isinstance(store, StoreSnapshot):
                self._snapshots[store.index] = store.state
                gone = [index for index in self._snapshots if index not in store.kept]
                for index in gone:
                    del self._snapshots[index]
        return Stored(max(store.token for store in done))

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def recovery(self, *, is_rotten: bool = False) -> OrderRecovery:
        """As after a crash: what isn't synced is gone."""
        states = [self._snapshots[index] for index in sorted(self._snapshots)]
        return OrderRecovery(self._uuid, self._vote, list(self._records), is_rotten, states)


class Cell:
    """Commit and data servers, and whoever else a test adds, in one thread."""

    def __init__(
        self,
        *,
        configuration: Configuration = CONFIGURATION,
        settings: GroupSettings = SETTINGS,
        with_data: bool = True,
    ) -> None:
        self.now_ms = 0
        self.down: dict[NodeId, None] = {}
        self.seen: list[tuple[NodeId, Effect]] = []
        self.payloads: dict[tuple[NodeId, BatchKey], bytes] = {}
        self.disks: dict[NodeId, OrderDisk] = {}  # of commit servers
        self.commit: dict[NodeId, CommitServer] = {}
        self.data: dict[NodeId, DataServer] = {}
        self._roles: list[tuple[NodeId, Role]] = []
        self._inbox: deque[tuple[NodeId, Role, Event]] = deque()
        for server in configuration.servers:
            node = server.node
            if server.roles & ROLE_COMMIT:
                recovery = OrderRecovery(server.uuid)
                self.disks[node] = OrderDisk(server.uuid)
                self.commit[node] = commit_server(
                    node, configuration=configuration, settings=settings, recovery=recovery
                )
                self.add(node, self.commit[node])
            if server.roles & ROLE_DATA and with_data:
                self.data[node] = data_server(
                    node,
                    configuration=configuration,
                    settings=settings,
                    recovery=DataRecovery(server.uuid),
                )
                self.add(node, self.data[node])

    def add(self, node: NodeId, role: Role) -> None:
        self._roles.append((node, role))

    @property
    def leader(self) -> CommitServer:
        return next(s for n, s in self.commit.items() if s.sequencer and n not in self.down)

    def run(self, duration_ms: int) -> None:
        """Let time pass, from one deadline to the next."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            live = [(node, role) for node, role in self._roles if node not in self.down]
            due_ms = min(role.due_ms() for _, role in live)
            self.now_ms = min(max(self.now_ms + 1, due_ms), end_ms)
            for node, role in live:
                if role.due_ms() <= self.now_ms:
                    self._step(node, role, [])
                    self._drain()

    def receive(self, to: NodeId, sender: NodeId, message: Control | Batch) -> None:
        """Bring a message to a node, and let everything happen that follows from it."""
        self._post(to, sender, message)
        self._drain()

    def send(self, of: Batch) -> None:
        """A sender's multicast to all data servers."""
        for node in self.data:
            self._post(node, CLIENT, of)
        self._drain()

    def propose(self, request: AnyRequest, nonce: int = 1) -> Outcome | None:
        """Have something ordered; the outcome, if there is one at once."""
        before = len(self.seen)
        self.receive(self.leader.node, CLIENT, Propose(nonce, request))
        answers = sent((e for _, e in self.seen[before:]), CLIENT)
        outcomes = [a for a in answers if isinstance(a, Outcome) and a.nonce == nonce]
        return outcomes[-1] if outcomes else None

    def _post(self, to: NodeId, sender: NodeId, message: Control | Batch) -> None:
        for node, role in self._roles:
            knows = type(message) in role._handlers  # type: ignore[attr-defined]
            if node == to and node not in self.down and knows:
                self._inbox.append((node, role, Received(sender, message)))

    def _drain(self) -> None:
        while self._inbox:
            node, role, event = self._inbox.popleft()
            if isinstance(role, CommitServer) and isinstance(event, Stored):
                self.disks[node].sync(event.token)
            self._step(node, role, [event])

    def _step(self, node: NodeId, role: Role, events: list[Event]) -> None:
        if node in self.down:
            return
        effects = role.step([Ticked(self.now_ms), *events])
        self.seen.extend((node, effect) for effect in effects)
        for effect in effects:
            if isinstance(effect, Send):
                self._post(effect.to, node, effect.message)
            elif isinstance(effect, Multicast):
                for target in self._reached_by(effect.channel):
                    self._post(target, node, effect.message)
            else:
                self._keep(node, effect)
        stores = only(Store, effects)
        if isinstance(role, CommitServer):
            self.disks[node].take(stores)
        if stores:
            self._inbox.append((node, role, Stored(max(store.token for store in stores))))

    def _keep(self, node: NodeId, effect: Effect) -> None:
        """What a data server does with its disk."""
        if isinstance(effect, StoreBatch):
            self.payloads[(node, effect.key)] = encode_batch(effect.batch)
        elif isinstance(effect, DropBatch):
            self.payloads.pop((node, effect.key), None)
        elif isinstance(effect, SendStored):
            found = tuple((n, self.payloads[(node, key)]) for n, key in effect.batches)
            self._post(effect.to, node, Repair(found))

    def _reached_by(self, channel: Channel) -> list[NodeId]:
        if channel is Channel.COMMIT:
            return list(self.commit)
        if channel is Channel.DATA:
            return list(self.data)
        return list(dict.fromkeys(node for node, _ in self._roles))


def led_cell(
    settings: GroupSettings = SETTINGS,
    configuration: Configuration = CONFIGURATION,
    *,
    with_data: bool = True,
) -> Cell:
    """A cell with a sequencer and the group `orders`."""
    cell = Cell(settings=settings, configuration=configuration, with_data=with_data)
    cell.run(2 * settings.suspect_ms)
    outcome = cell.propose(GroupRequest("orders", 2**30, 1000))
    assert outcome is not None
    return cell


def epoch_of(server: CommitServer) -> Epoch:
    """The epoch that a server leads."""
    assert server.sequencer is not None
    return server.sequencer.epoch


def report(
    leader: CommitServer, node: NodeId, *batches: Batch, uuid: int | None = None, applied: int = 0
) -> Received:
    """Data server `node` has these on its disk, and tells the leader."""
    uuid = 100 + node if uuid is None else uuid
    runs = tuple(reported(of) for of in batches)
    number = leader.configuration.number
    return Received(node, DataReport(number, epoch_of(leader), uuid, applied, runs))


def ack(leader: CommitServer, node: NodeId, index: int, *, uuid: int | None = None) -> Received:
    """Commit server `node` holds the leader's log up to an index."""
    uuid = 100 + node if uuid is None else uuid
    number = leader.configuration.number
    return Received(node, CommitAck(number, epoch_of(leader), uuid, index, False, 0, HASH_NONE))


def submitted(effects: Iterable[Effect]) -> list[AnyEntry]:
    """Entries that the commit servers are asked to store, each once."""
    found: dict[int, AnyEntry] = {}
    for message in sent(effects):
        if isinstance(message, CommitSubmit):
            found.update(enumerate(message.entries, message.index_first))
    return [found[index] for index in sorted(found)]


# Elections.


def stand(server: CommitServer) -> Epoch:
    """Have a server suspect, ask around with success, and seal an epoch, which is returned."""
    effects = server.step([Ticked(server.now_ms + 10_000)])
    number = server.configuration.number
    (vote, *_) = [m for m in sent(effects) if isinstance(m, PreVote)]
    nodes = [s.node for s in server.configuration.servers]
    grants = [Received(node, PreVoteReply(number, vote.round, True, 0)) for node in nodes]
    seals = [m for m in sent(server.step(grants)) if isinstance(m, Seal)]
    return seals[0].epoch


def promise(server: CommitServer, epoch: Epoch) -> Promise:
    """What a server promises when it is asked for an epoch."""
    seal = Seal(server.configuration.number, epoch)
    effects = settle(server, [Received(epoch[1], seal)])
    (made,) = [m for m in sent(effects, epoch[1]) if isinstance(m, Promise)]
    return made


def hush(server: CommitServer, silence_ms: int = SETTINGS.rejoin_silence_ms) -> None:
    """A sequencer hears nobody for so long."""
    step_ms, now_ms = SETTINGS.heartbeat_interval_ms, server.now_ms
    for at_ms in range(step_ms, silence_ms + 2 * step_ms, step_ms):
        server.step([Ticked(now_ms + at_ms)])
