"""The log in memory: a base, what lies above it, and where two logs part."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samcast.group.order_log import OrderLog
from samcast.wire.order import HASH_NONE, AnyEntry, EpochEntry, chain_hash

ENTRIES: list[AnyEntry] = [EpochEntry((1, 1, n)) for n in range(40)]


def log_of(*entries: AnyEntry, base: int = 0, base_hash: bytes = HASH_NONE) -> OrderLog:
    log = OrderLog(base, base_hash)
    log.extend(entries)
    return log


def hash_of(length: int) -> bytes:
    """By the definition, entry by entry."""
    value = HASH_NONE
    for entry in ENTRIES[:length]:
        value = chain_hash(value, entry)
    return value


def test_a_log_counts_from_one_and_knows_the_hash_at_every_index() -> None:
    log = log_of(*ENTRIES[:5])
    assert log.length == 5
    assert [log.entry(index) for index in range(1, 6)] == ENTRIES[:5]
    assert [log.hash_at(index) for index in range(6)] == [hash_of(index) for index in range(6)]
    assert log.last_hash == hash_of(5)
    assert log.hash_at(6) is None
    assert log.hash_at(2**63) is None


def test_a_log_above_a_base_has_the_same_indexes_and_hashes() -> None:
    log = log_of(*ENTRIES[3:6], base=3, base_hash=hash_of(3))
    assert log.length == 6
    assert log.entry(4) == ENTRIES[3]
    assert log.hash_at(2) is None
    assert [log.hash_at(index) for index in (3, 6)] == [hash_of(3), hash_of(6)]
    assert list(log.slice(5, 10)) == ENTRIES[4:6]
    assert list(log.slice(9, 10)) == []


def test_a_cut_log_can_grow_another_end() -> None:
    log = log_of(*ENTRIES[:5])
    log.cut(2)
    assert (log.length, log.last_hash) == (2, hash_of(2))
    log.extend(ENTRIES[10:12])
    assert log.length == 4
    assert log.last_hash not in (hash_of(4), hash_of(2))
    log.cut(2)
    log.extend(ENTRIES[2:5])
    assert log.last_hash == hash_of(5)


def test_dropping_a_prefix_changes_no_index_and_no_hash() -> None:
    log = log_of(*ENTRIES[:6])
    log.drop(4)
    assert (log.base, log.length, log.last_hash) == (4, 6, hash_of(6))
    assert log.hash_at(3) is None
    assert log.hash_at(4) == hash_of(4)
    log.append(ENTRIES[6])
    assert log.last_hash == hash_of(7)
    log.drop(7)
    assert (log.base, log.length) == (7, 7)


def test_a_log_asserts_what_only_its_owner_could_get_wrong() -> None:
    log = log_of(*ENTRIES[3:6], base=3, base_hash=hash_of(3))
    with pytest.raises(AssertionError):
        log.cut(2)
    with pytest.raises(AssertionError):
        log.drop(7)
    with pytest.raises(AssertionError):
        log.slice(3, 1)
    with pytest.raises(AssertionError):
        log.entry(7)


def test_a_copy_shares_nothing_with_its_original() -> None:
    log = log_of(*ENTRIES[:4])
    copy = log.copy()
    copy.cut(1)
    log.append(ENTRIES[4])
    assert (copy.length, log.length) == (1, 5)


def test_landmarks_are_few_and_begin_with_the_end_and_end_with_the_base() -> None:
    landmarks = log_of(*ENTRIES).landmarks()
    assert landmarks[0] == (40, hash_of(40))
    assert landmarks[-1] == (0, HASH_NONE)
    assert [index for index, _ in landmarks] == [40, 39, 37, 33, 25, 9, 0]
    assert OrderLog(7, b"\x07" * 32).landmarks() == ((7, b"\x07" * 32),)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_two_logs_agree_exactly_up_to_landmarks_before_they_part(
    common: int, mine: int, theirs: int
) -> None:
    ours = log_of(*ENTRIES[:common], *ENTRIES[20 : 20 + mine // 2])
    other = log_of(*ENTRIES[:common], *ENTRIES[30 : 30 + theirs // 2])
    agreed = ours.agrees_up_to(other.landmarks())
    below = [index for index, _ in other.landmarks() if index <= common]
    assert agreed == max(below)


def test_logs_that_share_nothing_agree_nowhere() -> None:
    ours = log_of(*ENTRIES[5:8], base=5, base_hash=hash_of(5))
    other = log_of(*ENTRIES[:2])
    assert ours.agrees_up_to(other.landmarks()) is None
    assert ours.agrees_up_to(()) is None
