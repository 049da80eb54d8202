"""The unsafe rules of what stays for ever, and of leases, that mutants put back."""

from typing import Any

from samcast.group.retained import Lease
from samcast.group.retention import Retention
from samcast.machine.ports import Effect
from samcast.sim.mutant import Mutant, replace
from samcast.wire.order import FOREVER, Keep, LeaseLapsedEntry


def a_fold_collects() -> None:
    """Whoever has a fold lets go what is in two checkpoints, though all is to stay for ever."""
    replace(Keep, "lets_go", property(lambda keep: keep.has_bounds or bool(keep.fold)))
    replace(Keep, "has_bounds", property(lambda keep: 0 < keep.count < FOREVER))


def a_lease_lapses_at_sight() -> None:
    """A sequencer takes a lease that it sees for the first time for one that has lapsed."""

    def see(self: Any, group: int, name: str, lease: Lease, now_ms: int, out: list[Effect]) -> None:
        self._sequencer.append(LeaseLapsedEntry(group, name, lease[2]))

    replace(Retention, "_see_lease", see)


LEASE_MUTANTS = (
    Mutant("a-fold-collects", "SAFETY 2.7 G4", a_fold_collects),
    Mutant("a-lease-lapses-at-sight", "SAFETY 2.7 G4", a_lease_lapses_at_sight),
)
