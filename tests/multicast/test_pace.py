"""A pace is kept over time, whatever the sizes, and nothing waits where there is none."""

import pytest

from samcast.multicast.pace import BURST_MS, Pace


@pytest.mark.req("GRP-25")
@pytest.mark.parametrize("size", [100, 1400, 60_000])
def test_no_more_leaves_than_the_pace_allows(size: int) -> None:
    pace, sent = Pace(10_000_000), 0
    for now_ms in range(1000, 2000):
        while pace.room(now_ms):
            pace.sent(size)
            sent += size
    assert 9_900_000 <= sent <= 10_000_000 + 10_000 * BURST_MS + size


def test_what_was_not_used_is_not_saved_up() -> None:
    pace = Pace(1_000_000)
    sent = 0
    while pace.room(1_000_000):
        pace.sent(100)
        sent += 100
    assert sent <= 1000 * BURST_MS + 100


def test_without_a_pace_nothing_waits() -> None:
    pace = Pace()
    for _ in range(1000):
        assert pace.room(1)
        pace.sent(10**9)


def test_what_leaves_together_is_less_than_a_receiver_waits_for() -> None:
    assert Pace().together(1400, 42) == 42
    assert Pace(1_000_000).together(1400, 42) == 1
    assert Pace(10_000_000).together(1400, 42) == 14
    assert Pace(10_000_000).together(60_000, 42) == 1
    assert Pace(1_000_000_000).together(1400, 42) == 42
