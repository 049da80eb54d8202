"""Packed facts about runs do what dictionaries do, in whatever order things come."""

from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from samcast.group.run_map import ByNumber, RunMap
from samcast.group.storage import BatchKey

KEYS = st.tuples(
    st.integers(1, 2),
    st.sampled_from([b"a" * 16, b"b" * 16]),
    st.integers(1, 2),
    st.integers(1, 12),
    st.sampled_from([0, 0, 0, 1, 2]),
)
PUTS = st.tuples(st.just("put"), KEYS, st.integers(0, 2**40))
POPS = st.tuples(st.just("pop"), KEYS, st.just(0))


@given(st.lists(st.one_of(PUTS, PUTS, POPS), max_size=60))
def test_a_run_map_is_a_dictionary(steps: list[tuple[str, BatchKey, int]]) -> None:
    packed = RunMap("Q16s")
    plain: dict[BatchKey, tuple[int, bytes]] = {}
    for what, key, value in steps:
        if what == "put":
            packed.put(key, value, key[1])
            plain[key] = (value, key[1])
        else:
            assert packed.pop(key) == plain.pop(key, None)
        assert packed.get(key) == plain.get(key)
        assert (key in packed, len(packed)) == (key in plain, len(plain))
    assert sorted(packed.keys()) == sorted(plain)
    assert {key: packed.get(key) for key in packed.keys()} == plain  # noqa: SIM118


NUMBERED = st.tuples(st.just("put"), st.integers(1, 30), KEYS)
REMOVED = st.tuples(st.just("remove"), st.integers(1, 30), KEYS)


@given(st.lists(st.one_of(NUMBERED, NUMBERED, REMOVED), max_size=60))
def test_runs_are_found_by_number(steps: list[tuple[str, int, BatchKey]]) -> None:
    packed = ByNumber(1)
    plain: dict[int, BatchKey] = {}
    for what, number, key in steps:
        if what == "put":
            packed.put(number, key[3], (1, *key[1:]))
            plain[number] = (1, *key[1:])
        elif number in plain:
            packed.remove(number)
            del plain[number]
    firsts = sorted(plain)
    assert packed.firsts.tolist() == firsts
    for number in range(32):
        at = bisect_right(firsts, number) - 1
        assert packed.place_of(number) == at
        if at >= 0:
            assert packed.key_at(at) == plain[firsts[at]]
            assert packed.counts[at] == plain[firsts[at]][3]
