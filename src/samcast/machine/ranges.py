"""Sets of numbers kept as ranges, so that their size is the number of holes, not of members."""

from bisect import bisect_right


class Ranges:
    """A set of integers as disjoint half-open ranges [first, end), in order."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        """How many ranges there are."""
        return len(self._firsts)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number < self._ends[at]

    def pairs(self) -> list[tuple[int, int]]:
        """The ranges as (first, end)."""
        return list(zip(self._firsts, self._ends, strict=True))

    def add(self, first: int, end: int) -> None:
        """Put [first, end) in; it may touch or overlap what is there."""
        if first >= end:
            return
        firsts, ends = self._firsts, self._ends
        if ends and ends[-1] == first:  # by far the most common: the next in line
            ends[-1] = end
            return
        low = bisect_right(ends, first - 1)  # first range that touches from below
        high = bisect_right(firsts, end)  # first range wholly above
        if low < high:
            first = min(first, firsts[low])
            end = max(end, ends[high - 1])
        firsts[low:high] = [first]
        ends[low:high] = [end]

    def remove(self, first: int, end: int) -> None:
        """Take [first, end) out."""
        if first >= end:
            return
        firsts, ends = self._firsts, self._ends
        low = bisect_right(ends, first)
        high = bisect_right(firsts, end - 1)
        if low >= high:
            return
        new_firsts, new_ends = [], []
        if firsts[low] < first:
            new_firsts.append(firsts[low])
            new_ends.append(first)
        if ends[high - 1] > end:
            new_firsts.append(end)
            new_ends.append(ends[high - 1])
        firsts[low:high] = new_firsts
        ends[low:high] = new_ends

    def missing(self, first: int, end: int, most: int) -> list[tuple[int, int]]:
        """The first `most` holes in [first, end), as (first, end)."""
        holes: list[tuple[int, int]] = []
        at = bisect_right(self._ends, first)
        while first < end and len(holes) < most:
            if at == len(self._firsts) or self._firsts[at] >= end:
                holes.append((first, end))
                break
            if self._firsts[at] > first:
                holes.append((first, self._firsts[at]))
            first = self._ends[at]
            at += 1
        return holes

    def contiguous_end(self, first: int) -> int:
        """The end of the range that holds `first`, or `first` itself if none does."""
        at = bisect_right(self._firsts, first) - 1
        return self._ends[at] if at >= 0 and self._ends[at] > first else first
