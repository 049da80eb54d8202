"""What a data server takes in: what its fold knows, within shares, and what it says of the rest."""

import pytest

from samcast.group.data_server import DataServer
from samcast.group.listing import DataRecovery, FoundBatch
from samcast.group.payloads import Held
from samcast.group.settings import GroupSettings
from samcast.group.storage import DropBatch, StoreBatch
from samcast.machine.ports import Effect, NodeId, Received, Ticked
from samcast.wire.batch import Batch, encode_batch
from samcast.wire.blocked import Blocked, Reason
from samcast.wire.group import AnswerKind, Answers, Heartbeat, OrderRequest, PayloadRequest, Repair
from samcast.wire.order import CELL, HASH_NONE, GroupEntry, GroupRemovedEntry, unnamed_sender
from tests.group.build import (
    ANN,
    BOB,
    CLIENT,
    GROUP,
    NAMED,
    OWNER,
    SETTINGS,
    batch,
    data_server,
    key_of,
    only,
    open_entry,
    run_entry,
    sent,
    settle,
)
from tests.group.test_data_server import EPOCH, OPENING, arrived, commit, reports, serving

SMALL = GroupSettings(
    held_runs_max=10,
    held_runs_reserve=10,
    held_stages_max=10,
    decision_stages_max=2,
    client_percent=20,
    staged_bytes_max=500,
)
OTHER = CLIENT + 1
HOUR_MS = 3_600_000


def stored(effects: list[Effect]) -> list[Batch]:
    return [store.batch for store in only(StoreBatch, effects)]


def blocked(effects: list[Effect], to: NodeId = CLIENT) -> list[tuple[int, int]]:
    found = [m for m in sent(effects, to) if isinstance(m, Blocked)]
    return [(reason, bound) for m in found for _, reason, bound in m.batches]


def tiny(number: int) -> bytes:
    """One of very many senders."""
    return unnamed_sender((number << 8).to_bytes(16, "little"))


def beat(server: DataServer) -> Received:
    return Received(1, Heartbeat(1, EPOCH, server.follower.core.index, HASH_NONE, ()))


# What is not known yet.


@pytest.mark.parametrize(
    ("of", "entry"),
    [
        (batch(1, group=GROUP + 1), GroupEntry(GROUP + 1, "later", 10, 1000)),
        (batch(1, birth=1), run_entry(batch(1, sender=BOB), 1)),
        (batch(1, sender=NAMED), open_entry()),
        (batch(1, sender=OWNER, stage=1), open_entry(sender=OWNER, scope=CELL)),
    ],
    ids=["group", "birth", "name", "owner"],
)
def test_what_the_fold_does_not_know_yet_is_stored_once_it_does(
    of: Batch, entry: GroupEntry
) -> None:
    server = serving()
    effects = server.step([arrived(of)])
    assert stored(effects) == []
    assert sent(effects, CLIENT) == []
    assert stored(server.step([commit(server, entry)])) == [of]


def test_a_server_that_has_just_started_refuses_nothing() -> None:
    server = data_server()
    of = batch(1)
    effects = server.step([arrived(of), Ticked(HOUR_MS)])
    assert (stored(effects), sent(effects, CLIENT)) == ([], [])
    server.step([arrived(of)])
    assert stored(server.step([commit(server, *OPENING)])) == [of]


def test_a_batch_that_waits_has_its_server_ask_what_it_may_have_missed() -> None:
    server = serving()
    settle(server, [Ticked(1000), beat(server)])
    effects = server.step([arrived(batch(1, group=GROUP + 1))])
    assert sent(effects) == [OrderRequest(server.follower.core.index + 1)]
    effects = server.step([Ticked(1001), arrived(batch(2, group=GROUP + 1))])
    assert sent(effects) == []  # Not for each.


def test_a_batch_that_waits_is_not_asked_for_when_it_turns_out_to_be_numbered() -> None:
    server = data_server()
    of = batch(1)
    server.step([Ticked(1), arrived(of)])
    effects = server.step([commit(server, *OPENING, run_entry(of, 1))])
    assert stored(effects) == [of]
    assert [m for m in sent(effects) if isinstance(m, PayloadRequest)] == []


def test_who_is_behind_never_says_that_something_is_not_there() -> None:
    server = serving()
    server.step([Ticked(1), arrived(batch(1, group=9))])
    behind = Received(1, Heartbeat(1, EPOCH, server.follower.core.index + 1, HASH_NONE, ()))
    assert blocked(server.step([Ticked(HOUR_MS), behind])) == []


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (batch(1, group=9), Reason.UNKNOWN_GROUP),
        (batch(1, birth=2**40), Reason.BORN_AHEAD),
        (batch(1, sender=NAMED), Reason.UNKNOWN_NAME),
        (batch(1, sender=OWNER, stage=1), Reason.UNKNOWN_NAME),
    ],
    ids=["group", "birth", "name", "owner"],
)
def test_what_stays_unknown_is_let_go_and_its_client_alone_is_told_why(
    of: Batch, reason: Reason
) -> None:
    server = serving()
    server.step([Ticked(1), arrived(of)])
    assert len(server.admitting.room) == 1
    effects = server.step([Ticked(server.due_ms()), beat(server)])
    effects += server.step([Ticked(HOUR_MS), beat(server)])
    assert blocked(effects) == [(reason, 0)]
    assert [m for m in sent(effects) if isinstance(m, Answers)] == []  # It is no outcome.
    assert len(server.admitting.room) == 0
    assert stored(effects) == []


def test_the_waiting_room_is_bounded_for_each_client_and_for_all() -> None:
    server = serving(GroupSettings(waiting_runs_max=10, client_percent=20))
    for client in range(CLIENT, CLIENT + 20):
        server.step([arrived(batch(n, group=9, sender=tiny(client)), client) for n in range(1, 9)])
        assert len(server.admitting.room) == min(10, 2 * (client - CLIENT + 1))


def test_the_waiting_room_is_bounded_in_bytes_but_for_the_first_of_a_client() -> None:
    server = serving(GroupSettings(waiting_bytes_max=800, client_percent=10))
    large = [batch(n, group=9, text="x" * 300) for n in (1, 2)]
    server.step([arrived(of) for of in large])
    assert len(server.admitting.room) == 1
    for client in range(OTHER, OTHER + 5):
        server.step([arrived(batch(1, group=9, sender=tiny(client), text="x" * 300), client)])
    assert len(server.admitting.room) == 2


# Shares.


def test_one_client_takes_its_share_and_others_go_on() -> None:
    server = serving(SMALL)
    effects = settle(server, [arrived(batch(5, sender=tiny(n))) for n in range(50)])
    assert len(stored(effects)) == 2
    assert set(blocked(effects)) == {(Reason.CLIENT_RUNS, 2)}
    assert len(stored(settle(server, [arrived(batch(2), OTHER), arrived(batch(1), OTHER)]))) == 2


def test_what_a_client_brought_and_got_numbers_for_takes_no_share() -> None:
    server = serving(SMALL)
    for number in range(1, 8):
        of = batch(1, sender=tiny(number))
        assert stored(settle(server, [arrived(of)])) == [of]
        settle(server, [commit(server, run_entry(of, number))])
    assert server.unnumbered.usage.of_client(CLIENT).runs == 0


def test_the_reserve_is_shared_out_too() -> None:
    server = serving(SMALL)
    effects = settle(server, [arrived(batch(1, sender=tiny(n))) for n in range(50)])
    assert len(stored(effects)) == 4  # Two, and two of the reserve.
    for client in range(OTHER, OTHER + 3):
        settle(server, [arrived(batch(1, sender=tiny(client * 99 + n)), client) for n in range(9)])
    assert stored(settle(server, [arrived(batch(1), OTHER + 9)])) == [batch(1)]


def test_the_reserve_is_for_what_can_be_numbered_at_once() -> None:
    """A name that is not open, or a counter behind a gap, would stay there."""
    server = serving(GroupSettings(held_runs_max=1, held_runs_reserve=2, client_percent=100))
    settle(server, [arrived(batch(7, sender=tiny(1)))])
    assert stored(settle(server, [arrived(batch(2)), arrived(batch(1, sender=NAMED))])) == []
    assert stored(settle(server, [arrived(batch(1))])) == [batch(1)]


def test_one_sender_has_no_more_than_it_may_have_under_way() -> None:
    server = serving(GroupSettings(sender_runs_max=2))
    effects = settle(server, [arrived(batch(counter)) for counter in range(2, 20)])
    assert len(stored(effects)) == 4
    assert set(blocked(effects)) == {(Reason.SENDER_RUNS, 4)}
    assert stored(settle(server, [arrived(batch(1))])) == [batch(1)]


def staging(settings: GroupSettings) -> DataServer:
    server = serving(settings)
    names = [open_entry(sender=owner, scope=CELL) for owner in (OWNER, NAMED)]
    settle(server, [commit(server, *names)])
    return server


def test_stages_have_shares_by_client_and_by_owner() -> None:
    server = staging(SMALL)
    effects = settle(server, [arrived(batch(1, sender=OWNER, stage=n)) for n in range(1, 9)])
    assert len(stored(effects)) == 2
    assert set(blocked(effects)) == {(Reason.CLIENT_STAGES, 2)}
    effects = settle(server, [arrived(batch(1, sender=OWNER, stage=9), OTHER)])
    assert (stored(effects), blocked(effects, OTHER)) == ([], [(Reason.OWNER_STAGES, 2)])
    other = batch(1, sender=NAMED, stage=1)
    assert stored(settle(server, [arrived(other, OTHER)])) == [other]
    assert stored(settle(server, [arrived(batch(1), OTHER)])) == [batch(1)]


def test_stages_are_bounded_in_bytes() -> None:
    server = staging(SMALL)
    of = batch(1, sender=OWNER, stage=1, text="x" * 600)
    effects = settle(server, [arrived(of)])
    assert (stored(effects), blocked(effects)) == ([], [(Reason.CLIENT_BYTES, 500)])


def test_a_thousand_large_stages_are_within_the_shares() -> None:
    server = staging(SETTINGS)
    for stage in range(1, 1001):
        key = key_of(batch(1, sender=OWNER, stage=stage))
        assert server.admitting.bound_of_stage(CLIENT, key, 2**24) is None
        held = Held(1, 0, bytes(16), 0, 2**24)
        held.client = CLIENT
        server.unnumbered.add(key, held)


# What is always taken.


def test_a_run_that_another_server_holds_needs_no_share() -> None:
    server = serving(SMALL)
    settle(server, [arrived(batch(5, sender=tiny(n)), 1000 + n) for n in range(20)])
    assert len(server.unnumbered) == 10
    fetched = [batch(5, sender=tiny(100 + n)) for n in range(12)]
    effects = settle(server, [Received(2, Repair(tuple((0, encode_batch(of)) for of in fetched)))])
    assert stored(effects) == fetched[:10]
    next_one = batch(1, sender=tiny(999))
    assert stored(settle(server, [Received(2, Repair(((0, encode_batch(next_one)),)))])) == [
        next_one
    ]


def full_of_junk(settings: GroupSettings, many: int) -> DataServer:
    """A server that finds so many stranded runs on its disk."""
    junk = [batch(1, sender=tiny(n), group=77) for n in range(many)]
    found = [FoundBatch(key_of(of), of.count, of.birth, of.digest, 0) for of in junk]
    server = data_server(settings=settings, recovery=DataRecovery(101, (), found))
    settle(server, [commit(server, *OPENING)])
    assert len(server.unnumbered) == many
    return server


def test_junk_from_before_a_restart_keeps_nobody_out() -> None:
    server = full_of_junk(SMALL, 3 * (SMALL.held_runs_max + SMALL.held_runs_reserve))
    for number in range(1, 4):
        of = batch(number)
        assert stored(settle(server, [arrived(of)])) == [of]
        effects = settle(server, [commit(server, run_entry(of, number))])
        assert only(DropBatch, effects) == []  # What may still be numbered one day stays.


# Reports of what is stranded.


def report_times(server: DataServer, until_ms: int) -> list[int]:
    times: list[int] = []
    while (now_ms := server.due_ms()) < until_ms:
        if any(report.runs for report in reports(server.step([Ticked(now_ms), beat(server)]))):
            times.append(now_ms)
    return times


def test_stranded_runs_are_reported_ever_more_rarely() -> None:
    server = serving()
    settle(server, [Ticked(1), arrived(batch(7))])
    assert len(report_times(server, HOUR_MS)) < 45  # Every second that would be 3600.


def test_a_run_whose_turn_has_come_is_reported_at_once() -> None:
    server = serving()
    settle(server, [Ticked(1), arrived(batch(2))])
    report_times(server, HOUR_MS)
    (report,) = [
        r for r in reports(server.step([commit(server, run_entry(batch(1), 1))])) if r.runs
    ]
    assert [run.counter_first for run in report.runs] == [2]


def test_a_run_that_is_next_in_line_is_reported_every_second() -> None:
    server = serving()
    settle(server, [Ticked(1), arrived(batch(1))])
    assert len(report_times(server, HOUR_MS // 60)) >= 59


# The end of a group.


def test_a_run_of_a_group_that_was_removed_is_answered_for_good() -> None:
    server = serving()
    settle(server, [commit(server, GroupRemovedEntry(GROUP))])
    effects = server.step([arrived(batch(1, sender=ANN))])
    (answers,) = [m for m in sent(effects, CLIENT) if isinstance(m, Answers)]
    assert [answer.kind for answer in answers.answers] == [AnswerKind.NO_GROUP]
