"""How much lies behind which number, and since when."""

import pytest

from samcast.group.milestones import STEP_BYTES, Milestones


@pytest.mark.req("GRP-20")
def test_the_newest_bytes_stay() -> None:
    milestones = Milestones()
    for number in range(1, 101):
        milestones.add(number, STEP_BYTES, 0)
    assert milestones.beyond_size(200 * STEP_BYTES) == 0
    assert milestones.beyond_size(10 * STEP_BYTES) == 90
    milestones.drop(90)
    assert len(milestones) == 10
    milestones.add(101, STEP_BYTES, 0)
    assert milestones.beyond_size(10 * STEP_BYTES) == 91


@pytest.mark.req("GRP-20")
def test_small_messages_share_a_milestone() -> None:
    milestones = Milestones()
    for number in range(1, 10_001):
        milestones.add(number, STEP_BYTES // 1000, 0)
    assert len(milestones) < 15
    left = 10_000 - milestones.beyond_size(2 * STEP_BYTES)
    assert 2000 <= left <= 3100  # never less than was asked for


@pytest.mark.req("GRP-20")
def test_age_is_told_in_steps() -> None:
    milestones = Milestones()
    for number in range(1, 61):
        milestones.add(number, 10, 1000 * number, 5000)
    assert milestones.beyond_age(60_000, 20_000) in range(35, 41)
    assert milestones.beyond_age(60_000, 100_000) == 0
    milestones.add(30, 10, 61_000, 5000)  # a repair: it lies before
    assert milestones.beyond_age(61_000, 1) <= 60


@pytest.mark.req("GRP-20")
def test_what_comes_late_pushes_nothing_newer_out() -> None:
    milestones = Milestones()
    for number in range(100, 110):
        milestones.add(number, STEP_BYTES, 0)
    for number in range(1, 60):  # repairs of old payloads
        milestones.add(number, STEP_BYTES, 0)
    assert milestones.beyond_size(20 * STEP_BYTES) == 0


@pytest.mark.req("GRP-20")
def test_the_last_messages_of_a_silent_group_grow_old_too() -> None:
    milestones = Milestones()
    for number in range(1, 101):
        milestones.add(number, 10, 1000, 6000)
    assert milestones.beyond_age(30_000, 60_000) == 0
    assert milestones.beyond_age(3_600_000, 60_000) == 100
