"""Packed facts about runs do what dictionaries do, in whatever order things come."""

from array import array
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
    packed = RunMap("QD")
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


COUNTERS = st.lists(st.integers(1, 40), min_size=1, unique=True).map(sorted)


@given(st.lists(st.tuples(st.integers(1, 2), COUNTERS), max_size=8))
def test_columns_are_taken_over_as_if_they_came_one_by_one(
    added: list[tuple[int, list[int]]],
) -> None:
    whole, single = RunMap("QID"), RunMap("QID")
    for turn, (incarnation, counters) in enumerate(added):
        sender = (1, b"a" * 16, incarnation)
        rows = [(100 * turn + c, c, bytes([turn, c]) * 8) for c in counters]
        whole.extend(
            sender,
            array("Q", counters).tobytes(),
            array("Q", [row[0] for row in rows]).tobytes(),
            array("I", [row[1] for row in rows]).tobytes(),
            b"".join(row[2] for row in rows),
        )
        for counter, row in zip(counters, rows, strict=True):
            single.put((*sender, counter, 0), *row)
        extra = (*sender, counters[0] + 1, turn % 2)
        whole.append(extra, turn, turn, bytes(16))
        single.put(extra, turn, turn, bytes(16))
    whole.sort()
    assert len(whole) == len(single)
    assert {k: whole.get(k) for k in whole.keys()} == {  # noqa: SIM118
        k: single.get(k)
        for k in single.keys()  # noqa: SIM118
    }


@given(st.lists(st.tuples(st.sampled_from([b"a" * 16, b"b" * 16]), COUNTERS), max_size=8))
def test_columns_are_found_by_number_once_they_are_sorted(
    added: list[tuple[bytes, list[int]]],
) -> None:
    packed = ByNumber(1)
    plain: dict[int, BatchKey] = {}
    for turn, (sender, numbers) in enumerate(added):
        counters = [100 * turn + number for number in numbers]
        if turn % 3 == 2:
            packed.append(
                numbers[0], counters[0], counters[0] + 7, (1, sender, 1, counters[0], turn)
            )
            plain[numbers[0]] = (1, sender, 1, counters[0], turn)
            continue
        columns = [array(code, values) for code, values in
                   (("Q", counters), ("Q", numbers), ("I", counters),
                    ("Q", [counter + 7 for counter in counters]))]  # fmt: skip
        packed.extend((sender, 1), *(column.tobytes() for column in columns))
        plain.update({n: (1, sender, 1, c, 0) for n, c in zip(numbers, counters, strict=True)})
    packed.sort()
    assert packed.firsts.tolist() == sorted(plain)
    for at, number in enumerate(sorted(plain)):
        assert packed.key_at(at) == plain[number]
        assert packed.counts[at] == plain[number][3]
        assert packed.sents[at] == plain[number][3] + 7


NUMBERED = st.tuples(st.just("put"), st.integers(1, 30), KEYS)
REMOVED = st.tuples(st.just("remove"), st.integers(1, 30), KEYS)


@given(st.lists(st.one_of(NUMBERED, NUMBERED, REMOVED), max_size=60))
def test_runs_are_found_by_number(steps: list[tuple[str, int, BatchKey]]) -> None:
    packed = ByNumber(1)
    plain: dict[int, BatchKey] = {}
    for what, number, key in steps:
        if what == "put":
            packed.put(number, key[3], key[3] + 7, (1, *key[1:]))
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
            assert packed.sents[at] == plain[firsts[at]][3] + 7


@given(st.lists(st.tuples(KEYS, st.integers(0, 2**40)), max_size=40), st.data())
def test_dropping_many_is_dropping_each(
    puts: list[tuple[BatchKey, int]], data: st.DataObject
) -> None:
    packed = RunMap("QD")
    plain: dict[BatchKey, int] = {}
    for key, value in puts:
        packed.put(key, value, key[1])
        plain[key] = value
    gone = data.draw(st.lists(KEYS, unique=True, max_size=20))
    expected = sorted(plain.pop(key) for key in gone if key in plain)
    assert sorted(packed.drop(gone)) == expected
    assert len(packed) == len(plain)
    assert {key: packed.get(key)[0] for key in packed.keys()} == plain  # type: ignore[index]  # noqa: SIM118
    assert sorted(packed.column(0)) == sorted(plain.values())


@given(st.lists(st.integers(1, 4), min_size=1, max_size=30), st.integers(0, 100))
def test_a_cut_takes_whole_runs_from_the_front(counts: list[int], number: int) -> None:
    runs = ByNumber(1)
    at, ends = 1, []
    for place, count in enumerate(counts):
        runs.put(at, count, place, (1, bytes([place]) * 16, 1, 1, 0))
        at += count
        ends.append(at - 1)
    gone = [place for place, end in enumerate(ends) if end <= number]
    assert [key[1][0] for key in runs.cut(number)] == gone
    for place in range(len(gone), len(counts)):
        assert runs.key_at(place - len(gone))[1][0] == place
        assert runs.sents[place - len(gone)] == place


def test_a_cut_forgets_senders_that_are_gone() -> None:
    runs = ByNumber(1)
    for number in range(1, 5001):
        runs.put(number, 1, 0, (1, number.to_bytes(16, "big"), 1, 1, 0))
    runs.cut(4990)
    assert len(runs._senders) == len(runs._index) == 10
    assert runs.key_at(0)[1] == (4991).to_bytes(16, "big")
    runs.put(5001, 1, 0, (1, bytes(16), 1, 1, 0))
    assert runs.key_at(10)[1] == bytes(16)
