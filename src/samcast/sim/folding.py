"""Checkpoint servers of a simulated cluster: the real role, real members that feed a small fold,
and states that a disk keeps.

How blocks travel is not played: a fold whose messages are gone takes the newest advertised state
from any disk that is up, and if there is none on any disk at all, a promise is broken.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from samcast.group.checkpoint_server import CheckpointServer, DropCheckpoint, Written
from samcast.group.member import Deliver, Lost, Member
from samcast.machine.ports import Role
from samcast.sim.checkers import Facts, Violation
from samcast.sim.world import Process
from samcast.wire.batch import messages_of
from samcast.wire.order import AnyEntry, Checkpoint, CheckpointEntry

if TYPE_CHECKING:
    from samcast.sim.cluster import Cluster

AGAIN_US = 60_000
HASH_START = bytes(32)
FOLD = ("simulated", 1)


def folded(before: bytes, number: int, body: bytes) -> bytes:
    """The state after one more message."""
    return blake2b(number.to_bytes(8, "little") + body, key=before, digest_size=32).digest()


class Advertised:
    """G: an advertised state is on as many disks as it takes, and is what the messages come to."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.newest: dict[int, Checkpoint] = {}
        self._all: list[tuple[int, Checkpoint]] = []
        self._disks: dict[tuple[int, Checkpoint], set[int]] = {}

    def on_written(self, uuid: int, group: int, found: Checkpoint) -> None:
        """A state is durable."""
        self._disks.setdefault((group, found), set()).add(uuid)

    def on_committed(self, entry: AnyEntry) -> None:
        if type(entry) is not CheckpointEntry:
            return
        found = entry.checkpoint
        copies = len(self._disks.get((entry.group, found), ()))
        if copies < self._facts.configuration.k_checkpoint:
            raise Violation("G", f"checkpoint {found.number} is advertised with {copies} copies")
        self.newest[entry.group] = found
        self._all.append((entry.group, found))

    def check(self) -> None:
        """When every message is known."""
        states: dict[tuple[int, int], bytes] = {}
        for group in sorted({group for group, _ in self._all}):
            state, number = HASH_START, 1
            while (body := self._facts.body_at.get((group, number))) is not None:
                state = states[(group, number)] = folded(state, number, body)
                number += 1
        for group, found in self._all:
            if states.get((group, found.number)) != found.hash:
                raise Violation("A", f"checkpoint {found.number} of {group} is a wrong state")


class Folding:
    """The folds of all servers."""

    def __init__(self, cluster: "Cluster", interval: int, wrong: int) -> None:
        self._cluster = cluster
        self._interval = interval
        self._wrong = wrong  # a server whose fold comes to other states
        self._states: dict[tuple[str, int], tuple[int, bytes]] = {}  # by process and group

    def roles(self, process: Process) -> list[Role]:
        """For one life of a server: the role, and a member for each group."""
        cluster, disk = self._cluster, process.disk
        assert disk is not None
        made: list[Role] = [
            CheckpointServer(process.node, disk.uuid, cluster.configuration, cluster.settings)
        ]
        for group in range(1, cluster.shape.groups + 1):
            held = disk.checkpoints.get(group, {})
            newest = held[max(held)] if held else None
            made.append(self._member(process, group, newest))
        return made

    def _member(self, process: Process, group: int, begin: Checkpoint | None) -> Member:
        """One that goes on from a state."""
        cluster = self._cluster
        number, state = (begin.number, begin.hash) if begin is not None else (0, HASH_START)
        self._states[(process.name, group)] = (number, state)
        settings = cluster.settings
        return Member(
            process.node, cluster.configuration, settings, group, number + 1, floor=number
        )

    def on_started(self, process: Process) -> None:
        """What the disk has is reported again; of a disk that is new, nothing."""
        assert process.disk is not None
        for group, held in process.disk.checkpoints.items():
            for found in held.values():
                self._post(process, process.life, Written(group, found, *FOLD))

    def _post(self, process: Process, life: int, event: Written) -> None:
        at = next((i for i, r in enumerate(process.roles) if type(r) is CheckpointServer), None)
        if process.is_up and process.life == life and at is not None:
            process.post(at, event)

    def on_effect(self, process: Process, role: Role, effect: Any) -> bool:
        """What the roles of a server ask for; whether it was one of ours."""
        if type(effect) is Deliver:
            for number_first, batch in effect.runs:
                for number, message in enumerate(messages_of(batch), number_first):
                    self._fold(process, effect.group, number, message.body)
        elif type(effect) is Lost:
            again = (process, process.life, role, effect)
            self._cluster.world.at(1, self._begin_again, *again)
        elif type(effect) is DropCheckpoint:
            assert process.disk is not None
            process.disk.checkpoints.get(effect.group, {}).pop(effect.number, None)
        else:
            return False
        return True

    def _fold(self, process: Process, group: int, number: int, body: bytes) -> None:
        last, state = self._states[(process.name, group)]
        if number <= last:
            return  # A member that begins within a batch gets all of it.
        is_wrong = process.node == self._wrong and number % self._interval == 0
        state = folded(state, number, b"wrong" if is_wrong else body)
        self._states[(process.name, group)] = (number, state)
        if number % self._interval == 0:
            found = Checkpoint(number, number, 0, state)
            wait_us = self._cluster.world.chance.between(100, 20_000)
            self._cluster.world.at(wait_us, self._written, process, process.life, group, found)

    def _written(self, process: Process, life: int, group: int, found: Checkpoint) -> None:
        if process.life == life and process.disk is not None:
            process.disk.checkpoints.setdefault(group, {})[found.number] = found
            self._cluster.judge.advertised.on_written(process.disk.uuid, group, found)
            self._post(process, life, Written(group, found, *FOLD))

    def _begin_again(self, process: Process, life: int, role: Role, lost: Lost) -> None:
        """Messages are gone: go on from the newest advertised state, if somebody up has it."""
        cluster = self._cluster
        if process.life != life or role not in process.roles:
            return
        newest = cluster.judge.advertised.newest.get(lost.group)
        if newest is None or newest.number < lost.number:
            raise Violation("G", f"messages up to {lost.number} are gone, and no state has them")
        holders = [
            p for p in cluster.servers if p.is_up and p.disk is not None
            and p.disk.checkpoints.get(lost.group, {}).get(newest.number) == newest
        ]  # fmt: skip
        if not holders:
            cluster.world.at(AGAIN_US, self._begin_again, process, life, role, lost)
            return
        process.roles[process.roles.index(role)] = self._member(process, lost.group, newest)
        process.plan_turn(1)
