"""Where many short runs lie, found by hand."""

from array import array

import pytest

from samcast.group.run_map import ByNumber, RunMap
from samcast.group.storage import RunSlice
from samcast.group.stretches import CUT_SHORT, find_stretch
from samcast.wire.stretch import SINGLE_RUNS_MIN
from tests.group.build import ANN, BOB, GROUP

RUNS = 1000
SIZE = 192


def stored(segment_of: int = 10**6) -> tuple[RunMap, RunSlice]:
    """Runs of two senders in turn, so many to a segment."""
    places, numbers = RunMap("IQI"), ByNumber(GROUP)
    for at in range(RUNS):
        key = (GROUP, (ANN, BOB)[at % 2], 1, 1 + at // 2, 0)
        places.put(key, 1 + at // segment_of, SIZE * (at % segment_of), SIZE)
        numbers.put(1 + at, 1, 0, key)
    return places, numbers.slice(0, RUNS)


def test_runs_that_lie_in_one_segment_are_found() -> None:
    places, runs = stored()
    found = find_stretch(places, runs[100:300])
    assert found is not None
    assert (found.segment, found.first, found.end) == (1, SIZE * 100, SIZE * 300)
    assert found.size == SIZE * 200
    assert [runs.senders[who] for who in found.who] == [(ANN, 1), (BOB, 1)]
    wanted = [*range(SIZE * 100, SIZE * 300, 2 * SIZE), *range(SIZE * 101, SIZE * 300, 2 * SIZE)]
    assert array("Q", found.offsets).tolist() == wanted
    assert len(found.runs) == 200


def test_what_lies_in_the_next_segment_is_left_for_later() -> None:
    places, runs = stored(600)
    found = find_stretch(places, runs)
    assert found is not None
    assert found.segment == 1
    assert 600 - 2 * CUT_SHORT < len(found.runs) <= 600
    assert len(found.offsets) == 8 * len(found.runs)
    assert find_stretch(places, runs[590:]) is None  # too few of the first one
    after = find_stretch(places, runs[600:])
    assert after is not None
    assert (after.segment, len(after.runs)) == (2, 400)


@pytest.mark.parametrize("lost", [ANN, BOB])
def test_what_is_not_so_simple_is_not_found(lost: bytes) -> None:
    places, runs = stored()
    assert find_stretch(places, runs[: SINGLE_RUNS_MIN - 1]) is None
    of_stages = RunSlice(GROUP, runs.senders, runs.who, runs.counters, array("I", [1] * RUNS))
    assert find_stretch(places, of_stages) is None
    places.drop([(GROUP, lost, 1, RUNS // 2, 0)])
    assert find_stretch(places, runs) is None
    places.drop([(GROUP, lost, 1, counter, 0) for counter in range(1, RUNS // 2)])
    assert find_stretch(places, runs) is None
