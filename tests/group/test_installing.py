"""Installs by hand: the new end first, then the vote, and only then does anybody hear of it."""

import msgspec
import pytest

from samcast.group.commit_server import CommitServer
from samcast.group.core import Core
from samcast.group.settings import GroupSettings
from samcast.group.storage import OrderRecovery, RewriteOrder, StoreOrder, StoreSnapshot, StoreVote
from samcast.machine.ports import Effect, Received
from samcast.wire.change import Moved
from samcast.wire.group import (
    CommitAck,
    CommitSubmit,
    Promise,
    Seal,
    SnapshotReply,
    SnapshotRequest,
    Start,
    StartReply,
)
from samcast.wire.order import HASH_NONE, AnyEntry, Epoch, EpochEntry, chain_hash
from samcast.wire.records import decode_vote
from tests.group.build import (
    CONFIGURATION,
    GROUP,
    GROUP_ENTRY,
    SETTINGS,
    OrderDisk,
    batch,
    codes,
    commit_server,
    led_cell,
    only,
    promise,
    run_entry,
    sent,
    settle,
)

E1: Epoch = (5, 1, 7)
E2: Epoch = (6, 3, 7)
LOG: list[AnyEntry] = [
    EpochEntry(E1),
    GROUP_ENTRY,
    *(run_entry(batch(counter), counter) for counter in range(1, 13)),
]


def hash_at(index: int, log: list[AnyEntry] = LOG) -> bytes:
    value = HASH_NONE
    for entry in log[:index]:
        value = chain_hash(value, entry)
    return value


def start(
    length: int, *, first: int = 1, last: int | None = None, base: int = 0, epoch: Epoch = E1
) -> Received:
    """A chunk of the first `length` entries, sent by the sequencer of the epoch."""
    entries = tuple(LOG[first - 1 : length if last is None else last])
    message = Start(CONFIGURATION, epoch, base, hash_at(base), first, entries, length)
    return Received(epoch[1], message)


def replies(effects: list[Effect]) -> list[StartReply]:
    return [m for m in sent(effects) if isinstance(m, StartReply)]


def installed(length: int = 3) -> tuple[CommitServer, OrderDisk]:
    """Node 2 holds a log of epoch E1."""
    server, disk = commit_server(2), OrderDisk(102)
    disk.take(server.step([start(length)]))
    while disk.is_waiting:
        disk.take(server.step([disk.sync()]))
    assert (server.log.length, server.log_epoch) == (length, E1)
    return server, disk


@pytest.mark.req("GRP-21")
def test_an_install_takes_effect_only_when_entries_and_vote_are_on_disk_in_this_order() -> None:
    server, disk = commit_server(2), OrderDisk(102)
    effects = disk.take(server.step([start(3)]))
    assert [type(effect) for effect in effects] == [StoreOrder]
    assert (server.log.length, server.log_epoch) == (0, (0, 0, 0))
    effects = disk.take(server.step([disk.sync()]))
    (vote,) = only(StoreVote, effects)
    assert decode_vote(vote.record).log_epoch == E1
    assert replies(effects) == []
    assert (server.log.length, server.log_epoch) == (0, (0, 0, 0))
    (reply,) = replies(server.step([disk.sync()]))
    assert (reply.is_started, reply.length, reply.epoch) == (True, 3, E1)
    assert (server.log.length, server.log_epoch) == (3, E1)


@pytest.mark.req("GRP-21")
def test_a_crash_in_the_middle_of_an_install_leaves_the_old_log_in_force() -> None:
    server, disk = installed(3)
    end = [EpochEntry(E2)]
    message = Start(CONFIGURATION, E2, 2, hash_at(2), 3, tuple(end), 3)
    disk.take(server.step([Received(3, message)]))
    before = commit_server(2, recovery=disk.recovery())
    assert (before.log.last_hash, before.log_epoch) == (hash_at(3), E1)
    disk.take(server.step([disk.sync()]))  # entries are durable, the vote is not
    between = commit_server(2, recovery=disk.recovery())
    assert (between.log.last_hash, between.log_epoch) == (hash_at(3), E1)
    assert between.unknown_from == 0
    disk.sync()
    after = commit_server(2, recovery=disk.recovery())
    assert (after.log.last_hash, after.log_epoch) == (hash_at(3, [*LOG[:2], *end]), E2)


@pytest.mark.req("GRP-21")
def test_after_such_a_crash_the_old_log_can_grow_again() -> None:
    server, disk = installed(3)
    message = Start(CONFIGURATION, E2, 2, hash_at(2), 3, (EpochEntry(E2),), 3)
    disk.take(server.step([Received(3, message)]))
    disk.sync()
    again = commit_server(2, recovery=disk.recovery())
    submit = CommitSubmit(1, E1, 4, (LOG[3],), 0, HASH_NONE)
    disk.take(again.step([Received(1, submit)]))
    disk.sync()
    assert commit_server(2, recovery=disk.recovery()).log.last_hash == hash_at(4)


@pytest.mark.req("GRP-21")
@pytest.mark.parametrize("synced", [0, 1], ids=["entries are written", "the vote is written"])
def test_a_promise_in_the_middle_of_an_install_calls_it_off(synced: int) -> None:
    server, disk = installed(3)
    later: Epoch = (9, 1, 9)
    message = Start(CONFIGURATION, E2, 2, hash_at(2), 3, (EpochEntry(E2),), 3)
    disk.take(server.step([Received(3, message)]))
    for _ in range(synced):
        disk.take(server.step([disk.sync()]))
    disk.take(server.step([Received(1, Seal(1, later))]))
    told = []
    while disk.is_waiting:
        told += disk.take(server.step([disk.sync()]))
    (made,) = [m for m in sent(told) if isinstance(m, Promise)]
    assert (made.log_epoch, made.length) == (E1, 3)  # on the strength of the old log
    assert replies(told) == []
    assert (server.log_epoch, server.log.last_hash) == (E1, hash_at(3))
    assert commit_server(2, recovery=disk.recovery()).log.last_hash == hash_at(3)


@pytest.mark.req("GRP-21")
def test_only_what_differs_is_replaced() -> None:
    server, disk = installed(3)
    message = Start(CONFIGURATION, E2, 2, hash_at(2), 3, (EpochEntry(E2), LOG[2]), 4)
    while_writing = disk.take(server.step([Received(3, message)]))
    assert [type(effect) for effect in while_writing] == [StoreOrder]
    while disk.is_waiting:
        disk.take(server.step([disk.sync()]))
    log = [*LOG[:2], EpochEntry(E2), LOG[2]]
    assert server.log.last_hash == hash_at(4, log)


@pytest.mark.req("GRP-21")
def test_an_install_that_would_undo_what_is_committed_is_refused() -> None:
    server = led_cell(with_data=False).commit[2]
    before = server.log.last_hash
    message = Start(CONFIGURATION, E2, 0, HASH_NONE, 1, (EpochEntry(E2),), 1)
    effects = settle(server, [Received(3, message)])
    assert codes(effects) == ["install-undoes-committed"]
    assert server.log.last_hash == before


def test_a_long_log_comes_in_chunks() -> None:
    server = commit_server(2)
    (reply,) = replies(server.step([start(5, last=2)]))
    assert (reply.is_started, reply.received) == (False, 2)
    assert replies(server.step([start(5, last=2)])) == []  # the same again says nothing new
    assert replies(server.step([start(5, first=5)])) == []  # a chunk is missing before it
    effects = settle(server, [start(5, first=3)])
    assert [r.is_started for r in replies(effects)] == [True]
    assert server.log.last_hash == hash_at(5)


@pytest.mark.req("GRP-27")
def test_a_repeated_start_of_a_log_that_we_hold_is_answered_at_once() -> None:
    server, disk = installed(3)
    effects = disk.take(server.step([start(3)]))
    assert not disk.is_waiting
    assert [(r.is_started, r.length) for r in replies(effects)] == [(True, 3)]


def test_a_start_of_an_older_configuration_is_told_the_present_one() -> None:
    server = commit_server(2)
    old = msgspec.structs.replace(CONFIGURATION, number=0)
    message = Start(old, E1, 0, HASH_NONE, 1, tuple(LOG[:1]), 1)
    assert sent(server.step([Received(1, message)]), 1) == [Moved(CONFIGURATION)]


@pytest.mark.req("GRP-21")
def test_a_sequencer_that_installs_is_promised_before_anything_is_written_behind_it() -> None:
    server, disk = commit_server(2), OrderDisk(102)
    disk.take(server.step([start(3)]))
    assert server.promised == E1
    lower: Epoch = (4, 3, 1)
    disk.take(server.step([Received(3, Seal(1, lower))]))
    assert server.promised == E1


@pytest.mark.req("GRP-21")
def test_nothing_is_accepted_while_a_log_is_being_written() -> None:
    server, disk = installed(3)
    core = Core(CONFIGURATION, SETTINGS)
    for entry in LOG[:6]:
        core.apply(entry)
    state = core.encode()
    disk.take(server.step([start(8, first=7, base=6)]))  # it has truncated what we lack
    disk.take(server.step([Received(1, SnapshotReply(6, 0, len(state), state))]))
    disk.take(server.step([disk.sync()]))
    assert server.installing.is_writing
    late = CommitSubmit(1, E1, 4, tuple(LOG[3:10]), 0, HASH_NONE)
    effects = disk.take(server.step([Received(1, late)]))
    assert only(StoreOrder, effects) == []
    while disk.is_waiting:
        disk.take(server.step([disk.sync()]))
    assert server.log.last_hash == hash_at(8)
    assert commit_server(2, recovery=disk.recovery()).log.last_hash == hash_at(8)


# Snapshots first.


def snapshot(index: int = 6) -> tuple[Core, bytes]:
    core = Core(CONFIGURATION, SETTINGS)
    for entry in LOG[:index]:
        core.apply(entry)
    return core, core.encode()


@pytest.mark.req("GRP-23")
def test_a_log_that_shares_nothing_with_ours_is_installed_on_its_snapshot() -> None:
    server, disk = commit_server(2), OrderDisk(102)
    core, state = snapshot()
    effects = disk.take(server.step([start(8, first=7, base=6)]))
    assert sent(effects, 1) == [SnapshotRequest(6, 0)]
    half = len(state) // 2
    effects = server.step([Received(1, SnapshotReply(6, 0, len(state), state[:half]))])
    assert sent(effects, 1) == [SnapshotRequest(6, half)]
    piece = SnapshotReply(6, half, len(state), state[half:])
    effects = disk.take(server.step([Received(1, piece)]))
    assert [type(effect) for effect in effects] == [StoreSnapshot]
    while disk.is_waiting:
        effects = disk.take(server.step([disk.sync()]))
    assert [r.is_started for r in replies(effects)] == [True]
    assert server.core.encode() == core.encode()
    assert (server.log.base, server.log.length) == (6, 8)
    again = commit_server(2, recovery=disk.recovery())
    assert (again.log.base, again.log.length, again.core.index) == (6, 8, 6)


@pytest.mark.req("GRP-21")
def test_a_snapshot_that_comes_twice_undoes_nothing_that_was_accepted_since() -> None:
    server, disk = commit_server(2), OrderDisk(102)
    _, state = snapshot()
    piece = Received(1, SnapshotReply(6, 0, len(state), state))
    disk.take(server.step([start(8, first=7, base=6)]))
    disk.take(server.step([piece]))
    disk.take(server.step([start(8, first=7, base=6)]))  # it asks again: the first isn't durable
    while disk.is_waiting:
        disk.take(server.step([disk.sync()]))
    disk.take(server.step([Received(1, CommitSubmit(1, E1, 9, tuple(LOG[8:10]), 0, HASH_NONE))]))
    disk.take(server.step([piece]))
    while disk.is_waiting:
        disk.take(server.step([disk.sync()]))
    assert (server.log.length, server.durable_length) == (10, 10)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (SnapshotReply(6, 0, 10, b""), "snapshot-range"),
        (SnapshotReply(6, 0, 3, b"12345"), "snapshot-range"),
        (SnapshotReply(6, 0, 2**63 - 1, b"12345"), "snapshot-range"),
        (SnapshotReply(6, 0, 3, b"\xc1\xc1\xc1"), "snapshot-malformed"),
        (SnapshotReply(6, 0, len(snapshot(5)[1]), snapshot(5)[1]), "snapshot-other"),
    ],
)
def test_a_snapshot_that_is_not_the_base_is_turned_away_with_a_code(
    reply: SnapshotReply, code: str
) -> None:
    server = commit_server(2)
    server.step([start(8, first=7, base=6)])
    effects = settle(server, [Received(1, reply)])
    assert codes(effects) == [code]
    assert (server.log.length, server.core.index) == (0, 0)


# What rot took.


@pytest.mark.req("GRP-23")
def test_an_unknown_end_is_whole_again_after_an_install_and_not_before() -> None:
    _, disk = installed(5)
    rotten = commit_server(2, recovery=disk.recovery(is_rotten=True))
    assert rotten.unknown_from == 6
    later = Start(CONFIGURATION, E2, 5, hash_at(5), 6, (EpochEntry(E2),), 6)
    effects = disk.take(rotten.step([Received(3, later)]))
    assert [type(effect) for effect in effects] == [RewriteOrder]
    disk.take(rotten.step([disk.sync()]))
    assert rotten.unknown_from == 6
    halfway = commit_server(2, recovery=disk.recovery())
    assert halfway.unknown_from == 6
    effects = rotten.step([disk.sync()])
    assert [r.is_started for r in replies(effects)] == [True]
    assert rotten.unknown_from == 0
    again = commit_server(2, recovery=disk.recovery())
    assert (again.unknown_from, again.log.length) == (0, 6)
    assert promise(again, (9, 1, 1)).unknown_from == 0


@pytest.mark.req("GRP-23")
def test_in_the_same_epoch_the_whole_log_of_the_sequencer_is_needed() -> None:
    _, disk = installed(5)
    rotten = commit_server(2, recovery=disk.recovery(is_rotten=True))
    submit = CommitSubmit(1, E1, 6, (LOG[5],), 0, HASH_NONE)
    effects = settle(rotten, [Received(1, submit)])
    assert [r.is_started for r in replies(effects)] == [False]
    assert not [m for m in sent(effects) if isinstance(m, CommitAck)]
    effects = settle(rotten, [start(8, first=6, base=5)])
    assert [r.is_started for r in replies(effects)] == [True]
    assert (rotten.unknown_from, rotten.log.last_hash) == (0, hash_at(8))


@pytest.mark.req("GRP-23")
def test_a_server_with_an_unlisted_disk_installs_nothing() -> None:
    learner = commit_server(2, recovery=OrderRecovery(999), settings=GroupSettings())
    effects = settle(learner, [start(3)])
    assert replies(effects) == []
    assert learner.log.length == 0
    assert learner.core.head(GROUP) == 0
