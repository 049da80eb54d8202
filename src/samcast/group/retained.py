"""What stays of a group, as a fold of the order: settings, checkpoints, leases, and how far its
messages have been given up.

The rules are here, in the fold, and not with whoever proposes: a collection that would take a
message which is to stay for ever, which a lease still needs, or which is not in two advertised
checkpoints, has no effect anywhere, whatever made somebody propose it.
"""

from collections.abc import Sequence

from samcast.wire.order import Checkpoint, Keep

GENERATIONS = 2  # advertised checkpoints that are kept, and the messages above the older one
LEASES_MAX = 1000  # of a group
INTERVALS_MAX = 8  # changes of the interval that are remembered: servers that lag need some

Lease = tuple[int, int, int]  # all above this number is needed, for so many ms, nonce
RetainedState = tuple[Keep, int, list[Checkpoint], list[tuple[str, Lease]]]


class Retained:
    """Of one group."""

    __slots__ = ("checkpoints", "collected", "intervals", "keep", "leases")

    def __init__(self) -> None:
        self.keep = Keep()
        self.collected = 0  # messages up to this number may be gone
        self.checkpoints: list[Checkpoint] = []  # advertised, oldest first
        self.leases: dict[str, Lease] = {}
        # Behind which numbers which interval counts, so that all servers change it at one place.
        self.intervals: list[tuple[int, int]] = []

    # the rules

    def can_advertise(self, checkpoint: Checkpoint, head: int) -> bool:
        """Checkpoints rise, and hold nothing that isn't committed."""
        newest = self.checkpoints[-1].number if self.checkpoints else 0
        return bool(self.keep.fold) and newest < checkpoint.number <= head

    def bound(self, head: int) -> int:
        """Up to which number messages could go, if nobody wants them for their own sake."""
        bounds = [head, *(lease[0] for lease in self.leases.values())]
        if self.keep.fold:
            is_covered = len(self.checkpoints) == GENERATIONS
            bounds.append(self.checkpoints[0].number if is_covered else 0)
        return min(bounds)

    def can_collect(self, number: int, head: int) -> bool:
        """Whether messages up to a number may go: never of a group that keeps them for ever."""
        return self.keep.lets_go and self.collected < number <= self.bound(head)

    def can_lease(self, name: str, number: int, ttl_ms: int) -> bool:
        """What is needed must still be there; giving back is always right."""
        has_place = name in self.leases or not self.is_full
        return not ttl_ms or (has_place and number >= self.collected)

    @property
    def is_full(self) -> bool:
        """Whether nobody gets another lease."""
        return len(self.leases) >= LEASES_MAX

    # folding

    def advertise(self, checkpoint: Checkpoint) -> None:
        """One more; the oldest goes."""
        self.checkpoints = [*self.checkpoints, checkpoint][-GENERATIONS:]

    def set_keep(self, keep: Keep, head: int) -> None:
        """Other settings, behind this number. States of another fold are of no use any more."""
        if not self.intervals or self.intervals[-1][1] != keep.interval:
            self.intervals = [*self.intervals, (head, keep.interval)][-INTERVALS_MAX:]
        if (keep.fold, keep.fold_version) != (self.keep.fold, self.keep.fold_version):
            self.checkpoints = []
        self.keep = keep

    def lease(self, name: str, number: int, ttl_ms: int, nonce: int) -> None:
        """Give, renew, move or take back a lease."""
        if ttl_ms:
            self.leases[name] = (number, ttl_ms, nonce)
        else:
            self.leases.pop(name, None)

    # snapshots

    def state(self) -> RetainedState:
        """For the core snapshot."""
        return (self.keep, self.collected, self.checkpoints, list(self.leases.items()))

    @classmethod
    def of_state(cls, state: RetainedState) -> "Retained":
        retained = cls()
        retained.keep, retained.collected = state[:2]
        retained.checkpoints, retained.leases = list(state[2]), dict(state[3])
        return retained

    def copy(self) -> "Retained":
        """An independent one, equal to this."""
        copy = Retained.of_state(self.state())
        copy.intervals = self.intervals
        return copy


def interval_at(intervals: Sequence[tuple[int, int]], number: int) -> int:
    """The interval that counts for a message: of the last change that was ordered before it."""
    behind = [interval for head, interval in intervals if head < number]
    if behind:
        return behind[-1]
    return intervals[0][1] if intervals else 0
