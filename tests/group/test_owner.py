"""The owner of transactions by hand: staged first, decided at once, and once only."""

from dataclasses import replace

import msgspec
import pytest

from samcast.group.owner import (
    Decided,
    Forgotten,
    Owner,
    OwnerOpened,
    OwnerStopped,
    State,
    Transacted,
)
from samcast.group.stage_window import ASK_MS
from samcast.machine.ports import Channel, Effect, Multicast, Received, Send, Ticked
from samcast.wire.batch import Batch
from samcast.wire.change import Moved
from samcast.wire.group import (
    DecisionRequest,
    Head,
    HeadRequest,
    OpenRequest,
    Outcome,
    OutcomeKind,
    Propose,
)
from samcast.wire.order import CELL, INCARNATION_MAX, Server
from samcast.wire.stages import StageKey, Stages, StagesRequest
from tests.group.build import (
    CONFIGURATION,
    GROUP,
    OWNER,
    SETTINGS,
    Draws,
    codes,
    columns,
    key_of,
    only,
    sent,
    stage_ref,
)

WORK = Transacted(
    1, ((GROUP, columns("a", 2), 2), (GROUP + 1, columns("b"), 1), (GROUP, columns("c"), 1))
)


def proposed(effects: list[Effect]) -> Propose:
    (propose,) = [m for m in sent(effects) if isinstance(m, Propose)]
    return propose


def stages(effects: list[Effect]) -> list[Batch]:
    return [m for m in sent(effects) if isinstance(m, Batch)]


def opening() -> tuple[Owner, Propose]:
    owner = Owner(70, CONFIGURATION, SETTINGS, Draws(7), "sink-1")
    assert sent(owner.step([Ticked(0), WORK])) == [HeadRequest(CELL)]
    return owner, proposed(owner.step([Received(1, Head(CELL, 12))]))


def deciding() -> tuple[Owner, list[Effect]]:
    owner, propose = opening()
    return owner, owner.step([Received(1, Outcome(propose.nonce, OutcomeKind.OPENED, 4))])


@pytest.mark.req("GRP-26")
def test_an_owner_opens_its_name_in_the_cell_before_it_stages() -> None:
    owner, propose = opening()
    assert propose.request == OpenRequest(CELL, OWNER, 1, 0, 12, propose.nonce, "sink-1")
    effects = owner.step([Received(1, Outcome(propose.nonce, OutcomeKind.OPENED, 4))])
    assert only(OwnerOpened, effects) == [OwnerOpened(4)]


def test_stages_go_to_the_data_servers_and_the_decision_names_them_by_group() -> None:
    _, effects = deciding()
    found = stages(effects)
    assert [e.channel for e in only(Multicast, effects)] == [Channel.DATA] * 3
    assert [(of.group, of.stage, of.count) for of in found] == [(1, 1, 2), (2, 2, 1), (1, 3, 1)]
    assert {(of.sender, of.incarnation, of.counter_first) for of in found} == {(OWNER, 1, 4)}
    parts = (
        (GROUP, (stage_ref(found[0]), stage_ref(found[2]))),
        (GROUP + 1, (stage_ref(found[1]),)),
    )
    assert proposed(effects).request == DecisionRequest(OWNER, 1, 4, parts, 12)


def asked(effects: list[Effect]) -> dict[int, tuple[StageKey, ...]]:
    return {
        effect.to: effect.message.stages
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, StagesRequest)
    }


def test_the_decision_is_repeated_and_of_the_stages_what_is_lacking() -> None:
    owner, effects = deciding()
    found = stages(effects)
    again = owner.step([Ticked(SETTINGS.retry_ms)])
    assert proposed(again) == proposed(effects)
    assert stages(again) == []
    keys = tuple(map(key_of, found))
    assert asked(again) == {1: keys, 2: keys, 3: keys}
    said = Stages(103, keys[:1], keys[1:2], (), keys[2:])
    assert sent(owner.step([Received(3, said)]), 3) == [found[2]]
    assert sent(owner.step([Received(3, said)])) == []  # It is on its way.
    assert sent(owner.step([Ticked(SETTINGS.retry_ms + 1)])) == []
    servers = {
        effect.to
        for now_ms in range(100, 4000, 10)
        for effect in only(Send, owner.step([Ticked(now_ms)]))
        if isinstance(effect.message, Propose)
    }
    assert servers == {1, 2, 3}


def large(count: int, window_bytes: int = 200) -> tuple[Owner, list[Effect]]:
    """Each stage is more than half of what may be under way, unless more may."""
    settings = replace(SETTINGS, stage_window_bytes=window_bytes)
    owner = Owner(70, CONFIGURATION, settings, Draws(7), "sink-1")
    work = Transacted(1, tuple((GROUP, columns(80 * "a"), 1) for _ in range(count)))
    owner.step([Ticked(0), work, Received(1, Head(CELL, 12))])
    owner.step([Ticked(SETTINGS.retry_ms)])
    return owner, owner.step([Received(1, Outcome(owner.nonce, OutcomeKind.OPENED, 4))])


def test_of_a_large_transaction_the_next_stages_leave_as_those_before_are_held() -> None:
    owner, effects = large(3)
    (first,) = stages(effects)
    key = key_of(first)
    assert owner.due_ms() == SETTINGS.retry_ms + ASK_MS
    assert asked(owner.step([Ticked(owner.due_ms())])) == {1: (key,), 2: (key,), 3: (key,)}
    assert stages(owner.step([Received(1, Stages(101, (key,), (), (), ()))])) == []
    assert stages(owner.step([Received(1, Stages(101, (key,), (), (), ()))])) == []
    (second,) = stages(owner.step([Received(2, Stages(102, (key,), (), (), ()))]))
    assert second.stage == 2
    # A stage of which one server has not heard is sent to that one only, and what follows waits.
    lost = Stages(103, (), (), (), (key_of(second),))
    effects = owner.step([Ticked(3 * SETTINGS.retry_ms), Received(3, lost)])
    assert [e.to for e in only(Send, effects) if e.message == second] == [3]
    assert stages(effects) == [second]
    held = Stages(0, (key_of(second),), (), (), ())
    effects = owner.step([Received(7, held), Received(8, held)])  # who came since
    assert [of.stage for of in stages(effects)] == [3]
    assert proposed(effects).request == owner.decision()  # with the last of them


def test_what_is_sent_again_in_one_turn_is_bounded_too() -> None:
    owner, effects = large(5)
    for _ in range(5):
        (of,) = stages(effects)
        held = Stages(0, (key_of(of),), (), (), ())
        effects = owner.step([Received(1, held), Received(2, held)])
    found = asked(owner.step([Ticked(60_000)]))[1]
    assert len(found) == 5  # Disks may have been lost since.
    effects = owner.step([Received(1, Stages(0, (), (), (), found))])
    assert [of.stage for of in stages(effects)] == [1]
    assert owner.step([Received(1, Stages(0, (), (), (), found))]) == []


def test_where_others_serve_by_now_they_get_every_stage_a_bounded_number_at_a_time() -> None:
    owner, effects = large(9, window_bytes=700)
    size = len(stages(effects)[0].columns)
    fit = 700 // size
    assert len(stages(effects)) == fit < 9
    assert owner.due_ms() == SETTINGS.retry_ms + ASK_MS
    pressed = []
    for _ in range(200):  # Of those whom it asks, one has all and the others are gone.
        effects = owner.step([Ticked(owner.due_ms())])
        known = asked(effects).get(1, ())
        said = owner.step([Received(1, Stages(101, known, (), (), ()))])
        assert stages(said) == []
        if found := [e.message for e in only(Multicast, effects)]:
            pressed.append([of.stage for of in found if isinstance(of, Batch)])
    assert all(len(now) <= fit for now in pressed)
    assert len(pressed) > 9
    assert pressed[0][:2] != [1, 2]  # Some leave for the first time, whoever holds the others.
    for begin in range(3, len(pressed) - 3):  # Each has its turn, and then again.
        assert {of for now in pressed[begin : begin + 3] for of in now} == set(range(1, 10))


def test_a_stage_larger_than_the_window_leaves_alone_however_long_nobody_answers() -> None:
    owner, effects = large(3, window_bytes=10)
    assert [of.stage for of in stages(effects)] == [1]
    turns = [stages(owner.step([Ticked(owner.due_ms())])) for _ in range(200)]
    pressed = [[of.stage for of in turn] for turn in turns if turn]
    assert pressed[:6] == [[2], [3], [1], [2], [3], [1]]


def test_who_serves_by_now_is_asked_as_soon_as_that_is_told() -> None:
    owner, effects = large(2)
    (first,) = stages(effects)
    key = key_of(first)
    owner.step([Received(1, Stages(101, (key,), (), (), ()))])
    servers = tuple(Server(node, 100 + node, 7) for node in (4, 5, 6))
    told = msgspec.structs.replace(CONFIGURATION, number=9, servers=servers, node_last=6)
    old = msgspec.structs.replace(CONFIGURATION, number=0)
    effects = owner.step([Received(70, Moved(told)), Received(70, Moved(old))])
    assert asked(effects) == {4: (key,), 5: (key,), 6: (key,)}
    assert owner.step([Received(70, Moved(told))]) == []
    effects = owner.step([Received(4, Stages(104, (), (), (), (key,)))])
    assert effects == [Send(4, first)]
    held = Stages(0, (key,), (), (), ())
    effects = owner.step([Received(4, held), Received(5, held)])
    assert [of.stage for of in stages(effects)] == [2]
    assert {e.to for e in only(Send, effects)} <= {4, 5, 6}


@pytest.mark.parametrize("kind", [OutcomeKind.DECIDED, OutcomeKind.CONFIRMED])
def test_a_decided_transaction_is_told_once_and_the_next_one_begins(kind: OutcomeKind) -> None:
    owner, effects = deciding()
    spans = ((GROUP, 7, 3),) if kind is OutcomeKind.DECIDED else ()
    outcome = Outcome(proposed(effects).nonce, kind, 0, (), spans)
    effects = owner.step([Received(1, outcome), Received(1, outcome)])
    assert only(Decided, effects) == [Decided(1, 4, spans)]
    assert owner.unconfirmed == 0
    effects = owner.step([Transacted(2, ((GROUP, columns("d"), 1),))])
    request = proposed(effects).request
    assert isinstance(request, DecisionRequest)
    assert request.tx == 5


def test_after_an_abort_the_owner_opens_again_and_stages_again_under_the_same_counter() -> None:
    owner, effects = deciding()
    before = stages(effects)
    effects = owner.step([Received(1, Outcome(proposed(effects).nonce, OutcomeKind.ABORTED))])
    assert only(Decided, effects) == []
    assert sent(effects) == [HeadRequest(CELL)]
    propose = proposed(owner.step([Received(1, Head(CELL, 30))]))
    assert propose.request == OpenRequest(CELL, OWNER, 2, 1, 30, propose.nonce, "sink-1")
    effects = owner.step([Received(1, Outcome(propose.nonce, OutcomeKind.OPENED, 4))])
    again = stages(effects)
    assert [of.columns for of in again] == [of.columns for of in before]
    assert {(of.incarnation, of.counter_first) for of in again} == {(2, 4)}


@pytest.mark.req("GRP-26")
def test_a_new_process_comes_after_whoever_holds_the_name() -> None:
    owner, propose = opening()
    owner.step([Received(1, Outcome(propose.nonce, OutcomeKind.FENCED, 6))])
    again = proposed(owner.step([Received(1, Head(CELL, 30))]))
    assert isinstance(again.request, OpenRequest)
    assert (again.request.incarnation, again.request.after) == (7, 0)


@pytest.mark.req("GRP-26")
@pytest.mark.parametrize("kind", [OutcomeKind.FENCED, OutcomeKind.REMOVED, OutcomeKind.REFUSED])
def test_an_owner_that_was_taken_over_stops(kind: OutcomeKind) -> None:
    owner, effects = deciding()
    outcome = Outcome(proposed(effects).nonce, kind, 9)
    assert owner.step([Received(1, outcome)]) == [OwnerStopped(kind, token=1)]
    assert owner.state is State.STOPPED
    assert owner.step([Ticked(10**6), WORK]) == []


def test_an_outcome_of_another_proposal_settles_nothing() -> None:
    owner, effects = deciding()
    nonce = proposed(effects).nonce
    assert owner.step([Received(1, Outcome(nonce + 1, OutcomeKind.DECIDED))]) == []
    assert owner.unconfirmed == 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (OutcomeKind.OPENED, 0),
        (OutcomeKind.OPENED, 2**63 - 1),
        (OutcomeKind.FENCED, 0),
        (OutcomeKind.FENCED, 2**32 - 1),
    ],
)
def test_an_outcome_that_makes_no_sense_is_turned_away_with_a_code(
    kind: OutcomeKind, value: int
) -> None:
    owner, propose = opening()
    effects = owner.step([Received(1, Outcome(propose.nonce, kind, value))])
    assert codes(effects) == ["outcome-range"]
    assert owner.state is State.OPENING


def test_a_name_whose_incarnations_are_used_up_is_refused() -> None:
    owner, propose = opening()
    outcome = Outcome(propose.nonce, OutcomeKind.FENCED, INCARNATION_MAX)
    assert owner.step([Received(1, outcome)]) == [OwnerStopped(OutcomeKind.REFUSED)]
    assert owner.state is State.STOPPED


# Owners without a name.


def anonymous() -> tuple[Owner, list[Effect]]:
    """One that has sent its first decision."""
    owner = Owner(70, CONFIGURATION, SETTINGS, Draws(7), "")
    owner.step([Ticked(0), WORK])
    propose = proposed(owner.step([Received(1, Head(CELL, 12))]))
    assert isinstance(propose.request, OpenRequest)
    assert propose.request.is_anonymous
    assert not propose.request.label
    opened = Outcome(propose.nonce, OutcomeKind.OPENED, 1, (), (), 14)
    return owner, owner.step([Received(1, opened)])


def test_an_owner_without_a_name_stages_again_under_another_if_it_came_too_late() -> None:
    owner, effects = anonymous()
    before, decision = owner.id, proposed(effects).request
    assert isinstance(decision, DecisionRequest)
    assert decision.seen == 14
    effects = owner.step([Received(1, Outcome(proposed(effects).nonce, OutcomeKind.EXPIRED))])
    assert sent(effects) == [HeadRequest(CELL)]
    propose = proposed(owner.step([Received(1, Head(CELL, 30))]))
    assert owner.id != before
    assert propose.request == OpenRequest(CELL, owner.id, 1, 0, 30, propose.nonce, "", True)
    effects = owner.step([Received(1, Outcome(propose.nonce, OutcomeKind.OPENED, 1, (), (), 31))])
    assert [of.columns for of in stages(effects)] == [c for _, c, _ in WORK.stages]
    outcome = Outcome(proposed(effects).nonce, OutcomeKind.DECIDED, 0, (), ((GROUP, 7, 3),))
    assert only(Decided, owner.step([Received(1, outcome)])) == [Decided(1, 1, ((GROUP, 7, 3),))]


def test_an_owner_without_a_name_tells_what_nobody_knows_and_goes_on() -> None:
    owner, effects = anonymous()
    outcome = Outcome(proposed(effects).nonce, OutcomeKind.REMOVED)
    effects = owner.step([Received(1, outcome), Transacted(2, WORK.stages)])
    assert only(Forgotten, effects) == [Forgotten(1)]
    assert owner.state is State.OPENING
    assert owner.unconfirmed == 1


def test_an_owner_without_a_name_that_was_idle_asks_where_the_log_is_before_it_decides() -> None:
    owner, effects = anonymous()
    owner.step([Received(1, Outcome(proposed(effects).nonce, OutcomeKind.DECIDED, head=15))])
    soon = owner.step([Ticked(SETTINGS.retry_max_ms), Transacted(2, WORK.stages)])
    assert proposed(soon).request == owner.decision()
    owner.step([Received(1, Outcome(proposed(soon).nonce, OutcomeKind.DECIDED, head=16))])
    late = owner.step([Ticked(3 * SETTINGS.retry_max_ms), Transacted(3, WORK.stages)])
    assert sent(late) == [HeadRequest(CELL)]
    request = proposed(owner.step([Received(1, Head(CELL, 90))])).request
    assert isinstance(request, DecisionRequest)
    assert (request.tx, request.seen) == (3, 90)


@pytest.mark.parametrize("name", ["", "sink-1"])
def test_an_open_that_others_have_overtaken_is_made_again_from_now(name: str) -> None:
    owner = Owner(70, CONFIGURATION, SETTINGS, Draws(7), name)
    owner.step([Ticked(0), WORK])
    propose = proposed(owner.step([Received(1, Head(CELL, 12))]))
    removed = Outcome(propose.nonce, OutcomeKind.REMOVED, head=40)
    assert sent(owner.step([Received(1, removed)])) == [HeadRequest(CELL)]
    request = proposed(owner.step([Received(1, Head(CELL, 20))])).request
    assert isinstance(request, OpenRequest)
    assert request.birth == 40


def test_a_name_that_can_not_be_opened_any_more_is_not_tried_for_ever() -> None:
    owner, propose = opening()
    removed = Outcome(propose.nonce, OutcomeKind.REMOVED)
    assert owner.step([Received(1, removed)]) == [OwnerStopped(OutcomeKind.REMOVED)]


def test_too_many_names_are_told_with_their_limit() -> None:
    owner, propose = opening()
    refused = Outcome(propose.nonce, OutcomeKind.REFUSED, 10)
    assert owner.step([Received(1, refused)]) == [OwnerStopped(OutcomeKind.REFUSED, 10)]
