"""Payloads that a member keeps: within bounds, what the order names before what it may name."""

from hypothesis import given
from hypothesis import strategies as st

from samcast.group.kept import KeptPayloads
from samcast.group.member import key_of
from tests.group.build import batch

SIZE = len(batch(1).columns)


def kept(runs: int = 3, size: int = 10**9) -> KeptPayloads:
    return KeptPayloads(runs, size)


def keep(payloads: KeptPayloads, *counters: int) -> None:
    for counter in counters:
        payloads.keep(key_of(batch(counter)), batch(counter))


def here(payloads: KeptPayloads) -> list[int]:
    return [counter for counter in range(1, 20) if key_of(batch(counter)) in payloads]


def test_the_oldest_that_nobody_named_goes_first() -> None:
    payloads = kept()
    keep(payloads, 1, 2, 3)
    payloads.want(key_of(batch(1)))
    keep(payloads, 4, 5)
    assert here(payloads) == [1, 4, 5]


def test_what_is_named_is_not_given_up_for_what_is_not() -> None:
    payloads = kept()
    for counter in (1, 2, 3):
        payloads.want(key_of(batch(counter)))
    keep(payloads, 1, 2, 3, 4)
    assert here(payloads) == [1, 2, 3]
    payloads.unwant(key_of(batch(2)))
    keep(payloads, 5)
    assert here(payloads) == [1, 3, 5]


def test_what_is_named_always_finds_room_since_it_may_be_the_next() -> None:
    payloads = kept()
    for counter in range(1, 6):
        payloads.want(key_of(batch(counter)))
    keep(payloads, 5, 4, 3, 2, 1)
    assert here(payloads) == [1, 2, 3, 4, 5]


def test_bytes_count_but_one_that_is_named_always_finds_room() -> None:
    payloads = kept(size=2 * SIZE)
    keep(payloads, 1, 2, 3)
    assert here(payloads) == [2, 3]
    small = kept(size=SIZE // 2)
    keep(small, 1)
    assert here(small) == []
    small.want(key_of(batch(2)))
    keep(small, 2)
    assert here(small) == [2]


STEPS = st.lists(st.tuples(st.sampled_from(["keep", "want", "unwant", "pop"]), st.integers(1, 9)))


@given(STEPS)
def test_the_bounds_hold_and_the_bytes_are_counted(steps: list[tuple[str, int]]) -> None:
    payloads = kept(runs=4, size=5 * SIZE)
    for what, counter in steps:
        key = key_of(batch(counter))
        if what == "keep":
            payloads.keep(key, batch(counter))
        else:
            getattr(payloads, what)(key)
        held = [batch(counter) for counter in here(payloads)]
        assert len(payloads) == len(held)
        assert payloads.bytes == sum(len(one.columns) for one in held)
        spare = [one for one in held if key_of(one) not in payloads._wanted]
        assert not spare or (len(held) <= 4 and payloads.bytes <= 5 * SIZE)
