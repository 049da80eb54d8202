"""The sequencer by hand: what is submitted when, what commits, and what everybody hears."""

import msgspec
import pytest

from samcast.group.commit_server import CommitServer
from samcast.group.settings import GroupSettings
from samcast.machine.ports import Channel, Effect, Multicast, Received, Send, Store, Stored, Ticked
from samcast.wire.change import Join, Moved
from samcast.wire.group import (
    Commit,
    CommitAck,
    CommitSubmit,
    GroupRequest,
    Heartbeat,
    Refusal,
    Start,
    StartReply,
)
from samcast.wire.order import (
    HASH_NONE,
    AnyEntry,
    ConfigEntry,
    Epoch,
    EpochEntry,
    GroupEntry,
    Server,
    TruncateEntry,
)
from tests.group.build import (
    BOB,
    CONFIGURATION,
    GROUP_ENTRY,
    SETTINGS,
    ack,
    batch,
    codes,
    epoch_of,
    hush,
    led_cell,
    only,
    promise,
    report,
    run_entry,
    sent,
    settle,
    stand,
    submitted,
)

BEFORE = GroupSettings(is_before=True)


def leader(settings: GroupSettings = SETTINGS) -> CommitServer:
    return led_cell(settings, with_data=False).leader


def commits(effects: list[Effect]) -> list[Commit]:
    return [m for m in sent(effects) if isinstance(m, Commit)]


def number_one(server: CommitServer) -> list[Effect]:
    """Have one run numbered: it gets index 3."""
    return server.step([report(server, 1, batch(1)), report(server, 2, batch(1))])


def to_self(server: CommitServer, effects: list[Effect]) -> list[Effect]:
    """Bring a submit back to the sequencer's own commit server."""
    submits = [m for m in sent(effects) if isinstance(m, CommitSubmit)]
    return server.step([Received(server.node, submit) for submit in submits])


def stored(server: CommitServer, effects: list[Effect]) -> list[Effect]:
    """The disk has what a step gave it; its acknowledgement comes back to the sequencer."""
    done = server.step([Stored(max(store.token for store in only(Store, effects)))])
    acks = [m for m in sent(done, server.node) if isinstance(m, CommitAck)]
    return [*done, *server.step([Received(server.node, a) for a in acks])]


# Before and parallel.


@pytest.mark.req("GRP-06")
def test_in_parallel_commit_servers_hear_of_a_number_at_once() -> None:
    server = leader()
    effects = number_one(server)
    (submit,) = only(Multicast, effects)
    assert submit.channel is Channel.COMMIT
    assert submitted([submit]) == [run_entry(batch(1), 1)]


@pytest.mark.req("GRP-05")
def test_with_before_other_commit_servers_hear_only_of_numbers_on_the_own_disk() -> None:
    server = leader(BEFORE)
    effects = number_one(server)
    assert only(Multicast, effects) == []
    assert [effect.to for effect in only(Send, effects)] == [server.node]
    writing = to_self(server, effects)
    assert len(only(Store, writing)) == 1
    assert not [e for e in sent(writing) if isinstance(e, CommitSubmit)]
    after = stored(server, writing)
    assert submitted(only(Multicast, after)) == [run_entry(batch(1), 1)]


@pytest.mark.req("GRP-05")
def test_with_before_a_number_that_the_own_disk_never_got_stays_unheard() -> None:
    server = leader(BEFORE)
    number_one(server)
    for now_ms in range(server.now_ms, server.now_ms + 1000, 50):
        effects = server.step([Ticked(now_ms), ack(server, 2, 2), ack(server, 3, 2)])
        assert not [e.to for e in only(Send, effects) if isinstance(e.message, CommitSubmit)
                    and e.to != server.node]  # fmt: skip
        assert submitted(only(Multicast, effects)) == []


@pytest.mark.req("GRP-05")
def test_the_own_disk_counts_as_one_of_k_commit() -> None:
    server = leader()
    writing = to_self(server, number_one(server))
    assert commits(stored(server, writing)) == []
    assert len(commits(server.step([ack(server, 3, 3)]))) == 1


# Committing.


@pytest.mark.req("GRP-07")
def test_a_number_is_committed_by_the_kth_acknowledgement_and_told_in_the_same_turn() -> None:
    server = leader()
    number_one(server)
    assert commits(server.step([ack(server, 2, 3)])) == []
    (commit,) = commits(server.step([ack(server, 3, 3)]))
    assert commit.entries == (run_entry(batch(1), 1),)
    assert (commit.index_first, commit.committed) == (3, 3)
    assert server.sequencer is not None
    assert commit.committed_hash == server.sequencer.log.hash_at(3)


@pytest.mark.req("GRP-07")
@pytest.mark.parametrize(
    "change",
    [
        {"epoch": (9, 9, 9)},
        {"epoch": (1, 1, 1)},
        {"configuration": 0},
        {"configuration": 2},
        {"uuid": 999},
        {"uuid": 102},
        {"index": 2},
    ],
    ids=str,
)
def test_an_acknowledgement_that_is_not_of_this_log_on_a_listed_disk_does_not_count(
    change: dict[str, object],
) -> None:
    server = leader()
    number_one(server)
    server.step([ack(server, 2, 3)])
    other = msgspec.structs.replace(ack(server, 3, 3).message, **change)
    assert commits(server.step([Received(3, other)])) == []
    assert commits(server.step([ack(server, 99, 3)])) == []
    assert len(commits(server.step([ack(server, 3, 3)]))) == 1


@pytest.mark.req("GRP-07")
def test_the_same_server_twice_is_no_quorum() -> None:
    server = leader()
    number_one(server)
    assert commits(server.step([ack(server, 2, 3), ack(server, 2, 3)])) == []


def test_an_acknowledgement_of_an_index_that_was_never_submitted_is_turned_away() -> None:
    server = leader()
    effects = server.step([ack(server, 2, 9), ack(server, 3, 2**63 - 1)])
    assert codes(effects) == ["ack-of-unknown-index"] * 2
    assert commits(effects) == []


def test_a_lower_acknowledgement_takes_nothing_back() -> None:
    server = leader()
    number_one(server)
    server.step([ack(server, 2, 3), ack(server, 2, 1)])
    assert len(commits(server.step([ack(server, 3, 3)]))) == 1


@pytest.mark.req("GRP-27")
def test_who_says_that_it_is_behind_gets_what_it_lacks() -> None:
    server = leader()
    number_one(server)
    behind = msgspec.structs.replace(ack(server, 2, 2).message, is_behind=True)
    assert submitted(only(Send, server.step([Received(2, behind)]))) == [run_entry(batch(1), 1)]


@pytest.mark.req("GRP-27")
def test_what_is_not_acknowledged_is_sent_again() -> None:
    server = leader()
    number_one(server)
    effects = server.step([Ticked(server.now_ms + SETTINGS.retry_max_ms)])
    again = [e for e in only(Send, effects) if isinstance(e.message, CommitSubmit)]
    assert [effect.to for effect in again] == [1, 2, 3]


# The recovered prefix.


def successor() -> tuple[CommitServer, list[Effect]]:
    """Node 2 takes over with one run in its log, at index 3, that was never committed."""
    cell = led_cell(with_data=False)
    server = cell.commit[2]
    submit = [m for m in sent(number_one(cell.leader)) if isinstance(m, CommitSubmit)][-1]
    settle(server, [Received(1, submit)])
    assert (server.log.length, server.core.index) == (3, 2)
    epoch = stand(server)
    own, other = promise(server, epoch), promise(cell.commit[3], epoch)
    effects = server.step([Received(2, own), Received(3, other)])
    assert epoch_of(server) == epoch
    return server, effects


def started(server: CommitServer, node: int, length: int) -> Received:
    number = server.configuration.number
    return Received(
        node, StartReply(number, epoch_of(server), 100 + node, True, 0, length, ((0, HASH_NONE),))
    )


@pytest.mark.req("GRP-21")
def test_a_successor_begins_with_its_epoch_behind_the_log_that_it_adopted() -> None:
    server, effects = successor()
    sequencer = server.sequencer
    assert sequencer is not None
    assert sequencer.log.entry(3) == run_entry(batch(1), 1)
    assert sequencer.log.entry(4) == EpochEntry(epoch_of(server))
    starts = {e.to: e.message for e in only(Send, effects) if isinstance(e.message, Start)}
    assert set(starts) == {2, 3}
    assert isinstance(starts[3], Start)
    assert (starts[3].base, starts[3].length) == (2, 4)
    assert starts[3].entries == (run_entry(batch(1), 1), EpochEntry(epoch_of(server)))


@pytest.mark.req("GRP-21")
def test_what_was_recovered_commits_only_together_with_the_entry_of_the_epoch() -> None:
    server, _ = successor()
    assert commits(server.step([started(server, 2, 3), started(server, 3, 3)])) == []
    assert commits(server.step([started(server, 2, 4)])) == []
    (commit,) = commits(server.step([started(server, 3, 4)]))
    assert (commit.index_first, commit.committed) == (3, 4)


@pytest.mark.req("GRP-04", "GRP-21")
def test_a_successor_goes_on_behind_the_last_number_of_its_log() -> None:
    server, _ = successor()
    again = [report(server, node, batch(1), batch(1, sender=BOB)) for node in (1, 2)]
    entries = submitted(server.step(again))
    assert entries[-1] == run_entry(batch(1, sender=BOB), 2)
    assert run_entry(batch(1), 2) not in entries


@pytest.mark.req("GRP-21")
@pytest.mark.parametrize("promised", [(9, 9, 9), (2, 3, 1)])
def test_a_sequencer_stops_at_the_first_higher_epoch_that_it_hears_of(promised: Epoch) -> None:
    server = leader()
    epoch = epoch_of(server)
    server.step([Received(2, Refusal(epoch, promised, CONFIGURATION))])
    assert server.sequencer is None


def test_a_refusal_that_knows_nothing_higher_stops_nobody() -> None:
    server = leader()
    epoch = epoch_of(server)
    server.step([Received(2, Refusal((0, 0, 0), epoch, CONFIGURATION))])
    assert epoch_of(server) == epoch


@pytest.mark.req("GRP-21")
def test_a_sequencer_that_no_quorum_answers_steps_down() -> None:
    server = leader()
    start_ms = server.now_ms
    for now_ms in range(start_ms, start_ms + 5 * SETTINGS.suspect_ms, 50):
        server.step([Ticked(now_ms)])
    assert server.sequencer is None


# What everybody hears.


@pytest.mark.req("GRP-11")
def test_heartbeats_carry_what_is_committed_and_the_heads_of_the_groups() -> None:
    server = leader()
    number_one(server)
    settle(server, [ack(server, 2, 3), ack(server, 3, 3)])
    effects = server.step([Ticked(server.now_ms + SETTINGS.heartbeat_interval_ms)])
    (beat,) = [m for m in sent(effects) if isinstance(m, Heartbeat)]
    assert beat.committed == 3
    assert beat.heads == ((1, server.core.head(1)),)
    assert server.sequencer is not None
    assert beat.committed_hash == server.sequencer.log.hash_at(3)


@pytest.mark.req("GRP-07")
def test_overheard_submits_make_bare_claims_of_commits() -> None:
    server = leader(GroupSettings(is_overheard=True))
    (submit,) = only(Multicast, number_one(server))
    assert submit.channel is Channel.GLOBAL
    (commit,) = commits(server.step([ack(server, 2, 3), ack(server, 3, 3)]))
    assert (commit.entries, commit.committed) == ((), 3)


def test_long_logs_travel_in_bounded_messages() -> None:
    server = leader(GroupSettings(entries_per_message_max=2))
    runs = [batch(counter) for counter in range(1, 6)]
    effects = server.step([report(server, 1, *runs), report(server, 2, *runs)])
    sizes = [len(m.entries) for m in sent(effects) if isinstance(m, CommitSubmit)]
    assert sizes == [2, 2, 1]
    told = commits(server.step([ack(server, 2, 7), ack(server, 3, 7)]))
    assert [(c.index_first, len(c.entries)) for c in told] == [(3, 2), (5, 2), (7, 1)]


def test_large_entries_travel_in_messages_that_are_bounded_by_bytes() -> None:
    server = leader(GroupSettings(order_bytes_max=100))
    runs = [batch(counter) for counter in range(1, 6)]
    effects = server.step([report(server, 1, *runs), report(server, 2, *runs)])
    sizes = [len(m.entries) for m in sent(effects) if isinstance(m, CommitSubmit)]
    assert sizes == [2, 2, 1]
    told = commits(server.step([ack(server, 2, 7), ack(server, 3, 7)]))
    assert [(c.index_first, len(c.entries)) for c in told] == [(3, 2), (5, 2), (7, 1)]


# Configuration and truncation.


@pytest.mark.req("GRP-23")
def test_a_server_with_a_new_disk_is_listed_by_an_ordered_entry() -> None:
    server = leader()
    hush(server)
    (entry,) = submitted(server.step([Received(3, Join(3, 333, 1))]))
    assert isinstance(entry, ConfigEntry)
    assert entry.configuration.number == 2
    assert entry.configuration.servers[2] == Server(3, 333, CONFIGURATION.servers[2].roles)
    assert entry.configuration.servers[:2] == CONFIGURATION.servers[:2]


@pytest.mark.parametrize(
    ("node", "join"),
    [
        (3, Join(2, 222, 1)),  # for somebody else
        (3, Join(3, 103, 1)),  # the disk that is listed already
        (3, Join(3, 333, 2)),  # of a configuration that we don't know
        (99, Join(99, 999, 1)),
    ],
)
def test_a_join_that_makes_no_sense_changes_nothing(node: int, join: Join) -> None:
    server = leader()
    hush(server)
    assert submitted(server.step([Received(node, join)])) == []


def test_a_join_of_an_older_configuration_is_told_the_present_one() -> None:
    server = leader()
    assert sent(server.step([Received(3, Join(3, 333, 0))]), 3) == [Moved(CONFIGURATION)]


def test_a_committed_configuration_ends_the_lead_in_the_old_one() -> None:
    cell = led_cell(with_data=False)
    server = cell.leader
    cell.down[3] = None
    cell.run(2 * SETTINGS.rejoin_silence_ms)
    cell.receive(server.node, 3, Join(3, 333, 1))
    assert server.configuration.number == 2
    assert server.sequencer is None


def snapshot_ack(server: CommitServer, node: int, index: int, state: bytes) -> Received:
    of = ack(server, node, 2).message
    return Received(node, msgspec.structs.replace(of, snapshot=index, snapshot_hash=state))


def test_entries_go_once_k_commit_hold_one_snapshot_and_k_data_have_marked_it() -> None:
    server = leader()
    state, other = b"\x01" * 32, b"\x02" * 32
    assert submitted(server.step([snapshot_ack(server, 2, 2, state)])) == []
    assert submitted(server.step([snapshot_ack(server, 3, 2, other)])) == []
    assert submitted(server.step([snapshot_ack(server, 3, 2, state)])) == []
    assert submitted(server.step([report(server, 1, applied=2)])) == []
    assert submitted(server.step([report(server, 2, applied=1)])) == []
    entries: list[AnyEntry] = [TruncateEntry(2, state)]
    assert submitted(server.step([report(server, 3, applied=2)])) == entries
    assert submitted(server.step([snapshot_ack(server, 3, 2, state)])) == []


def test_a_server_that_claims_a_snapshot_from_the_future_holds_nobody_up() -> None:
    server = leader()
    state = b"\x01" * 32
    server.step([snapshot_ack(server, 1, 2**62, state)])
    server.step([report(server, node, applied=2) for node in (1, 2)])
    entries = submitted(server.step([snapshot_ack(server, node, 2, state) for node in (2, 3)]))
    assert entries == [TruncateEntry(2, state)]


def test_a_server_that_lacks_what_is_truncated_is_started_anew() -> None:
    cell = led_cell(GroupSettings(snapshot_interval=2))
    for counter in range(1, 9):
        cell.send(batch(counter))
    server = cell.leader
    assert server.sequencer is not None
    assert server.sequencer.log.base > 2
    behind = msgspec.structs.replace(ack(server, 3, 1).message, is_behind=True)
    server.sequencer.progress[3].acked = 0
    starts = [m for m in sent(server.step([Received(3, behind)]), 3) if isinstance(m, Start)]
    assert [start.base for start in starts] == [server.sequencer.log.base]


def test_the_groups_own_entries_are_where_they_were_put() -> None:
    server = leader()
    assert server.sequencer is not None
    assert isinstance(server.sequencer.log.entry(1), EpochEntry)
    assert server.sequencer.log.entry(2) == GroupEntry(1, "orders", 2**30, 1000) == GROUP_ENTRY


@pytest.mark.req("GRP-07", "GRP-21")
def test_who_has_all_but_not_on_its_disk_is_not_sent_the_log_again_and_again() -> None:
    cell = led_cell(with_data=False)
    server = cell.leader
    assert server.sequencer is not None
    other = next(node for node in cell.commit if node != server.node)
    for i in range(3):
        cell.propose(GroupRequest(f"group-{i}", 5, 5), 10 + i)
    length = server.sequencer.log.length
    server.sequencer.log.drop(length - 1)  # what the slow disk hasn't synced yet is truncated
    server.sequencer.progress[other].acked = 1
    epoch = epoch_of(server)
    said = Received(other, StartReply(1, epoch, 100 + other, True, 0, 2, ()))
    now = Ticked(cell.now_ms + 1)
    first = [m for m in sent(server.step([now, said]), other) if isinstance(m, Start)]
    again = [m for m in sent(server.step([now, said]), other) if isinstance(m, Start)]
    assert (len(first), len(again)) == (1, 0)
    later = Ticked(cell.now_ms + 10_000)
    assert any(isinstance(m, Start) for m in sent(server.step([later, said]), other))
