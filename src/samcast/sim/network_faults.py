"""Faults of the network: loss, bursts, repeats, reordering, flips, cuts, clogs, packets of long
ago.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from samcast.machine.ports import Reachable, Unreachable
from samcast.sim.world import Process

if TYPE_CHECKING:
    from samcast.sim.faults import Faults


class NetworkFaults:
    """What can go wrong between processes."""

    def __init__(self, faults: "Faults") -> None:
        self._faults = faults
        self._chance = faults.chance
        self._network = faults.world.network

    def menu(self) -> list[Callable[[], None]]:
        """One of these at a time."""
        return [
            self.loss, self.burst, self.duplicate, self.reorder, self.hold_old, self.cut_whole,
            self.cut_one_way, self.cut_pair, self.swizzle, self.flip, self.hang_up,
        ]  # fmt: skip

    def _for_a_while(self, kind: str, field: str, value: float, most_ms: int = 800) -> None:
        self._faults.note(kind)
        setattr(self._network, field, value)

        def end() -> None:
            if self._faults.is_on:
                setattr(self._network, field, 0.0)

        self._faults.later(20, most_ms, end)

    def loss(self) -> None:
        self._for_a_while("loss", "loss", self._chance.pick((0.01, 0.05, 0.2, 0.3)))

    def burst(self) -> None:
        self._for_a_while("burst", "loss", 1.0, 250)

    def duplicate(self) -> None:
        self._for_a_while("duplicate", "duplication", self._chance.pick((0.1, 0.5)))

    def reorder(self) -> None:
        self._network.late_us = self._chance.pick((5_000, 50_000, 400_000))
        self._for_a_while("reorder", "late", self._chance.pick((0.1, 0.4)))

    def flip(self) -> None:
        self._for_a_while("flip", "flips", self._chance.pick((0.02, 0.1)))

    def hold_old(self) -> None:
        """Keep some packets, and let them arrive in a much later epoch."""
        self._for_a_while("hold_old", "hold", 0.15, 200)

        def release() -> None:
            if self._faults.is_on:
                self._network.release_held()

        self._faults.later(250, 2000, release)

    def _cut(self, one: list[int], other: list[int], most_ms: int) -> None:
        links = self._network.cut(one, other)
        self._faults.later(100, most_ms, self._network.mend, links)

    def cut_whole(self) -> None:
        """Two sides that don't hear each other."""
        nodes = [p.node for p in self._faults.cluster.servers]
        side = self._chance.some(nodes, self._chance.between(1, max(1, len(nodes) // 2)))
        other = [n for n in self._faults.world.processes if n not in side]
        self._faults.note("cut_whole")
        self._cut(side, other, 900)
        self._cut(other, side, 900)

    def cut_one_way(self) -> None:
        """A server that hears but isn't heard, or the reverse; often the sequencer."""
        leading = self._faults.leading()
        victim = self._faults.one()
        if leading and self._chance.happens(0.5):
            victim = self._chance.pick(leading)
        if victim is not None:
            self.deafen(victim)

    def deafen(self, victim: Process) -> None:
        """One direction of this server's links."""
        self._faults.note("cut_one_way", victim)
        others = [n for n in self._faults.world.processes if n != victim.node]
        if self._chance.happens(0.5):
            self._cut([victim.node], others, 1200)
        else:
            self._cut(others, [victim.node], 1200)

    def cut_pair(self) -> None:
        """Two servers that don't hear each other while both hear the rest."""
        one, other = self._chance.some([p.node for p in self._faults.cluster.servers], 2)
        self._faults.note("cut_pair")
        self._cut([one], [other], 1500)
        self._cut([other], [one], 1500)

    def hang_up(self) -> None:
        """A server loses a connection, often the sequencer's, while the other end is well."""
        victim = self._faults.one()
        if victim is None:
            return
        others = self._faults.leading() or self._faults.up()
        self._faults.note("hang_up", victim)
        node = self._chance.pick(others).node
        self.tell(victim, Unreachable(node))
        self._faults.later(5, 300, self.tell, victim, Reachable(node))

    def tell(self, process: Process, event: Reachable | Unreachable) -> None:
        """A commit server hears of a connection."""
        if self._faults.cluster.commit_server(process) is not None:
            process.post(0, event)

    def swizzle(self) -> None:
        """Clog some nodes one by one, unclog them in another order."""
        self._faults.note("swizzle")
        nodes = [p.node for p in self._faults.cluster.servers]
        nodes = self._chance.some(nodes, self._chance.between(1, len(nodes)))
        for at, node in enumerate(nodes):
            self._faults.world.at(20_000 * at, self._clog, node)
        for node in nodes:
            self._faults.later(20 * len(nodes), 600, self._network.unclog, node)

    def _clog(self, node: int) -> None:
        if self._faults.is_on:
            self._network.clog(node)
