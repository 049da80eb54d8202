"""What the sequencer orders about a group's messages: which checkpoints are advertised, what may
go, and whose lease has lapsed.

It only proposes: whether an entry has an effect, the fold says (`retained`). Reports of checkpoint
servers are counted here, and may be forgotten at any time, since they are repeated.
"""

from typing import TYPE_CHECKING

from samcast.group.retained import Lease, Retained
from samcast.machine.ports import Effect, NodeId, Warn
from samcast.machine.quorum import kth_largest, lists
from samcast.wire.order import (
    ROLE_CHECKPOINT,
    ROLE_DATA,
    Checkpoint,
    CheckpointEntry,
    CollectEntry,
    Keep,
    LeaseLapsedEntry,
)
from samcast.wire.retention import CheckpointReport, Holdings

if TYPE_CHECKING:
    from samcast.group.sequencer import Sequencer

Fold = tuple[str, int]  # name and version


class Retention:
    """For one epoch."""

    def __init__(self, sequencer: "Sequencer", interval_ms: int) -> None:
        self._sequencer = sequencer
        self._interval_ms = interval_ms
        self._due_ms = 0
        self._holdings: dict[NodeId, dict[int, tuple[int, Keep]]] = {}
        self._reports: dict[int, dict[NodeId, Checkpoint]] = {}  # newest of each, per group
        self._folds: dict[int, Fold] = {}  # by which these reports were made
        self._leases: dict[tuple[int, str], tuple[int, int]] = {}  # nonce, since when we know it

    def on_holdings(self, sender: NodeId, holdings: Holdings) -> None:
        """A data server says what needn't stay by size or age."""
        if self._is_listed(sender, holdings.uuid, ROLE_DATA):
            self._holdings[sender] = {group: (n, keep) for group, n, keep in holdings.numbers}

    def on_report(self, sender: NodeId, report: CheckpointReport, out: list[Effect]) -> None:
        """A checkpoint server has a state on its disk."""
        if not self._is_listed(sender, report.uuid, ROLE_CHECKPOINT):
            out.append(Warn("report-of-other-disk", f"{sender} with uuid {report.uuid}"))
            return
        retained = self._sequencer.tail.retained.get(report.group)
        fold = (report.fold, report.fold_version)
        if retained is None or fold != (retained.keep.fold, retained.keep.fold_version):
            return  # A state of a fold that the group has no more.
        if self._folds.get(report.group) != fold:
            self._folds[report.group] = fold
            self._reports[report.group] = {}
        reports = self._reports[report.group]
        reports[sender] = report.checkpoint
        rivals = {
            node: other.hash
            for node, other in reports.items()
            if other.number == report.checkpoint.number and other.hash != report.checkpoint.hash
        }
        if rivals:
            names = ", ".join(str(node) for node in sorted([*rivals, sender]))
            out.append(
                Warn(
                    "checkpoints-differ",
                    f"group {report.group} at {report.checkpoint.number}: servers {names} have come"
                    " to different states; nothing is collected there",
                )
            )
        self._advertise(report.group, report.checkpoint)

    def newest_of(self, node: NodeId, group: int) -> int:
        """The newest state of a group that a checkpoint server has told of in this epoch."""
        found = self._reports.get(group, {}).get(node)
        return found.number if found is not None else 0

    def _is_listed(self, sender: NodeId, uuid: int, role: int) -> bool:
        return lists(self._sequencer.configuration, sender, uuid, role)

    def _advertise(self, group: int, checkpoint: Checkpoint) -> None:
        sequencer = self._sequencer
        k = sequencer.configuration.k_checkpoint
        held = list(self._reports[group].values()).count(checkpoint)
        retained = sequencer.tail.retained.get(group)
        if retained is None or not k or held < k or not sequencer.may_order:
            return
        # Only what is committed: the head of our own log may still be given up.
        head = sequencer.committed_head(group)
        if retained.can_advertise(checkpoint, head):
            sequencer.append(CheckpointEntry(group, checkpoint))

    def on_tick(self, now_ms: int, out: list[Effect]) -> None:
        """Now and then: what may go, and who has fallen silent."""
        sequencer = self._sequencer
        if now_ms < self._due_ms or not sequencer.may_order:
            return
        self._due_ms = now_ms + self._interval_ms
        for group, retained in list(sequencer.tail.retained.items()):
            number = min(self._unwanted(group, retained), sequencer.committed_head(group))
            if sequencer.has_room and retained.can_collect(number, number):
                sequencer.append(CollectEntry(group, number))
            for name, lease in list(retained.leases.items()):
                if sequencer.has_room:
                    self._see_lease(group, name, lease, now_ms, out)
        there = sequencer.tail.retained
        self._leases = {
            (group, name): seen
            for (group, name), seen in self._leases.items()
            if group in there and name in there[group].leases
        }

    def make_room(self, group: int, out: list[Effect]) -> None:
        """Somebody asks for a lease: those that have lapsed must not keep it out."""
        sequencer = self._sequencer
        retained = sequencer.tail.retained.get(group)
        if retained is None or not retained.is_full or not sequencer.may_order:
            return
        for name, lease in list(retained.leases.items()):
            if sequencer.has_room:
                self._see_lease(group, name, lease, sequencer.now_ms, out)

    def left_ms(self, group: int, name: str, lease: Lease) -> int:
        """How long a lease lasts if nobody renews it; its time runs from when we first saw it."""
        nonce, since_ms = self._leases.get((group, name), (0, 0))
        passed_ms = self._sequencer.now_ms - since_ms if nonce == lease[2] else 0
        return max(0, lease[1] - passed_ms)

    def _unwanted(self, group: int, retained: Retained) -> int:
        """Up to which number messages are beyond the bounds of their group, and not needed."""
        keep, head = retained.keep, self._sequencer.committed_head(group)
        if not keep.lets_go:
            return 0
        numbers = [0]
        if keep.count:
            numbers.append(head - keep.count)
        if keep.size or keep.age_ms:
            said = [numbers.get(group, (0, keep)) for numbers in self._holdings.values()]
            told = [number for number, by in said if by == keep]
            numbers.append(kth_largest(told, self._sequencer.configuration.k_data))
        if not keep.has_bounds:
            numbers.append(head)
        return min(max(numbers), retained.bound(head))

    def _see_lease(
        self, group: int, name: str, lease: Lease, now_ms: int, out: list[Effect]
    ) -> None:
        """A lease runs from when this sequencer first sees it: too long, never too short."""
        number, ttl_ms, nonce = lease
        seen = self._leases.get((group, name))
        if seen is None or seen[0] != nonce:
            self._leases[(group, name)] = (nonce, now_ms)
        elif now_ms - seen[1] > ttl_ms:
            del self._leases[(group, name)]
            self._sequencer.append(LeaseLapsedEntry(group, name, nonce))
            out.append(
                Warn(
                    "lease-lapsed",
                    f"{name!r} has not renewed its lease on group {group} for {ttl_ms // 1000} s;"
                    f" messages above {number} are no longer kept for it",
                )
            )
