"""Many short runs as they lie in one segment, found without a look at single ones."""

from array import array
from bisect import bisect_left
from collections import Counter
from typing import Any

import msgspec

from samcast.group.run_map import RunMap
from samcast.group.storage import RunSlice
from samcast.wire.stretch import SINGLE_RUNS_MIN

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


def find_stretch(places: RunMap, runs: RunSlice) -> Found | None:
    """The first of these runs that lie in one segment, by a map of segments, offsets and lengths;
    None if that isn't so simple. Only the first one of each sender is looked up: who reads them
    sees whether these are they."""
    if len(runs) < SINGLE_RUNS_MIN or any(runs.stages):
        return None
    firsts = dict(zip(reversed(runs.who), reversed(runs.counters), strict=True))
    counts = Counter(runs.who)
    segment = size = 0
    parts: list[Any] = []
    ends: list[tuple[int, int]] = []
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
        here = segments.count(segment)
        if here < count:
            return find_stretch(places, runs[: max(0, len(runs) * here // count - CUT_SHORT)])
        parts.append(offsets)
        ends.append((offsets[-1], lengths[-1]))
        size += sum(lengths)
    end, length = max(ends)
    first = min(offsets[0] for offsets in parts)
    packed = b"".join(map(array.tobytes, parts))
    return Found(runs, segment, first, end + length, size, list(counts), packed)
