"""The unsafe rules of names that mutants put back: what leaks by use, and what forgets too much."""

from typing import Any

from samcast.group.core import Core
from samcast.group.rows import GroupRows
from samcast.sim.mutant import Mutant, replace
from samcast.wire.group import OpenRequest
from samcast.wire.order import OpenEntry


def never_evicted() -> None:
    """Owners that nobody uses again stay for ever, in the room of those with names."""

    def can_begin(self: Any, rows: GroupRows, request: OpenEntry | OpenRequest) -> bool:
        if request.after or rows.is_given_up(request.sender, request.birth):
            return False
        if request.incarnation <= rows.incarnation_below(request.sender, request.is_anonymous):
            return False
        return bool(len(rows.named) < self._settings.named_max + self._settings.anonymous_max)

    replace(Core, "_can_begin", can_begin)
    replace(GroupRows, "evict_anonymous", lambda self, most: None)


def evicted_without_floor() -> None:
    """Nothing tells afterwards that an owner was forgotten."""

    def evict(self: Any, most: int) -> None:
        while len(self.anonymous) > most:
            del self.named[self.anonymous.popitem(last=False)[0]]

    replace(GroupRows, "evict_anonymous", evict)


def tombstones_without_floor() -> None:
    """The oldest tombstone goes when there are too many, and nothing tells that it was there."""
    before = GroupRows.bury

    def bury(self: Any, sender: bytes, most: int) -> bool:
        done = before(self, sender, 2**62)
        while len(self.tombstones) > most:
            self._forget_tombstone(next(iter(self.tombstones)))
        return done

    replace(GroupRows, "bury", bury)


def tombstones_unbounded() -> None:
    before = GroupRows.bury
    replace(GroupRows, "bury", lambda self, sender, most: before(self, sender, 2**62))


def late_removal_removes_the_next() -> None:
    """A removal is about whoever has the name when it is ordered."""
    replace(GroupRows, "is_meant", lambda self, sender, below: sender in self.named)


NAME_MUTANTS = (
    Mutant("anonymous-never-evicted", "SAFETY 2.7, ADR 31", never_evicted),
    Mutant("anonymous-evicted-without-floor", "SAFETY 2.7, ADR 31", evicted_without_floor),
    Mutant("tombstones-without-floor", "SAFETY 2.7, ADR 31", tombstones_without_floor),
    Mutant("tombstones-unbounded", "SAFETY 2.7, ADR 31", tombstones_unbounded),
    Mutant("late-removal-removes-the-next", "SAFETY 2.7, ADR 31", late_removal_removes_the_next),
)
