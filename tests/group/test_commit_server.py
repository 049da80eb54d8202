"""The commit server by hand: what it accepts, acknowledges, folds, answers, and gets back."""

import msgspec
import pytest

from samcast.group.commit_server import CommitServer
from samcast.group.core import Core
from samcast.group.settings import GroupSettings
from samcast.group.storage import OrderRecovery, RewriteOrder, StoreOrder, StoreSnapshot
from samcast.machine.ports import Effect, Received, Stored, Ticked
from samcast.wire.change import Join, Moved
from samcast.wire.group import (
    AnyRequest,
    Commit,
    CommitAck,
    CommitSubmit,
    GroupRequest,
    Head,
    HeadRequest,
    Heartbeat,
    LogReply,
    LogRequest,
    NumberReply,
    NumberRequest,
    OpenRequest,
    OrderReply,
    OrderRequest,
    Outcome,
    OutcomeKind,
    Propose,
    SnapshotReply,
    SnapshotRequest,
    StartReply,
)
from samcast.wire.order import (
    HASH_NONE,
    AnyEntry,
    Configuration,
    Epoch,
    EpochEntry,
    GroupEntry,
    RunEntry,
    Server,
    encode_entry,
)
from samcast.wire.records import BaseRecord, EntriesRecord
from tests.group.build import (
    CLIENT,
    CONFIGURATION,
    GROUP,
    NAMED,
    SETTINGS,
    Cell,
    OrderDisk,
    batch,
    commit_server,
    led_cell,
    only,
    promise,
    run_entry,
    sent,
    settle,
)

ENTRIES: list[AnyEntry] = [run_entry(batch(counter), counter) for counter in range(1, 6)]


def follower() -> CommitServer:
    """Node 2 of a cell whose log has two entries, both committed."""
    return led_cell(with_data=False).commit[2]


def submit(server: CommitServer, first: int, *entries: AnyEntry, committed: int = 0) -> Received:
    epoch = server.log_epoch
    return Received(epoch[1], CommitSubmit(1, epoch, first, entries, committed, HASH_NONE))


def acks(effects: list[Effect]) -> list[CommitAck]:
    return [m for m in sent(effects) if isinstance(m, CommitAck)]


# Accepting.


@pytest.mark.req("GRP-06")
def test_entries_are_acknowledged_when_they_are_on_disk_and_not_before() -> None:
    server = follower()
    effects = server.step([submit(server, 3, *ENTRIES[:2])])
    assert acks(effects) == []
    (store,) = only(StoreOrder, effects)
    assert acks(server.step([Ticked(server.now_ms)])) == []
    (ack,) = acks(server.step([Stored(store.token)]))
    assert (ack.index, ack.epoch, ack.uuid, ack.configuration) == (4, server.log_epoch, 102, 1)


@pytest.mark.req("GRP-06")
def test_all_that_is_accepted_in_one_turn_is_one_store() -> None:
    server = follower()
    events = [submit(server, 3 + at, entry) for at, entry in enumerate(ENTRIES)]
    effects = server.step(events)
    assert len(only(StoreOrder, effects)) == 1
    assert server.log.length == 7


@pytest.mark.req("GRP-27")
def test_a_hole_is_told_at_once_and_nothing_behind_it_is_accepted() -> None:
    server = follower()
    (ack,) = acks(server.step([submit(server, 5, ENTRIES[2])]))
    assert (ack.index, ack.is_behind) == (2, True)
    assert server.log.length == 2


@pytest.mark.req("GRP-27")
def test_what_is_known_is_acknowledged_again_and_not_stored_again() -> None:
    server = follower()
    settle(server, [submit(server, 3, *ENTRIES[:2])])
    effects = server.step([submit(server, 3, *ENTRIES[:2])])
    assert only(StoreOrder, effects) == []
    assert [ack.index for ack in acks(effects)] == [4]
    effects = settle(server, [submit(server, 4, *ENTRIES[1:3])])
    assert server.log.length == 5
    assert server.log.entry(5) == ENTRIES[2]


def test_what_is_known_is_never_replaced_by_a_submit() -> None:
    server = follower()
    settle(server, [submit(server, 3, *ENTRIES[:2])])
    before = server.log.last_hash
    settle(server, [submit(server, 3, *ENTRIES[3:5])])
    assert server.log.last_hash == before


@pytest.mark.req("GRP-21")
def test_a_submit_of_an_epoch_whose_log_we_lack_is_answered_with_where_we_are() -> None:
    server = follower()
    epoch: Epoch = (9, 3, 1)
    effects = server.step([Received(3, CommitSubmit(1, epoch, 3, (), 0, HASH_NONE))])
    (reply,) = [m for m in sent(effects, 3) if isinstance(m, StartReply)]
    assert (reply.is_started, reply.received, reply.epoch) == (False, 0, epoch)
    assert reply.hashes == server.log.landmarks()


@pytest.mark.parametrize(("number", "answer"), [(0, [Moved(CONFIGURATION)]), (2, [])])
def test_a_submit_of_another_configuration_is_not_accepted(
    number: int, answer: list[Moved]
) -> None:
    server = follower()
    message = msgspec.structs.replace(submit(server, 3, ENTRIES[0]).message, configuration=number)
    assert sent(server.step([Received(1, message)]), 1) == answer
    assert server.log.length == 2


@pytest.mark.req("GRP-23")
def test_who_leads_in_an_older_configuration_is_told_so() -> None:
    """Even in an epoch above all that we know: it has been elected by those who hadn't heard."""
    server = follower()
    moved = msgspec.structs.replace(CONFIGURATION, number=2)
    server.step([Received(2, Moved(moved))])
    for message in (
        Heartbeat(1, (9, 3, 1), 0, HASH_NONE, ()),
        Commit(1, (9, 3, 1), 1, (), 0, HASH_NONE),
    ):
        assert sent(server.step([Received(3, message)]), 3) == [Moved(moved)]


@pytest.mark.req("GRP-23")
def test_a_server_with_another_disk_than_the_listed_one_acknowledges_nothing() -> None:
    learner = commit_server(2, recovery=OrderRecovery(999))
    epoch: Epoch = (1, 1, 1)
    effects = settle(
        learner,
        [
            Received(1, CommitSubmit(1, epoch, 1, (EpochEntry(epoch),), 0, HASH_NONE)),
            Received(1, Heartbeat(1, epoch, 0, HASH_NONE, ())),
        ],
    )
    assert {type(m) for m in sent(effects)} == {Join}
    assert learner.log.length == 0


@pytest.mark.req("GRP-23")
def test_a_new_disk_is_of_use_once_a_committed_configuration_lists_it() -> None:
    learner = commit_server(2, recovery=OrderRecovery(999))
    joins = [m for m in sent(learner.step([Ticked(0)])) if isinstance(m, Join)]
    assert joins == [Join(2, 999, 1)] * 2
    servers = (CONFIGURATION.servers[0], Server(2, 999, 3), CONFIGURATION.servers[2])
    learner.step([Received(1, Moved(Configuration(2, servers, 2, 2, 2)))])
    assert promise(learner, (3, 1, 1)).uuid == 999


# Folding.


@pytest.mark.req("GRP-07")
def test_a_claim_of_the_epoch_whose_log_we_hold_commits_up_to_its_index() -> None:
    server = follower()
    settle(server, [submit(server, 3, *ENTRIES[:3])])
    assert server.core.index == 2
    server.step([Received(1, Heartbeat(1, server.log_epoch, 4, HASH_NONE, ()))])
    assert (server.core.index, server.core.head(GROUP)) == (4, 2)
    server.step([Received(1, Commit(1, server.log_epoch, 9, (), 99, HASH_NONE))])
    assert server.core.index == 5


@pytest.mark.req("GRP-07")
def test_a_claim_of_another_epoch_commits_only_by_the_same_hash() -> None:
    server = follower()
    settle(server, [submit(server, 3, *ENTRIES[:3])])
    later: Epoch = (9, 3, 1)
    server.step([Received(3, Heartbeat(1, later, 4, HASH_NONE, ()))])
    assert server.core.index == 2
    claimed = server.log.hash_at(4)
    assert claimed is not None
    server.step([Received(3, Heartbeat(1, later, 4, claimed, ()))])
    assert server.core.index == 4


@pytest.mark.req("GRP-07")
def test_the_entries_of_a_commit_are_not_taken_for_our_log() -> None:
    server = follower()
    server.step([Received(1, Commit(1, server.log_epoch, 3, (ENTRIES[0],), 3, HASH_NONE))])
    assert (server.log.length, server.core.index) == (2, 2)


# Coming back.


@pytest.mark.req("GRP-23")
def test_a_server_comes_back_with_what_was_durable() -> None:
    cell = led_cell(with_data=False)
    server, disk = cell.commit[2], cell.disks[2]
    disk.take(server.step([submit(server, 3, *ENTRIES[:2])]))
    lost = commit_server(2, recovery=disk.recovery())
    assert (lost.log.length, lost.log_epoch, lost.promised) == (
        2,
        server.log_epoch,
        server.promised,
    )
    disk.sync()
    again = commit_server(2, recovery=disk.recovery())
    assert (again.log.length, again.log.last_hash) == (4, server.log.last_hash)
    assert again.core.index == 0  # what is committed it hears again
    again.step([Received(1, Heartbeat(1, again.log_epoch, 4, HASH_NONE, ()))])
    assert again.core.index == 4


@pytest.mark.req("GRP-23")
def test_a_server_whose_journal_rotted_acknowledges_nothing() -> None:
    cell = led_cell(with_data=False)
    rotten = commit_server(2, recovery=cell.disks[2].recovery(is_rotten=True))
    assert rotten.unknown_from == 3
    effects = settle(rotten, [submit(rotten, 3, *ENTRIES[:2])])
    assert acks(effects) == []
    assert [m.is_started for m in sent(effects) if isinstance(m, StartReply)] == [False]


SHORT = GroupSettings(snapshot_interval=4, entries_per_message_max=3)


def truncated() -> Cell:
    """A cell whose servers have dropped the beginning of the log."""
    cell = led_cell(SHORT)
    for counter in range(1, 15):
        cell.send(batch(counter))
    cell.run(200)
    assert cell.commit[2].log.base > 4
    return cell


@pytest.mark.req("GRP-23")
def test_a_truncated_log_comes_back_with_its_snapshot() -> None:
    cell = truncated()
    server = cell.commit[2]
    recovery = cell.disks[2].recovery()
    again = commit_server(2, settings=SHORT, recovery=recovery)
    assert (again.log.base, again.log.length) == (server.log.base, server.log.length)
    assert again.log.last_hash == server.log.last_hash
    assert again.core.index >= server.log.base
    assert again.unknown_from == 0


@pytest.mark.req("GRP-23")
def test_without_the_snapshot_of_its_base_a_log_is_unknown() -> None:
    recovery = msgspec.structs.replace(truncated().disks[2].recovery(), snapshots=())
    again = commit_server(2, settings=SHORT, recovery=recovery)
    assert again.unknown_from == 1
    assert again.core.index == 0


@pytest.mark.req("GRP-23", "GRP-27")
def test_what_rot_left_of_a_log_is_kept_below_the_newest_snapshot() -> None:
    cell = led_cell(SHORT)
    for counter in range(1, 60):
        cell.send(batch(counter))
        cell.run(1)
        recovery = cell.disks[2].recovery(is_rotten=True)
        newest = Core.decode(recovery.snapshots[-1], SHORT).index if recovery.snapshots else 0
        base = cell.commit[2].log.base
        if 0 < base < newest - 1 and isinstance(recovery.records[0], BaseRecord):
            break
    else:
        pytest.fail("no moment between a snapshot and its truncation")
    whole = recovery.records
    cut = [whole[0], EntriesRecord(base + 1, (cell.commit[2].log.entry(base + 1),))]
    rotten = commit_server(2, settings=SHORT, recovery=msgspec.structs.replace(
        recovery, records=cut
    ))  # fmt: skip
    assert (rotten.log.base, rotten.log.length) == (base, base + 1)
    assert rotten.core.index == base
    assert rotten.unknown_from == base + 2


@pytest.mark.req("GRP-23", "GRP-27")
def test_a_log_that_rot_shortened_wants_back_what_is_not_truncated() -> None:
    cell = truncated()
    recovery = cell.disks[2].recovery(is_rotten=True)
    newest = Core.decode(recovery.snapshots[-1], SHORT)
    lost = msgspec.structs.replace(recovery, records=(), snapshots=recovery.snapshots[-1:])
    rotten = commit_server(2, settings=SHORT, recovery=lost)
    assert rotten.log.base == newest.index > newest.truncated
    assert rotten.installing.reply((9, 1, 1), is_started=False).hashes == ()
    (reply,) = sent(rotten.step([Received(CLIENT, OrderRequest(1))]), CLIENT)
    assert isinstance(reply, OrderReply)
    assert reply.low_water == newest.truncated


def test_a_snapshot_is_taken_at_every_agreed_index() -> None:
    cell = truncated()
    for node in (1, 2, 3):
        taken = [e.index for n, e in cell.seen if n == node and isinstance(e, StoreSnapshot)]
        assert taken == list(range(4, cell.commit[node].core.index + 1, 4))
    states = {e.state for _, e in cell.seen if isinstance(e, StoreSnapshot) and e.index == 8}
    assert len(states) == 1  # equal on all


def test_the_journal_is_rewritten_before_the_log_forgets() -> None:
    cell = led_cell(SHORT)
    server = cell.commit[2]
    before = len(cell.seen)
    for counter in range(1, 15):
        cell.send(batch(counter))
    rewrites = [e for n, e in cell.seen[before:] if n == 2 and isinstance(e, RewriteOrder)]
    assert len(rewrites) >= 1
    assert server.log.base in server.snapshots._states


# Answering.


@pytest.mark.req("GRP-09")
def test_committed_entries_are_sent_to_whoever_asks_in_bounded_pieces() -> None:
    server = led_cell(GroupSettings(entries_per_message_max=2), with_data=False).commit[2]
    settle(server, [submit(server, 3, *ENTRIES[:2], committed=3)])
    (reply,) = sent(server.step([Received(CLIENT, OrderRequest(2))]), CLIENT)
    assert isinstance(reply, OrderReply)
    assert reply.index_first == 2
    assert reply.entries == (GroupEntry(GROUP, "orders", 2**30, 1000), ENTRIES[0])
    assert (reply.committed, reply.committed_hash) == (3, server.log.hash_at(3))


@pytest.mark.req("GRP-09")
def test_answers_are_bounded_by_bytes_and_never_empty_for_a_large_entry() -> None:
    settings = GroupSettings(order_bytes_max=len(encode_entry(ENTRIES[0])) + 1)
    server = led_cell(settings, with_data=False).commit[2]
    settle(server, [submit(server, 3, *ENTRIES, committed=6)])
    (reply,) = sent(server.step([Received(CLIENT, OrderRequest(3))]), CLIENT)
    assert isinstance(reply, OrderReply)
    assert reply.entries == (ENTRIES[0],)
    spans = ((GROUP, 1, 2), (GROUP, 4, 9))
    (numbers,) = sent(server.step([Received(CLIENT, NumberRequest(spans))]), CLIENT)
    assert numbers == NumberReply((ENTRIES[0],), ())
    (log,) = sent(server.step([Received(1, LogRequest(server.promised, 3))]), 1)
    assert isinstance(log, LogReply)
    assert log.entries == (ENTRIES[0],)


@pytest.mark.req("GRP-09")
def test_ids_of_many_numbers_are_told_in_one_reply() -> None:
    server = follower()
    settle(server, [submit(server, 3, *ENTRIES, committed=6)])
    spans = ((GROUP, 1, 2), (GROUP, 4, 9))
    (reply,) = sent(server.step([Received(CLIENT, NumberRequest(spans))]), CLIENT)
    assert reply == NumberReply((*ENTRIES[:2], ENTRIES[3]), ())


@pytest.mark.req("GRP-09")
def test_numbers_whose_entries_are_gone_are_told_to_be_gone() -> None:
    cell = truncated()
    cell.send(batch(15))
    server = cell.commit[2]
    (reply,) = sent(server.step([Received(CLIENT, NumberRequest(((GROUP, 1, 99),)))]), CLIENT)
    assert isinstance(reply, NumberReply)
    ((group, first, gone),) = reply.gone
    assert (group, first) == (GROUP, 1)
    told = [e.number_first for e in reply.entries if isinstance(e, RunEntry)]
    assert [*range(1, gone + 1), *told] == list(range(1, 16))
    assert gone >= 1
    assert told[-1] == 15


@pytest.mark.req("GRP-12")
def test_anybody_may_ask_for_the_head_and_hears_only_what_is_committed() -> None:
    server = follower()
    settle(server, [submit(server, 3, *ENTRIES[:3], committed=4)])
    assert sent(server.step([Received(CLIENT, HeadRequest(GROUP))]), CLIENT) == [Head(GROUP, 2)]
    # One that this prefix does not know may be further on: nobody is told that it is empty.
    assert sent(server.step([Received(CLIENT, HeadRequest(9))]), CLIENT) == []
    assert sent(server.step([Received(CLIENT, HeadRequest(0))]), CLIENT) == [Head(0, 4)]


@pytest.mark.req("GRP-21")
def test_a_log_is_given_to_a_candidate_only_while_it_is_promised() -> None:
    server = follower()
    epoch: Epoch = (9, 3, 1)
    assert sent(server.step([Received(3, LogRequest(epoch, 1))])) == []
    promise(server, epoch)
    (reply,) = sent(server.step([Received(3, LogRequest(epoch, 2))]), 3)
    assert isinstance(reply, LogReply)
    assert len(reply.entries) == 1
    promise(server, (10, 1, 1))
    assert sent(server.step([Received(3, LogRequest(epoch, 1))])) == []


def test_a_snapshot_is_served_in_pieces() -> None:
    server = truncated().commit[2]
    (first,) = sent(server.step([Received(CLIENT, SnapshotRequest(0, 0))]), CLIENT)
    assert isinstance(first, SnapshotReply)
    (rest,) = sent(server.step([Received(CLIENT, SnapshotRequest(first.index, 10))]), CLIENT)
    assert isinstance(rest, SnapshotReply)
    assert (rest.offset, rest.data) == (10, first.data[10:])
    assert first.total == len(first.data)
    assert sent(server.step([Received(CLIENT, SnapshotRequest(1, 0))])) == []


# Proposals.


def test_a_proposal_reaches_the_sequencer_and_its_outcome_the_proposer() -> None:
    cell = led_cell(with_data=False)
    before = len(cell.seen)
    cell.receive(2, CLIENT, Propose(77, GroupRequest("second", 5, 5)))
    told = sent((effect for _, effect in cell.seen[before:]), CLIENT)
    assert told == [Outcome(77, OutcomeKind.GROUP, 2)]


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (GroupRequest("orders", 5, 5), OutcomeKind.GROUP),
        (OpenRequest(GROUP, bytes(16), 1, 0, 0, 7), OutcomeKind.REFUSED),
    ],
)
def test_what_is_certain_is_answered_by_any_commit_server(
    request_: AnyRequest, kind: OutcomeKind
) -> None:
    (outcome,) = sent(follower().step([Received(CLIENT, Propose(5, request_))]), CLIENT)
    assert isinstance(outcome, Outcome)
    assert (outcome.nonce, outcome.kind) == (5, kind)


@pytest.mark.req("GRP-26")
def test_an_open_is_answered_only_once_it_is_committed() -> None:
    cell = led_cell(with_data=False)
    cell.down.update({2: None, 3: None})
    assert cell.propose(OpenRequest(GROUP, NAMED, 1, 0, 0, 7)) is None
    cell.down.clear()
    cell.run(SETTINGS.retry_max_ms)
    told = [m for m in sent((e for _, e in cell.seen), CLIENT) if isinstance(m, Outcome)]
    assert told[-1].kind is OutcomeKind.OPENED


def test_a_forwarded_proposal_is_not_forwarded_again() -> None:
    server = follower()
    request = GroupRequest("second", 5, 5)
    assert sent(server.step([Received(3, Propose(5, request, CLIENT))])) == []
    (forwarded,) = sent(server.step([Received(CLIENT, Propose(5, request))]))
    assert forwarded == Propose(5, request, CLIENT)


def test_a_store_is_never_told_to_be_durable_before_it_is() -> None:
    """The disk of these tests is honest, so that the others mean something."""
    disk = OrderDisk(102)
    server = follower()
    disk.take(server.step([submit(server, 3, ENTRIES[0])]))
    assert disk.is_waiting
    assert disk.recovery().records == []
    disk.sync()
    assert len(disk.recovery().records) == 1
