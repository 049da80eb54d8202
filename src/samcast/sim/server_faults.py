"""Faults of servers and their disks: crashes at bad moments, pauses, clocks, rot, wipes, old
copies.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from samcast.machine.ports import Unreachable
from samcast.sim.damage import Damage
from samcast.sim.world import Process

if TYPE_CHECKING:
    from samcast.sim.faults import Faults

WAIT_TRIES = 1500


class ServerFaults:
    """What can go wrong with a server."""

    def __init__(self, faults: "Faults") -> None:
        self._faults = faults
        self._chance = faults.chance
        self._world = faults.world
        self._cluster = faults.cluster
        self.damage = Damage(faults.cluster)

    def process_menu(self) -> list[Callable[[], None]]:
        """Faults of processes and clocks."""
        aim = self._faults.aim
        return [
            aim(self.crash), aim(self.crash), self.crash_sequencer, self.crash_unacked,
            self.crash_writing, self.crash_writing, aim(self.pause), self.pause_sequencer,
            self.rolling, self.power_cut, aim(self.clock_rate),
            aim(self.clock_jump),
        ]  # fmt: skip

    def disk_menu(self) -> list[Callable[[], None]]:
        """Faults of disks."""
        aim = self._faults.aim
        return [
            aim(self.sync_error), aim(self._faults.disks.disk_full), aim(self.disk_slow),
            aim(self.rot_head),
            aim(self.rot_middle), aim(self.rot_tail), self._rot_of_leader, aim(self.rot_vote),
            aim(self.rot_data), aim(self.wipe), aim(self.wipe), aim(self.restore_old),
            aim(self.restore_old),
        ]  # fmt: skip

    def singles(self) -> list[Callable[[Process], None]]:
        """Faults of one server that can come on top of a damaged disk."""
        return [
            self.crash, self.pause, self.clock_rate, self.clock_jump, self.sync_error,
            self._faults.disks.disk_full, self.disk_slow, self._faults.network.deafen,
        ]  # fmt: skip

    # processes

    def stop(self, process: Process, kind: str) -> None:
        """A server dies; it comes back some time later."""
        self._faults.note(kind, process)
        self.die(process)
        self._faults.later(1, self._chance.pick((5, 60, 600)), self._faults.restart, process)

    def die(self, process: Process, *, has_power: bool | None = None) -> bool:
        """A server dies, with its machine or without (None: by chance); True if writes were torn
        by that."""
        state_counted = process if process.is_up else None
        assert process.disk is not None
        if process.disk.is_being_written:
            self._faults.note("lost_writes", state_counted)
        torn = process.disk.crash(has_power)
        if torn:
            self._faults.note("torn", state_counted)
        process.stop()
        self._faults.crashed(process)
        for other in self._faults.up():
            if self._chance.happens(0.5):  # The others' systems notice, or their cables are cut.
                self._faults.network.tell(other, Unreachable(process.node))
        return torn

    def crash(self, victim: Process) -> None:
        self.stop(victim, "crash")

    def crash_sequencer(self) -> None:
        leading = self._faults.leading()
        if leading:
            self.stop(self._chance.pick(leading), "crash_sequencer")

    def crash_unacked(self) -> None:
        """The sequencer dies as soon as it has submitted what isn't committed."""
        self._await_unacked(WAIT_TRIES)

    def _await_unacked(self, tries: int) -> None:
        if not self._faults.is_on or not tries:
            return
        for process in self._faults.leading():
            if self._has_unacked(process) and self._chance.happens(0.3):
                self.stop(process, "crash_unacked")
                return
        self._world.at(self._chance.between(200, 1200), self._await_unacked, tries - 1)

    def _has_unacked(self, process: Process) -> bool:
        role = self._cluster.commit_server(process)
        if role is None or role.sequencer is None:
            return False
        sequencer = role.sequencer
        if sequencer.committed < sequencer.epoch_index:
            return False
        others = [self._cluster.commit_server(p) for p in self._faults.up()]
        return any(
            other is not None
            and other.log_epoch == sequencer.epoch
            and other.log.length > sequencer.committed
            for other in others
        )

    def _sectors_waiting(self, process: Process) -> int:
        """Of the order, if there is any: that is what a torn write could harm most."""
        disk = process.disk
        assert disk is not None
        is_voter = self._cluster.is_voter(process.node)
        return (disk.order if is_voter else disk.data).sectors_waiting()

    def crash_writing(self) -> None:
        """A server dies in the middle of a write of several sectors."""
        self._await_writing(WAIT_TRIES)

    def _await_writing(self, tries: int) -> None:
        if not self._faults.is_on or not tries:
            return
        for process in self._faults.up():
            if self._sectors_waiting(process) >= 2:
                assert process.disk is not None
                process.disk.keep_next = 0.5
                self.stop(process, "crash_writing")
                return
        self._world.at(self._chance.between(200, 1200), self._await_writing, tries - 1)

    def pause(self, victim: Process) -> None:
        self._pause(victim, "pause")

    def pause_sequencer(self) -> None:
        leading = self._faults.leading()
        if leading:
            self._pause(self._chance.pick(leading), "pause_sequencer")

    def _pause(self, victim: Process, kind: str) -> None:
        self._faults.note(kind, victim)
        victim.paused_until = self._world.now_us + 1000 * self._chance.between(50, 900)

    def rolling(self) -> None:
        """Every server is restarted, one after the other."""
        self._faults.note("rolling")
        for at, process in enumerate(self._cluster.servers):
            self._world.at(150_000 * at + 1, self._roll, process)

    def _roll(self, process: Process) -> None:
        if self._faults.is_on and process.is_up:
            self.die(process)
            self._faults.later(5, 40, self._faults.restart, process)

    def power_cut(self) -> None:
        """All servers die at once, if possible while several of them are writing."""
        self._await_busy(WAIT_TRIES // 2)

    def _await_busy(self, tries: int) -> None:
        if not self._faults.is_on:
            return
        writing = [p for p in self._faults.up() if self._sectors_waiting(p) >= 2]
        if tries and len(writing) < 2:
            self._world.at(self._chance.between(200, 1200), self._await_busy, tries - 1)
            return
        self.lose_power(0.5 if self._chance.happens(0.7) else None)

    def lose_power(self, keep: float | None) -> None:
        """All servers die now; of what they are just writing this share of sectors stays."""
        self._faults.note("power_cut")
        torn = 0
        for process in self._faults.up():
            assert process.disk is not None
            process.disk.keep_next = keep
            torn += self.die(process)
            self._faults.later(20, 200, self._faults.restart, process)
        if torn > 1:
            self._faults.note("torn_everywhere")  # when all are down, and so without a leader

    def clock_rate(self, victim: Process) -> None:
        self._faults.note("clock_rate", victim)
        now = victim.now_ms()
        victim.clock_rate = self._chance.pick((0.8, 0.9, 1.1, 1.25))
        victim.clock_offset_ms += now - victim.now_ms()

    def clock_jump(self, victim: Process) -> None:
        self._faults.note("clock_jump", victim)
        victim.clock_offset_ms += self._chance.pick((50, 500, 5000))

    # disks

    def sync_error(self, victim: Process) -> None:
        assert victim.disk is not None
        self._faults.note("sync_error", victim)
        victim.disk.is_failing = True

    def on_disk_failed(self, process: Process) -> None:
        """A failed sync stops the node; it starts again from what is really on the disk."""
        self.die(process)
        self._faults.later(10, 100, self._faults.restart, process)

    def disk_slow(self, victim: Process) -> None:
        disk = victim.disk
        assert disk is not None
        self._faults.note("disk_slow", victim)
        disk.slow_down(self._chance.pick((10, 100, 400)))
        self._faults.later(100, 800, disk.slow_down, 1)

    def _hurt(self, kind: str, victim: Process, hurt: Callable[[], bool], is_rot: bool) -> None:
        """Damage a disk within the budget; its server dies with it and comes back."""
        if not self.damage.may_hurt(victim, is_rot=is_rot):
            return
        self._faults.note(kind, victim)
        self.die(victim)
        if hurt():
            self.damage.add(victim)
        self._faults.later(1, self._chance.pick((10, 300)), self._faults.restart, victim)
        if self._chance.happens(0.6):
            self._faults.strike_while_hurt(victim)

    def _rot(self, victim: Process, where: str) -> None:
        disk = victim.disk
        assert disk is not None
        self._hurt(f"rot_{where}", victim, lambda: disk.rot(where), is_rot=where != "vote")

    def rot_head(self, victim: Process) -> None:
        self._rot(victim, "head")

    def rot_middle(self, victim: Process) -> None:
        self._rot(victim, "middle")

    def rot_tail(self, victim: Process) -> None:
        self._rot(victim, "tail")

    def _rot_of_leader(self) -> None:
        """The end of the log that was just acknowledged rots."""
        leading = self._faults.leading()
        if leading:
            self.rot_tail(self._chance.pick(leading))

    def rot_vote(self, victim: Process) -> None:
        self._rot(victim, "vote")

    def rot_data(self, victim: Process) -> None:
        self._rot(victim, "data")

    def wipe(self, victim: Process) -> None:
        disk = victim.disk
        assert disk is not None

        def hurt() -> bool:
            disk.wipe()
            return True

        self._hurt("wipe", victim, hurt, is_rot=False)

    def restore_old(self, victim: Process) -> None:
        """Keep a copy of a disk, and put it back much later."""
        disk = victim.disk
        assert disk is not None
        copy = disk.copy()

        def hurt() -> bool:
            disk.restore(copy)
            return True

        def restore(tries: int) -> None:
            if not self._faults.is_on or not tries:
                return
            if not victim.is_up:
                self._faults.later(5, 50, restore, tries - 1)
            elif self._chance.happens(0.5):
                rare = ("recovering", "installing")
                self._faults.await_states(victim, rare, strike)
            else:
                strike(victim)

        def strike(hit: Process) -> None:
            self._hurt("restore_old", hit, hurt, is_rot=False)

        self._faults.later(100, 1000, restore, 20)
