"""Clients that send what makes no sense: groups and names that aren't there, births of the future,
crowds of tiny senders, counters behind a gap. None of it may take the others' room.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from samcast.group.data_server import DataServer
from samcast.sim.checkers import Violation
from samcast.sim.world import Process
from samcast.wire.batch import Message, columns_from_messages, make_batch
from samcast.wire.order import ROLE_DATA, named_sender, unnamed_sender

if TYPE_CHECKING:
    from samcast.sim.faults import Faults

FUTURE = 10**6  # numbers that no seed comes to
CHECKS = 12
CHECK_US = 40_000


class Junk:
    """The junk clients of one seed, and what must hold beside them."""

    def __init__(self, faults: "Faults") -> None:
        self._faults = faults
        self._chance = faults.chance
        self._cluster = faults.cluster
        self._brought: dict[int, dict[bytes, None]] = {}  # client -> senders that it made up
        self._senders = 0

    def menu(self) -> list[Callable[[], None]]:
        """One of these at a time."""
        return [self.groups, self.births, self.tiny, self.gaps, self.stages]

    def groups(self) -> None:
        """Groups that aren't there."""
        most = max(self._cluster.groups)
        self._throw("junk_group", lambda: (most + self._chance.between(1, 3), 1, 0, 0))

    def births(self) -> None:
        """Numbers that nobody can know."""
        self._throw("junk_birth", lambda: (self._group(), 1, FUTURE, 0))

    def tiny(self) -> None:
        """Senders of one message each; these may get their numbers."""
        self._throw("junk_sender", lambda: (self._group(), 1, self._head(), 0), most=12)

    def gaps(self) -> None:
        """Counters whose turn never comes."""
        self._throw("junk_gap", lambda: (self._group(), 5, self._head(), 0))

    def stages(self) -> None:
        """Stages of owners that nobody has opened."""
        self._throw("junk_stage", lambda: (self._group(), 1, 0, self._chance.between(1, 3)))

    def _group(self) -> int:
        return self._chance.pick(self._cluster.groups)

    def _head(self) -> int:
        heads = self._cluster.judge.facts.heads
        return min((heads.get(group, 0) for group in self._cluster.groups), default=0)

    def _throw(
        self, kind: str, make: Callable[[], tuple[int, int, int, int]], most: int = 80
    ) -> None:
        """From a client of its own, to all data servers or to one."""
        client = self._cluster.add_client("junk")
        self._faults.note(kind)
        brought = self._brought[client.node] = {}
        servers = [p.node for p in self._cluster.servers]
        keepers = [node for node in servers if self._cluster.roles_of(node) & ROLE_DATA]
        targets = keepers if self._chance.happens(0.7) else [self._chance.pick(keepers)]
        for _ in range(self._chance.between(2, most)):
            group, counter, birth, stage = make()
            self._senders += 1
            named = named_sender(f"junk-{self._senders}")
            sender = named if stage else unnamed_sender(b"%016d" % (self._senders << 1))
            brought[sender] = None
            body = b"junk.%d:%d:0:0:" % (self._senders, counter)
            identity = (b"junk.%d" % self._senders, counter)
            self._cluster.judge.on_sent(client, identity, body, group)
            batch = make_batch(
                group=group, sender=sender, incarnation=1, counter_first=counter, count=1,
                birth=birth, confirmed_below=1, seen=0, sent_ms=0, configuration=1, stage=stage,
                columns=columns_from_messages([Message(body)]),
            )  # fmt: skip
            self._cluster.world.network.send(client.node, targets, batch)
        self._cluster.world.at(CHECK_US // 4, self._check, client, CHECKS)

    def _check(self, client: Process, times: int) -> None:
        for process in self._cluster.servers:
            role = self._cluster.data_server(process)
            if role is not None and process.is_up:
                self._check_server(process, role, client)
        if times:
            self._faults.world.at(CHECK_US, self._check, client, times - 1)

    def _check_server(self, process: Process, role: DataServer, client: Process) -> None:
        """R: within a client's share; and nothing that can't be placed."""
        brought, count = self._brought[client.node], 0
        for key in role.unnumbered.all():
            held = role.unnumbered.get(key)
            if held is None or key[1] not in brought:
                continue
            count += held.origin == client.node  # Others fetch it, which is in nobody's share.
            if key[0] not in self._cluster.groups or held.birth == FUTURE or key[4]:
                raise Violation("R", f"{process.name} stores what can't be placed: {key}")
        limits = role.settings
        most = sum(
            max(1, bound * limits.client_percent // 100)
            for bound in (limits.held_runs_max, limits.held_runs_reserve)
        )
        if count > most:
            raise Violation("R", f"{process.name} keeps {count} runs of {client.name}, not {most}")
