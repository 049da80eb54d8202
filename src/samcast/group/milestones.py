"""How many bytes lie behind which number of a group, and since when: coarse, since it only answers
how much may go.
"""

from array import array
from bisect import bisect_left, bisect_right

STEP_BYTES = 1024 * 1024


class Milestones:
    """Of one group. What came from a disk counts as new: it stays longer, never shorter."""

    __slots__ = ("_ends", "_last", "_last_ms", "_numbers", "_since_ms", "_total")

    def __init__(self) -> None:
        self._total = 0  # bytes ever seen
        self._last = self._last_ms = 0  # the newest message, and since when
        self._numbers = array("Q")  # of the last message before a milestone
        self._ends = array("Q")  # bytes up to there
        self._since_ms = array("Q")

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, number_last: int, size: int, now_ms: int, step_ms: int = 0) -> None:
        """A payload is stored; with `step_ms`, a milestone is due after so long, too."""
        if number_last <= self._last:
            return  # It came late and lies before: counted, it would push out what is newer.
        self._total += size
        self._last, self._last_ms = number_last, now_ms
        if self._numbers:
            is_due = step_ms and now_ms - self._since_ms[-1] >= step_ms
            if self._total - self._ends[-1] < STEP_BYTES and not is_due:
                return
        self._numbers.append(number_last)
        self._ends.append(self._total)
        self._since_ms.append(max(0, now_ms))

    def beyond_size(self, size: int) -> int:
        """Messages up to this number needn't stay for the newest `size` bytes to be there."""
        if self._total <= size:
            return 0
        at = bisect_right(self._ends, self._total - size) - 1
        return self._numbers[at] if at >= 0 else 0

    def beyond_age(self, now_ms: int, age_ms: int) -> int:
        """Messages up to this number are older than that."""
        if now_ms - self._last_ms > age_ms:
            return self._last
        at = bisect_right(self._since_ms, max(0, now_ms - age_ms)) - 1
        return self._numbers[at] if at >= 0 and now_ms > age_ms else 0

    def drop(self, number: int) -> None:
        """Messages up to a number are gone."""
        at = bisect_left(self._numbers, number + 1)
        for column in (self._numbers, self._ends, self._since_ms):
            del column[:at]
