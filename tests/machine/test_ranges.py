"""Ranges of numbers behave as the plain set that they stand for."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samcast.machine.ranges import Ranges

NUMBERS = st.integers(0, 30)
CHANGES = st.lists(st.tuples(st.booleans(), NUMBERS, NUMBERS), max_size=12)


def changed(changes: list[tuple[bool, int, int]]) -> tuple[Ranges, set[int]]:
    """The same additions and removals done to ranges and to a set."""
    ranges, model = Ranges(), set[int]()
    for is_added, first, end in changes:
        if is_added:
            ranges.add(first, end)
            model |= set(range(first, end))
        else:
            ranges.remove(first, end)
            model -= set(range(first, end))
    return ranges, model


def holes_of(model: set[int], first: int, end: int) -> list[tuple[int, int]]:
    holes: list[tuple[int, int]] = []
    for number in range(first, end):
        if number in model:
            continue
        if holes and holes[-1][1] == number:
            holes[-1] = (holes[-1][0], number + 1)
        else:
            holes.append((number, number + 1))
    return holes


@settings(max_examples=200, derandomize=True, deadline=None)
@given(CHANGES)
def test_ranges_hold_exactly_the_numbers_that_a_set_would_hold(
    changes: list[tuple[bool, int, int]],
) -> None:
    ranges, model = changed(changes)
    assert {number for number in range(-1, 32) if number in ranges} == model
    assert {n for first, end in ranges.pairs() for n in range(first, end)} == model


@settings(max_examples=200, derandomize=True, deadline=None)
@given(CHANGES)
def test_ranges_are_as_few_as_the_numbers_allow(changes: list[tuple[bool, int, int]]) -> None:
    ranges, model = changed(changes)
    pairs = ranges.pairs()
    assert len(ranges) == len(pairs) == sum(number - 1 not in model for number in model)
    assert all(first < end for first, end in pairs)
    assert all(low[1] < high[0] for low, high in pairwise(pairs))


@settings(max_examples=200, derandomize=True, deadline=None)
@given(CHANGES, NUMBERS, NUMBERS, st.integers(0, 4))
def test_missing_names_the_first_holes_of_a_span(
    changes: list[tuple[bool, int, int]], first: int, end: int, most: int
) -> None:
    ranges, model = changed(changes)
    assert ranges.missing(first, end, most) == holes_of(model, first, end)[:most]


@settings(max_examples=200, derandomize=True, deadline=None)
@given(CHANGES, NUMBERS)
def test_contiguous_end_is_the_next_number_that_is_absent(
    changes: list[tuple[bool, int, int]], first: int
) -> None:
    ranges, model = changed(changes)
    end = first
    while end in model:
        end += 1
    assert ranges.contiguous_end(first) == end


def test_the_size_depends_on_the_holes_and_not_on_the_numbers() -> None:
    ranges = Ranges()
    for number in range(10_000):
        ranges.add(number, number + 1)
    assert ranges.pairs() == [(0, 10_000)]
    ranges.remove(5, 6)
    assert ranges.pairs() == [(0, 5), (6, 10_000)]


@pytest.mark.parametrize(("first", "end"), [(3, 3), (4, 2)])
def test_an_empty_span_changes_nothing(first: int, end: int) -> None:
    ranges = Ranges()
    ranges.add(1, 5)
    ranges.add(first, end)
    ranges.remove(first, end)
    assert ranges.pairs() == [(1, 5)]
