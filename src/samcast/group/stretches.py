"""Many short runs as they lie in one segment, found without a look at single ones."""

from array import array
from bisect import bisect_left
from collections import Counter
from operator import add
from typing import Any

import msgspec

from samcast.group.run_map import RunMap
from samcast.group.storage import RunSlice
from samcast.wire.stretch import SINGLE_RUNS_MIN

TRIES = 4  # where a segment ends
CUT_SHORT = 128  # runs, where a segment ends: those of other senders end a little before


class Found(msgspec.Struct, frozen=True, gc=False):
    """Where runs lie."""

    runs: RunSlice
    segment: int
    first: int  # offset in it
    end: int
    size: int  # of the runs themselves
    who: list[int]  # their senders
    offsets: bytes  # u64, sender by sender


def find_stretch(places: RunMap, runs: RunSlice, tries: int = TRIES) -> Found | None:
    """The first of these runs that lie in one segment, by a map of segments, offsets and lengths;
    None if that isn't so simple. Only the first one of each sender is looked up: who reads them
    sees whether these are they."""
    if len(runs) < SINGLE_RUNS_MIN or any(runs.stages) or not tries:
        return None
    firsts = dict(zip(reversed(runs.who), reversed(runs.counters), strict=True))
    counts = Counter(runs.who)
    segment = size = 0
    parts: list[Any] = []
    first, end = 2**63, 0
    for who, count in counts.items():
        stored = places.of_sender((runs.group, *runs.senders[who]))
        if stored is None:
            return None
        counters, columns = stored
        at = bisect_left(counters, firsts[who])
        if len(counters) < at + count:
            return None
        segments, offsets, lengths = (column[at : at + count] for column in columns)
        segment = segment or segments[0]
        if segments.count(segment) < count:
            here = next(at for at, other in enumerate(segments) if other != segment)
            most = len(runs) * here // count if here else runs.who.index(who)
            return find_stretch(places, runs[: max(0, most - CUT_SHORT)], tries - 1)
        parts.append(offsets)
        # They don't always rise: what was missed and repaired lies behind what came meanwhile.
        first, end = min(first, *offsets), max(end, *map(add, offsets, lengths))
        size += sum(lengths)
    packed = b"".join(map(array.tobytes, parts))
    return Found(runs, segment, first, end, size, list(counts), packed)
