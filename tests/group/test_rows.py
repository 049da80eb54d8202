"""Sender rows, floors and answers by hand: the rules of SAFETY 2.7, one sentence each."""

import pytest

from samcast.group.core import Core
from samcast.group.rows import Admission, GroupRows, answer_of
from samcast.group.settings import GroupSettings
from samcast.wire.batch import Batch
from samcast.wire.group import Answer, AnswerKind
from samcast.wire.order import (
    AnyEntry,
    GroupEntry,
    GroupRemovedEntry,
    SenderRemovedEntry,
    unnamed_sender,
)
from tests.group.build import (
    ANN,
    BOB,
    CONFIGURATION,
    GROUP,
    NAMED,
    asked,
    batch,
    open_entry,
    run_entry,
)

SETTINGS = GroupSettings(sender_runs_max=3, named_max=2)


def group(lifetime: int = 2**30, senders_max: int = 1000) -> Core:
    """A core with one group."""
    core = Core(CONFIGURATION, SETTINGS)
    core.apply(GroupEntry(GROUP, "orders", lifetime, senders_max))
    return core


def rows(core: Core) -> GroupRows:
    return core.groups[GROUP]


def number(core: Core, of: Batch) -> bool:
    """Fold a run in at the next number."""
    return core.apply(run_entry(of, core.head(GROUP) + 1))


def fill(core: Core, count: int) -> None:
    """Let the head rise by so many messages of somebody else, who lives for one run."""
    sender = unnamed_sender(b"filler" + core.head(GROUP).to_bytes(10, "big"))
    assert number(core, batch(1, count, sender=sender, birth=core.head(GROUP)))


def admission(core: Core, of: Batch) -> Admission:
    return core.admission(of.group, of.sender, of.incarnation, of.counter_first, of.birth)


def answer(core: Core, of: Batch) -> tuple[AnswerKind, int] | None:
    return core.answer(asked(of))


# Numbering.


@pytest.mark.req("GRP-04")
def test_the_runs_of_a_group_take_consecutive_numbers() -> None:
    core = group()
    assert number(core, batch(1, 3))
    assert number(core, batch(1, 2, sender=BOB))
    assert number(core, batch(4))
    assert core.head(GROUP) == 6
    assert answer(core, batch(1, 3)) == (AnswerKind.NUMBER, 1)
    assert answer(core, batch(1, 2, sender=BOB)) == (AnswerKind.NUMBER, 4)
    assert answer(core, batch(4)) == (AnswerKind.NUMBER, 6)


@pytest.mark.req("GRP-04")
@pytest.mark.parametrize("number_first", [0, 1, 3, 99])
def test_an_entry_at_another_number_than_the_next_is_a_no_op(number_first: int) -> None:
    core = group()
    assert number(core, batch(1))
    before = rows(core).state()
    assert not core.apply(run_entry(batch(2), number_first))
    assert rows(core).state() == before


@pytest.mark.req("GRP-26")
def test_the_first_run_of_an_unnamed_sender_has_counter_1() -> None:
    core = group()
    assert admission(core, batch(1)) is Admission.NUMBER
    assert admission(core, batch(2)) is Admission.HOLD


@pytest.mark.req("GRP-26")
def test_a_counter_above_the_next_is_held_and_one_below_is_never_numbered_again() -> None:
    core = group()
    assert number(core, batch(1, 3))
    assert admission(core, batch(5)) is Admission.HOLD
    assert admission(core, batch(4)) is Admission.NUMBER
    assert admission(core, batch(1, 3)) is Admission.NEVER
    assert admission(core, batch(2)) is Admission.NEVER
    assert not number(core, batch(1, 3))


def test_a_run_of_a_group_that_is_not_made_yet_or_of_the_cell_is_not_numbered() -> None:
    core = group()
    assert admission(core, batch(group=GROUP + 1)) is Admission.NEVER
    assert admission(core, batch(group=0)) is Admission.NEVER
    assert not number(core, batch(group=GROUP + 1))
    assert not core.apply(run_entry(batch(group=0), core.index + 1))


# Floors.


@pytest.mark.req("GRP-19")
def test_a_run_is_numbered_as_long_as_its_birth_is_at_the_admission_floor() -> None:
    core = group(lifetime=10)
    fill(core, 12)
    assert rows(core).admission_floor() == 3
    assert admission(core, batch(1, birth=3)) is Admission.NUMBER
    assert admission(core, batch(1, birth=2)) is Admission.NEVER
    assert not number(core, batch(1, birth=2))


@pytest.mark.req("GRP-19")
def test_the_memory_floor_follows_two_lifetimes_behind_the_head() -> None:
    core = group(lifetime=10)
    assert number(core, batch(1))
    fill(core, 20)
    assert rows(core).memory_floor == 1
    assert rows(core).row(ANN) is not None
    fill(core, 1)
    assert rows(core).memory_floor == 2
    assert rows(core).row(ANN) is None


@pytest.mark.req("GRP-26")
def test_the_row_with_the_lowest_last_number_is_evicted_and_raises_the_memory_floor() -> None:
    core = group(senders_max=2)
    assert number(core, batch(1))
    assert number(core, batch(1, sender=BOB))
    assert number(core, batch(2))  # now Bob's last number is the lowest
    assert rows(core).memory_floor == 0
    fill(core, 1)
    assert rows(core).row(BOB) is None
    assert rows(core).row(ANN) is not None
    assert rows(core).memory_floor == 3
    assert rows(core).admission_floor() == 3


def test_the_floors_never_fall() -> None:
    core = group(lifetime=4, senders_max=1)
    floors = []
    for _ in range(8):
        fill(core, 3)
        floors.append((rows(core).memory_floor, rows(core).admission_floor()))
    assert floors == sorted(floors)
    assert all(memory <= admitted for memory, admitted in floors)


@pytest.mark.req("GRP-26")
def test_a_row_keeps_no_more_runs_than_a_sender_may_have_unconfirmed() -> None:
    core = group()
    for counter in range(1, 6):
        assert number(core, batch(counter))
    row = rows(core).row(ANN)
    assert row is not None
    assert list(row.runs) == [3, 4, 5]


@pytest.mark.req("GRP-26")
def test_a_row_forgets_what_the_sender_has_confirmed() -> None:
    core = group()
    assert number(core, batch(1, 2))
    assert number(core, batch(3))
    assert number(core, batch(4, confirmed_below=4))
    row = rows(core).row(ANN)
    assert row is not None
    assert list(row.runs) == [4]


@pytest.mark.req("GRP-26")
def test_named_rows_are_never_evicted() -> None:
    core = group(lifetime=3, senders_max=1)
    assert core.apply(open_entry())
    for _ in range(10):
        fill(core, 3)
    assert rows(core).row(NAMED) is not None
    assert number(core, batch(1, sender=NAMED, birth=core.head(GROUP)))


# Answers.


@pytest.mark.req("GRP-26")
def test_number_is_answered_to_the_very_run_that_was_numbered() -> None:
    core = group()
    assert number(core, batch(1, 2))
    assert answer(core, batch(1, 2)) == (AnswerKind.NUMBER, 1)


@pytest.mark.req("GRP-26")
def test_conflict_is_answered_to_other_content_under_the_same_id() -> None:
    core = group()
    assert number(core, batch(1, 2))
    assert answer(core, batch(1, 2, text="other")) == (AnswerKind.CONFLICT, 0)
    assert answer(core, batch(1, 1)) == (AnswerKind.CONFLICT, 0)


@pytest.mark.req("GRP-26")
def test_confirmed_is_answered_when_the_number_is_no_longer_kept() -> None:
    core = group()
    for counter in range(1, 5):
        assert number(core, batch(counter))
    assert answer(core, batch(1)) == (AnswerKind.CONFIRMED, 0)
    assert answer(core, batch(2)) == (AnswerKind.NUMBER, 2)


@pytest.mark.req("GRP-19")
def test_expired_is_answered_below_the_admission_floor_if_nothing_was_forgotten() -> None:
    core = group(lifetime=10)
    fill(core, 15)
    assert rows(core).memory_floor == 0
    assert answer(core, batch(1, birth=5)) == (AnswerKind.EXPIRED, 0)
    assert answer(core, batch(1, birth=6)) is None


@pytest.mark.req("GRP-19")
def test_expired_is_answered_below_the_memory_floor_only_if_the_sender_has_a_row() -> None:
    core = group(lifetime=10)
    assert number(core, batch(1))
    fill(core, 14)
    assert number(core, batch(2, birth=6))
    fill(core, 10)
    assert rows(core).memory_floor == 6
    assert answer(core, batch(3, birth=1)) == (AnswerKind.EXPIRED, 0)
    assert answer(core, batch(3, birth=1, sender=BOB)) == (AnswerKind.FORGOTTEN, 0)


@pytest.mark.req("GRP-26")
def test_forgotten_is_answered_when_a_row_may_have_been_dropped() -> None:
    core = group(senders_max=1)
    assert number(core, batch(1))
    fill(core, 1)
    assert answer(core, batch(1)) == (AnswerKind.FORGOTTEN, 0)


def reopening() -> Core:
    """Ann's row is evicted after counter 1 had number 1; the memory floor is 2."""
    core = group(senders_max=1)
    assert number(core, batch(1))
    fill(core, 4)
    assert rows(core).memory_floor == 2
    return core


@pytest.mark.req("GRP-26")
def test_reopen_is_answered_when_only_the_place_of_the_sender_was_forgotten() -> None:
    core = reopening()
    later = batch(2, birth=3, confirmed_below=2, seen=5)
    assert answer(core, later) == (AnswerKind.REOPEN, 0)


@pytest.mark.req("GRP-26")
@pytest.mark.parametrize(
    "later",
    [
        batch(2, birth=3, confirmed_below=1, seen=5),  # something before it is open
        batch(2, birth=3, confirmed_below=2, seen=6),  # we are behind what the sender has seen
        batch(1, birth=3, confirmed_below=1, seen=5),  # the first run needs no row
    ],
    ids=["unconfirmed", "lagging", "first"],
)
def test_reopen_is_not_answered_while_the_run_could_still_be_numbered(later: Batch) -> None:
    assert answer(reopening(), later) is None


@pytest.mark.req("GRP-26")
def test_a_run_of_a_lower_incarnation_is_fenced_and_nothing_else() -> None:
    core = group(lifetime=5)
    assert core.apply(open_entry(1))
    assert number(core, batch(1, sender=NAMED))
    assert core.apply(open_entry(2))
    fill(core, 30)
    for counter in (1, 2):
        late = batch(counter, sender=NAMED, incarnation=1)
        assert answer(core, late) == (AnswerKind.FENCED, 0)
        assert admission(core, late) is Admission.NEVER


@pytest.mark.req("GRP-26")
def test_a_run_of_an_incarnation_that_is_not_open_yet_is_held_and_gets_no_answer() -> None:
    core = group()
    early = batch(1, sender=NAMED, incarnation=1)
    assert admission(core, early) is Admission.HOLD
    assert core.apply(open_entry(1))
    assert admission(core, early) is Admission.NUMBER
    next_life = batch(1, sender=NAMED, incarnation=2)
    assert admission(core, next_life) is Admission.HOLD
    assert answer(core, next_life) is None


@pytest.mark.req("GRP-26")
def test_removed_is_answered_as_long_as_a_late_run_could_pass_the_floors() -> None:
    core = group(lifetime=5)
    assert core.apply(open_entry())
    assert number(core, batch(1, sender=NAMED))
    assert core.apply(SenderRemovedEntry(GROUP, NAMED))
    assert answer(core, batch(1, sender=NAMED)) == (AnswerKind.REMOVED, 0)
    fill(core, 10)
    assert NAMED in rows(core).tombstones
    fill(core, 1)
    assert NAMED not in rows(core).tombstones
    assert answer(core, batch(1, sender=NAMED)) == (AnswerKind.FORGOTTEN, 0)


def test_no_group_is_answered_of_a_removed_group_and_of_the_cell() -> None:
    core = group()
    assert number(core, batch(1))
    assert core.apply(GroupRemovedEntry(GROUP))
    assert answer(core, batch(1)) == (AnswerKind.NO_GROUP, 0)
    assert answer(core, batch(1, group=0)) == (AnswerKind.NO_GROUP, 0)
    assert answer(core, batch(1, group=GROUP + 1)) is None
    assert admission(core, batch(2)) is Admission.NEVER


@pytest.mark.req("GRP-26")
def test_what_may_still_be_numbered_gets_no_answer() -> None:
    core = group()
    assert answer(core, batch(1)) is None
    assert number(core, batch(1))
    assert answer(core, batch(2)) is None
    assert answer(core, batch(9)) is None


def test_a_refused_entry_moves_the_log_and_nothing_else() -> None:
    core = group()
    assert number(core, batch(1))
    before = [(g, r.state()) for g, r in core.groups.items() if g != 0]
    refused: list[AnyEntry] = [
        run_entry(batch(1), 2),
        run_entry(batch(5), 2),
        run_entry(batch(2, group=9), 1),
        run_entry(batch(1, sender=NAMED), 2),
        SenderRemovedEntry(GROUP, NAMED),
        SenderRemovedEntry(9, NAMED),
        GroupRemovedEntry(9),
        GroupRemovedEntry(0),
        GroupEntry(GROUP, "again", 5, 5),
        GroupEntry(GROUP + 1, "orders", 5, 5),
    ]
    for index, entry in enumerate(refused, core.index + 1):
        assert not core.apply(entry)
        assert core.index == index
    assert [(g, r.state()) for g, r in core.groups.items() if g != 0] == before


def test_the_message_of_an_answer_names_the_run_that_was_asked_about() -> None:
    of = batch(3, 2, incarnation=4)
    told = answer_of(asked(of), AnswerKind.NUMBER, 7)
    assert told == Answer(AnswerKind.NUMBER, GROUP, ANN, 4, 3, 2, 7, of.digest)
