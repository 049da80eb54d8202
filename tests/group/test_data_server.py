"""The data server by hand: what it keeps, reports, answers, repairs and drops."""

from itertools import pairwise

import pytest

from samcast.group.data_server import DataServer
from samcast.group.settings import GroupSettings
from samcast.group.storage import (
    DropBatch,
    Filled,
    Freed,
    StoreBatch,
)
from samcast.machine.ports import Effect, NodeId, Received, Send, Store, Stored, Ticked
from samcast.wire.batch import Batch, encode_batch
from samcast.wire.group import (
    Answer,
    AnswerKind,
    Answers,
    Commit,
    DataReport,
    FetchPlease,
    Head,
    HeadRequest,
    Heartbeat,
    PayloadRequest,
    Repair,
    RunKey,
)
from samcast.wire.order import (
    HASH_NONE,
    AnyEntry,
    Epoch,
    EpochEntry,
    GroupEntry,
    GroupRemovedEntry,
)
from tests.group.build import (
    ANN,
    BOB,
    CLIENT,
    GROUP,
    SETTINGS,
    batch,
    codes,
    data_server,
    key_of,
    only,
    reported,
    run_entry,
    sent,
    settle,
)

EPOCH: Epoch = (1, 1, 5)
OPENING: list[AnyEntry] = [EpochEntry(EPOCH), GroupEntry(GROUP, "orders", 10, 1000)]


def commit(server: DataServer, *entries: AnyEntry, epoch: Epoch = EPOCH) -> Received:
    """The next entries of the log are committed."""
    first = server.follower.core.index + 1
    last = first + len(entries) - 1
    return Received(epoch[1], Commit(1, epoch, first, entries, last, HASH_NONE))


def serving(settings: GroupSettings = SETTINGS, node: NodeId = 1) -> DataServer:
    """A data server that has heard of a sequencer and of the group."""
    server = data_server(node, settings=settings)
    settle(server, [commit(server, *OPENING)])
    return server


def arrived(of: Batch, sender: NodeId = CLIENT) -> Received:
    return Received(sender, of)


def reports(effects: list[Effect]) -> list[DataReport]:
    return [m for m in sent(effects) if isinstance(m, DataReport)]


def answers(effects: list[Effect]) -> list[tuple[AnswerKind, int]]:
    found = [m for m in sent(effects, CLIENT) if isinstance(m, Answers)]
    return [(answer.kind, answer.number_first) for m in found for answer in m.answers]


def run_key(of: Batch) -> RunKey:
    return (of.group, of.sender, of.incarnation, of.counter_first)


# Storing and reporting.


@pytest.mark.req("GRP-01")
def test_a_run_is_reported_to_the_sequencer_when_it_is_on_disk_and_not_before() -> None:
    server = serving()
    effects = server.step([arrived(batch(1, 2))])
    (store,) = only(StoreBatch, effects)
    assert store.key == key_of(batch(1, 2))
    assert store.batch == batch(1, 2)
    assert reports(effects) == []
    assert reports(server.step([Ticked(5)])) == []
    effects = server.step([Stored(store.token)])
    (report,) = [m for m in sent(effects, 1) if isinstance(m, DataReport)]
    assert report.runs == (reported(batch(1, 2)),)
    assert (report.epoch, report.uuid) == (EPOCH, 101)


@pytest.mark.req("GRP-02")
def test_one_report_names_all_that_became_durable_together() -> None:
    server = serving()
    runs = [batch(1), batch(2), batch(1, sender=BOB)]
    (report,) = reports(settle(server, [arrived(of) for of in runs]))
    assert report.runs == tuple(reported(of) for of in runs)


def test_long_reports_are_cut() -> None:
    server = serving(GroupSettings(entries_per_message_max=2))
    found = reports(settle(server, [arrived(batch(counter)) for counter in range(1, 6)]))
    assert [len(report.runs) for report in found] == [2, 2, 1]


@pytest.mark.req("GRP-27")
def test_a_report_is_repeated_with_growing_pauses_until_the_run_has_a_number() -> None:
    server = serving()
    settle(server, [arrived(batch(1))])
    times = []
    for now_ms in range(1, 5000, 10):
        beat = Received(1, Heartbeat(1, EPOCH, 2, HASH_NONE, ()))
        if any(report.runs for report in reports(server.step([Ticked(now_ms), beat]))):
            times.append(now_ms)
    assert len(times) >= 4
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses == sorted(pauses)
    settle(server, [commit(server, run_entry(batch(1), 1))])
    later = [server.step([Ticked(now_ms)]) for now_ms in range(5000, 9000, 10)]
    assert not any(report.runs for effects in later for report in reports(effects))


@pytest.mark.req("GRP-21")
def test_a_new_sequencer_hears_of_everything_that_has_no_number() -> None:
    server = serving()
    settle(server, [arrived(batch(1)), arrived(batch(1, sender=BOB))])
    settle(server, [commit(server, run_entry(batch(1), 1))])
    later: Epoch = (2, 3, 7)
    effects = server.step([commit(server, EpochEntry(later), epoch=later)])
    (report,) = [m for m in sent(effects, 3) if isinstance(m, DataReport)]
    assert (report.epoch, report.runs) == (later, (reported(batch(1, sender=BOB)),))


def test_a_run_that_is_here_is_not_stored_again() -> None:
    server = serving()
    assert len(only(StoreBatch, server.step([arrived(batch(1)), arrived(batch(1))]))) == 1
    assert only(StoreBatch, server.step([arrived(batch(1))])) == []


def test_two_contents_for_one_id_are_turned_away_with_a_code() -> None:
    server = serving()
    settle(server, [arrived(batch(1))])
    effects = server.step([arrived(batch(1, text="other"))])
    assert codes(effects) == ["run-conflict"]
    assert only(Store, effects) == []


@pytest.mark.parametrize("of", [batch(4, 3), batch(5), batch(2, 4), batch(3, 9)])
def test_a_run_that_overlaps_another_is_turned_away_with_a_code(of: Batch) -> None:
    server = serving()
    settle(server, [arrived(batch(4, 2))])
    effects = server.step([arrived(of)])
    expected = ["run-conflict"] if of.counter_first == 4 else ["run-overlap"]
    assert codes(effects) == expected
    assert only(Store, effects) == []


@pytest.mark.parametrize("of", [batch(6), batch(3), batch(2, 2), batch(4, 2, sender=BOB)])
def test_a_run_that_only_touches_another_is_taken(of: Batch) -> None:
    server = serving()
    settle(server, [arrived(batch(4, 2))])
    assert len(only(StoreBatch, server.step([arrived(of)]))) == 1


# Bounds.

FEW = GroupSettings(held_runs_max=3, held_runs_reserve=2, client_percent=100)


def full() -> DataServer:
    """Three runs wait, which is the bound; the first of Ann has its number already."""
    server = serving(FEW)
    settle(server, [arrived(batch(1))])
    settle(server, [commit(server, run_entry(batch(1), 1))])
    settle(server, [arrived(batch(counter)) for counter in (3, 4, 5)])
    assert len(server.unnumbered) == 3
    return server


def test_first_transmissions_are_refused_at_the_bound() -> None:
    effects = full().step([arrived(batch(6))])
    assert codes(effects) == ["data-full"]
    assert only(Store, effects) == []


def test_the_lowest_run_of_a_sender_is_taken_from_the_reserve() -> None:
    server = full()
    for of in (batch(2), batch(1, sender=BOB)):
        assert len(only(StoreBatch, server.step([arrived(of)]))) == 1
    assert codes(server.step([arrived(batch(1, sender=bytes(16)))])) == ["data-full"]


@pytest.mark.req("GRP-27")
def test_what_the_sequencer_has_us_fetch_is_taken_from_the_reserve() -> None:
    server = full()
    wanted = batch(6)
    please = FetchPlease(EPOCH, (run_key(wanted),), (), (3,))
    effects = server.step([Received(1, please)])
    assert only(Send, effects) == [Send(3, PayloadRequest((run_key(wanted),)))]
    effects = server.step([Received(3, Repair(((0, encode_batch(wanted)),)))])
    assert [store.key for store in only(StoreBatch, effects)] == [key_of(wanted)]


@pytest.mark.req("GRP-27")
def test_a_committed_run_is_taken_whatever_the_bound() -> None:
    server = full()
    settle(server, [commit(server, run_entry(batch(1, 2, sender=BOB), 2))])
    effects = server.step([arrived(batch(1, 2, sender=BOB))])
    assert [store.key for store in only(StoreBatch, effects)] == [key_of(batch(1, 2, sender=BOB))]


def test_a_full_disk_takes_nothing_until_there_is_room_again() -> None:
    server = serving()
    effects = server.step([Filled(), arrived(batch(1))])
    assert codes(effects) == ["data-full"]
    assert only(StoreBatch, server.step([Freed(), arrived(batch(1))])) != []


# Answering.


@pytest.mark.req("GRP-26")
def test_a_run_is_confirmed_to_its_sender_by_one_data_server_when_it_is_committed() -> None:
    told = []
    for node in (1, 2, 3):
        server = serving(node=node)
        settle(server, [arrived(batch(1))])
        told += answers(server.step([commit(server, run_entry(batch(1), 1))]))
    assert told == [(AnswerKind.NUMBER, 1)]


@pytest.mark.req("GRP-26")
def test_a_retransmission_is_answered_with_the_number_by_every_data_server() -> None:
    server = serving(node=3)
    settle(server, [arrived(batch(1, 2))])
    settle(server, [commit(server, run_entry(batch(1, 2), 1))])
    effects = server.step([arrived(batch(1, 2))])
    of = batch(1, 2)
    answer = Answer(AnswerKind.NUMBER, GROUP, ANN, 1, 1, 2, 1, of.digest)
    assert sent(effects, CLIENT) == [Answers((answer,), GROUP, 2)]
    assert only(Store, effects) == []


@pytest.mark.req("GRP-26")
def test_a_run_that_is_not_committed_gets_no_number_for_an_answer() -> None:
    server = serving()
    settle(server, [arrived(batch(1))])
    assert sent(server.step([arrived(batch(1))]), CLIENT) == []


@pytest.mark.req("GRP-26")
def test_other_content_under_a_numbered_id_is_answered_with_conflict() -> None:
    server = serving()
    settle(server, [arrived(batch(1))])
    settle(server, [commit(server, run_entry(batch(1), 1))])
    assert answers(server.step([arrived(batch(1, text="other"))])) == [(AnswerKind.CONFLICT, 0)]


@pytest.mark.req("GRP-19")
def test_a_run_that_can_never_be_numbered_is_answered_and_not_stored() -> None:
    server = serving()
    settle(server, [commit(server, run_entry(batch(1, 15, sender=BOB), 1))])
    effects = server.step([arrived(batch(1, birth=5))])
    assert answers(effects) == [(AnswerKind.EXPIRED, 0)]
    assert only(Store, effects) == []


@pytest.mark.req("GRP-12")
def test_the_head_is_told_to_anybody_once_anything_is_known() -> None:
    assert sent(data_server().step([Received(CLIENT, HeadRequest(GROUP))]), CLIENT) == []
    server = serving()
    settle(server, [commit(server, run_entry(batch(1, 4), 1))])
    assert sent(server.step([Received(CLIENT, HeadRequest(GROUP))]), CLIENT) == [Head(GROUP, 4)]


# Dropping.


@pytest.mark.req("GRP-19")
def test_only_what_is_born_below_the_floor_is_dropped() -> None:
    server = serving()
    runs = [batch(1), batch(1, sender=BOB, birth=4)]
    settle(server, [arrived(of) for of in runs])
    filler = batch(1, 9, sender=bytes(16))
    effects = server.step([commit(server, run_entry(filler, 1))])
    assert only(DropBatch, effects) == []  # the floor is 0: the head is 9 and a lifetime is 10
    more = batch(10, 3, sender=filler.sender, birth=9)
    effects = server.step([commit(server, run_entry(more, 10))])
    assert only(DropBatch, effects) == [DropBatch(key_of(runs[0]))]
    assert key_of(runs[1]) in server.unnumbered


@pytest.mark.req("GRP-19")
def test_time_alone_drops_nothing() -> None:
    server = serving()
    settle(server, [arrived(batch(1))])
    for now_ms in range(0, 10**7, 10**5):
        assert only(DropBatch, server.step([Ticked(now_ms)])) == []


def test_the_runs_of_a_removed_group_are_dropped() -> None:
    server = serving()
    settle(server, [arrived(batch(1)), arrived(batch(1, group=2))])
    effects = server.step([commit(server, GroupRemovedEntry(GROUP))])
    assert only(DropBatch, effects) == [DropBatch(key_of(batch(1)))]
