"""What a segment holds is the same in columns as in rows, whoever else tells the numbers."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from samcast.group.listing import (
    DataRecovery,
    Listed,
    Listing,
    SegmentColumns,
    StoredRuns,
    columns_of,
    with_marks,
)
from samcast.group.recovery import DataScan
from samcast.group.storage import BatchKey
from tests.group.build import data_server

KEYS = st.tuples(
    st.integers(1, 2),
    st.sampled_from([b"a" * 16, b"b" * 16]),
    st.integers(1, 2),
    st.integers(1, 12),
    st.sampled_from([0, 0, 0, 1]),
)
SEGMENTS = st.lists(st.tuples(st.lists(KEYS, max_size=12), st.lists(KEYS, max_size=12)), max_size=4)


def number_of(key: BatchKey) -> int:
    """Every key has its own."""
    group, sender, incarnation, counter, stage = key
    return 1 + (((group * 2 + (sender[0] == 97)) * 3 + incarnation) * 13 + counter) * 2 + stage


def recovered(segments: list[tuple[list[BatchKey], list[BatchKey]]]) -> DataRecovery:
    scan = DataScan(7)
    for stored, marked in segments:
        rows = [Listed(key, 1, 3, bytes(key[1]), 64 * at, 64) for at, key in enumerate(stored)]
        scan.add(columns_of(Listing(rows, [(key, number_of(key)) for key in marked])))
    return scan.recovery()


@given(SEGMENTS)
def test_a_recovery_tells_what_the_segments_told(
    segments: list[tuple[list[BatchKey], list[BatchKey]]],
) -> None:
    recovery = recovered(segments)
    stored = {key for keys, _ in segments for key in keys}
    marked = {key for _, keys in segments for key in keys}
    assert {found.key for found in recovery.found()} == stored
    assert recovery.numbers() == {key: number_of(key) for key in marked}
    assert all(runs.is_sound for runs in recovery.runs)


@given(SEGMENTS)
def test_a_server_has_each_payload_once_with_its_number_if_any_segment_tells_it(
    segments: list[tuple[list[BatchKey], list[BatchKey]]],
) -> None:
    server = data_server(recovery=recovered(segments))
    stored = {key for keys, _ in segments for key in keys}
    marked = {key for _, keys in segments for key in keys}
    for key in stored:
        assert (key in server.numbered) == (key in marked)
        assert (key in server.unnumbered) == (key not in marked)
        if key in marked:
            number = number_of(key)
            assert server.numbered.number_of(key) == number
            assert server.numbered.at(key[0], number) == (key, number, 1)
    assert all(key not in server.numbered for key in marked - stored)
    assert len(server.unnumbered) == len(stored - marked)


def test_of_two_payloads_under_one_id_the_later_one_is_there_after_a_start() -> None:
    """The first was given up, and the id used again: the second may count as a copy already."""
    key = (1, b"a" * 16, 1, 1, 0)
    scan = DataScan(7)
    for digest, birth in ((b"1" * 16, 5), (b"2" * 16, 90)):
        scan.add(columns_of(Listing([Listed(key, 1, birth, digest, 0, 64)])))
    server = data_server(recovery=scan.recovery())
    held = server.unnumbered.get(key)
    assert held is not None
    assert (held.digest, held.birth) == (b"2" * 16, 90)
    assert server.unnumbered.born_below(1, 50) == []


def columns() -> SegmentColumns:
    rows = [Listed((1, b"a" * 16, 1, c, 0), 1, 0, bytes(16), 64 * c, 64, c + 70) for c in (3, 1, 2)]
    return columns_of(Listing(rows, [((1, b"a" * 16, 1, 2, 0), 9)]))


def test_columns_that_are_no_columns_are_told() -> None:
    (runs,) = columns().runs
    assert runs.is_sound
    for name in (
        "counters",
        "counts",
        "births",
        "digests",
        "numbers",
        "offsets",
        "lengths",
        "sents",
    ):
        (broken,) = columns().runs
        setattr(broken, name, getattr(broken, name)[:-1])
        assert not broken.is_sound, name
    (broken,) = columns().runs
    broken.counters = broken.counters[8:] + broken.counters[:8]
    assert not broken.is_sound


def test_a_number_that_another_segment_tells_is_filled_in() -> None:
    (runs,) = columns().runs
    marks = {(1, b"a" * 16, 1, 3, 0): 7}
    assert with_marks(runs, marks, {}).tolist() == [0, 9, 7]


def test_segments_of_earlier_versions_know_no_times() -> None:
    """A field that came later is at the end, and may be absent."""
    (runs,) = columns().runs
    assert [found.sent_ms for found in runs.found()] == [71, 72, 73]
    fields = msgspec.to_builtins(runs)
    old = msgspec.convert(fields[:-1], StoredRuns)
    assert old.is_sound
    assert [found.sent_ms for found in old.found()] == [0, 0, 0]
    marks = [((1, b"a" * 16, 1, counter, 0), number) for counter, number in ((1, 8), (3, 10))]
    server = data_server(recovery=DataRecovery(7, [old], (), marks))
    assert server.numbered.sent_within(1, 8, 20, (5, 6)) == (8, 11)
