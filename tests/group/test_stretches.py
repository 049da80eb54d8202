"""Where many short runs lie, found by hand."""

from array import array

import pytest

from samcast.group.payloads import Numbered
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


@pytest.mark.req("PIP-01")
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


def test_what_was_missed_and_repaired_lies_behind_what_came_meanwhile() -> None:
    """So offsets don't rise with counters, and both ends of the piece are in the middle."""
    places, numbers = RunMap("IQI"), ByNumber(GROUP)
    for at in [*range(100, 200), *range(100)]:
        key = (GROUP, ANN, 1, 1 + at, 0)
        places.put(key, 1, SIZE * ((at + 100) % 200), SIZE)
        numbers.put(1 + at, 1, 0, key)
    found = find_stretch(places, numbers.slice(50, 150))
    assert found is not None
    assert (found.first, found.end) == (0, SIZE * 200)
    assert found.size == SIZE * 100


def test_a_sender_that_came_with_the_next_segment_is_left_for_later() -> None:
    places, numbers = RunMap("IQI"), ByNumber(GROUP)
    for at in range(600):
        key = (GROUP, ANN if at < 400 else BOB, 1, 1 + at, 0)
        places.put(key, 1 if at < 400 else 2, SIZE * at, SIZE)
        numbers.put(1 + at, 1, 0, key)
    found = find_stretch(places, numbers.slice(0, 600))
    assert found is not None
    assert (found.segment, len(found.runs)) == (1, 400 - CUT_SHORT)


def test_one_run_that_lies_elsewhere_is_not_searched_for_long() -> None:
    places, runs = stored()
    places.put((GROUP, ANN, 1, 450, 0), 7, 0, SIZE)
    found = find_stretch(places, runs)
    assert found is not None
    assert len(found.runs) == 2 * 449 - CUT_SHORT
    places.put((GROUP, ANN, 1, 2, 0), 7, 0, SIZE)
    assert find_stretch(places, runs) is None


def test_only_many_single_runs_are_looked_for() -> None:
    numbered = Numbered()
    for at in range(300):
        key = (GROUP, ANN, 1, 1 + at, 0)
        numbered.add(key, 1 + at + (at > 200), 2 if at == 200 else 1, bytes(16), 0)
    assert numbered.single_runs(GROUP, 1, 0) is None
    assert numbered.single_runs(GROUP, 1, SINGLE_RUNS_MIN) is None
    found = numbered.single_runs(GROUP, 11, 11 + SINGLE_RUNS_MIN)
    assert found is not None
    assert found.keys() == [(GROUP, ANN, 1, 11 + at, 0) for at in range(SINGLE_RUNS_MIN)]
    assert numbered.single_runs(GROUP, 1, 10**6) is None  # one of them has two
    assert numbered.single_runs(GROUP, 10**9, 10**10) is None
    assert numbered.single_runs(GROUP + 1, 1, 10**6) is None


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
