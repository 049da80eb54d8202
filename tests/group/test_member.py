"""The member by hand: what it delivers, in which order, and how it closes its gaps."""

import dataclasses

import msgspec
import pytest

from samcast.group.member import Deliver, Member
from samcast.group.settings import GroupSettings
from samcast.machine.ports import Effect, Event, Received, Send, Ticked
from samcast.wire.batch import Batch, encode_batch
from samcast.wire.group import (
    Commit,
    CommitSubmit,
    Head,
    HeadRequest,
    Heartbeat,
    NumberReply,
    NumberRequest,
    PayloadRequest,
    Repair,
)
from samcast.wire.order import (
    HASH_NONE,
    ROLE_DATA,
    AnyEntry,
    ConfigEntry,
    Configuration,
    DecisionEntry,
    Epoch,
    EpochEntry,
    Part,
    Server,
)
from tests.group.build import (
    BOB,
    CLIENT,
    CONFIGURATION,
    GROUP,
    OWNER,
    SETTINGS,
    batch,
    only,
    run_entry,
    sent,
    stage_ref,
)

EPOCH: Epoch = (1, 1, 5)
LATER: Epoch = (2, 2, 5)
RUNS = [batch(1, 2), batch(3), batch(1, 3, sender=BOB), batch(4)]
FIRSTS = [1, 3, 4, 7]
ENTRIES: list[AnyEntry] = [run_entry(of, at) for of, at in zip(RUNS, FIRSTS, strict=True)]


def member(settings: GroupSettings = SETTINGS, number_next: int = 1) -> Member:
    return Member(50, CONFIGURATION, settings, GROUP, number_next)


def payload(of: Batch) -> Received:
    return Received(CLIENT, of)


def commit(first: int, *entries: AnyEntry, epoch: Epoch = EPOCH) -> Received:
    last = first + len(entries) - 1
    return Received(epoch[1], Commit(1, epoch, first, entries, last, HASH_NONE))


def submit(first: int, *entries: AnyEntry, epoch: Epoch = EPOCH, committed: int = 0) -> Received:
    return Received(epoch[1], CommitSubmit(1, epoch, first, entries, committed, HASH_NONE))


def beat(committed: int, head: int = 0, epoch: Epoch = EPOCH) -> Received:
    return Received(epoch[1], Heartbeat(1, epoch, committed, HASH_NONE, ((GROUP, head),)))


def repair(*numbered: tuple[int, Batch]) -> Received:
    return Received(2, Repair(tuple((number, encode_batch(of)) for number, of in numbered)))


def delivered(effects: list[Effect]) -> list[tuple[int, Batch]]:
    return [run for deliver in only(Deliver, effects) for run in deliver.runs]


def asked(of: Member, *events: Event, from_ms: int = 0) -> list[Send]:
    """All questions from now on, while nobody answers."""
    effects = of.step(list(events))
    for now_ms in range(from_ms, from_ms + 5000, 10):
        effects += of.step([Ticked(now_ms)])
    return only(Send, effects)


# Order.


@pytest.mark.req("GRP-08")
def test_what_is_committed_and_here_is_delivered_in_one_step_in_number_order() -> None:
    one = member()
    effects = one.step([*map(payload, reversed(RUNS)), commit(1, *ENTRIES)])
    (deliver,) = only(Deliver, effects)
    assert deliver == Deliver(GROUP, tuple(zip(FIRSTS, RUNS, strict=True)))
    assert one.number_next == 8


@pytest.mark.req("GRP-08")
def test_nothing_is_delivered_over_a_gap() -> None:
    one = member()
    assert delivered(one.step([*map(payload, RUNS), commit(2, *ENTRIES[1:])])) == []
    assert delivered(one.step([commit(1, ENTRIES[0])])) == list(zip(FIRSTS, RUNS, strict=True))


@pytest.mark.req("GRP-08")
def test_a_payload_that_comes_after_its_commit_is_delivered_then() -> None:
    one = member()
    one.step([commit(1, *ENTRIES), payload(RUNS[1])])
    assert delivered(one.step([payload(RUNS[0])])) == [(1, RUNS[0]), (3, RUNS[1])]


@pytest.mark.req("GRP-08", "GRP-27")
def test_nothing_is_delivered_twice() -> None:
    one = member()
    again = [*map(payload, RUNS), commit(1, *ENTRIES), submit(1, *ENTRIES, committed=4)]
    assert len(delivered(one.step(again))) == 4
    assert delivered(one.step([*again, repair((1, RUNS[0]))])) == []


@pytest.mark.req("GRP-08")
def test_a_member_goes_on_from_its_position() -> None:
    one = member(number_next=4)
    assert delivered(one.step([*map(payload, RUNS), commit(1, *ENTRIES)])) == [
        (4, RUNS[2]),
        (7, RUNS[3]),
    ]


@pytest.mark.parametrize("is_one_step", [True, False])
def test_who_begins_in_the_middle_of_a_run_gets_all_of_it(is_one_step: bool) -> None:
    one = member(GroupSettings(is_one_step=is_one_step), number_next=5)
    known = repair((4, RUNS[2])) if is_one_step else commit(3, ENTRIES[2])
    assert delivered(one.step([payload(RUNS[2]), known])) == [(4, RUNS[2])]
    assert one.number_next == 7
    assert delivered(one.step([known, repair((3, RUNS[1]))])) == []  # only at the beginning


def test_other_groups_are_none_of_our_business() -> None:
    one = member()
    other = batch(1, group=2)
    effects = one.step([payload(other), commit(1, run_entry(other, 1)), payload(RUNS[0])])
    assert delivered(effects) == []
    assert one.number_next == 1


# Only what is committed.


@pytest.mark.req("GRP-07")
def test_what_is_only_submitted_is_not_delivered() -> None:
    one = member()
    assert delivered(one.step([*map(payload, RUNS), submit(1, *ENTRIES)])) == []


@pytest.mark.req("GRP-07")
def test_a_claim_of_the_same_epoch_delivers_what_was_overheard_up_to_its_index() -> None:
    one = member()
    one.step([*map(payload, RUNS), submit(1, *ENTRIES)])
    assert delivered(one.step([beat(2)])) == [(1, RUNS[0]), (3, RUNS[1])]
    assert delivered(one.step([commit(3, epoch=EPOCH)])) == []  # a bare claim of 2
    assert len(delivered(one.step([submit(5, EpochEntry(EPOCH), committed=4)]))) == 2


@pytest.mark.req("GRP-07")
def test_a_claim_of_another_epoch_delivers_nothing_that_was_overheard() -> None:
    one = member()
    one.step([*map(payload, RUNS), submit(1, *ENTRIES)])
    assert delivered(one.step([beat(4, epoch=LATER), beat(4, epoch=(1, 1, 6))])) == []
    one.step([submit(2, ENTRIES[1], epoch=LATER)])
    assert delivered(one.step([beat(4)])) == []  # what the first epoch proposed is forgotten


@pytest.mark.req("GRP-07")
def test_the_entries_of_a_commit_above_its_own_claim_are_not_delivered() -> None:
    one = member()
    bold = Commit(1, EPOCH, 1, tuple(ENTRIES), 1, HASH_NONE)
    effects = one.step([*map(payload, RUNS), Received(1, bold)])
    assert delivered(effects) == [(1, RUNS[0])]


@pytest.mark.req("GRP-07")
@pytest.mark.parametrize("sender", [2, 99])
def test_only_the_sequencer_of_an_epoch_commits_in_it(sender: int) -> None:
    one = member()
    message = commit(1, *ENTRIES).message
    effects = one.step([*map(payload, RUNS), Received(sender, message)])
    assert delivered(effects) == []


# Content.


@pytest.mark.req("GRP-08")
@pytest.mark.parametrize("of", [batch(1, 2, text="other"), batch(1, 1)], ids=["digest", "count"])
def test_content_that_was_not_ordered_is_not_delivered(of: Batch) -> None:
    one = member()
    assert delivered(one.step([payload(of), commit(1, ENTRIES[0])])) == []
    assert delivered(one.step([payload(RUNS[0])])) == [(1, RUNS[0])]


def test_other_content_that_comes_later_does_not_replace_what_is_delivered() -> None:
    one = member()
    one.step([payload(RUNS[0]), commit(1, ENTRIES[0])])
    assert delivered(one.step([payload(batch(1, 2, text="other"))])) == []


@pytest.mark.parametrize(
    "entry",
    [
        msgspec.structs.replace(ENTRIES[0], count=0),
        msgspec.structs.replace(ENTRIES[0], number_first=0),
        DecisionEntry(OWNER, 1, 1, (Part(GROUP, 1, ()),)),
    ],
    ids=["no messages", "no number", "no stages"],
)
def test_an_entry_of_nothing_stops_nobody(entry: AnyEntry) -> None:
    one = member()
    one.step([commit(1, entry)])
    for now_ms in range(0, 3000, 100):
        one.step([Ticked(now_ms)])
    assert delivered(one.step([payload(RUNS[0]), commit(2, ENTRIES[0])])) == [(1, RUNS[0])]


# Decisions.

STAGES = [batch(1, 2, sender=OWNER, stage=n, text=f"s{n}") for n in (1, 2)]
DECISION = DecisionEntry(
    OWNER,
    1,
    1,
    (Part(2, 9, (stage_ref(STAGES[0]),)), Part(GROUP, 1, tuple(map(stage_ref, STAGES)))),
)


def test_the_share_of_a_decision_is_delivered_all_at_once() -> None:
    one = member()
    assert delivered(one.step([commit(1, DECISION), payload(STAGES[0])])) == []
    (deliver,) = only(Deliver, one.step([payload(STAGES[1])]))
    assert deliver.runs == ((1, STAGES[0]), (3, STAGES[1]))
    assert one.number_next == 5


def test_a_decision_with_one_stage_of_other_content_is_not_delivered_at_all() -> None:
    one = member()
    wrong = batch(1, 2, sender=OWNER, stage=2, text="other")
    assert delivered(one.step([commit(1, DECISION), payload(STAGES[0]), payload(wrong)])) == []
    assert len(delivered(one.step([payload(STAGES[1])]))) == 2


@pytest.mark.parametrize("is_one_step", [True, False])
def test_the_share_of_a_decision_that_is_known_by_number_only_is_whole_too(
    is_one_step: bool,
) -> None:
    one = member(GroupSettings(is_one_step=is_one_step))
    one.step([beat(9, head=5), Received(2, NumberReply((), ((GROUP, 1, 9),)))])
    assert delivered(one.step([repair((1, STAGES[0]))])) == []
    assert delivered(one.step([repair((3, STAGES[1]))])) == []  # a third stage may follow
    (deliver,) = only(Deliver, one.step([repair((5, RUNS[1]))]))
    assert deliver.runs == ((1, STAGES[0]), (3, STAGES[1]), (5, RUNS[1]))


def test_a_share_known_by_number_ends_at_the_head_and_at_what_the_order_names() -> None:
    one = member(GroupSettings(is_one_step=True))
    assert len(delivered(one.step([beat(9, head=4), repair((1, STAGES[0]), (3, STAGES[1]))]))) == 2
    other = member(GroupSettings(is_one_step=True))
    other.step([commit(2, run_entry(RUNS[1], 5)), beat(9, head=9)])
    known = repair((1, STAGES[0]), (3, STAGES[1]))
    assert [number for number, _ in delivered(other.step([known]))] == [1, 3]


def test_a_head_from_before_a_transaction_says_nothing_about_its_end() -> None:
    one = member(GroupSettings(is_one_step=True))
    assert delivered(one.step([beat(9, head=0), repair((1, STAGES[0]))])) == []
    assert delivered(one.step([Received(2, Head(GROUP, 4)), repair((3, STAGES[1]))])) != []


def test_while_a_share_is_incomplete_the_rest_of_it_is_asked_for() -> None:
    one = member(GroupSettings(is_one_step=True, member_runs_max=1))
    one.step([beat(9, head=4)])
    questions = asked(one, repair((1, STAGES[0])))
    assert {q.message for q in questions} == {PayloadRequest((), (), ((GROUP, 3, 2),))}
    assert len(delivered(one.step([repair((3, STAGES[1]))]))) == 2


# Gaps.


@pytest.mark.req("GRP-11")
def test_a_heartbeat_shows_a_lost_tail() -> None:
    questions = asked(member(), beat(9, head=7))
    assert questions[0].message == NumberRequest(((GROUP, 1, 7),))


@pytest.mark.req("GRP-09")
def test_a_gap_in_the_order_is_asked_from_commit_servers_in_turn() -> None:
    questions = asked(member(), commit(1, ENTRIES[0], ENTRIES[2]), payload(RUNS[0]))
    numbers = [q for q in questions if isinstance(q.message, NumberRequest)]
    assert {q.message for q in numbers} == {NumberRequest(((GROUP, 3, 1),))}
    assert {q.to for q in numbers} == {1, 2, 3}


@pytest.mark.req("GRP-09")
def test_many_gaps_are_asked_for_in_one_question() -> None:
    one = member()
    questions = asked(one, commit(1, ENTRIES[1], ENTRIES[3]))
    assert questions[0].message == NumberRequest(((GROUP, 1, 2), (GROUP, 4, 3)))


@pytest.mark.req("GRP-09")
def test_a_missing_payload_is_asked_from_data_servers_in_turn() -> None:
    one = member()
    questions = asked(one, commit(1, *ENTRIES[:3]), payload(RUNS[1]))
    wanted = tuple((GROUP, of.sender, 1, of.counter_first) for of in (RUNS[0], RUNS[2]))
    assert {q.message for q in questions} == {PayloadRequest(wanted)}
    assert {q.to for q in questions} == {1, 2, 3}
    assert delivered(one.step([repair((1, RUNS[0]), (4, RUNS[2]))])) == [
        (1, RUNS[0]),
        (3, RUNS[1]),
        (4, RUNS[2]),
    ]


@pytest.mark.req("GRP-09")
def test_the_ids_of_a_gap_are_looked_up_among_what_was_received_before() -> None:
    one = member()
    one.step([payload(RUNS[0]), beat(1, head=2)])
    effects = one.step([Received(2, NumberReply((ENTRIES[0],), ()))])
    assert delivered(effects) == [(1, RUNS[0])]


@pytest.mark.req("GRP-09")
def test_missing_stages_are_asked_for_as_stages() -> None:
    questions = asked(member(), commit(1, DECISION), payload(STAGES[0]))
    assert questions[0].message == PayloadRequest((), ((GROUP, OWNER, 1, 1, 2),))


@pytest.mark.req("GRP-10")
def test_in_one_step_a_gap_is_asked_from_data_servers_by_number() -> None:
    one = member(GroupSettings(is_one_step=True))
    questions = asked(one, beat(9, head=7))
    assert {q.message for q in questions} == {PayloadRequest((), (), ((GROUP, 1, 7),))}
    assert {q.to for q in questions} == {1, 2, 3}
    assert delivered(one.step([repair((1, RUNS[0]), (3, RUNS[1]))])) == [
        (1, RUNS[0]),
        (3, RUNS[1]),
    ]


def test_of_a_large_transaction_the_rest_is_asked_for_as_fast_as_it_comes() -> None:
    one = member(GroupSettings(is_one_step=True))
    parts = [batch(1, sender=OWNER, stage=n, text=f"s{n}") for n in range(1, 9)]
    (*_, question) = asked(one, beat(9, head=8))
    assert question.message == PayloadRequest((), (), ((GROUP, 1, 8),))
    for at in (1, 2, 3):  # By now it would wait for a second.
        said = Received(question.to, Repair(((at, encode_batch(parts[at - 1])),)))
        (question,) = only(Send, one.step([Ticked(5000), said]))
        assert question.message == PayloadRequest((), (), ((GROUP, at + 1, 8 - at),))
    unasked = Received(1 + question.to % 3, Repair(((4, encode_batch(parts[3])),)))
    assert only(Send, one.step([Ticked(5000), unasked])) == []  # More of that may follow.


@pytest.mark.req("GRP-09")
def test_numbers_whose_ids_are_gone_are_asked_from_data_servers() -> None:
    one = member()
    one.step([beat(9, head=7)])
    questions = asked(one, Received(2, NumberReply((ENTRIES[2],), ((GROUP, 1, 3),))))
    requests = [q.message for q in questions if isinstance(q.message, PayloadRequest)]
    assert requests[0] == PayloadRequest((), (), ((GROUP, 1, 3),))
    assert NumberRequest(((GROUP, 7, 1),)) in [q.message for q in questions]
    assert delivered(one.step([repair((1, RUNS[0]))])) == [(1, RUNS[0])]


@pytest.mark.req("GRP-10")
def test_in_two_steps_a_number_that_only_a_data_server_names_delivers_nothing() -> None:
    one = member()
    one.step([beat(9, head=7)])
    assert delivered(one.step([repair((1, RUNS[0]))])) == []


def test_a_repair_that_is_no_batch_is_turned_away_with_a_code() -> None:
    effects = member().step([Received(2, Repair(((1, b"nonsense"),)))])
    assert [getattr(effect, "code", "") for effect in effects] == ["repair-malformed"]


@pytest.mark.req("GRP-11")
def test_after_a_long_silence_the_head_is_asked_for() -> None:
    one = member()
    questions = asked(one)
    assert {q.message for q in questions} == {HeadRequest(GROUP)}
    assert {q.to for q in questions} == {1, 2, 3}
    questions = asked(one, Received(1, Head(GROUP, 3)), from_ms=5000)
    assert NumberRequest(((GROUP, 1, 3),)) in [q.message for q in questions]


def test_a_member_asks_the_servers_of_the_newest_configuration_that_it_knows() -> None:
    one = member()
    alone = Configuration(2, (Server(9, 109, 3),), 1, 1, 1)
    questions = asked(one, commit(1, ConfigEntry(alone), ENTRIES[1]))
    assert {q.to for q in questions} == {9}


# Bounds.


def test_a_member_keeps_what_comes_first_and_asks_for_the_rest_again() -> None:
    one = member(GroupSettings(member_runs_max=3))
    runs = [batch(counter) for counter in range(1, 9)]
    entries = [run_entry(of, of.counter_first) for of in runs]
    one.step([commit(2, *entries[1:]), *map(payload, runs)])
    assert len(one._units) == 3
    assert len(one._payloads) == 3
    first = delivered(one.step([commit(1, entries[0]), payload(runs[0])]))
    assert [number for number, _ in first] == list(range(1, len(first) + 1))
    questions = asked(one)
    assert {type(q.message) for q in questions} <= {NumberRequest, PayloadRequest}
    assert questions != []


def test_what_is_overheard_is_bounded() -> None:
    one = member(GroupSettings(member_runs_max=3))
    for index in range(1, 50):
        one.step([submit(index, ENTRIES[0])])
    assert len(one._overheard) == 3


def test_questions_are_cut_to_a_bounded_number_of_spans() -> None:
    one = member(GroupSettings(spans_per_request_max=2))
    every_second = [run_entry(batch(n, sender=BOB), n) for n in range(2, 20, 2)]
    questions = asked(one, commit(1, *every_second))
    spans = [q.message.spans for q in questions if isinstance(q.message, NumberRequest)]
    assert {len(span) for span in spans} == {2}


def test_nobody_is_asked_while_nothing_is_missing() -> None:
    one = member()
    one.step([*map(payload, RUNS), commit(1, *ENTRIES)])
    effects: list[Effect] = []
    for now_ms in range(0, 1000, 10):
        effects += one.step([Ticked(now_ms), beat(4, head=7)])
    assert sent(effects) == []


def test_a_member_whose_application_does_not_keep_up_asks_for_nothing() -> None:
    one = member()
    one.is_paused = True
    assert asked(one, commit(1, *ENTRIES)) == []
    one.is_paused = False
    assert asked(one, from_ms=5000) != []


def test_what_was_delivered_by_number_is_not_kept_though_it_came_by_another_way_too() -> None:
    one = member(dataclasses.replace(SETTINGS, is_one_step=True))
    effects = one.step([payload(RUNS[0]), repair((1, RUNS[0])), Received(2, Head(GROUP, 2))])
    assert delivered(effects) == [(1, RUNS[0])]
    assert len(one._payloads) == 0


def test_a_member_that_is_full_of_what_nobody_named_still_takes_what_comes() -> None:
    one = member(dataclasses.replace(SETTINGS, member_runs_max=3))
    one.step([payload(batch(counter, sender=BOB)) for counter in range(100, 110)])
    effects = one.step([payload(RUNS[0]), commit(1, ENTRIES[0])])
    assert delivered(effects) == [(1, RUNS[0])]


def test_each_kind_of_question_goes_round_all_servers_whatever_else_is_asked() -> None:
    """With an even number of servers, one count for two kinds would show each kind half of them."""
    even = msgspec.structs.replace(CONFIGURATION, servers=CONFIGURATION.servers[:2])
    one = Member(60, even, SETTINGS, GROUP, 1)
    rounds = [(one._next(ROLE_DATA, "numbers"), one._next(ROLE_DATA, "payloads")) for _ in "abcd"]
    for kind in zip(*rounds, strict=True):
        assert set(kind) == {server.node for server in even.servers}
