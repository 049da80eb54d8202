"""Faults that take several steps in a certain order: chains of bad luck that single strikes meet
too seldom.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from samcast.sim.world import Process

if TYPE_CHECKING:
    from samcast.sim.faults import Faults

ELECTION_TRIES = 800


class Plots:
    """What goes wrong step by step."""

    def __init__(self, faults: "Faults") -> None:
        self._faults = faults
        self._chance = faults.chance
        self._world = faults.world
        self._cluster = faults.cluster

    def menu(self) -> list[Callable[[], None]]:
        """One of these at a time."""
        timed = self._faults.timed([self.swap_quorums, self.brownout])
        return [self.strand, self.strand, *timed]

    def _voters(self) -> list[Process]:
        cluster = self._cluster
        return [p for p in self._faults.up() if cluster.commit_server(p) is not None]

    def strand(self) -> None:
        """The sequencer loses its commit servers but not its data servers, so that it numbers what
        nobody stores; when it comes back, whoever leads then dies."""
        leading = self._faults.leading()
        if not leading:
            return
        victim = self._chance.pick(leading)
        self._faults.note("strand", victim)
        links = self._part([victim.node], [p.node for p in self._voters()])

        def end() -> None:
            self._world.network.mend(links)
            self._faults.later(0, 40, self._faults.servers.crash_sequencer)

        self._faults.later(150, 450, end)

    def _part(self, one: list[int], other: list[int]) -> list[tuple[int, int]]:
        network = self._world.network
        return network.cut(one, other) + network.cut(other, one)

    def swap_quorums(self) -> None:
        """Just enough servers elect one of them, heard by nobody else; it dies, and comes back
        among the others, who hear nothing of those that elected it."""
        voters = self._voters()
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
        """All disks become very slow, and then the power goes."""
        self._faults.note("brownout")
        slow = self._chance.pick((20, 60, 200))
        for process in self._cluster.servers:
            assert process.disk is not None
            process.disk.slow = slow
        self._faults.later(5, 60, self._end_brownout)

    def _end_brownout(self) -> None:
        for process in self._cluster.servers:
            assert process.disk is not None
            process.disk.slow = 1
        if self._faults.is_on:
            self._faults.servers.lose_power(self._chance.pick((0.0, 0.0, 0.5)))
