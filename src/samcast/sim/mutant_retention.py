"""The unsafe rules of retention and checkpoints that mutants put back."""

from typing import Any

from samcast.group.collecting import Collecting
from samcast.group.retained import GENERATIONS, Retained
from samcast.group.retention import Retention
from samcast.group.rows import GroupRows, GroupState
from samcast.group.storage import DropCollected
from samcast.machine.ports import Effect
from samcast.sim.mutant import Mutant, replace
from samcast.wire.order import Checkpoint, CheckpointEntry


def one_copy_is_enough() -> None:
    def advertise(self: Any, group: int, checkpoint: Checkpoint) -> None:
        retained = self._sequencer.tail.retained.get(group)
        head = self._sequencer.committed_head(group)
        if retained is None or not self._sequencer.may_order:
            return
        if retained.can_advertise(checkpoint, head):
            self._sequencer.append(CheckpointEntry(group, checkpoint))

    replace(Retention, "_advertise", advertise)


def states_not_compared() -> None:
    before = Retention._advertise

    def advertise(self: Any, group: int, checkpoint: Checkpoint) -> None:
        same = [c for c in self._reports[group].values() if c.number == checkpoint.number]
        kept = self._reports[group]
        self._reports[group] = dict.fromkeys(range(len(same)), checkpoint)
        before(self, group, checkpoint)
        self._reports[group] = kept

    replace(Retention, "_advertise", advertise)


def leases_ignored() -> None:
    def bound(self: Any, head: int) -> int:
        if not self.keep.fold:
            return head
        is_covered = len(self.checkpoints) == GENERATIONS
        return int(self.checkpoints[0].number) if is_covered else 0

    replace(Retained, "bound", bound)


def checkpoints_ignored() -> None:
    def bound(self: Any, head: int) -> int:
        return int(min([head, *(lease[0] for lease in self.leases.values())]))

    replace(Retained, "bound", bound)


def collected_by_head() -> None:
    """A data server gives up what it thinks is old, and not what the order names."""

    def collect(self: Any, group: int, out: list[Effect]) -> None:
        number = self._server.follower.core.head(group)
        keys = self._server.numbered.collect(group, number)
        if keys:
            out.append(DropCollected(tuple(keys)))

    replace(Collecting, "collect", collect)


def rows_only_from_the_log() -> None:
    """Who begins with a snapshot knows of no sender but those in the entries behind it."""
    before = GroupRows.of_state

    def of_state(state: GroupState, runs_max: int) -> GroupRows:
        rows = before(state, runs_max)
        rows.unnamed.clear()
        return rows

    replace(GroupRows, "of_state", staticmethod(of_state))


RETENTION_MUTANTS = (
    Mutant("CE-12-rows-only-from-the-log", "CE-12", rows_only_from_the_log),
    Mutant("CE-14-one-copy-is-enough", "CE-14", one_copy_is_enough),
    Mutant("CE-16-states-not-compared", "CE-16", states_not_compared),
    Mutant("leases-ignored", "SAFETY 2.7 G4", leases_ignored),
    Mutant("checkpoints-ignored", "SAFETY 2.7 G4 and G6", checkpoints_ignored),
    Mutant("collected-by-head", "SAFETY 2.7 G7", collected_by_head),
)
