"""Faults where a server meets its machine: it dies at any step of a start or a write, the power
goes after it came back, parts of its disk are missing, a disk has another number, or no room.

An operator stands by: whoever can't start says so, and what it lacks is brought back, or it begins
with a new disk.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from samcast.disk.layout import trust_disk
from samcast.errors import DiskError
from samcast.group.storage import Filled, Freed
from samcast.sim.platter import DiedError
from samcast.sim.world import Process
from samcast.wire.order import ROLE_DATA

if TYPE_CHECKING:
    from samcast.sim.faults import Faults

START_STEPS = 60  # that a start has, or more
WRITE_STEPS = 40
ACTS_TRIES = 200


class DiskFaults:
    """What can go wrong between a server and its disk."""

    def __init__(self, faults: "Faults") -> None:
        self._faults = faults
        self._chance = faults.chance
        self._world = faults.world
        self._cluster = faults.cluster
        self._missing: dict[int, Callable[[], None]] = {}  # how to put a part back
        self._dying: dict[int, int] = {}  # in how many steps of its next start

    def menu(self) -> list[Callable[[], None]]:
        """All of them."""
        aim = self._faults.aim
        return [
            aim(self.die_in_start), aim(self.die_in_start), aim(self.die_in_write),
            aim(self.power_after_restart), aim(self.power_after_restart), aim(self.lose_part),
            aim(self.lose_part), aim(self.change_device), aim(self.disk_full),
        ]  # fmt: skip

    # starts

    def start(self, process: Process) -> None:
        """Begin another life; whoever can't is looked after by the operator."""
        disk = process.disk
        assert disk is not None
        disk.platter.steps_left = self._dying.pop(process.node, -1)
        servers = self._faults.servers
        try:
            is_new = self._cluster.start_server(process)
            disk.platter.steps_left = -1
        except DiskError as error:
            self._faults.note("refused_start")
            process.stop()
            if disk.platter.is_full:
                self._faults.later(20, 100, self._faults.restart, process)
            else:
                self._faults.later(20, 200, self._operate, process, "may be" in str(error))
            return
        except (OSError, DiedError):
            process.stop()
            self._faults.later(5, 50, self._faults.restart, process)
            return
        self._missing.pop(
            process.node, None
        )  # It does without: what comes back later is another's.
        role = self._cluster.commit_server(process)
        if is_new or (role is not None and role.unknown_from):
            servers.damage.add(process)
        self._cluster.judge.trace.add(self._world.now_us, process.name, "restart")

    def _operate(self, process: Process, is_doubtful: bool) -> None:
        """What a node asked for before it stopped."""
        disk = process.disk
        assert disk is not None
        if process.is_up:
            return
        put_back = self._missing.pop(process.node, None)
        if is_doubtful:
            trust_disk(disk.platter.root, process.node)
        elif put_back is not None and self._chance.happens(0.5):
            put_back()
        else:
            disk.wipe()
            self._faults.servers.damage.add(process)
        self._faults.restart(process)

    def mend(self, process: Process) -> None:
        """Faults are over."""
        self._dying.pop(process.node, None)
        assert process.disk is not None
        process.disk.platter.is_full = False
        process.disk.platter.steps_left = -1

    # faults

    def die_in_start(self, victim: Process) -> None:
        """Its next start is its last, at any step, and so may be the one after that."""
        self._dying[victim.node] = self._chance.between(0, START_STEPS)
        self._faults.servers.stop(victim, "die_in_start")

    def die_in_write(self, victim: Process) -> None:
        """Soon, at any step of what it writes."""
        assert victim.disk is not None
        self._faults.note("die_in_write", victim)
        victim.disk.platter.steps_left = self._chance.between(0, WRITE_STEPS)

    def on_died(self, process: Process) -> None:
        """It has."""
        self._faults.servers.stop(process, "died_at_step")

    def power_after_restart(self, victim: Process) -> None:
        """The process dies and comes back at once from what memory has kept; as soon as it has told
        others something, the power goes."""
        disk = victim.disk
        assert disk is not None
        self._faults.note("power_after_restart", victim)
        self._faults.servers.die(victim, has_power=True)
        self._faults.restart(victim)
        if victim.is_up:
            self._await_act(victim, victim.life, self._world.votes_of(victim), ACTS_TRIES)

    def _await_act(self, victim: Process, life: int, votes: int, tries: int) -> None:
        if not self._faults.is_on or victim.life != life:
            return
        if tries and self._world.votes_of(victim) == votes:
            wait = self._chance.between(50, 600)
            self._world.at(wait, self._await_act, victim, life, votes, tries - 1)
            return
        assert victim.disk is not None
        victim.disk.keep_next = 0.0
        self._faults.servers.stop(victim, "power_then")

    def lose_part(self, victim: Process) -> None:
        """A file or a folder isn't there when it comes back: for good, or until somebody sees to
        it."""
        servers, disk = self._faults.servers, victim.disk
        assert disk is not None
        if victim.node in self._missing or not servers.damage.may_hurt(victim, is_rot=False):
            return
        self._faults.note("lose_part", victim)
        servers.die(victim, has_power=False)
        put_back = disk.take_part()
        if put_back is not None:
            self._missing[victim.node] = put_back
            servers.damage.add(victim)
        self._faults.later(1, 50, self._faults.restart, victim)

    def change_device(self, victim: Process) -> None:
        """It finds its disk under another number."""
        assert victim.disk is not None
        victim.disk.change_device()
        self._faults.servers.stop(victim, "change_device")

    def disk_full(self, victim: Process) -> None:
        """There is no room for anything new; what has its room goes on."""
        assert victim.disk is not None
        self._faults.note("disk_full", victim)
        victim.disk.platter.is_full = True
        if self._cluster.roles_of(victim.node) & ROLE_DATA:
            victim.post(len(victim.roles) - 1, Filled())
        self._faults.later(50, 600, self._free, victim)
        if self._chance.happens(0.3):
            self._faults.later(1, 60, self._restart_full, victim, 2)

    def _restart_full(self, victim: Process, times: int) -> None:
        if victim.is_up and self._faults.is_on:
            self._faults.servers.stop(victim, "restart_full")
            if times:
                self._faults.later(20, 100, self._restart_full, victim, times - 1)

    def _free(self, victim: Process) -> None:
        assert victim.disk is not None
        victim.disk.platter.is_full = False
        if victim.is_up and self._cluster.roles_of(victim.node) & ROLE_DATA:
            victim.post(len(victim.roles) - 1, Freed())
