"""Following the committed log: a contiguous prefix, never a guess, and how holes are filled."""

from itertools import pairwise

import pytest

from samcast.group.core import Core
from samcast.group.follower import SNAPSHOT_BYTES_MAX, Follower
from samcast.group.settings import GroupSettings
from samcast.machine.ports import Effect, Send
from samcast.wire.group import (
    Commit,
    CommitSubmit,
    Heartbeat,
    OrderReply,
    OrderRequest,
    SnapshotReply,
    SnapshotRequest,
)
from samcast.wire.order import HASH_NONE, AnyEntry, Epoch, EpochEntry
from tests.group.build import CONFIGURATION, GROUP_ENTRY, batch, codes, run_entry, sent

E1: Epoch = (1, 1, 1)
E2: Epoch = (2, 2, 2)
SETTINGS = GroupSettings(entries_per_message_max=5)
LOG: list[AnyEntry] = [
    EpochEntry(E1),
    GROUP_ENTRY,
    *(run_entry(batch(counter), counter) for counter in range(1, 9)),
]
OTHER: AnyEntry = run_entry(batch(1, text="other"), 1)


def follower() -> Follower:
    return Follower(50, CONFIGURATION, SETTINGS)


def submit(epoch: Epoch, first: int, *entries: AnyEntry, committed: int = 0) -> CommitSubmit:
    return CommitSubmit(1, epoch, first, entries, committed, HASH_NONE)


def commit(epoch: Epoch, first: int, *entries: AnyEntry) -> Commit:
    return Commit(1, epoch, first, entries, first + len(entries) - 1, HASH_NONE)


def beat(epoch: Epoch, committed: int) -> Heartbeat:
    return Heartbeat(1, epoch, committed, HASH_NONE, ())


def reply(first: int, *entries: AnyEntry, committed: int, low_water: int = 0) -> OrderReply:
    return OrderReply(1, E1, first, entries, committed, HASH_NONE, low_water)


def take(of: Follower, *messages: Commit | Heartbeat | CommitSubmit) -> list[tuple[int, AnyEntry]]:
    committed: list[tuple[int, AnyEntry]] = []
    for message in messages:
        if isinstance(message, CommitSubmit):
            of.on_submit(message, 0, committed)
        else:
            of.on_claim(message, 0, committed)
    return committed


def test_entries_of_a_commit_are_folded_in_order() -> None:
    one = follower()
    assert take(one, commit(E1, 1, *LOG[:3])) == list(enumerate(LOG[:3], 1))
    assert take(one, commit(E1, 2, *LOG[1:5])) == list(enumerate(LOG[3:5], 4))
    assert one.core.index == 5
    assert not one.is_behind


@pytest.mark.req("GRP-27")
def test_entries_behind_a_hole_wait_until_it_is_filled() -> None:
    one = follower()
    assert take(one, commit(E1, 3, *LOG[2:4])) == []
    assert one.is_behind
    assert [index for index, _ in take(one, commit(E1, 1, *LOG[:2]))] == [1, 2, 3, 4]


@pytest.mark.req("GRP-07")
def test_what_is_only_submitted_is_not_folded() -> None:
    one = follower()
    assert take(one, submit(E1, 1, *LOG[:4])) == []
    assert one.core.index == 0


@pytest.mark.req("GRP-07")
def test_a_claim_of_the_same_epoch_commits_what_was_overheard_up_to_its_index() -> None:
    one = follower()
    taken = take(one, submit(E1, 1, *LOG[:4]), beat(E1, 3))
    assert taken == list(enumerate(LOG[:3], 1))
    assert take(one, submit(E1, 5, *LOG[4:5], committed=4)) == [(4, LOG[3])]


@pytest.mark.req("GRP-07")
@pytest.mark.parametrize("claims", [[beat(E2, 4)], [beat(E2, 4), beat((1, 1, 2), 4)]])
def test_a_claim_of_another_epoch_never_commits_what_was_overheard(claims: list[Heartbeat]) -> None:
    one = follower()
    assert take(one, submit(E1, 1, *LOG[:4]), *claims) == []
    assert one.core.index == 0
    assert one.is_behind  # something is committed there, but it need not be this


@pytest.mark.req("GRP-07")
def test_a_submit_of_a_higher_epoch_makes_forget_what_was_overheard_before() -> None:
    one = follower()
    take(one, submit(E1, 1, *LOG[:2]), submit(E1, 3, OTHER), submit(E2, 4, LOG[3]))
    assert take(one, beat(E1, 4)) == []
    assert take(one, beat(E2, 4)) == []  # 4 is committed, and lies behind a hole
    assert [e for _, e in take(one, commit(E2, 1, *LOG[:3]))] == LOG[:4]


def test_what_was_overheard_before_takes_no_room_in_a_higher_epoch() -> None:
    one = follower()
    take(one, *(submit(E1, index, OTHER) for index in range(1, 9)))
    assert [e for _, e in take(one, submit(E2, 1, *LOG[:5]), beat(E2, 5))] == LOG[:5]


def test_a_late_submit_of_a_lower_epoch_is_not_remembered() -> None:
    one = follower()
    take(one, submit(E2, 1, *LOG[:2]), submit(E1, 3, OTHER))
    assert [e for _, e in take(one, beat(E2, 9))] == LOG[:2]


def test_the_newest_epoch_that_was_heard_of_never_falls() -> None:
    one = follower()
    take(one, beat(E2, 0), beat(E1, 0), submit(E1, 1, *LOG[:1]))
    assert one.epoch == E2


def test_what_waits_behind_a_hole_is_bounded() -> None:
    one = follower()
    take(one, *(commit(E1, index, LOG[1]) for index in range(5, 100)))
    assert len(one._ahead) == SETTINGS.entries_per_message_max
    take(one, *(submit(E1, index, LOG[1]) for index in range(5, 100)))
    assert len(one._overheard) == SETTINGS.entries_per_message_max
    assert [index for index, _ in take(one, commit(E1, 1, LOG[0]))] == [1]  # the next has room


# Asking.


@pytest.mark.req("GRP-27")
def test_a_hole_is_asked_for_from_one_commit_server_after_the_other() -> None:
    one, out = follower(), list[Effect]()
    take(one, commit(E1, 1, *LOG[:2]), beat(E1, 6))
    for now_ms in (0, 1000, 5000):
        one.on_tick(now_ms, out)
    assert sent(out) == [OrderRequest(3)] * 3
    asked = [effect.to for effect in out if isinstance(effect, Send)]
    assert sorted(asked) == [1, 2, 3]


def test_nothing_is_asked_while_nothing_is_missing_and_somebody_is_heard() -> None:
    one, out = follower(), list[Effect]()
    take(one, commit(E1, 1, *LOG[:2]))
    one.on_tick(SETTINGS.suspect_ms - 1, out)
    assert out == []
    one.on_tick(SETTINGS.suspect_ms, out)
    assert sent(out) == [OrderRequest(3)]


def test_questions_come_less_often_while_nobody_answers() -> None:
    one, out, times = follower(), list[Effect](), list[int]()
    take(one, beat(E1, 6))
    for now_ms in range(10_000):
        before = len(out)
        one.on_tick(now_ms, out)
        times += [now_ms] * (len(out) - before)
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits == sorted(waits)
    assert max(waits) == SETTINGS.retry_max_ms


@pytest.mark.req("GRP-27")
def test_an_answer_that_leaves_something_missing_is_followed_by_the_next_question() -> None:
    one, out = follower(), list[Effect]()
    committed: list[tuple[int, AnyEntry]] = []
    one.on_order_reply(2, reply(1, *LOG[:5], committed=10), 0, committed, out)
    assert sent(out, 2) == [OrderRequest(6)]
    out.clear()
    one.on_order_reply(2, reply(6, *LOG[5:], committed=10), 0, committed, out)
    assert out == []
    assert committed == list(enumerate(LOG, 1))


# Snapshots.


def snapshot(index: int = 7) -> tuple[Core, bytes]:
    core = Core(CONFIGURATION, SETTINGS)
    for entry in LOG[:index]:
        core.apply(entry)
    return core, core.encode()


def waiting() -> Follower:
    """A follower that has heard that the entries it lacks are gone."""
    one, out = follower(), list[Effect]()
    one.on_order_reply(2, reply(1, committed=10, low_water=7), 0, [], out)
    assert sent(out, 2) == [SnapshotRequest(7, 0)]
    return one


@pytest.mark.req("GRP-27")
def test_where_entries_are_gone_the_snapshot_is_fetched_in_pieces() -> None:
    one, out = waiting(), list[Effect]()
    core, state = snapshot()
    half = len(state) // 2
    assert not one.on_snapshot_reply(2, SnapshotReply(7, 0, len(state), state[:half]), 0, out)
    assert sent(out, 2) == [SnapshotRequest(7, half)]
    assert one.on_snapshot_reply(2, SnapshotReply(7, half, len(state), state[half:]), 0, out)
    assert one.core.encode() == core.encode()


def test_entries_that_came_before_the_snapshot_follow_it() -> None:
    one = waiting()
    _, state = snapshot()
    take(one, commit(E1, 8, LOG[7]))
    assert one.on_snapshot_reply(2, SnapshotReply(7, 0, len(state), state), 0, [])
    assert take(one, commit(E1, 9, LOG[8])) == [(8, LOG[7]), (9, LOG[8])]


def test_a_piece_that_does_not_follow_is_passed_over() -> None:
    one, out = waiting(), list[Effect]()
    core, state = snapshot()
    half = len(state) // 2
    first = SnapshotReply(7, 0, len(state), state[:half])
    for piece in (first, SnapshotReply(7, half + 1, len(state), state[half + 1 :])):
        assert not one.on_snapshot_reply(2, piece, 0, out)
    assert one.on_snapshot_reply(2, SnapshotReply(7, half, len(state), state[half:]), 0, out)
    assert one.core.encode() == core.encode()


def test_a_later_snapshot_than_the_truncation_is_not_taken() -> None:
    one, out = waiting(), list[Effect]()
    _, later = snapshot(9)
    for index in (7, 9):  # under its own name or another
        assert not one.on_snapshot_reply(3, SnapshotReply(index, 0, len(later), later), 0, out)
    assert one.core.index == 0
    assert codes(out) == ["snapshot-other"]


def test_a_snapshot_that_nobody_asked_for_changes_nothing() -> None:
    one = follower()
    _, state = snapshot()
    assert not one.on_snapshot_reply(2, SnapshotReply(7, 0, len(state), state), 0, [])
    assert one.core.index == 0


def test_a_snapshot_that_is_behind_changes_nothing() -> None:
    one = waiting()
    take(one, commit(E1, 1, *LOG[:5]), commit(E1, 6, *LOG[5:9]))
    before = one.core.encode()
    _, state = snapshot()
    assert not one.on_snapshot_reply(2, SnapshotReply(7, 0, len(state), state), 0, [])
    assert one.core.encode() == before


@pytest.mark.parametrize(
    ("piece", "code"),
    [
        (SnapshotReply(7, 0, SNAPSHOT_BYTES_MAX + 1, b"x"), "snapshot-size"),
        (SnapshotReply(7, 0, 5, b""), "snapshot-size"),
        (SnapshotReply(7, 0, 3, b"\xc1\xc1\xc1"), "snapshot-malformed"),
        (SnapshotReply(7, 0, 1, b"\x90"), "snapshot-malformed"),
    ],
)
def test_a_snapshot_that_makes_no_sense_is_turned_away_with_a_code(
    piece: SnapshotReply, code: str
) -> None:
    one, out = waiting(), list[Effect]()
    assert not one.on_snapshot_reply(2, piece, 0, out)
    assert codes(out) == [code]
    assert one.core.index == 0
