"""Which runs may have been sent within some time, by their senders' clocks.

These clocks differ, so times rise with numbers only roughly, and nothing but a look at each run is
safe. A look at the least and the greatest of some hundred at once is nearly as good, and cheap.
"""

from samcast.group.run_map import ByNumber
from samcast.wire.rows import RUNS_MAX

BLOCK = 512  # runs
LOOKED_MAX = 128 * BLOCK  # in one turn of a server


def stretch_within(runs: ByNumber, at: int, bounds: tuple[int, int]) -> tuple[int, int]:
    """From the run at a place on: the number at which the next one begins that may have been sent
    within these times, and the number behind the last one that follows it and may, too. A number
    that isn't here is passed over by neither."""
    first_ms, end_ms = bounds
    limit = _follow_end(runs, at, min(len(runs.firsts), at + LOOKED_MAX))
    begin = at
    while begin < limit:
        sents = runs.sents[begin : min(limit, begin + BLOCK)]
        least = min(sents)
        if not least or (least < end_ms and max(sents) >= first_ms):
            inside = (not sent or first_ms <= sent < end_ms for sent in sents)
            here = next((step for step, is_in in enumerate(inside) if is_in), len(sents))
            begin += here
            if here < len(sents):
                break
        else:
            begin += len(sents)
    stop = begin
    limit = min(limit, begin + RUNS_MAX)  # More aren't looked at for one answer.
    while stop < limit and (not runs.sents[stop] or first_ms <= runs.sents[stop] < end_ms):
        stop += 1
    return _number_at(runs, begin, limit), _number_at(runs, stop, limit)


def _number_at(runs: ByNumber, place: int, limit: int) -> int:
    """With which number the run at a place begins, or would behind the last one."""
    if place < limit:
        return runs.firsts[place]
    return runs.firsts[limit - 1] + runs.counts[limit - 1]


def _follow_end(runs: ByNumber, at: int, end: int) -> int:
    """Up to which place all runs follow each other without a gap."""
    if runs.firsts[end - 1] - runs.firsts[at] == sum(runs.counts[at : end - 1]):
        return end
    place = at + 1
    while runs.firsts[place] == runs.firsts[place - 1] + runs.counts[place - 1]:
        place += 1
    return place
