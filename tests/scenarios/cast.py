"""The cast of a story: a calm simulated world, servers, members, entries and senders in it.

The world runs the real codec and disks, but leaves nothing to chance: every frame takes 0.3 ms,
every sync 0.15 ms, a crash loses what was not synced, and of the commit servers the first that is
alive stands first. When the cast is there, the groups exist and the first commit server leads.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from samcast.group.asking import Proposer
from samcast.group.commit_server import CommitServer
from samcast.group.data_server import DataServer
from samcast.group.entry import Entry
from samcast.group.member import Deliver, Member
from samcast.group.owner import Owner, Transacted
from samcast.group.sender import Opened, Sender, Submitted
from samcast.group.settings import GroupSettings
from samcast.machine.ports import Channel, Effect, Role
from samcast.machine.quorum import check_quorums
from samcast.sim.chance import SeededChance
from samcast.sim.disk import Disk
from samcast.sim.network import Network
from samcast.sim.world import US_PER_MS, Process, World
from samcast.wire.batch import Batch, Message, columns_from_messages
from samcast.wire.control import Control
from samcast.wire.group import GroupRequest
from samcast.wire.order import ROLE_COMMIT, ROLE_DATA, Configuration, Server
from tests.scenarios.narrator import Narrator, Watched

SEGMENT_BYTES = 64 * 1024
PACE_MS = 40  # between the moments at which two commit servers lose patience
SETTLED_MS = 700  # elections, groups and members are done by then
QUIET_MS = 700  # longer than any pause between two things that follow from each other
QUIET_MAX_MS = 30_000


# The world.


class Turn:
    """A commit server's chance: the later its place, the longer it waits before it stands."""

    def __init__(self, place: int, chance: SeededChance) -> None:
        self._wait_ms = PACE_MS * place
        self._chance = chance

    def below(self, bound: int) -> int:
        return self._chance.below(bound) if bound > 2**32 else min(bound - 1, self._wait_ms)


@dataclass
class Fault:
    """Messages that a story loses or holds back."""

    kind: type
    sources: frozenset[int]  # empty: any
    targets: frozenset[int]
    left: int
    is_hold: bool
    held: list[tuple[int, int, Control | Batch]] = field(default_factory=list)

    def strikes(self, source: int, target: int, message: Control | Batch) -> bool:
        if not self.left or type(message) is not self.kind:
            return False
        is_from = not self.sources or source in self.sources
        return is_from and (not self.targets or target in self.targets)


class Lines(Network):
    """A network that does to chosen messages what the story says."""

    faults: list[Fault]

    def send(self, source: int, targets: Iterable[int], message: Control | Batch) -> None:
        clear = [t for t in targets if not self._is_struck(source, t, message)]
        super().send(source, clear, message)

    def _is_struck(self, source: int, target: int, message: Control | Batch) -> bool:
        for fault in self.faults:
            if fault.strikes(source, target, message):
                fault.left -= 1
                if fault.is_hold:
                    fault.held.append((source, target, message))
                return True
        return False


class CalmWorld(World):
    """A world in which nothing is left to chance."""

    network: Lines

    def __init__(self) -> None:
        super().__init__(seed=1)
        self.chance.unit = lambda: 0.0
        self.turn_jitter_us = 0
        self.is_cutting = False
        self.network = Lines(self.chance, self.at, self._arrive)
        self.network.jitter_us = 0
        self.network.faults = []


# The cast.


class App(Protocol):
    """The application above a role that is no server."""

    name: str
    process: Process
    at: int  # place of its role in the process

    def role(self) -> Role: ...

    def see(self, effects: Sequence[Effect]) -> None: ...


class MemberApp:
    """Keeps its position across crashes."""

    def __init__(self, cast: "Cast", name: str, process: Process, group: int) -> None:
        self.name, self.process, self.at = name, process, 0
        self._cast = cast
        self._group = group
        self._position = 1

    def role(self) -> Role:
        return Member(*self._cast.setup(self.process), self._group, self._position)

    def see(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if type(effect) is Deliver:
                number, batch = effect.runs[-1]
                self._position = number + batch.count


class EntryApp:
    """Nothing is above an entry."""

    def __init__(self, cast: "Cast", name: str, process: Process) -> None:
        self.name, self.process, self.at = name, process, 0
        self._cast = cast

    def role(self) -> Role:
        return Entry(*self._cast.setup(self.process))

    def see(self, effects: Sequence[Effect]) -> None:
        pass


class SenderApp:
    """Sends batches; a named one sends anew, after a crash, what was not numbered before it."""

    def __init__(self, cast: "Cast", plan: "SenderPlan", process: Process) -> None:
        self.name, self.process, self.at = plan.name, process, 0
        self._cast = cast
        self._plan = plan
        self._batches: list[list[str]] = []
        self._is_back = False

    def role(self) -> Role:
        cast, plan = self._cast, self._plan
        self._is_back = bool(self._batches)
        name = plan.name if plan.is_named else ""
        contacts = (cast.node(plan.entry),) if plan.entry else ()
        channel = Channel.PAYLOAD if cast.plan.multicast else Channel.DATA
        setup = (*cast.setup(self.process), cast.world.chance)
        return Sender(*setup, 1, name, contacts, channel)

    def send(self, labels: list[str]) -> None:
        self._batches.append(labels)
        self._submit(len(self._batches) - 1)

    def _submit(self, token: int) -> None:
        labels = self._batches[token]
        self._cast.narrator.submitted[(self.name, token)] = labels
        columns = columns_from_messages([Message(label.encode()) for label in labels])
        self.process.post(self.at, Submitted(token, columns, len(labels)))

    def see(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if type(effect) is Opened and self._is_back:
                self._is_back = False
                counter = 1
                for token, labels in enumerate(self._batches):
                    if counter >= effect.counter_next:
                        self._submit(token)
                    counter += len(labels)


class OwnerApp:
    """Runs transactions."""

    def __init__(self, cast: "Cast", name: str, process: Process) -> None:
        self.name, self.process, self.at = name, process, 0
        self._cast = cast
        self._token = 0

    def role(self) -> Role:
        return Owner(*self._cast.setup(self.process), self._cast.world.chance, self.name)

    def transact(self, parts: list[tuple[int, str]]) -> None:
        self._token += 1
        stages = [(g, columns_from_messages([Message(label.encode())]), 1) for g, label in parts]
        self.process.post(self.at, Transacted(self._token, tuple(stages)))

    def see(self, effects: Sequence[Effect]) -> None:
        pass


@dataclass(frozen=True)
class SenderPlan:
    """What the story says of a sender before it begins."""

    name: str
    is_named: bool = False
    host: str = ""  # the process that it shares
    entry: str = ""  # through which it reaches the cell


@dataclass
class Plan:
    """What the lines before the first command say."""

    data: int = 3
    commit: int = 3
    members: int = 1
    entries: int = 0
    k_data: int = 2
    k_commit: int = 2
    lifetime: int = 10**6
    groups: tuple[str, ...] = ("group",)
    multicast: bool = True  # payloads reach members, too
    apart: bool = False  # commit and data servers in processes of their own
    together: bool = False  # each member in the process of a server
    settings: dict[str, Any] = field(default_factory=dict)
    senders: list[SenderPlan] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)  # of transactions

    def set(self, name: str, text: str) -> None:
        """One `name=value` of the cluster line: ours, or a setting of the roles."""
        value: Any = text == "yes" if text in ("yes", "no") else text
        if name == "groups":
            value = tuple(text.split(","))
        elif text.isdigit():
            value = int(text)
        if name in ("before", "one_step", "overheard"):
            self.settings[f"is_{name}"] = value
        elif name in {known.name for known in fields(self)}:
            setattr(self, name, value)
        elif name in GroupSettings.__slots__:
            self.settings[name] = value
        else:
            raise ValueError(f"no such setting: {name}")


class Cast:
    """All processes of a story."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.settings = GroupSettings(**{"retry_max_ms": 200, **plan.settings})
        self.world = CalmWorld()
        self.narrator = Narrator(self.world)
        self.apps: dict[str, App] = {}
        self._nodes: dict[str, int] = {}
        self._roles: dict[int, int] = {}
        self._node_next = 1000
        self.configuration = self._make_servers()
        check_quorums(self.configuration)
        self._make_clients()
        for name in self._nodes:
            self.start(name)
        self._make_groups()

    def node(self, name: str) -> int:
        if name not in self._nodes:
            raise ValueError(f"nobody is called {name}; there are {', '.join(self._nodes)}")
        return self._nodes[name]

    def nodes(self, names: str) -> frozenset[int]:
        return frozenset(self.node(name) for name in names.split())

    def process(self, name: str) -> Process:
        return self.world.processes[self.node(name)]

    def _add(self, name: str, node: int, *channels: Channel) -> Process:
        self._nodes[name] = node
        return self.world.add(node, name, channels)

    def _make_servers(self) -> Configuration:
        plan, servers = self.plan, []
        both = range(1, max(plan.commit, plan.data) + 1)
        bits = {i: ROLE_COMMIT * (i <= plan.commit) + ROLE_DATA * (i <= plan.data) for i in both}
        listed = [(f"server-{i}", i, bits[i]) for i in both]
        if plan.apart:
            listed = [(f"commit-{i}", i, ROLE_COMMIT) for i in range(1, plan.commit + 1)]
            listed += [(f"data-{i}", 20 + i, ROLE_DATA) for i in range(1, plan.data + 1)]
        for name, node, roles in listed:
            commit = (Channel.COMMIT,) if roles & ROLE_COMMIT else ()
            data = (Channel.DATA, Channel.PAYLOAD) if roles & ROLE_DATA else ()
            process = self._add(name, node, Channel.GLOBAL, *commit, *data)
            process.disk = Disk(node, self.world.chance, self.settings, SEGMENT_BYTES)
            process.disk.recover()
            self._roles[node] = roles
            servers.append(Server(node, process.disk.uuid, roles))
        quorum = plan.commit - plan.k_commit + 1
        return Configuration(1, tuple(servers), plan.k_commit, quorum, plan.k_data)

    def _make_clients(self) -> None:
        plan = self.plan
        for i in range(plan.members):
            name, group = f"member-{i + 1}", 1 + i % len(plan.groups)
            if plan.together:
                process = self.process(f"server-{i + 1}")
            else:
                process = self._add(name, 101 + i, Channel.GLOBAL, Channel.PAYLOAD)
            self.apps[name] = MemberApp(self, name, process, group)
        for i in range(plan.entries):
            name = f"entry-{i + 1}"
            self.apps[name] = EntryApp(self, name, self._add(name, 201 + i, Channel.GLOBAL))
        for sender in plan.senders:
            self._add_sender(sender)
        for name in plan.owners:
            self.apps[name] = OwnerApp(self, name, self._client(name))

    def _client(self, name: str) -> Process:
        self._node_next += 1
        return self._add(name, self._node_next)

    def _add_sender(self, plan: SenderPlan) -> SenderApp:
        process = self.process(plan.host) if plan.host else self._client(plan.name)
        app = self.apps[plan.name] = SenderApp(self, plan, process)
        return app

    def sender(self, name: str) -> SenderApp:
        """A sender; one that was never heard of begins now."""
        if name not in self.apps:
            self._add_sender(SenderPlan(name))
            self.start(name)
        app = self.apps[name]
        assert isinstance(app, SenderApp)
        return app

    def owner(self, name: str) -> OwnerApp:
        app = self.apps[name]
        assert isinstance(app, OwnerApp)
        return app

    def setup(self, process: Process) -> tuple[int, Configuration, GroupSettings]:
        """With what every role begins."""
        return process.node, self.configuration, self.settings

    def start(self, name: str) -> None:
        """Begin a life of a process, with all that plays in it."""
        process = self.process(name)
        roles: list[Watched] = []
        bits = self._roles.get(process.node, 0)
        if process.disk is not None:
            order, data, _ = process.disk.recover()
            setup = self.setup(process)
            chance = Turn(process.node - 1, self.world.chance)
            if bits & ROLE_COMMIT:
                role = CommitServer(*setup, order, chance)
                roles.append(Watched(name, role, self.narrator, None))
            if bits & ROLE_DATA:
                roles.append(Watched(name, DataServer(*setup, data), self.narrator, None))
        for app in self.apps.values():
            if app.process is process:
                app.at = len(roles)
                roles.append(Watched(app.name, app.role(), self.narrator, app))
        process.start(list(roles))
        if process.disk is not None:
            self.world.begin_disk(process)

    def _make_groups(self) -> None:
        """Have the groups made, and everything settled before the story begins."""
        for group, name in enumerate(self.plan.groups, 1):
            self.narrator.groups[group] = name
            process = self.world.add(900 + group, "admin", ())
            request = GroupRequest(name, self.plan.lifetime, 64)
            process.start([Proposer(process.node, self.configuration, group, request)])
            self.run(SETTLED_MS)
            self.world.remove(process.node)

    # time

    def run(self, time_ms: int) -> None:
        self.world.run_until(self.world.now_us + time_ms * US_PER_MS)

    def run_until_quiet(self) -> None:
        began = self.world.now_us
        self.narrator.active_us = began
        while self.world.now_us < self.narrator.active_us + QUIET_MS * US_PER_MS:
            if self.world.now_us > began + QUIET_MAX_MS * US_PER_MS:
                raise ValueError("it doesn't get quiet; say how long to run")
            self.run(10)
