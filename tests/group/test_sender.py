"""The sender by hand: frozen batches, repeated until their outcome is certain, in order."""

import msgspec
import pytest

from samcast.group.sender import (
    Confirmed,
    Failed,
    Opened,
    Reconnected,
    Sender,
    State,
    Stopped,
    Submitted,
)
from samcast.group.settings import GroupSettings
from samcast.machine.ports import Channel, Effect, Multicast, NodeId, Received, Send, Ticked
from samcast.wire.batch import Batch
from samcast.wire.blocked import Blocked, Reason
from samcast.wire.group import (
    Answer,
    AnswerKind,
    Answers,
    Head,
    HeadRequest,
    OpenRequest,
    Outcome,
    OutcomeKind,
    Propose,
)
from samcast.wire.order import INCARNATION_MAX, is_named, named_sender
from tests.group.build import CONFIGURATION, GROUP, Draws, codes, columns, only, sent

SETTINGS = GroupSettings(sender_runs_max=3)


def sender(name: str = "", contacts: tuple[NodeId, ...] = (), head: int | None = 5) -> Sender:
    """A sender that knows the head, unless it is None."""
    one = Sender(60, CONFIGURATION, SETTINGS, Draws(6), GROUP, name=name, contacts=contacts)
    if head is not None:
        one.step([Received(1, Head(GROUP, head))])
    return one


def submitted(token: int, count: int = 1) -> Submitted:
    return Submitted(token, columns(f"run {token}", count), count)


def batches(effects: list[Effect]) -> list[Batch]:
    return [m for m in sent(effects) if isinstance(m, Batch)]


def answered(of: Batch, kind: AnswerKind, number: int = 0, head: int = 5) -> Received:
    answer = Answer(
        kind, of.group, of.sender, of.incarnation, of.counter_first, of.count, number, of.digest
    )
    return Received(2, Answers((answer,), GROUP, head))


def sending(*tokens: int) -> tuple[Sender, list[Batch]]:
    one = sender()
    return one, batches(one.step([submitted(token, 2) for token in tokens]))


# Sending.


@pytest.mark.req("GRP-12")
def test_a_sender_that_knows_no_number_asks_for_the_head_before_it_sends() -> None:
    one = sender(head=None)
    assert sent(one.step([Ticked(0), submitted(1)])) == [HeadRequest(GROUP)]
    assert sent(one.step([Ticked(1)])) == []
    assert sent(one.step([Ticked(SETTINGS.retry_ms)])) == [HeadRequest(GROUP)]
    (of,) = batches(one.step([Received(1, Head(GROUP, 7))]))
    assert (of.birth, of.seen) == (7, 7)


@pytest.mark.req("GRP-18")
def test_a_sender_whose_knowledge_is_old_asks_again_before_it_stamps() -> None:
    one = sender(head=5)
    later_ms = 5 * SETTINGS.retry_max_ms
    assert sent(one.step([Ticked(later_ms), submitted(1)])) == [HeadRequest(GROUP)]
    (of,) = batches(one.step([Received(1, Head(GROUP, 90))]))
    assert of.birth == 90


@pytest.mark.req("GRP-12")
def test_a_batch_goes_to_all_data_servers_without_anybody_being_asked() -> None:
    one = sender()
    (effect,) = one.step([submitted(1, 3)])
    assert isinstance(effect, Multicast)
    assert effect.channel is Channel.DATA
    (of,) = batches([effect])
    assert (of.counter_first, of.count, of.incarnation, of.birth) == (1, 3, 1, 5)
    assert not is_named(of.sender)


def test_counters_follow_each_other() -> None:
    _, runs = sending(1, 2, 3)
    assert [(of.counter_first, of.count) for of in runs] == [(1, 2), (3, 2), (5, 2)]
    assert {of.confirmed_below for of in runs} == {1}


@pytest.mark.req("GRP-18")
def test_a_retransmission_is_the_same_batch_with_new_stamps_only() -> None:
    one, (first, second) = sending(1, 2)
    one.step([answered(first, AnswerKind.NUMBER, 6, head=30)])
    (again,) = batches(one.step([Ticked(SETTINGS.retry_ms)]))
    assert again.columns is second.columns
    assert (again.digest, again.birth) == (second.digest, 5)
    assert (again.counter_first, again.count) == (second.counter_first, second.count)
    assert (again.confirmed_below, again.seen) == (3, 30)


@pytest.mark.req("GRP-18")
def test_a_batch_is_sent_again_with_growing_pauses_until_it_has_an_outcome() -> None:
    one, (of,) = sending(1)
    times = [now for now in range(1, 5000) if batches(one.step([Ticked(now)]))]
    pauses = [later - earlier for earlier, later in zip([0, *times], times, strict=False)]
    assert pauses == sorted(pauses)
    assert pauses[0] == SETTINGS.retry_ms
    assert pauses[-1] == SETTINGS.retry_max_ms
    one.step([answered(of, AnswerKind.NUMBER, 6)])
    assert not [now for now in range(5000, 9000, 10) if batches(one.step([Ticked(now)]))]


def test_a_named_sender_that_nobody_answers_asks_whether_its_name_is_still_there() -> None:
    one = sender(name="till", head=None)
    opening = one.step([Received(1, Head(GROUP, 5))])
    (asked,) = [m for m in sent(opening) if isinstance(m, Propose)]
    one.step([Received(1, Outcome(asked.nonce, OutcomeKind.OPENED, 1, (), (), 5))])
    effects = one.step([Ticked(2), submitted(1)])
    for now_ms in range(3, 10 * SETTINGS.retry_max_ms, 10):
        effects += one.step([Ticked(now_ms)])
    again = {m for m in sent(effects) if isinstance(m, Propose)}
    assert again == {asked}  # the same OPEN, which is answered and never ordered twice
    one.step([Received(1, Outcome(asked.nonce, OutcomeKind.OPENED, 1, (), (), 5))])
    assert one.state is State.SENDING
    effects = one.step([Received(1, Outcome(asked.nonce, OutcomeKind.REMOVED))])
    assert [f.kind for f in only(Failed, effects)] == [AnswerKind.REMOVED]
    assert only(Stopped, effects) == [Stopped(AnswerKind.REMOVED)]


def test_after_a_reconnection_all_that_is_under_way_is_repeated_at_once_in_order() -> None:
    one, first = sending(1, 2)
    one.step([Ticked(3)])
    again = batches(one.step([Ticked(4), Reconnected()]))
    assert [b.digest for b in again] == [b.digest for b in first]
    assert batches(one.step([Ticked(5)])) == []


def test_no_more_runs_are_unconfirmed_than_a_row_remembers() -> None:
    one = sender()
    runs = batches(one.step([submitted(token) for token in range(1, 6)]))
    assert len(runs) == SETTINGS.sender_runs_max
    assert one.unconfirmed == 5
    (more,) = batches(one.step([answered(runs[1], AnswerKind.NUMBER, 7)]))
    assert more.counter_first == 4


@pytest.mark.req("GRP-12")
def test_through_entries_a_batch_goes_to_one_and_then_to_another() -> None:
    one = sender(contacts=(81, 82))
    (first,) = only(Send, one.step([submitted(1)]))
    (second,) = only(Send, one.step([Ticked(SETTINGS.retry_ms)]))
    assert {first.to, second.to} == {81, 82}


# Outcomes.


@pytest.mark.req("GRP-26")
def test_a_number_is_told_to_the_application_once() -> None:
    one, (of,) = sending(1)
    answer = answered(of, AnswerKind.NUMBER, 6)
    assert one.step([answer]) == [Confirmed(1, 6)]
    assert one.step([answer]) == []
    assert one.unconfirmed == 0


@pytest.mark.req("GRP-26")
def test_confirmed_without_a_number_is_told_without_a_number() -> None:
    one, (of,) = sending(1)
    assert one.step([answered(of, AnswerKind.CONFIRMED)]) == [Confirmed(1, 0)]


@pytest.mark.req("GRP-26")
@pytest.mark.parametrize(
    "change",
    [{"sender": bytes(16)}, {"incarnation": 2}, {"counter_first": 9}, {"group": 2}],
    ids=str,
)
def test_an_answer_to_somebody_else_settles_nothing(change: dict[str, object]) -> None:
    one, (of,) = sending(1)
    message = answered(of, AnswerKind.NUMBER, 6).message
    assert isinstance(message, Answers)
    if "group" in change:
        other = msgspec.structs.replace(message, group=2)
    else:
        answer = msgspec.structs.replace(message.answers[0], **change)
        other = msgspec.structs.replace(message, answers=(answer,))
    assert one.step([Received(2, other)]) == []
    assert one.unconfirmed == 1


@pytest.mark.parametrize(
    "change",
    [{"digest": bytes(16)}, {"count": 9}, {"number_first": 2**63 - 1}],
    ids=str,
)
def test_an_answer_that_makes_no_sense_is_turned_away_with_a_code(
    change: dict[str, object],
) -> None:
    one, (of,) = sending(1)
    message = answered(of, AnswerKind.NUMBER, 6).message
    assert isinstance(message, Answers)
    answer = msgspec.structs.replace(message.answers[0], **change)
    effects = one.step([Received(2, msgspec.structs.replace(message, answers=(answer,)))])
    assert codes(effects) == ["answer-of-other"]
    assert one.unconfirmed == 1


@pytest.mark.req("GRP-19", "GRP-26")
@pytest.mark.parametrize("kind", [AnswerKind.EXPIRED, AnswerKind.REOPEN])
def test_an_unnamed_sender_goes_on_from_what_expired_under_a_fresh_id(kind: AnswerKind) -> None:
    one, runs = sending(1, 2)
    again = batches(one.step([answered(runs[0], kind, head=70)]))
    assert [of.counter_first for of in again] == [1, 3]
    assert {of.birth for of in again} == {70}
    assert [of.columns for of in again] == [of.columns for of in runs]
    assert again[0].sender == again[1].sender != runs[0].sender
    assert one.step([answered(runs[1], AnswerKind.NUMBER, 6)]) == []  # the old id is over


@pytest.mark.req("GRP-26")
def test_expired_of_a_later_run_waits_for_the_lower_ones() -> None:
    """Going on from the one that was heard of first would skip a message (CE-29)."""
    one, runs = sending(1, 2, 3)
    assert batches(one.step([answered(runs[1], AnswerKind.EXPIRED)])) == []
    effects = one.step([answered(runs[0], AnswerKind.NUMBER, 6)])
    assert only(Confirmed, effects) == [Confirmed(1, 6)]
    again = batches(effects)
    assert [of.columns for of in again] == [of.columns for of in runs[1:]]
    assert [of.counter_first for of in again] == [1, 3]


@pytest.mark.req("GRP-26")
def test_what_is_forgotten_is_told_and_never_sent_again() -> None:
    one, runs = sending(1, 2)
    assert one.step([answered(runs[0], AnswerKind.FORGOTTEN)]) == [Failed(1, AnswerKind.FORGOTTEN)]
    again = [of for now in range(0, 5000, 10) for of in batches(one.step([Ticked(now)]))]
    assert {of.counter_first for of in again} == {3}


@pytest.mark.req("GRP-26")
@pytest.mark.parametrize(
    "kind", [AnswerKind.FENCED, AnswerKind.REMOVED, AnswerKind.CONFLICT, AnswerKind.NO_GROUP]
)
def test_what_can_not_be_mended_stops_the_sender(kind: AnswerKind) -> None:
    one, runs = sending(1, 2)
    one.step([submitted(3), submitted(4)])
    effects = one.step([answered(runs[1], kind)])
    assert effects == [*(Failed(token, kind) for token in (1, 2, 3, 4)), Stopped(kind)]
    assert one.state is State.STOPPED
    assert one.step([Ticked(10**6), answered(runs[0], AnswerKind.NUMBER, 6)]) == []


# Names.


def opening(name: str = "till-7") -> tuple[Sender, OpenRequest, int]:
    one = sender(name, head=None)
    one.step([Ticked(0), submitted(1)])
    (propose,) = sent(one.step([Received(1, Head(GROUP, 5))]))
    assert isinstance(propose, Propose)
    assert isinstance(propose.request, OpenRequest)
    return one, propose.request, propose.nonce


def test_a_sender_whose_name_has_no_next_incarnation_stops() -> None:
    one, _, nonce = opening()
    effects = one.step([Received(1, Outcome(nonce, OutcomeKind.FENCED, INCARNATION_MAX))])
    assert only(Stopped, effects) == [Stopped(AnswerKind.REMOVED)]


@pytest.mark.req("GRP-26")
def test_a_named_sender_opens_before_it_sends() -> None:
    one, request, nonce = opening()
    assert request == OpenRequest(GROUP, named_sender("till-7"), 1, 0, 5, nonce, "till-7")
    runs = ((1, 40, 2, bytes(16)),)
    effects = one.step([Received(1, Outcome(nonce, OutcomeKind.OPENED, 41, runs, (), 9))])
    assert only(Opened, effects) == [Opened(1, 41, runs)]
    (of,) = batches(effects)
    assert (of.counter_first, of.incarnation, of.seen) == (41, 1, 9)


@pytest.mark.req("GRP-26")
def test_an_open_is_repeated_until_it_is_answered() -> None:
    one, request, nonce = opening()
    again = [m for now in range(0, 500, 10) for m in sent(one.step([Ticked(now)]))]
    assert len(again) > 2
    assert set(again) == {Propose(nonce, request)}


@pytest.mark.req("GRP-26")
def test_a_new_process_comes_after_whoever_holds_the_name() -> None:
    one, _, nonce = opening()
    effects = one.step([Received(1, Outcome(nonce, OutcomeKind.FENCED, 6))])
    (propose,) = sent(effects)
    assert isinstance(propose, Propose)
    assert isinstance(propose.request, OpenRequest)
    assert (propose.request.incarnation, propose.request.after) == (7, 0)
    assert propose.nonce != nonce
    assert one.step([Received(1, Outcome(nonce, OutcomeKind.OPENED, 1))]) == []  # an old nonce


@pytest.mark.req("GRP-26")
def test_a_named_sender_goes_on_from_what_expired_by_an_open_after_its_own() -> None:
    one, _, nonce = opening()
    (of,) = batches(one.step([Received(1, Outcome(nonce, OutcomeKind.OPENED, 1))]))
    (propose,) = sent(one.step([answered(of, AnswerKind.EXPIRED)]))
    assert isinstance(propose, Propose)
    assert isinstance(propose.request, OpenRequest)
    assert (propose.request.incarnation, propose.request.after) == (2, 1)
    fenced = one.step([Received(1, Outcome(propose.nonce, OutcomeKind.FENCED, 9))])
    assert fenced == [Failed(1, AnswerKind.FENCED), Stopped(AnswerKind.FENCED)]


@pytest.mark.req("GRP-26")
def test_after_such_an_open_the_same_messages_go_out_again() -> None:
    one, _, nonce = opening()
    (of,) = batches(one.step([Received(1, Outcome(nonce, OutcomeKind.OPENED, 1))]))
    (propose,) = sent(one.step([answered(of, AnswerKind.EXPIRED)]))
    assert isinstance(propose, Propose)
    (again,) = batches(one.step([Received(1, Outcome(propose.nonce, OutcomeKind.OPENED, 4))]))
    assert (again.columns, again.incarnation, again.counter_first) == (of.columns, 2, 4)


@pytest.mark.parametrize("kind", [OutcomeKind.REMOVED, OutcomeKind.REFUSED])
def test_a_name_that_can_not_be_opened_stops_the_sender(kind: OutcomeKind) -> None:
    one, _, nonce = opening()
    effects = one.step([Received(1, Outcome(nonce, kind))])
    assert effects == [Failed(1, AnswerKind.REMOVED), Stopped(AnswerKind.REMOVED)]


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(0, OutcomeKind.OPENED, 2**63 - 1),
        Outcome(0, OutcomeKind.OPENED, 0),
        Outcome(0, OutcomeKind.FENCED, 2**32 - 1),
        Outcome(0, OutcomeKind.OPENED, 1, (), (), 2**63 - 1),
    ],
)
def test_an_outcome_that_makes_no_sense_changes_nothing(outcome: Outcome) -> None:
    one, request, nonce = opening()
    effects = one.step([Received(1, msgspec.structs.replace(outcome, nonce=nonce))])
    assert only(Opened, effects) == []
    assert (one.state, one.incarnation) == (State.OPENING, request.incarnation)


def test_a_batch_that_a_data_server_does_not_take_is_repeated_and_the_reason_is_kept() -> None:
    one, (first, second) = sending(1, 2)
    key = (GROUP, one.id, 1, second.counter_first, 0)
    said = Blocked(((key, Reason.CLIENT_RUNS, 7), ((GROUP, b"x" * 16, 1, 1, 0), 99, 0)))
    assert one.step([Received(1, said)]) == []  # No outcome: another server may have taken it.
    assert one.blocked == (Reason.CLIENT_RUNS, 7)
    assert one.unconfirmed == 2
    again = batches(one.step([Ticked(SETTINGS.retry_ms)]))
    assert [of.counter_first for of in again] == [first.counter_first, second.counter_first]
    one.step([answered(second, AnswerKind.NUMBER, 6)])
    assert one.blocked is None
