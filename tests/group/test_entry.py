"""The entry by hand: it passes on what it gets, to whom it concerns, and changes none of it."""

import pytest

from samcast.group.entry import Entry
from samcast.machine.ports import NEVER_MS, Channel, Effect, Multicast, NodeId, Received, Send
from samcast.wire.batch import encode_batch
from samcast.wire.group import (
    Answer,
    AnswerKind,
    Answers,
    Commit,
    GroupRequest,
    Head,
    HeadRequest,
    Outcome,
    OutcomeKind,
    Propose,
)
from samcast.wire.order import (
    HASH_NONE,
    AnyEntry,
    ConfigEntry,
    Configuration,
    Epoch,
    EpochEntry,
    Server,
)
from tests.group.build import ANN, BOB, CONFIGURATION, GROUP, SETTINGS, batch, only, run_entry, sent

EPOCH: Epoch = (1, 1, 5)
ANNS_NODE, BOBS_NODE = 901, 902


def entry() -> Entry:
    """An entry through which Ann and Bob have sent."""
    one = Entry(80, CONFIGURATION, SETTINGS)
    one.step([Received(ANNS_NODE, batch(1)), Received(BOBS_NODE, batch(1, sender=BOB))])
    return one


def commit(*entries: AnyEntry) -> Received:
    return Received(1, Commit(1, EPOCH, 1, entries, len(entries), HASH_NONE))


def number(of_sender: bytes, number_first: int, count: int = 1) -> Answer:
    of = batch(1, count, sender=of_sender)
    return Answer(AnswerKind.NUMBER, GROUP, of_sender, 1, 1, count, number_first, of.digest)


def to(node: NodeId, effects: list[Effect]) -> list[object]:
    return [effect.message for effect in only(Send, effects) if effect.to == node]


@pytest.mark.req("GRP-12")
def test_a_batch_is_passed_on_to_all_data_servers_as_it_is() -> None:
    of = batch(3, 2, confirmed_below=2, seen=9)
    (effect,) = Entry(80, CONFIGURATION, SETTINGS).step([Received(ANNS_NODE, of)])
    assert effect == Multicast(Channel.DATA, of)
    assert isinstance(effect, Multicast)
    assert effect.message is of
    assert encode_batch(of) == encode_batch(batch(3, 2, confirmed_below=2, seen=9))


@pytest.mark.req("GRP-12")
def test_answers_go_back_to_the_client_that_they_concern() -> None:
    mixed = Answers((number(ANN, 1), number(BOB, 2), number(bytes(16), 3)), GROUP, 3)
    effects = entry().step([Received(2, mixed)])
    assert to(ANNS_NODE, effects) == [Answers((number(ANN, 1),), GROUP, 3)]
    assert to(BOBS_NODE, effects) == [Answers((number(BOB, 2),), GROUP, 3)]
    assert len(effects) == 2


@pytest.mark.req("GRP-12")
def test_a_client_hears_of_its_own_commits_at_once() -> None:
    entries = (
        EpochEntry(EPOCH),
        run_entry(batch(1, 2, sender=BOB), 1),
        run_entry(batch(1, sender=bytes(16)), 3),
        run_entry(batch(1), 4),
    )
    effects = entry().step([commit(*entries)])
    assert to(BOBS_NODE, effects) == [Answers((number(BOB, 1, 2),), GROUP, 2)]
    assert to(ANNS_NODE, effects) == [Answers((number(ANN, 4),), GROUP, 4)]
    assert len(effects) == 2


def test_a_client_that_moved_is_answered_where_it_is_now() -> None:
    one = entry()
    one.step([Received(BOBS_NODE, batch(1))])
    effects = one.step([commit(run_entry(batch(1), 1))])
    assert [effect.to for effect in only(Send, effects)] == [BOBS_NODE]


@pytest.mark.req("GRP-12")
def test_a_proposal_goes_to_a_commit_server_and_its_outcome_back() -> None:
    one = entry()
    request = GroupRequest("second", 5, 5)
    (effect,) = one.step([Received(ANNS_NODE, Propose(7, request))])
    assert isinstance(effect, Send)
    assert effect.to in (1, 2, 3)
    assert effect.message == Propose(7, request)
    outcome = Outcome(7, OutcomeKind.GROUP, 2)
    assert one.step([Received(2, outcome)]) == [Send(ANNS_NODE, outcome)]
    assert one.step([Received(2, outcome)]) == []  # once
    assert one.step([Received(2, Outcome(8, OutcomeKind.DONE))]) == []


@pytest.mark.req("GRP-12")
def test_all_who_asked_for_a_head_hear_of_it_from_one_answer() -> None:
    one = entry()
    ask = HeadRequest(GROUP)
    effects = one.step([Received(ANNS_NODE, ask), Received(BOBS_NODE, ask)])
    assert sent(effects) == [ask, ask]
    told = one.step([Received(1, Head(GROUP, 4))])
    assert told == [Send(ANNS_NODE, Head(GROUP, 4)), Send(BOBS_NODE, Head(GROUP, 4))]
    assert one.step([Received(2, Head(GROUP, 5))]) == []


def test_commit_servers_are_asked_in_turn() -> None:
    one = entry()
    asked = [one.step([Received(ANNS_NODE, HeadRequest(n))])[0] for n in range(6)]
    assert sorted(e.to for e in asked if isinstance(e, Send)) == [1, 1, 2, 2, 3, 3]


def test_an_entry_follows_the_configuration() -> None:
    one = entry()
    alone = Configuration(2, (Server(9, 109, 3),), 1, 1, 1)
    one.step([commit(ConfigEntry(alone))])
    assert [e.to for e in only(Send, one.step([Received(ANNS_NODE, HeadRequest(1))]))] == [9]


def test_an_entry_only_reacts() -> None:
    assert entry().due_ms() == NEVER_MS
