"""The unsafe rules of sizes that mutants put back: what is cut, and where a state is frozen."""

from collections.abc import Iterator

from samcast.group.core import Core
from samcast.group.order_log import OrderLog
from samcast.group.rows import GroupRows
from samcast.group.snapshots import Snapshots
from samcast.sim.mutant import Mutant, replace


def cut_by_count_only() -> None:
    """Records and messages have so many entries, however large these are."""
    before = OrderLog.slice
    replace(OrderLog, "slice", lambda self, first, most, _: before(self, first, most, 2**63))


def frozen_rows_change() -> None:
    """What is folded while a snapshot is encoded changes the very rows that it is made of."""
    replace(GroupRows, "own", lambda self, sender: self.row(sender))


def snapshot_of_live_state() -> None:
    """A snapshot is of the state when its last piece is encoded, and not of its own index."""

    class Live:
        """The state that goes on, under the index at which it should have been frozen."""

        def __init__(self, core: Core) -> None:
            self.index, self._core = core.index, core

        def size(self) -> int:
            return self._core.size()

        def pieces(self) -> Iterator[bytes]:
            yield from [b""] * self.size()
            index, self._core.index = self._core.index, self.index
            yield self._core.encode()
            self._core.index = index

    replace(Snapshots, "freeze", staticmethod(Live))


SIZE_MUTANTS = (
    Mutant("cut-by-count-only", "SAFETY 2.3", cut_by_count_only),
    Mutant("frozen-rows-change", "CE-16", frozen_rows_change),
    Mutant("snapshot-of-live-state", "CE-16", snapshot_of_live_state),
)
