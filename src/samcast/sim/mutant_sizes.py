"""The unsafe rules of sizes that mutants put back: what is cut, and where a state is frozen."""

from samcast.group.order_log import OrderLog
from samcast.sim.mutant import Mutant, replace


def cut_by_count_only() -> None:
    """Records and messages have so many entries, however large these are."""
    before = OrderLog.slice
    replace(OrderLog, "slice", lambda self, first, most, _: before(self, first, most, 2**63))


SIZE_MUTANTS = (Mutant("cut-by-count-only", "SAFETY 2.3", cut_by_count_only),)
