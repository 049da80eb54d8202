"""A whole cluster made from a seed: servers with disks, entries, members, senders and owners.

Limits are tiny so that rare states are common: rows are evicted after a few senders, buffers hold a
few runs, messages carry a few entries, snapshots come every few entries.
"""

from dataclasses import replace

from samcast.group.asking import Proposer
from samcast.group.commit_server import CommitServer
from samcast.group.data_server import DataServer
from samcast.group.entry import Entry
from samcast.group.settings import GroupSettings
from samcast.limits import ORDER_PIECE_BYTES_MAX
from samcast.machine.ports import Channel, Effect, Role
from samcast.machine.quorum import check_quorums
from samcast.sim.chance import SeededChance
from samcast.sim.clients import MemberApp, OwnerApp, SenderApp
from samcast.sim.disk import Disk
from samcast.sim.folding import FOLD, Folding
from samcast.sim.judge import Judge
from samcast.sim.trace import Trace
from samcast.sim.world import Process, World
from samcast.wire.group import AnyRequest, GroupRequest
from samcast.wire.order import (
    FOREVER,
    ROLE_CHECKPOINT,
    ROLE_COMMIT,
    ROLE_DATA,
    Configuration,
    Keep,
    Server,
)
from samcast.wire.retention import KeepRequest, LeaseRequest

SEGMENT_BYTES = 8 * 1024
SERVERS_MAX = 7
KEEP_ALL = 3  # of a group with a fold, this count means all messages
SHAPES = (  # servers, k, e
    (3, 2, 2), (3, 2, 2), (3, 2, 2), (3, 3, 1), (4, 3, 2), (4, 3, 2), (4, 2, 3), (5, 3, 3),
    (5, 4, 2), (5, 3, 3), (6, 4, 3), (7, 4, 4),
)  # fmt: skip


class Shape:
    """What a seed decides about its cluster before anything runs."""

    def __init__(self, world: World) -> None:
        chance = world.chance
        self.servers, self.k, self.e = chance.pick(SHAPES)
        # Commit and data servers in processes of their own, where there is room for both.
        self.is_split = self.servers <= SERVERS_MAX - 3 and chance.happens(0.4)
        data = chance.between(3, SERVERS_MAX - self.servers) if self.is_split else self.servers
        self.k_data = min(chance.pick((2, 2, 3)), data)
        self.data_servers = data
        self.entries = chance.pick((0, 1, 2))
        self.groups = chance.pick((1, 1, 2, 2))
        self.members = chance.pick((1, 2, 2))  # per group
        self.senders = chance.between(3, 5)
        self.named = chance.pick((0, 1, 2))
        self.owners = chance.pick((0, 1, 1))
        self.has_multicast = chance.happens(0.4)  # payloads reach members, too
        self.has_streams = chance.happens(0.3)  # members have data servers send without asking
        self.lifetime = chance.pick((12, 30, 60, 10**6))
        self.senders_max = chance.pick((2, 4, 8, 64))
        # Sizes have a chance of their own, so that runs of a seed without a bound stay as they are.
        self.sizes = SeededChance(world.seed + 2**40)
        self.link_bytes = self.sizes.pick((0, 0, 4 * 1024, 16 * 1024))  # before links drop
        self.settings = self._settings(world)
        if self.link_bytes:
            self.settings = replace(self.settings, stage_window_bytes=self.link_bytes // 4)
        # Of a transaction: data servers have room for all, and the sequencer for their reports.
        has_room = self.settings.held_stages_max > 240 and self.settings.pending_runs_max > 100
        self.stages_max = 24 if has_room and not world.seed % 2 else 4
        self.settings = replace(self.settings, decision_stages_max=self.stages_max)
        self.keep_count = chance.pick((0, 0, KEEP_ALL, 12))  # messages of a group that are kept
        # Messages between two checkpoints, and a server whose fold comes to other states.
        self.fold_interval = 5 if chance.happens(0.4) else 0
        self.wrong_fold = chance.pick((0, 0, 1))

    @property
    def is_bounded(self) -> bool:
        """Whether messages go at all."""
        return bool(self.keep_count or self.fold_interval)

    def make_plain(self) -> None:
        """Three servers with all roles and the limits of production."""
        self.servers, self.k, self.e = 3, 2, 2
        self.is_split, self.k_data, self.data_servers, self.entries = False, 2, 3, 0
        self.link_bytes = 0
        self.settings = GroupSettings()

    def stage_padding(self) -> bytes:
        """So that some transactions are larger than what a link takes at once."""
        if not self.link_bytes:
            return b""
        return b"x" * (self.link_bytes * self.sizes.pick((0, 1, 4, 6)) // 8)

    def _settings(self, world: World) -> GroupSettings:
        chance = world.chance
        suspect_ms = chance.pick((100, 140, 220))
        return GroupSettings(
            sender_runs_max=chance.pick((2, 4, 16)),
            cell_lifetime=chance.pick((100, 10**6)),
            snapshot_interval=chance.pick((10, 25, 60, 10**6)),
            is_before=chance.happens(0.3),
            is_one_step=chance.happens(0.3),
            is_overheard=chance.happens(0.5),
            entries_per_message_max=chance.pick((3, 8, 64)),
            entries_per_record_max=8,
            cell_senders_max=10**6 if world.seed % 5 else 3,
            snapshot_rows_max=(1, 7, 1000)[world.seed % 7 % 3],
            order_bytes_max=(250, 800, ORDER_PIECE_BYTES_MAX)[world.seed % 3],
            # Four owners may each wait for four stages: with less room the sequencer would forget
            # reports of one's for another's, for ever.
            pending_runs_max=chance.pick((16, 40, 1000)),
            held_runs_max=chance.pick((4, 12, 100)),
            held_runs_reserve=chance.pick((24, 40)),
            held_stages_max=chance.pick((60, 1000)),
            decision_stages_max=4,
            client_percent=chance.pick((10, 30, 100)),
            waiting_runs_max=chance.pick((10, 100)),
            report_max_ms=chance.pick((300, 5000)),
            member_runs_max=chance.pick((4, 16, 200)),
            spans_per_request_max=chance.pick((1, 4, 64)),
            repairs_per_reply_max=chance.pick((1, 4, 64)),
            heartbeat_interval_ms=40,
            suspect_ms=suspect_ms,
            rejoin_silence_ms=2 * suspect_ms,
            retry_ms=chance.pick((10, 20, 40)),
            retry_max_ms=chance.pick((100, 300)),
            fetch_after_ms=chance.pick((20, 60)),
            collect_interval_ms=chance.pick((50, 200)),
            named_max=2,
            anonymous_max=chance.pick((3, 3, 4, 10_000)),
            tombstones_max=chance.pick((1, 2, 10_000)),
        )


class Cluster:
    """All processes of one world."""

    def __init__(self, world: World, trace: Trace, *, is_plain: bool = False) -> None:
        self.world = world
        self.shape = shape = Shape(world)
        if is_plain:
            shape.make_plain()
        self.settings = shape.settings
        world.network.link_bytes_max = shape.link_bytes
        self.outstanding_max = world.chance.pick((1, 3, 6))
        self.servers: list[Process] = []
        self.entries: list[Process] = []
        self.members: list[MemberApp] = []
        self.senders: list[SenderApp] = []
        self.owners: list[OwnerApp] = []
        self.proposers: list[tuple[Process, Proposer]] = []
        self.groups: list[int] = []
        self._node_next = 1000
        self._attempts = 0
        self._roles: dict[int, int] = {}
        self.configuration = self._make_servers()
        check_quorums(self.configuration)
        self.judge = Judge(world, self.configuration, trace)
        self.judge.records.bytes_max = self.settings.order_bytes_max
        wrong = self.servers[-1].node if shape.wrong_fold and len(self.servers) > 3 else 0
        self.folding = Folding(self, shape.fold_interval, wrong)

    def _make_servers(self) -> Configuration:
        shape = self.shape
        data = ROLE_DATA | (ROLE_CHECKPOINT if shape.fold_interval else 0)
        plan = [(i, ROLE_COMMIT | data) for i in range(1, shape.servers + 1)]
        if shape.is_split:
            plan = [(i, ROLE_COMMIT) for i in range(1, shape.servers + 1)]
            plan += [(20 + i, data) for i in range(1, shape.data_servers + 1)]
        listed = []
        for node, roles in plan:
            disk = self.add_server(node, roles).disk
            assert disk is not None
            listed.append(Server(node, disk.uuid, roles))
        k_checkpoint = 2 if shape.fold_interval else 0
        return Configuration(1, tuple(listed), shape.k, shape.e, shape.k_data, k_checkpoint)

    # servers

    def add_server(self, node: int, roles: int) -> Process:
        """A server with an empty disk, not started yet."""
        channels = [Channel.GLOBAL]
        channels += [Channel.COMMIT] if roles & ROLE_COMMIT else []
        channels += [Channel.DATA, Channel.PAYLOAD] if roles & ROLE_DATA else []
        process = self.world.add(node, f"server-{node}", tuple(channels))
        process.disk = Disk(node, self.world.chance, self.settings, SEGMENT_BYTES)
        process.disk.recover()
        self._roles[node] = roles
        self.servers.append(process)
        return process

    @property
    def node_last(self) -> int:
        """The highest id that any server ever had."""
        return max(self._roles)

    def roles_of(self, node: int) -> int:
        """What a server is configured to be."""
        return self._roles[node]

    def is_voter(self, node: int) -> bool:
        """Whether a server is a commit server, up or down."""
        return bool(self._roles[node] & ROLE_COMMIT)

    def start_server(self, process: Process) -> bool:
        """Begin a life from the disk; True if the disk had to be formatted anew."""
        disk = process.disk
        assert disk is not None
        order, data, is_new = disk.recover()
        roles: list[Role] = []
        bits = self._roles[process.node]
        if bits & ROLE_COMMIT:
            roles.append(
                CommitServer(
                    process.node, self.configuration, self.settings, order, self.world.chance
                )
            )
        if bits & ROLE_DATA:
            roles.append(DataServer(process.node, self.configuration, self.settings, data))
        if bits & ROLE_CHECKPOINT:
            roles += self.folding.roles(process)
        process.on_effect = self._on_server_effect
        process.clock_offset_ms = self.world.chance.pick((0, 0, 5, 10**6))
        self.judge.on_start(process, data)
        process.start(roles)
        self.world.begin_disk(process)
        if bits & ROLE_CHECKPOINT:
            self.folding.on_started(process)
        return is_new

    def _on_server_effect(self, process: Process, role: Role, effect: Effect) -> None:
        if not self.folding.on_effect(process, role, effect):
            self.judge.on_effect(process, effect)

    def commit_server(self, process: Process) -> CommitServer | None:
        """The commit server of a living process."""
        for role in process.roles:
            if isinstance(role, CommitServer):
                return role
        return None

    def data_server(self, process: Process) -> DataServer | None:
        """The data server of a living process."""
        for role in process.roles:
            if isinstance(role, DataServer):
                return role
        return None

    def sequencers(self) -> list[Process]:
        """Processes that lead, or believe that they do."""
        return [
            p
            for p in self.servers
            if (role := self.commit_server(p)) is not None and role.sequencer is not None
        ]

    # clients

    def _client(self, name: str, *channels: Channel) -> Process:
        self._node_next += 1
        return self.world.add(self._node_next, name, channels)

    def add_client(self, name: str, *channels: Channel) -> Process:
        """A process for somebody else's roles."""
        return self._client(f"{name}-{self._node_next}", *channels)

    def propose(self, request: AnyRequest) -> Proposer:
        """Have something ordered."""
        process = self._client(f"admin-{self._node_next}")
        nonce = 1 + self.world.chance.below(2**62)
        proposer = Proposer(process.node, self.configuration, nonce, request)
        process.start([proposer])
        self.proposers.append((process, proposer))
        return proposer

    def start(self) -> None:
        """Servers, entries and the groups; clients come when the groups are there."""
        for process in self.servers:
            self.start_server(process)
        for i in range(self.shape.entries):
            entry = self._client(f"entry-{i + 1}", Channel.GLOBAL)
            self.entries.append(entry)
            self.start_entry(entry)

    def start_entry(self, process: Process) -> None:
        """Begin a life of an entry; it remembers nothing."""
        process.start([Entry(process.node, self.configuration, self.settings)])

    def make_groups(self, within_us: int) -> bool:
        """Create the groups; False if that took too long."""
        asked = [
            self.propose(GroupRequest(f"group-{i}", self.shape.lifetime, self.shape.senders_max))
            for i in range(self.shape.groups)
        ]
        limit = self.world.now_us + within_us
        done = self.world.run_until(limit, lambda: all(p.outcome is not None for p in asked))
        self.groups = [p.outcome.value for p in asked if p.outcome is not None]
        self.forget_proposers()
        return done and (not self.shape.is_bounded or self._bound_groups(limit))

    def _bound_groups(self, limit: int) -> bool:
        """Only the newest messages stay, and what one member of each group hasn't seen yet."""
        for group in self.groups:
            self.lease(group, 0)
        interval = self.shape.fold_interval
        keep = Keep(count=self.shape.keep_count)
        if interval:
            # Checkpoints alone let nothing go: where a group keeps all, they are made all the same.
            count = FOREVER if self.shape.keep_count == KEEP_ALL else 0
            keep = Keep(count, 0, 0, *FOLD, interval)
        if not self.world.run_until(limit, self._are_answered):
            return False
        for group in self.groups:
            self.propose(KeepRequest(group, keep))
        return self.world.run_until(limit, self._are_answered)

    def _are_answered(self) -> bool:
        self.forget_proposers()
        return not self.proposers

    def lease(self, group: int, number: int) -> None:
        """Have all above a number kept for the group's first member."""
        if self.shape.is_bounded:
            nonce = 1 + self.world.chance.below(2**62)
            self.propose(LeaseRequest(group, "first", number, 2**40, nonce))

    def forget_proposers(self) -> None:
        """Administrators that have their answer go."""
        left = []
        for process, proposer in self.proposers:
            if proposer.outcome is None:
                left.append((process, proposer))
            else:
                self.world.remove(process.node)
        self.proposers = left

    def start_clients(self) -> None:
        """Members, senders and owners."""
        for group in self.groups:
            for _ in range(self.shape.members):
                name = f"member-{len(self.members) + 1}"
                app = MemberApp(
                    self,
                    self._client(name, Channel.GLOBAL, Channel.PAYLOAD),
                    group,
                    is_leased=not any(m.group == group for m in self.members),
                )
                self.members.append(app)
                app.start()
        for i in range(self.shape.senders + self.shape.named):
            self.add_sender(is_named=i >= self.shape.senders)
        for i in range(self.shape.owners):
            owner = OwnerApp(self, self._client(f"tx{i + 1}"), tuple(self.groups))
            self.owners.append(owner)
            owner.start()

    def next_attempt(self) -> int:
        """So that no two lives ever send the same bytes."""
        self._attempts += 1
        return self._attempts

    def take_over(self, app: SenderApp | OwnerApp) -> SenderApp | OwnerApp:
        """Another process begins under the name of one that still lives."""
        process = self._client(f"{app.key.decode()}+{self._node_next}")
        if isinstance(app, OwnerApp):
            owner = OwnerApp(self, process, tuple(self.groups), app.key.decode())
            owner.goal = app.goal
            self.owners.append(owner)
            owner.start()
            return owner
        heir = SenderApp(self, process, app.group, is_named=True, name=app.key.decode())
        heir.goal = app.goal
        self.senders.append(heir)
        heir.start()
        return heir

    def add_sender(self, *, is_named: bool) -> SenderApp:
        """One more sender, directly or through an entry."""
        chance = self.world.chance
        name = f"{'named' if is_named else 'sender'}-{self._node_next}"
        contacts: tuple[int, ...] = ()
        if self.entries and chance.happens(0.5):
            contacts = tuple(p.node for p in self.entries)
        channel = Channel.PAYLOAD if self.shape.has_multicast else Channel.DATA
        app = SenderApp(
            self,
            self._client(name),
            chance.pick(self.groups),
            is_named=is_named,
            contacts=contacts,
            channel=channel,
        )
        self.senders.append(app)
        app.start()
        return app

    def members_are_current(self) -> bool:
        """Every living member has delivered all that is committed."""
        heads = self.judge.facts.heads
        return all(
            app.position > heads.get(app.group, 0) for app in self.members if app.process.is_up
        )
