"""Runs of some time are found without a look at the others, and none is left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samcast.group.payloads import Numbered
from samcast.group.sent_times import BLOCK, LOOKED_MAX
from samcast.group.storage import BatchKey

SENDER = b"s" * 16
RUNS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3), st.booleans()), max_size=30)


def key(counter: int) -> BatchKey:
    return (1, SENDER, 1, counter, 0)


def numbered(sents: list[int], count: int = 1) -> Numbered:
    found = Numbered()
    for at, sent_ms in enumerate(sents):
        found.add(key(at), 1 + at * count, count, bytes(16), sent_ms)
    return found


@pytest.mark.req("PIP-01")
@given(RUNS, st.integers(0, 9), st.integers(0, 10), st.integers(1, 40))
def test_nothing_is_passed_over_that_was_sent_then_or_is_not_here(
    runs: list[tuple[int, int, bool]], first_ms: int, end_ms: int, number: int
) -> None:
    found = Numbered()
    sents: dict[int, int] = {}  # by number; what is not here isn't in it
    at = 1
    for sent_ms, count, is_here in runs:
        if is_here:
            found.add(key(at), at, count, bytes(16), sent_ms)
            sents.update(dict.fromkeys(range(at, at + count), sent_ms))
        at += count
    begin, stop = found.sent_within(1, number, 50, (first_ms, end_ms))

    def may_match(one: int) -> bool:
        return one not in sents or not sents[one] or first_ms <= sents[one] < end_ms

    assert number <= begin <= stop <= 50
    assert not any(may_match(one) for one in range(number, begin))
    if number in sents:
        assert all(may_match(one) for one in range(begin, stop))
    assert stop > number or number >= 50, "each answer goes on"


def test_a_long_time_is_passed_over_in_one_turn_and_a_longer_one_in_several() -> None:
    found = numbered([5] * (LOOKED_MAX + 3 * BLOCK) + [7], count=2)
    begin, stop = found.sent_within(1, 1, 2**40, (7, 8))
    assert begin == stop == 1 + 2 * LOOKED_MAX
    begin, stop = found.sent_within(1, begin, 2**40, (7, 8))
    assert (begin, stop) == (1 + 2 * (LOOKED_MAX + 3 * BLOCK), 1 + 2 * (LOOKED_MAX + 3 * BLOCK + 1))


def test_what_has_no_known_time_is_never_passed_over() -> None:
    found = numbered([5] * BLOCK + [0] + [5] * 3)
    assert found.sent_within(1, 1, 1000, (7, 8)) == (1 + BLOCK, 2 + BLOCK)
