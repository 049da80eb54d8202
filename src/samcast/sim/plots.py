"""Faults that take several steps in a certain order: chains of bad luck that single strikes meet
too seldom.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from samcast.group.asking import Proposer
from samcast.sim.clients import SenderApp
from samcast.sim.world import Process

if TYPE_CHECKING:
    from samcast.sim.faults import Faults

ELECTION_TRIES = 800
REPAIR_TRIES = 1500


class Plots:
    """What goes wrong step by step."""

    def __init__(self, faults: "Faults") -> None:
        self._faults = faults
        self._chance = faults.chance
        self._world = faults.world
        self._cluster = faults.cluster

    def menu(self) -> list[Callable[[], None]]:
        """One of these at a time."""
        led = [*2 * [self.strand], *3 * [self.lag_and_rot], self.short_name]
        timed = self._faults.timed([self.swap_quorums, self.brownout])
        return [*map(self._faults.when_led, led), *timed]

    def strand(self) -> None:
        """The sequencer still hears but isn't heard, so that it numbers what nobody stores; then
        it is alone, perhaps with the data servers, and others lead; it comes back just before
        these die."""
        leading = self._faults.leading()
        if not leading:
            return
        victim = self._chance.pick(leading)
        self._faults.note("strand", victim)
        others = [p.node for p in self._cluster.servers if self._cluster.is_voter(p.node)]
        links = self._world.network.cut([victim.node], others)
        self._faults.later(20, 120, self._leave_alone, victim, others, links)

    def _leave_alone(
        self, victim: Process, others: list[int], links: list[tuple[int, int]]
    ) -> None:
        network = self._world.network
        links += network.cut(others, [victim.node])
        others = [node for node in others if node != victim.node]
        if self._chance.happens(0.6):
            keepers = [p.node for p in self._cluster.servers if not self._cluster.is_voter(p.node)]
            self._faults.later(400, 900, network.mend, self._part(keepers, others))
        if self._chance.happens(0.7):  # For a while members hear only the one that is alone.
            members = [app.process.node for app in self._cluster.members]
            self._faults.later(100, 400, network.mend, network.cut(others, members))
        self._faults.later(150, 450, self._rejoin, victim, links)

    def _rejoin(self, victim: Process, links: list[tuple[int, int]]) -> None:
        self._world.network.mend(links)
        if not self._faults.is_on:
            return
        if self._chance.happens(0.5):
            self._end_leaders(victim)
            return
        assert victim.disk is not None
        victim.disk.slow_down(self._chance.pick((1, 10, 30)))
        self._faults.await_states(victim, ("installing",), self._end_both)

    def _end_leaders(self, victim: Process) -> None:
        for process in self._faults.leading():
            if process is not victim:
                self._faults.servers.stop(process, "crash_sequencer")

    def _end_both(self, victim: Process) -> None:
        """While it takes over the others' log, both it and their leader die."""
        assert victim.disk is not None
        victim.disk.slow_down(1)
        self._faults.servers.crash(victim)
        self._end_leaders(victim)

    def _part(self, one: list[int], other: list[int]) -> list[tuple[int, int]]:
        network = self._world.network
        return network.cut(one, other) + network.cut(other, one)

    def swap_quorums(self) -> None:
        """Just enough servers elect one of them, heard by nobody else; it dies, and comes back
        among the others, who hear nothing of those that elected it."""
        voters = [p for p in self._faults.up() if self._cluster.is_voter(p.node)]
        few = self._cluster.shape.e
        if len(voters) <= few:
            return
        self._faults.note("swap_quorums")
        nodes = [p.node for p in voters]
        chosen = self._chance.some(nodes, few)
        links: list[tuple[int, int]] = []
        for node in nodes:
            if node not in chosen:
                links += self._part([node], [n for n in nodes if n != node])
        known = [p.node for p in self._faults.leading()]
        self._await_elected(chosen, known, links, ELECTION_TRIES)

    def _await_elected(
        self, chosen: list[int], known: list[int], links: list[tuple[int, int]], tries: int
    ) -> None:
        network = self._world.network
        if not self._faults.is_on or not tries:
            network.mend(links)
            return
        leading = [p for p in self._faults.leading() if p.node in chosen and p.node not in known]
        if not leading:
            known = [node for node in known if node in [p.node for p in self._faults.leading()]]
            wait = self._chance.between(500, 1500)
            self._world.at(wait, self._await_elected, chosen, known, links, tries - 1)
            return
        delay = self._chance.below(20_000)
        self._world.at(delay, self._swap, leading[0], chosen, links)

    def _swap(self, elected: Process, chosen: list[int], links: list[tuple[int, int]]) -> None:
        network = self._world.network
        network.mend(links)
        if not self._faults.is_on:
            return
        others = [n for n in chosen if n != elected.node]
        rest = [p.node for p in self._cluster.servers if p.node not in others]
        parted = self._part(others, rest)
        if elected.is_up:
            assert elected.disk is not None
            elected.disk.keep_next = 0.0
            self._faults.servers.stop(elected, "crash_sequencer")
        self._faults.later(300, 900, network.mend, parted)

    def brownout(self) -> None:
        """All disks become very slow, often only those of the order, and then the power goes."""
        self._faults.note("brownout")
        times = self._chance.pick((20, 60, 200, 400))
        is_data = self._chance.happens(0.6)
        for process in self._cluster.servers:
            assert process.disk is not None
            process.disk.slow_down(times, data=is_data)
        self._faults.later(5, 100, self._end_brownout)

    def _end_brownout(self) -> None:
        for process in self._cluster.servers:
            assert process.disk is not None
            process.disk.slow_down(1)
        if self._faults.is_on:
            self._faults.servers.lose_power(self._chance.pick((0.0, 0.5)))

    def lag_and_rot(self) -> None:
        """Some servers fall behind, one that had kept up rots, and the sequencer dies, at once or
        while the rotten one is being repaired: these are left with what was committed."""
        leading = self._faults.leading()
        others = [
            p for p in self._faults.up() if self._cluster.is_voter(p.node) and p not in leading
        ]
        spare = self._cluster.shape.servers - self._cluster.shape.k
        if not leading or not spare or len(others) <= spare:
            return
        self._faults.note("lag_and_rot", leading[0])
        rotting, *lagging = self._chance.some(others, 1 + spare)
        rest = [p.node for p in self._cluster.servers if p not in lagging]
        links = self._part([p.node for p in lagging], rest)
        self._faults.later(40, 300, self._rot_behind, rotting, links)

    def _rot_behind(self, rotting: Process, links: list[tuple[int, int]]) -> None:
        servers = self._faults.servers

        def mend() -> None:
            self._world.network.mend(links)
            links.clear()

        def end(_: Process) -> None:
            self._end_leaders(rotting)
            mend()

        if not self._faults.is_on or not rotting.is_up:
            mend()
            return
        if self._chance.happens(0.5):
            servers.rot_tail(rotting)
            end(rotting)
            return
        assert rotting.disk is not None
        rotting.disk.slow_down(self._chance.pick((1, 10, 30)))
        self._chance.pick((servers.rot_head, servers.rot_middle))(rotting)
        self._faults.later(1, 10, self._faults.restart, rotting)
        self._faults.await_states(rotting, ("installing", "following"), end, REPAIR_TRIES)
        self._faults.later(600, 700, mend)
        self._faults.later(600, 700, rotting.disk.slow_down, 1)

    def short_name(self) -> None:
        """A name is opened, used once and given up, and the power goes before disks have noted
        that its message has a number."""
        self._faults.note("short_name")
        for process in self._cluster.servers:
            assert process.disk is not None
            process.disk.slow_down(self._chance.pick((40, 100)), order=False)
        app = self._cluster.add_sender(is_named=True)
        app.want(1)
        self._await_confirmed(app, ELECTION_TRIES)

    def _await_confirmed(self, app: SenderApp, tries: int) -> None:
        if not self._faults.is_on or not tries:
            return
        if not app.is_idle:
            self._world.at(self._chance.between(200, 600), self._await_confirmed, app, tries - 1)
            return
        removal = self._faults.clients.give_up_name(app)
        if removal is not None:
            self._await_removed(removal, ELECTION_TRIES)

    def _await_removed(self, removal: Proposer, tries: int) -> None:
        if not self._faults.is_on or not tries:
            return
        if removal.outcome is None:
            self._world.at(200, self._await_removed, removal, tries - 1)
            return
        self._end_brownout()
