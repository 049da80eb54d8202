"""What stays of a group, by the fold alone: settings, checkpoints, leases, collection."""

import msgspec
import pytest

from samcast.group.core import Core
from samcast.group.retained import INTERVALS_MAX, LEASES_MAX, interval_at
from samcast.group.settings import GroupSettings
from samcast.wire.group import Outcome, OutcomeKind
from samcast.wire.order import (
    FOREVER,
    AnyEntry,
    Checkpoint,
    CheckpointEntry,
    CollectEntry,
    GroupRemovedEntry,
    Keep,
    KeepEntry,
    LeaseEntry,
    LeaseLapsedEntry,
    decode_entry,
    encode_entry,
)
from samcast.wire.retention import KeepRequest, LeaseRequest
from tests.group.build import CONFIGURATION, GROUP, GROUP_ENTRY, batch, run_entry

SETTINGS = GroupSettings()
FOLDED = Keep(fold="table", fold_version=1, interval=10)
BOUNDED = KeepEntry(GROUP, Keep(count=1))
RUN = run_entry(batch(1, 100), 1)


def folded(*entries: AnyEntry) -> Core:
    """A group of a hundred messages, and these entries, all of which take effect."""
    core = Core(CONFIGURATION, SETTINGS)
    for entry in (GROUP_ENTRY, RUN, *entries):
        assert core.apply(entry), entry
    return core


def checkpoint(number: int, content: bytes = b"same") -> CheckpointEntry:
    return CheckpointEntry(GROUP, Checkpoint(number, 5, 50, content.ljust(32, b".")))


def lease(name: str, number: int, ttl_ms: int = 1000, nonce: int = 1) -> LeaseEntry:
    return LeaseEntry(GROUP, name, number, ttl_ms, nonce)


@pytest.mark.req("GRP-20")
def test_nothing_is_collected_beyond_the_head_or_twice() -> None:
    core = folded(BOUNDED, CollectEntry(GROUP, 40))
    assert core.collected(GROUP) == 40
    for number in (0, 39, 40, 101):
        assert not core.apply(CollectEntry(GROUP, number))
    assert not core.apply(CollectEntry(9, 1))
    assert core.collected(GROUP) == 40


@pytest.mark.req("GRP-20")
def test_what_a_lease_needs_is_not_collected() -> None:
    core = folded(BOUNDED, lease("archive", 30), lease("query", 50))
    assert not core.apply(CollectEntry(GROUP, 31))
    assert core.apply(CollectEntry(GROUP, 30))
    assert core.apply(lease("archive", 45, nonce=2))
    assert core.apply(CollectEntry(GROUP, 45))
    assert not core.apply(lease("late", 44))  # what it wants is gone
    assert core.apply(lease("archive", 0, ttl_ms=0))  # given back
    assert core.apply(CollectEntry(GROUP, 50))


@pytest.mark.req("GRP-20")
def test_a_lease_that_was_renewed_does_not_lapse() -> None:
    core = folded(BOUNDED, lease("archive", 30, nonce=1), lease("archive", 30, nonce=2))
    assert not core.apply(LeaseLapsedEntry(GROUP, "archive", 1))
    assert core.apply(LeaseLapsedEntry(GROUP, "archive", 2))
    assert core.apply(CollectEntry(GROUP, 90))


@pytest.mark.req("GRP-20")
def test_leases_are_bounded() -> None:
    core = folded(*[lease(f"reader-{i}", 0) for i in range(LEASES_MAX)])
    assert not core.apply(lease("one more", 0))
    assert core.apply(lease("reader-7", 5))


@pytest.mark.req("GRP-16", "GRP-20")
def test_two_generations_of_checkpoints_stay_and_the_messages_above_the_older() -> None:
    core = folded(KeepEntry(GROUP, FOLDED))
    assert not core.apply(CollectEntry(GROUP, 1))
    assert core.apply(checkpoint(20))
    assert not core.apply(CollectEntry(GROUP, 20))  # one generation is not enough
    assert core.apply(checkpoint(50))
    assert not core.apply(CollectEntry(GROUP, 21))
    assert core.apply(CollectEntry(GROUP, 20))
    assert core.apply(checkpoint(60))
    assert [c.number for c in core.retained[GROUP].checkpoints] == [50, 60]
    assert core.apply(CollectEntry(GROUP, 50))


@pytest.mark.req("GRP-20")
def test_what_stays_for_ever_does_so_whatever_fold_there_is() -> None:
    forever = msgspec.structs.replace(FOLDED, count=FOREVER)
    core = folded(KeepEntry(GROUP, forever), checkpoint(20), checkpoint(50))
    assert not core.apply(CollectEntry(GROUP, 20))
    assert not folded().apply(CollectEntry(GROUP, 20))  # nothing was said: the same
    assert core.apply(KeepEntry(GROUP, FOLDED))  # the checkpoints are as good as before
    assert core.apply(CollectEntry(GROUP, 20))


@pytest.mark.req("GRP-20")
def test_settings_from_before_there_was_a_choice_mean_what_they_meant() -> None:
    table = KeepEntry(GROUP, FOLDED)
    old = msgspec.msgpack.encode([13, GROUP, [0, 0, 0, "table", 1, 10, False], None])
    assert decode_entry(old) == table
    assert encode_entry(table) == old  # or chain hashes on disks would be others
    core = folded(decode_entry(old), checkpoint(20), checkpoint(50), CollectEntry(GROUP, 20))
    assert core.collected(GROUP) == 20


@pytest.mark.req("GRP-15", "GRP-16")
def test_checkpoints_rise_and_hold_nothing_uncommitted() -> None:
    core = folded(KeepEntry(GROUP, FOLDED), checkpoint(50))
    assert not core.apply(checkpoint(50))
    assert not core.apply(checkpoint(40))
    assert not core.apply(checkpoint(101))
    assert not Core(CONFIGURATION, SETTINGS).apply(checkpoint(50))
    assert not folded().apply(checkpoint(50))  # a group without a fold has no state


@pytest.mark.req("GRP-15")
def test_states_of_another_fold_are_no_use() -> None:
    core = folded(KeepEntry(GROUP, FOLDED), checkpoint(20), checkpoint(50))
    assert core.apply(KeepEntry(GROUP, msgspec.structs.replace(FOLDED, interval=20)))
    assert len(core.retained[GROUP].checkpoints) == 2
    assert core.apply(KeepEntry(GROUP, msgspec.structs.replace(FOLDED, fold_version=2)))
    assert core.retained[GROUP].checkpoints == []
    assert not core.apply(CollectEntry(GROUP, 20))


@pytest.mark.req("GRP-15")
def test_an_interval_counts_for_messages_behind_it_in_the_order() -> None:
    core = folded(KeepEntry(GROUP, FOLDED))
    assert core.apply(run_entry(batch(101, 50), 101))
    assert core.apply(KeepEntry(GROUP, msgspec.structs.replace(FOLDED, interval=7)))
    assert core.apply(KeepEntry(GROUP, msgspec.structs.replace(FOLDED, interval=7, count=9)))
    again = Core.decode(core.encode(), SETTINGS)
    for intervals in (core.retained[GROUP].intervals, again.retained[GROUP].intervals):
        assert intervals == [(100, 10), (150, 7)]
        assert [interval_at(intervals, n) for n in (1, 100, 101, 150, 151)] == [10, 10, 10, 10, 7]
    assert core.copy().encode() == core.encode() == again.encode()
    for interval in range(1, INTERVALS_MAX + 5):
        core.apply(KeepEntry(GROUP, msgspec.structs.replace(FOLDED, interval=interval)))
    assert len(core.retained[GROUP].intervals) == INTERVALS_MAX


@pytest.mark.req("GRP-20")
def test_a_snapshot_holds_all_of_it_and_one_of_before_is_still_read() -> None:
    core = folded(
        KeepEntry(GROUP, FOLDED), checkpoint(20), checkpoint(50), CollectEntry(GROUP, 20),
        lease("archive", 20),
    )  # fmt: skip
    again = Core.decode(core.encode(), SETTINGS)
    assert again.encode() == core.encode() == core.copy().encode()
    assert again.retained[GROUP].leases == {"archive": (20, 1000, 1)}
    assert again.collected(GROUP) == 20
    before = msgspec.msgpack.encode(msgspec.msgpack.decode(folded().encode())[:7])
    assert Core.decode(before, SETTINGS).retained == {}


@pytest.mark.req("GRP-20")
def test_a_removed_group_keeps_nothing() -> None:
    core = folded(KeepEntry(GROUP, FOLDED), lease("archive", 3), GroupRemovedEntry(GROUP))
    assert core.retained == {}
    assert not core.apply(lease("archive", 3))


@pytest.mark.req("GRP-20")
def test_proposers_hear_what_became_of_it() -> None:
    core = folded(BOUNDED, CollectEntry(GROUP, 40))
    wanted = LeaseRequest(GROUP, "archive", 50, 1000, 7)
    assert core.outcome(1, wanted) is None
    core.apply(lease("archive", 50, nonce=7))
    assert core.outcome(1, wanted) == Outcome(1, OutcomeKind.DONE)
    gone = LeaseRequest(GROUP, "late", 39, 1000, 8)
    assert core.outcome(2, gone) == Outcome(2, OutcomeKind.REFUSED, 40)
    keep = KeepRequest(GROUP, Keep(count=5))
    assert core.outcome(3, keep) is None
    core.apply(KeepEntry(GROUP, Keep(count=5)))
    assert core.outcome(3, keep) == Outcome(3, OutcomeKind.DONE)
    late = KeepRequest(GROUP, Keep(count=9), Keep())  # it hasn't heard of that
    assert core.outcome(5, late) is None
    assert not core.apply(KeepEntry(GROUP, late.keep, late.before))
    assert core.outcome(5, late, is_settled=True) == Outcome(5, OutcomeKind.REFUSED)
    assert core.retained[GROUP].keep == Keep(count=5)
    assert core.apply(KeepEntry(GROUP, late.keep, Keep(count=5)))
    assert core.outcome(4, KeepRequest(99, Keep())) is None  # it may still be made
