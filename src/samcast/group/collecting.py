"""Giving up payloads that a committed entry says may go, and saying which are beyond their group's
bounds of size and age (GRP-20).

Nothing goes because something else is absent, or by a clock: a clock only makes us *say* that a
group has more than it is to keep; what goes is what the order names.
"""

from typing import TYPE_CHECKING

from samcast.group.listing import DataRecovery, with_marks
from samcast.group.milestones import Milestones
from samcast.group.storage import DropCollected
from samcast.machine.ports import Effect, Send
from samcast.wire.order import Keep
from samcast.wire.retention import Holdings

if TYPE_CHECKING:
    from samcast.group.data_server import DataServer

RUNS_PER_TURN = 5000
AGE_STEPS = 10  # how finely an age is told


class Collecting:
    """Of one data server."""

    def __init__(self, server: "DataServer") -> None:
        self._server = server
        self._milestones: dict[int, Milestones] = {}
        self._due_ms = 0
        self._is_waiting = False  # a group is bounded by size or age
        self._recovered: list[tuple[int, int, int]] = []  # last number, group, bytes
        self._pending: dict[int, None] = {}  # groups of which more is to go
        self.collected = 0  # payloads that were given up here

    def recover(self, recovery: DataRecovery) -> None:
        """What a disk gave back, segment by segment."""
        marks = dict(recovery.marks)
        found: list[tuple[int, int, int]] = []
        for runs in recovery.runs:
            found.append(
                (max(with_marks(runs, marks, recovery.marked)), runs.sender[0], runs.stored_bytes)
            )
        self._recovered = sorted(found)

    def _settle(self, now_ms: int) -> None:
        """What came from a disk counts as new: only now do we know what the clock says."""
        recovered, self._recovered = self._recovered, []
        for number, group, size in recovered:
            if number:
                self._of(group).add(number, size, now_ms)

    def _of(self, group: int) -> Milestones:
        milestones = self._milestones.get(group)
        if milestones is None:
            milestones = self._milestones[group] = Milestones()
        return milestones

    def note(self, group: int, number_last: int, size: int, now_ms: int) -> None:
        """A payload has its number."""
        if self._recovered:
            self._settle(now_ms)
        retained = self._server.follower.core.retained.get(group)
        step_ms = retained.keep.age_ms // AGE_STEPS if retained is not None else 0
        self._of(group).add(number_last, size, now_ms, step_ms)

    def collect(self, group: int, out: list[Effect]) -> None:
        """By our fold of a committed prefix, messages up to a number may go: some now, the others
        in the next turns, so that nobody waits for it."""
        number = self._server.follower.core.collected(group)
        if not number:
            return
        keys = self._server.numbered.collect(group, number, RUNS_PER_TURN)
        self._of(group).drop(number)
        if self._server.numbered.is_collected(group, number):
            self._pending.pop(group, None)
        else:
            self._pending[group] = None
        if keys:
            self.collected += len(keys)
            out.append(DropCollected(tuple(keys)))

    def due_ms(self, never_ms: int) -> int:
        """The next time to say something, or to go on."""
        if self._pending:
            return 0
        return self._due_ms if self._is_waiting else never_ms

    def on_drained(self, now_ms: int, out: list[Effect]) -> None:
        """Tell the sequencer, now and then, what is beyond its bounds."""
        server = self._server
        core, epoch = server.follower.core, server.follower.epoch
        if self._recovered:
            self._settle(now_ms)
        for group in list(self._pending):
            self.collect(group, out)
        if now_ms < self._due_ms or not core.retained or not epoch[1]:
            return
        self._due_ms = now_ms + server.settings.collect_interval_ms
        bounded = [(g, r.keep) for g, r in core.retained.items()
                   if r.keep.lets_go and (r.keep.size or r.keep.age_ms)]  # fmt: skip
        self._is_waiting = bool(bounded)
        # Also that nothing is: what we said of other bounds must not count any more.
        told = tuple((group, self._beyond(group, keep, now_ms), keep) for group, keep in bounded)
        if told:
            number = core.configuration.number
            out.append(Send(epoch[1], Holdings(number, epoch, server.uuid, told)))

    def _beyond(self, group: int, keep: Keep, now_ms: int) -> int:
        milestones = self._of(group)
        by_size = milestones.beyond_size(keep.size) if keep.size else 0
        by_age = milestones.beyond_age(now_ms, keep.age_ms) if keep.age_ms else 0
        return max(by_size, by_age)
