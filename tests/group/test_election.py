"""Elections by hand: who is asked, who promises what and when, and whose log is adopted."""

import msgspec
import pytest

from samcast.group.commit_server import CommitServer
from samcast.group.election import Election
from samcast.group.storage import OrderRecovery, StoreVote
from samcast.machine.ports import Effect, NodeId, Reachable, Received, Send, Ticked, Unreachable
from samcast.wire.change import Moved
from samcast.wire.group import (
    CommitAck,
    CommitSubmit,
    Heartbeat,
    LogReply,
    LogRequest,
    PreVote,
    PreVoteReply,
    Promise,
    Refusal,
    Seal,
    Start,
)
from samcast.wire.order import (
    EPOCH_NONE,
    HASH_NONE,
    ROLE_COMMIT,
    ROLE_DATA,
    Configuration,
    Epoch,
    EpochEntry,
    Server,
)
from samcast.wire.records import decode_vote
from tests.group.build import (
    CONFIGURATION,
    SETTINGS,
    Cell,
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
    stand,
)

E1: Epoch = (1, 1, 5)
E2: Epoch = (2, 2, 5)
E3: Epoch = (3, 3, 5)


def vote(log_epoch: Epoch, length: int, unknown_from: int = 0) -> Promise:
    return Promise(1, E3, 0, log_epoch, length, 0, unknown_from, ())


# Whose log.


@pytest.mark.req("GRP-21")
@pytest.mark.parametrize(
    ("promises", "best"),
    [
        ({}, None),
        ({1: vote(E1, 9)}, None),  # too few
        ({1: vote(E1, 9), 2: vote(E1, 7)}, 1),
        ({1: vote(E1, 9), 2: vote(E2, 3)}, 2),  # the epoch counts before the length
        ({1: vote(E2, 3), 2: vote(E2, 3)}, 1),
        ({1: vote(EPOCH_NONE, 0), 2: vote(EPOCH_NONE, 0)}, 1),
        ({1: vote(E1, 9, 4), 2: vote(E2, 3)}, 2),  # unknown, beside an intact one of a later epoch
        ({1: vote(E2, 9, 4), 2: vote(E2, 3)}, None),  # ... of the same epoch
        ({1: vote(E2, 9, 4), 2: vote(E1, 3)}, None),  # ... of an earlier epoch
        ({1: vote(E1, 9, 4), 2: vote(E2, 3, 1)}, None),  # nobody is intact
        ({1: vote(E2, 9, 4), 2: vote(E2, 3), 3: vote(E1, 1)}, 2),  # two intact ones are enough
        ({1: vote(E2, 9, 4), 2: vote(E1, 3), 3: vote(E1, 1)}, 2),
    ],
)
def test_the_best_intact_log_of_a_quorum_is_chosen(
    promises: dict[NodeId, Promise], best: NodeId | None
) -> None:
    assert Election.choose(promises, 2) == best


# Pre-votes.


def grants(effects: list[Effect]) -> list[bool]:
    return [m.is_granted for m in sent(effects) if isinstance(m, PreVoteReply)]


@pytest.mark.req("GRP-21")
def test_a_pre_vote_is_refused_while_a_sequencer_is_heard() -> None:
    server = commit_server()
    ask = Received(2, PreVote(1, 5, EPOCH_NONE, 0))
    assert grants(server.step([Ticked(1), ask])) == [True]
    server.step([Received(3, Heartbeat(1, E3, 0, HASH_NONE, ()))])
    assert grants(server.step([Ticked(SETTINGS.suspect_ms), ask])) == [False]
    assert grants(server.step([Ticked(1 + SETTINGS.suspect_ms), ask])) == [True]


@pytest.mark.req("GRP-21")
def test_a_pre_vote_binds_nobody() -> None:
    server = commit_server()
    effects = server.step([Received(2, PreVote(1, 5, EPOCH_NONE, 0))])
    assert grants(effects) == [True]
    assert server.promised == EPOCH_NONE
    assert only(StoreVote, effects) == []


def test_a_sequencer_and_a_learner_grant_no_pre_vote() -> None:
    leader = led_cell(with_data=False).leader
    assert grants(leader.step([Received(2, PreVote(1, 9, EPOCH_NONE, 0))])) == [False]
    learner = commit_server(recovery=OrderRecovery(999))
    assert grants(learner.step([Received(2, PreVote(1, 9, EPOCH_NONE, 0))])) == [False]


def test_a_pre_vote_in_an_older_configuration_is_told_the_present_one() -> None:
    assert sent(commit_server().step([Received(2, PreVote(0, 5, EPOCH_NONE, 0))]), 2) == [
        Moved(CONFIGURATION)
    ]
    assert sent(commit_server().step([Received(2, PreVote(2, 5, EPOCH_NONE, 0))]), 2) == []


def asked(server: CommitServer, vote: PreVote) -> list[bool]:
    return grants(server.step([Received(3, vote)]))


@pytest.mark.req("GRP-21")
def test_whoever_lacks_much_is_refused_by_one_that_stands_itself_but_not_for_long() -> None:
    cell = led_cell(with_data=False)
    server = cell.commit[2]
    epoch, length = server.log_epoch, server.log.length
    now = server.now_ms + SETTINGS.suspect_ms
    near = PreVote(1, 9, epoch, length - 1, 1)
    older = PreVote(1, 9, EPOCH_NONE, length + 99)
    server.step([Ticked(now)])
    assert asked(server, near) == [True]
    effects = server.step([Ticked(now + 1), Received(3, older)])
    assert grants(effects) == [False]
    assert [m for m in sent(effects, 3) if isinstance(m, PreVote)]  # it stands itself, at once
    assert asked(server, near) == [True]
    assert grants(server.step([Ticked(now + SETTINGS.suspect_ms), Received(3, older)])) == [False]
    after = now + 1 + SETTINGS.suspect_ms
    assert grants(server.step([Ticked(after), Received(3, older)])) == [True]
    server.step([Ticked(after + 1), Received(1, Heartbeat(1, epoch, 0, HASH_NONE, ()))])
    again = after + 1 + SETTINGS.suspect_ms  # another sequencer lost, another chance
    assert grants(server.step([Ticked(again), Received(3, older)])) == [False]


@pytest.mark.req("GRP-21")
def test_many_entries_less_are_much() -> None:
    few = SETTINGS.entries_per_message_max
    server = commit_server()
    server.log.extend([run_entry(batch(i), i) for i in range(1, few + 3)])
    server.step([Ticked(1)])
    assert asked(server, PreVote(1, 9, EPOCH_NONE, 2)) == [True]
    assert asked(server, PreVote(1, 9, EPOCH_NONE, 1)) == [False]
    assert asked(server, PreVote(1, 9, E1, 1)) == [True]  # of a later epoch


@pytest.mark.req("GRP-21")
def test_a_lost_connection_to_the_sequencer_is_no_silence_to_wait_for() -> None:
    cell = led_cell(with_data=False)
    server = cell.commit[2]
    leader = cell.leader.node
    beat = Received(leader, Heartbeat(1, server.log_epoch, 0, HASH_NONE, ()))
    now = server.now_ms + 1
    server.step([Ticked(now), beat])
    server.step([Unreachable(3 if leader != 3 else 1)])  # somebody else
    assert asked(server, PreVote(1, 9, server.log_epoch, server.log.length, 1)) == [False]
    assert server.due_ms() >= now + SETTINGS.suspect_ms
    server.step([Unreachable(leader)])
    assert asked(server, PreVote(1, 9, server.log_epoch, server.log.length, 1)) == [True]
    assert now < server.due_ms() <= now + SETTINGS.suspect_ms // 10
    asks = server.step([Ticked(server.due_ms())])
    assert len([m for m in sent(asks) if isinstance(m, PreVote)]) == 3
    server.step([Ticked(now + SETTINGS.suspect_ms), beat])  # It was only the connection.
    assert asked(server, PreVote(1, 9, server.log_epoch, server.log.length, 1)) == [False]


@pytest.mark.req("GRP-21")
def test_somebody_who_could_not_hear_the_question_is_asked_soon() -> None:
    server = commit_server()
    server.step([Ticked(1), Reachable(2)])
    assert server.due_ms() >= SETTINGS.suspect_ms  # Nothing was asked yet.
    now = server.due_ms()
    server.step([Ticked(now)])
    assert server.due_ms() >= now + SETTINGS.suspect_ms
    server.step([Reachable(2)])
    assert now < server.due_ms() <= now + SETTINGS.suspect_ms // 10
    asks = server.step([Ticked(server.due_ms())])
    assert [m for m in sent(asks, 2) if isinstance(m, PreVote)]


def test_a_sequencer_goes_on_when_it_loses_a_connection() -> None:
    leader = led_cell(with_data=False).leader
    leader.step([Unreachable(2), Unreachable(leader.node)])
    assert leader.sequencer is not None


@pytest.mark.req("GRP-21")
def test_a_candidate_seals_only_with_e_grants_of_its_configuration() -> None:
    server = commit_server()
    server.step([Ticked(10_000)])
    for reply in (
        PreVoteReply(1, 1, False, 0),
        PreVoteReply(2, 1, True, 0),
        PreVoteReply(1, 1, True, 0),
    ):
        assert not any(isinstance(m, Seal) for m in sent(server.step([Received(2, reply)])))
    stale = server.step([Received(3, PreVoteReply(1, 0, True, 0))])  # of another round
    stranger = server.step([Received(99, PreVoteReply(1, 1, True, 0))])
    assert not any(isinstance(m, Seal) for m in sent([*stale, *stranger]))
    effects = server.step([Received(3, PreVoteReply(1, 1, True, 0))])
    assert [m.epoch[1] for m in sent(effects) if isinstance(m, Seal)] == [1, 1, 1]


def test_a_candidate_seals_above_every_round_that_it_has_heard_of() -> None:
    server = commit_server()
    server.step([Ticked(10_000)])
    server.step([Received(2, PreVoteReply(1, 1, False, 41))])
    server.step([Received(2, Refusal(E1, (57, 3, 3), CONFIGURATION))])
    assert stand(server)[0] == 58


@pytest.mark.req("GRP-21")
def test_two_lives_of_a_candidate_never_seal_the_same_epoch() -> None:
    server = commit_server()
    first, second = stand(server), stand(server)
    assert first[:2] < second[:2]
    assert first[2] != second[2]


# Promises.


@pytest.mark.req("GRP-21")
def test_a_promise_leaves_only_when_it_is_on_disk() -> None:
    server, disk = commit_server(), OrderDisk(101)
    effects = disk.take(server.step([Received(2, Seal(1, E2))]))
    assert sent(effects) == []
    (store,) = only(StoreVote, effects)
    assert decode_vote(store.record).promised == E2
    assert sent(server.step([Ticked(1)])) == []
    effects = server.step([disk.sync()])
    assert [m.epoch for m in sent(effects, 2) if isinstance(m, Promise)] == [E2]
    again = commit_server(recovery=disk.recovery())
    assert again.promised == E2


@pytest.mark.req("GRP-21")
def test_a_repeated_seal_is_answered_again_without_another_store() -> None:
    server = commit_server()
    promise(server, E2)
    effects = server.step([Received(2, Seal(1, E2))])
    assert only(StoreVote, effects) == []
    assert len([m for m in sent(effects, 2) if isinstance(m, Promise)]) == 1


@pytest.mark.req("GRP-21")
@pytest.mark.parametrize("epoch", [E1, (2, 1, 9), (2, 2, 4), (2, 2, 6)])
def test_a_seal_that_is_not_above_the_promise_is_refused(epoch: Epoch) -> None:
    """Neither lower ones, nor the same round and node with another nonce."""
    server = commit_server()
    promise(server, E2)
    effects = server.step([Received(epoch[1], Seal(1, epoch))])
    assert sent(effects, epoch[1]) == [Refusal(epoch, E2, CONFIGURATION)]
    assert server.promised == E2


def test_a_seal_of_another_configuration_is_not_promised() -> None:
    server = commit_server()
    assert sent(server.step([Received(2, Seal(0, E2))])) == [Moved(CONFIGURATION)]
    assert sent(server.step([Received(2, Seal(2, E2))])) == []
    assert server.promised == EPOCH_NONE


@pytest.mark.req("GRP-23")
def test_a_server_with_another_disk_than_the_listed_one_promises_nothing() -> None:
    server = commit_server(recovery=OrderRecovery(999))
    effects = settle(server, [Received(2, Seal(1, E2))])
    assert not [m for m in sent(effects) if isinstance(m, Promise)]
    assert server.promised == EPOCH_NONE


@pytest.mark.req("GRP-21")
def test_a_promise_says_what_log_there_is() -> None:
    server = led_cell(with_data=False).commit[2]
    made = promise(server, (9, 3, 3))
    assert (made.configuration, made.uuid, made.log_epoch) == (1, 102, server.log_epoch)
    assert (made.length, made.low_water, made.unknown_from) == (2, 0, 0)
    assert made.hashes == server.log.landmarks()


@pytest.mark.req("GRP-23")
def test_a_rotten_log_is_promised_as_unknown_from_where_it_may_end() -> None:
    rotten = commit_server(recovery=OrderRecovery(101, is_rotten=True))
    assert promise(rotten, E2).unknown_from == 1
    assert rotten.election.due_ms() > 10**9  # and it doesn't stand itself
    rotten.step([Ticked(10**6)])
    assert sent(rotten.step([Ticked(10**6 + 1)])) == []


@pytest.mark.req("GRP-21")
def test_nothing_below_a_promise_is_accepted_or_acknowledged() -> None:
    cell = led_cell(with_data=False)
    server, epoch = cell.commit[2], cell.commit[2].log_epoch
    submit = CommitSubmit(1, epoch, 3, (run_entry(batch(1), 1),), 0, HASH_NONE)
    writing = OrderDisk(102)
    writing.take(server.step([Received(1, submit)]))
    writing.take(server.step([Received(3, Seal(1, (9, 3, 3)))]))
    effects = server.step([writing.sync()])  # the entry was accepted before, but not in time
    assert [type(m) for m in sent(effects)] == [Promise]
    late = server.step([Received(1, msgspec.structs.replace(submit, index_first=4))])
    assert sent(late, 1) == [Refusal(epoch, (9, 3, 3), CONFIGURATION)]
    assert server.log.length == 3
    beat = server.step([Received(1, Heartbeat(1, epoch, 2, HASH_NONE, ()))])
    assert not [m for m in sent(beat) if isinstance(m, CommitAck)]


@pytest.mark.req("GRP-21")
def test_an_install_below_a_promise_is_refused() -> None:
    server = commit_server()
    promise(server, E2)
    for epoch in (E1, (2, 2, 6)):
        start = Start(CONFIGURATION, epoch, 0, HASH_NONE, 1, (EpochEntry(epoch),), 1)
        effects = server.step([Received(epoch[1], start)])
        assert sent(effects) == [Refusal(epoch, E2, CONFIGURATION)]


# Adopting.


def candidate() -> tuple[CommitServer, Epoch]:
    """Node 1 has sealed an epoch above all that the others know, and promised it itself."""
    server = commit_server()
    server.step([Received(2, PreVoteReply(1, 1, False, 8))])
    epoch = stand(server)
    promise(server, epoch)
    return server, epoch


LOG = [EpochEntry(E1), *(EpochEntry((1, 1, n)) for n in range(6, 10))]


def best(epoch: Epoch, length: int = 5) -> Promise:
    """Node 2 has these entries of epoch E1."""
    donor = commit_server(2)
    start = Start(CONFIGURATION, E1, 0, HASH_NONE, 1, tuple(LOG[:length]), length)
    settle(donor, [Received(1, start)])
    return promise(donor, epoch)


def own(server: CommitServer, epoch: Epoch) -> Received:
    effects = server.step([Received(1, Seal(1, epoch))])
    return Received(1, next(m for m in sent(effects) if isinstance(m, Promise)))


@pytest.mark.req("GRP-21")
def test_a_candidate_fetches_what_it_lacks_of_the_best_log_and_then_leads() -> None:
    server, epoch = candidate()
    effects = server.step([own(server, epoch), Received(2, best(epoch))])
    assert only(Send, effects)[-1] == Send(2, LogRequest(epoch, 1))
    effects = server.step([Received(2, LogReply(epoch, 1, tuple(LOG[:3]), 0))])
    assert sent(effects, 2) == [LogRequest(epoch, 4)]
    assert server.sequencer is None
    server.step([Received(2, LogReply(epoch, 4, tuple(LOG[3:]), 0))])
    assert server.sequencer is not None
    log = server.sequencer.log
    assert [log.entry(index) for index in range(1, 7)] == [*LOG, EpochEntry(epoch)]


@pytest.mark.req("GRP-21")
@pytest.mark.parametrize(
    ("node", "reply"),
    [
        (3, {}),  # somebody else's
        (2, {"epoch": E1}),
        (2, {"index_first": 2}),
        (2, {"entries": ()}),
    ],
)
def test_a_piece_of_a_log_that_was_not_asked_for_is_passed_over(
    node: NodeId, reply: dict[str, object]
) -> None:
    server, epoch = candidate()
    server.step([own(server, epoch), Received(2, best(epoch))])
    wanted = LogReply(epoch, 1, tuple(LOG), 0)
    server.step([Received(node, msgspec.structs.replace(wanted, **reply))])
    assert server.sequencer is None
    server.step([Received(2, wanted)])
    assert server.sequencer is not None


@pytest.mark.req("GRP-27")
def test_a_lost_piece_of_a_log_is_asked_for_again() -> None:
    server, epoch = candidate()
    server.step([own(server, epoch), Received(2, best(epoch))])
    effects = server.step([Ticked(server.now_ms + SETTINGS.retry_ms)])
    assert sent(effects, 2) == [LogRequest(epoch, 1)]


@pytest.mark.req("GRP-21")
def test_a_log_that_is_not_the_promised_one_is_not_adopted() -> None:
    server, epoch = candidate()
    server.step([own(server, epoch), Received(2, best(epoch))])
    other = tuple(reversed(LOG))
    effects = server.step([Received(2, LogReply(epoch, 1, other, 0))])
    assert codes(effects) == ["log-differs-from-promise"]
    assert server.sequencer is None


@pytest.mark.req("GRP-21")
def test_a_candidate_whose_log_ends_below_the_base_of_the_best_one_steps_back() -> None:
    server, epoch = candidate()
    above = msgspec.structs.replace(best(epoch), low_water=5, hashes=((5, b"\x05" * 32),))
    effects = server.step([own(server, epoch), Received(2, above)])
    assert sent(effects) == [m for m in sent(effects) if isinstance(m, Promise)]
    assert server.sequencer is None


@pytest.mark.req("GRP-21")
@pytest.mark.parametrize(
    "change",
    [{"uuid": 999}, {"configuration": 0}, {"configuration": 2}, {"epoch": E3}],
    ids=str,
)
def test_a_promise_that_is_not_of_a_listed_disk_for_this_epoch_does_not_count(
    change: dict[str, object],
) -> None:
    server, epoch = candidate()
    made = msgspec.structs.replace(best(epoch, 1), log_epoch=EPOCH_NONE, length=0)
    made = msgspec.structs.replace(made, hashes=((0, HASH_NONE),))
    server.step([own(server, epoch)])
    server.step([Received(2, msgspec.structs.replace(made, **change))])
    assert server.sequencer is None
    server.step([Received(2, made)])
    assert server.sequencer is not None


@pytest.mark.req("GRP-21")
def test_a_candidate_gives_way_to_a_sequencer_of_a_higher_epoch() -> None:
    server, epoch = candidate()
    server.step([Received(3, Heartbeat(1, (epoch[0] + 1, 3, 1), 0, HASH_NONE, ()))])
    made = msgspec.structs.replace(best(epoch, 1), hashes=((0, HASH_NONE),), length=0)
    server.step([own(server, epoch), Received(2, made)])
    assert server.sequencer is None


def test_a_candidate_starts_over_when_nobody_answers() -> None:
    server, epoch = candidate()
    effects = server.step([Ticked(server.now_ms + 10_000)])
    assert [type(m) for m in sent(effects)] == [PreVote] * 3
    assert stand(server)[0] > epoch[0]


@pytest.mark.req("GRP-22")
def test_k_minus_1_commit_servers_that_are_down_keep_nobody_from_leading() -> None:
    servers = tuple(Server(node, 100 + node, ROLE_COMMIT | ROLE_DATA) for node in range(1, 6))
    cell = Cell(configuration=Configuration(1, servers, 3, 3, 2), with_data=False)
    cell.down.update({1: None, 2: None})
    cell.run(5 * SETTINGS.suspect_ms)
    assert cell.leader.node == 3
    assert cell.leader.core.index == 1


@pytest.mark.req("GRP-21")
@pytest.mark.parametrize("nonce_change", [-1, 1])
def test_a_sequencer_whose_epoch_was_promised_to_a_former_life_stops_and_rises(
    nonce_change: int,
) -> None:
    leader = led_cell().leader
    assert leader.sequencer is not None
    epoch = leader.sequencer.epoch
    twin = (epoch[0], epoch[1], epoch[2] + nonce_change)
    other = 2 if leader.node != 2 else 3
    leader.step([Received(other, Refusal(epoch, twin, CONFIGURATION))])
    assert leader.sequencer is None
    assert leader.election.next_epoch()[0] > epoch[0]
