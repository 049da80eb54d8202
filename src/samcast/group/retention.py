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
    LeaseLapsedEntry,
)
from samcast.wire.retention import CheckpointReport, Holdings

if TYPE_CHECKING:
    from samcast.group.sequencer import Sequencer


class Retention:
    """For one epoch."""

    def __init__(self, sequencer: "Sequencer", interval_ms: int) -> None:
        self._sequencer = sequencer
        self._interval_ms = interval_ms
        self._due_ms = 0
        self._holdings: dict[NodeId, dict[int, int]] = {}
        self._reports: dict[int, dict[NodeId, Checkpoint]] = {}  # newest of each, per group
        self._leases: dict[tuple[int, str], tuple[int, int]] = {}  # nonce, since when we know it

    def on_holdings(self, sender: NodeId, holdings: Holdings) -> None:
        """A data server says what needn't stay by size or age."""
        if self._is_listed(sender, holdings.uuid, ROLE_DATA):
            self._holdings[sender] = dict(holdings.numbers)

    def on_report(self, sender: NodeId, report: CheckpointReport, out: list[Effect]) -> None:
        """A checkpoint server has a state on its disk."""
        if not self._is_listed(sender, report.uuid, ROLE_CHECKPOINT):
            out.append(Warn("report-of-other-disk", f"{sender} with uuid {report.uuid}"))
            return
        reports = self._reports.setdefault(report.group, {})
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
                self._see_lease(group, name, lease, now_ms, out)

    def _unwanted(self, group: int, retained: Retained) -> int:
        """Up to which number messages are beyond the bounds of their group, and not needed."""
        keep, head = retained.keep, self._sequencer.committed_head(group)
        numbers = [0]
        if keep.count:
            numbers.append(head - keep.count)
        if keep.size or keep.age_ms:
            told = [numbers.get(group, 0) for numbers in self._holdings.values()]
            numbers.append(kth_largest(told, self._sequencer.configuration.k_data))
        if keep.fold and not (keep.count or keep.size or keep.age_ms):
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
