"""The core state by hand: names, transactions, groups, configurations, truncation, snapshots."""

import msgspec
import pytest

from samcast.group.core import Core
from samcast.group.core_state import state_hash
from samcast.group.settings import GroupSettings
from samcast.wire.group import (
    AbortRequest,
    AnyRequest,
    DecisionRequest,
    GroupRemovalRequest,
    GroupRequest,
    OpenRequest,
    Outcome,
    OutcomeKind,
    SenderRemovalRequest,
)
from samcast.wire.order import (
    CELL,
    HASH_NONE,
    AbortEntry,
    AnyEntry,
    ConfigEntry,
    Configuration,
    DecisionEntry,
    EpochEntry,
    GroupEntry,
    GroupRemovedEntry,
    OpenEntry,
    Part,
    SenderRemovedEntry,
    StageRef,
    TruncateEntry,
    chain_hash,
    named_sender,
)
from tests.group.build import (
    CONFIGURATION,
    GROUP,
    GROUP_ENTRY,
    NAMED,
    OWNER,
    batch,
    open_entry,
    run_entry,
)

SETTINGS = GroupSettings(sender_runs_max=3, named_max=2, cell_lifetime=20)
OPEN_OWNER = open_entry(sender=OWNER, scope=CELL)


def folded(*entries: AnyEntry) -> Core:
    core = Core(CONFIGURATION, SETTINGS)
    for entry in (GROUP_ENTRY, *entries):
        assert core.apply(entry)
    return core


def stages(*counts: int, first: int = 1) -> tuple[StageRef, ...]:
    return tuple(StageRef(at, count, bytes([at] * 16)) for at, count in enumerate(counts, first))


def decision(tx: int = 1, number_first: int = 1, *, incarnation: int = 1) -> DecisionEntry:
    return DecisionEntry(OWNER, incarnation, tx, (Part(GROUP, number_first, stages(2, 3)),))


def request_of(entry: OpenEntry) -> OpenRequest:
    return OpenRequest(
        entry.scope, entry.sender, entry.incarnation, entry.after, entry.birth, entry.nonce
    )


# OPEN.


@pytest.mark.req("GRP-26")
def test_open_takes_effect_only_above_the_incarnation_in_force() -> None:
    core = folded(open_entry(2))
    for incarnation in (0, 1, 2):
        assert not core.apply(open_entry(incarnation, nonce=99))
    assert core.apply(open_entry(3))
    row = core.groups[GROUP].row(NAMED)
    assert row is not None
    assert row.incarnation == 3


@pytest.mark.req("GRP-26")
def test_open_with_after_takes_effect_only_right_behind_that_incarnation() -> None:
    core = folded(open_entry(2))
    assert not core.apply(open_entry(5, after=1))
    assert not core.apply(open_entry(5, after=3))
    assert core.apply(open_entry(5, after=2))


@pytest.mark.req("GRP-26", "PIP-03")
def test_who_was_fenced_can_not_open_again() -> None:
    core = folded(open_entry(1, nonce=7), open_entry(2, nonce=8))
    assert not core.apply(open_entry(3, nonce=7))
    assert core.outcome(5, request_of(open_entry(3, nonce=7))) == Outcome(
        5, OutcomeKind.FENCED, 2, next=1
    )
    again = Core.decode(core.encode(), SETTINGS)
    assert not again.apply(open_entry(3, nonce=7))
    assert again.apply(open_entry(3, nonce=8))  # Its own name, after an ABORT for example.
    assert again.apply(open_entry(4, nonce=9))
    assert not again.apply(open_entry(5, nonce=8))


@pytest.mark.req("GRP-26")
def test_open_with_after_needs_a_row() -> None:
    core = folded()
    assert not core.apply(open_entry(2, after=1))


@pytest.mark.req("GRP-26")
def test_open_without_a_row_needs_a_birth_at_the_memory_floor() -> None:
    core = Core(CONFIGURATION, SETTINGS)
    assert core.apply(GroupEntry(GROUP, "orders", 2, 10))
    assert core.apply(run_entry(batch(1, 10), 1))
    assert core.groups[GROUP].memory_floor == 6
    assert not core.apply(open_entry(birth=5))
    assert core.apply(open_entry(birth=6))


def test_open_of_an_unnamed_sender_or_of_a_missing_group_is_a_no_op() -> None:
    core = folded()
    assert not core.apply(open_entry(sender=bytes(16)))
    assert not core.apply(open_entry(scope=9))
    assert not core.apply(open_entry(0))


@pytest.mark.req("GRP-26")
def test_counters_go_on_across_incarnations() -> None:
    core = folded(open_entry(1), run_entry(batch(1, 3, sender=NAMED), 1), open_entry(2))
    late = batch(4, sender=NAMED, incarnation=1)
    assert not core.apply(run_entry(late, 4))
    assert core.apply(run_entry(batch(4, sender=NAMED, incarnation=2), 4))


@pytest.mark.req("GRP-26")
def test_only_the_nonce_of_an_open_is_told_the_next_counter_and_the_last_numbers() -> None:
    of = batch(1, 3, sender=NAMED)
    core = folded(open_entry(1), run_entry(of, 1), open_entry(2, nonce=8))
    outcome = core.outcome(5, request_of(open_entry(2, nonce=8)))
    assert outcome is not None
    assert (outcome.nonce, outcome.kind, outcome.value) == (5, OutcomeKind.OPENED, 4)
    assert outcome.runs == ((1, 3, 1, of.digest),)
    other = core.outcome(5, request_of(open_entry(2, nonce=9)))
    assert other == Outcome(5, OutcomeKind.FENCED, 2, head=3, next=4)


def test_an_open_that_may_still_take_effect_has_no_outcome_yet() -> None:
    core = folded(open_entry(1))
    assert core.outcome(1, request_of(open_entry(2))) is None
    assert core.outcome(1, request_of(open_entry(sender=OWNER))) is None
    assert core.outcome(1, request_of(open_entry(scope=GROUP + 1))) is None


@pytest.mark.req("GRP-26")
def test_a_removed_name_can_not_be_opened_by_who_may_not_know_of_it() -> None:
    core = Core(CONFIGURATION, SETTINGS)
    for entry in (
        GroupEntry(GROUP, "orders", 2, 10),
        open_entry(),
        run_entry(batch(1, sender=NAMED), 1),
        SenderRemovedEntry(GROUP, NAMED),
    ):
        assert core.apply(entry)
    assert not core.apply(open_entry(2, birth=1))
    removed = Outcome(1, OutcomeKind.REMOVED, head=1)
    assert core.outcome(1, request_of(open_entry(2, birth=1))) == removed
    assert core.apply(run_entry(batch(1, 6, birth=1), 2))  # the memory floor passes the removal
    assert not core.apply(open_entry(2, birth=1))
    removed = Outcome(1, OutcomeKind.REMOVED, head=7)
    assert core.outcome(1, request_of(open_entry(2, birth=1))) == removed
    assert not core.apply(open_entry(1, birth=7))  # as whoever had it before
    fenced = Outcome(1, OutcomeKind.FENCED, 1, head=7)
    assert core.outcome(1, request_of(open_entry(1, birth=7))) == fenced
    assert core.apply(open_entry(2, birth=7))


@pytest.mark.req("GRP-26")
def test_names_are_pinned_up_to_a_quota() -> None:
    core = folded(open_entry(), open_entry(sender=OWNER))
    third = open_entry(sender=named_sender("one too many"))
    assert not core.apply(third)
    told = core.outcome(1, request_of(third), is_settled=True)
    assert told == Outcome(1, OutcomeKind.REFUSED, SETTINGS.named_max)
    assert core.apply(open_entry(2))  # one that is there may still be taken over
    assert core.apply(SenderRemovedEntry(GROUP, OWNER))
    assert core.apply(third)


@pytest.mark.parametrize(
    "request_",
    [
        OpenRequest(GROUP, bytes(16), 1, 0, 0, 7),  # not a name
        OpenRequest(GROUP, NAMED, 0, 0, 0, 7),  # incarnations count from 1
    ],
)
def test_an_open_that_makes_no_sense_is_refused(request_: OpenRequest) -> None:
    assert folded().outcome(1, request_) == Outcome(1, OutcomeKind.REFUSED)


def test_an_open_in_a_removed_group_is_refused() -> None:
    core = folded(GroupRemovedEntry(GROUP))
    assert not core.apply(open_entry())
    assert core.outcome(1, request_of(open_entry())) == Outcome(1, OutcomeKind.REFUSED)


@pytest.mark.req("GRP-26")
@pytest.mark.parametrize(("known", "kind"), [(0, OutcomeKind.REMOVED), (1, OutcomeKind.FENCED)])
def test_who_has_seen_more_than_a_prefix_hears_nothing_final_from_it(
    known: int, kind: OutcomeKind
) -> None:
    """A prefix without the OPEN that a process goes on from may be too short to know it."""
    core = folded(*[open_entry(1, nonce=70)] * known)
    request = OpenRequest(GROUP, NAMED, 3, 2, 0, 9)
    assert core.outcome(1, request) is None
    assert core.outcome(1, request, is_settled=True) == Outcome(1, kind, known, next=known)
    assert core.apply(run_entry(batch(1), 1))  # Now it is beyond all that the process had seen.
    assert core.outcome(1, request) == Outcome(1, kind, known, head=known, next=known)


@pytest.mark.parametrize("request_", [SenderRemovalRequest(GROUP, NAMED), GroupRemovalRequest(9)])
def test_what_was_never_there_is_gone_once_its_removal_is_in_the_log(request_: AnyRequest) -> None:
    core = folded()
    assert core.outcome(1, request_) is None
    assert core.outcome(1, request_, is_settled=True) == Outcome(1, OutcomeKind.DONE)


# Decisions and ABORT.


@pytest.mark.req("GRP-04")
def test_a_decision_takes_the_numbers_of_all_its_stages_at_once() -> None:
    second = GroupEntry(GROUP + 1, "second", 2**30, 10)
    core = folded(second, OPEN_OWNER, run_entry(batch(1), 1))
    more = stages(4, first=3)
    parts = (Part(GROUP, 2, stages(2, 3)), Part(GROUP + 1, 1, more))
    assert core.apply(DecisionEntry(OWNER, 1, 1, parts))
    assert (core.head(GROUP), core.head(GROUP + 1)) == (6, 4)
    asked = DecisionRequest(OWNER, 1, 1, ((GROUP, stages(2, 3)), (GROUP + 1, more)))
    spans = ((GROUP, 2, 5), (GROUP + 1, 1, 4))
    assert core.outcome(3, asked) == Outcome(3, OutcomeKind.DECIDED, 0, (), spans, core.index)


@pytest.mark.req("GRP-04")
def test_a_transaction_is_decided_once() -> None:
    core = folded(OPEN_OWNER, decision())
    assert not core.apply(decision(number_first=6))
    assert core.head(GROUP) == 5
    assert core.apply(decision(2, number_first=6))


@pytest.mark.req("PIP-03")
def test_an_owner_may_pass_over_transactions_and_not_come_back_to_them() -> None:
    core = folded(OPEN_OWNER, decision(3))
    row = core.groups[CELL].row(OWNER)
    assert row is not None
    assert row.next == 4
    assert not core.apply(decision(2, number_first=6))
    assert core.apply(decision(4, number_first=6))


@pytest.mark.parametrize(
    "refused",
    [
        decision(incarnation=2),
        decision(number_first=2),
        DecisionEntry(NAMED, 1, 1, (Part(GROUP, 1, stages(1)),)),  # an owner that never opened
        DecisionEntry(OWNER, 1, 1, (Part(9, 1, stages(1)),)),
        DecisionEntry(OWNER, 1, 1, (Part(CELL, 1, stages(1)),)),
        DecisionEntry(OWNER, 1, 1, (Part(GROUP, 1, stages(1)), Part(9, 1, stages(1, first=2)))),
        DecisionEntry(OWNER, 1, 1, (Part(GROUP, 1, stages(1)), Part(GROUP, 2, stages(1, first=2)))),
        DecisionEntry(OWNER, 1, 1, (Part(GROUP, 1, stages(1) * 2),)),  # a stage twice
        DecisionEntry(OWNER, 1, 1, (Part(GROUP, 1, stages(1, 0)),)),  # a stage of nothing
        DecisionEntry(OWNER, 1, 1, (Part(GROUP, 1, ()),)),
        DecisionEntry(OWNER, 1, 1, (Part(GROUP, 1, stages(2**62)),)),
        DecisionEntry(OWNER, 1, 1, ()),
    ],
)
def test_a_decision_that_breaks_a_rule_is_a_no_op_in_every_group(refused: DecisionEntry) -> None:
    core = folded(OPEN_OWNER)
    before = core.groups[GROUP].state()
    assert not core.apply(refused)
    assert core.groups[GROUP].state() == before


def test_a_decision_in_a_removed_group_is_a_no_op() -> None:
    core = folded(OPEN_OWNER, GroupRemovedEntry(GROUP))
    assert not core.apply(decision())


def test_the_first_of_decision_and_abort_wins() -> None:
    aborted = folded(OPEN_OWNER, AbortEntry(OWNER, 1, 1))
    assert not aborted.apply(decision())
    decided = folded(OPEN_OWNER, decision())
    assert not decided.apply(AbortEntry(OWNER, 1, 1))
    abort = AbortRequest(OWNER, 1, 1)
    assert aborted.outcome(1, abort) == Outcome(1, OutcomeKind.DONE)
    told = decided.outcome(1, abort)
    assert told is not None
    assert told.kind is OutcomeKind.DECIDED


def test_an_abort_ends_the_incarnation_and_leaves_the_transaction_to_the_next() -> None:
    core = folded(OPEN_OWNER, AbortEntry(OWNER, 1, 1))
    request = DecisionRequest(OWNER, 1, 1, ((GROUP, stages(2, 3)),))
    assert core.outcome(1, request) == Outcome(1, OutcomeKind.ABORTED)
    assert not core.apply(AbortEntry(OWNER, 1, 1))
    assert core.apply(open_entry(2, sender=OWNER, scope=CELL, after=1))
    assert core.apply(decision(1, incarnation=2))
    assert core.outcome(1, request) == Outcome(1, OutcomeKind.FENCED, 2)


def test_an_abort_of_a_later_transaction_ends_the_incarnation_too() -> None:
    core = folded(OPEN_OWNER)
    assert core.apply(AbortEntry(OWNER, 1, 5))
    assert not core.apply(decision())


def test_numbers_of_old_decisions_are_forgotten_but_not_that_they_happened() -> None:
    core = folded(OPEN_OWNER)
    for tx in range(1, 5):
        assert core.apply(decision(tx, 1 + 5 * (tx - 1)))
    old = DecisionRequest(OWNER, 1, 1, ((GROUP, stages(2, 3)),))
    assert core.outcome(1, old) == Outcome(1, OutcomeKind.CONFIRMED)


@pytest.mark.parametrize(
    ("entries", "may_drop"),
    [
        ((OPEN_OWNER,), False),
        ((), False),  # it may open yet
        ((OPEN_OWNER, decision()), True),
        ((OPEN_OWNER, AbortEntry(OWNER, 1, 1)), True),
        ((OPEN_OWNER, open_entry(2, sender=OWNER, scope=CELL)), True),
        ((OPEN_OWNER, SenderRemovedEntry(CELL, OWNER)), True),
    ],
)
def test_a_stage_may_go_only_when_no_decision_can_name_it(
    entries: tuple[AnyEntry, ...], may_drop: bool
) -> None:
    assert folded(*entries).may_drop_stage(OWNER, 1, 1, birth=0) is may_drop


def test_a_stage_of_an_owner_without_a_row_goes_when_memory_no_longer_reaches_back() -> None:
    core = folded()
    while core.groups[CELL].memory_floor < 3:
        core.apply(EpochEntry((1, 1, core.index)))
    assert core.may_drop_stage(OWNER, 1, 1, birth=2)
    assert not core.may_drop_stage(OWNER, 1, 1, birth=3)


# Groups, configuration, truncation.


def test_a_group_gets_the_next_id_and_its_name_once() -> None:
    core = folded()
    assert core.outcome(1, GroupRequest("orders", 5, 5)) == Outcome(1, OutcomeKind.GROUP, GROUP)
    assert core.outcome(1, GroupRequest("other", 5, 5)) is None
    assert not core.apply(GroupEntry(GROUP + 2, "other", 5, 5))
    assert core.apply(GroupEntry(GROUP + 1, "other", 5, 5))


def test_the_name_of_a_removed_group_is_free_and_its_id_is_not() -> None:
    core = folded(GroupRemovedEntry(GROUP))
    removal = GroupRemovalRequest(GROUP)
    assert core.outcome(1, removal) == Outcome(1, OutcomeKind.DONE)
    assert not core.apply(GroupRemovedEntry(GROUP))
    assert core.apply(GroupEntry(GROUP + 1, "orders", 5, 5))
    found = core.outcome(1, GroupRequest("orders", 5, 5))
    assert found == Outcome(1, OutcomeKind.GROUP, GROUP + 1)
    assert core.head(GROUP + 1) == 0


def test_a_removed_sender_is_confirmed_to_whoever_asked_for_it() -> None:
    core = folded(open_entry())
    request: AnyRequest = SenderRemovalRequest(GROUP, NAMED)
    assert core.outcome(1, request) is None
    assert core.apply(SenderRemovedEntry(GROUP, NAMED))
    assert core.outcome(1, request) == Outcome(1, OutcomeKind.DONE)


@pytest.mark.parametrize("number", [0, 1, 3, 2**62])
def test_a_configuration_follows_only_the_one_right_before_it(number: int) -> None:
    core = folded()
    servers = CONFIGURATION.servers
    assert not core.apply(ConfigEntry(Configuration(number, servers, 2, 2, 2)))
    assert core.configuration == CONFIGURATION
    assert core.apply(ConfigEntry(Configuration(2, servers, 2, 2, 2)))
    assert core.configuration.number == 2


def test_a_truncation_is_of_something_that_is_there_and_never_goes_back() -> None:
    core = folded()
    assert core.index == 1
    assert not core.apply(TruncateEntry(2, HASH_NONE))  # its own index
    assert not core.apply(TruncateEntry(9, HASH_NONE))
    assert core.apply(TruncateEntry(2, HASH_NONE))
    assert not core.apply(TruncateEntry(1, HASH_NONE))
    assert not core.apply(TruncateEntry(2, HASH_NONE))
    assert core.truncated == 2


def test_the_hash_of_the_state_is_the_chain_hash_of_its_log() -> None:
    core = folded(open_entry())
    expected = chain_hash(chain_hash(HASH_NONE, GROUP_ENTRY), open_entry())
    assert core.hash == expected
    core.apply(EpochEntry((3, 1, 9)))
    assert core.epoch == (3, 1, 9)


# Snapshots.


def rich() -> Core:
    """A state with a bit of everything."""
    return folded(
        GroupEntry(GROUP + 1, "gone", 5, 5),
        EpochEntry((1, 1, 1)),
        open_entry(),
        OPEN_OWNER,
        run_entry(batch(1, 2), 1),
        run_entry(batch(1, sender=NAMED), 3),
        decision(1, 4),
        AbortEntry(OWNER, 1, 2),
        SenderRemovedEntry(GROUP, NAMED),
        GroupRemovedEntry(GROUP + 1),
        TruncateEntry(2, HASH_NONE),
    )


def test_a_snapshot_gives_an_equal_state_and_equal_bytes() -> None:
    core = rich()
    state = core.encode()
    again = Core.decode(state, SETTINGS)
    assert again.encode() == state
    assert core.copy().encode() == state
    assert (again.index, again.hash, again.group_ids) == (core.index, core.hash, {"orders": GROUP})
    assert state_hash(again.encode()) == state_hash(state)


def test_a_copy_goes_its_own_way() -> None:
    core = rich()
    state = core.encode()
    for copy in (core.copy(), Core.decode(state, SETTINGS)):
        for entry in (run_entry(batch(3), 9), open_entry(3), GroupEntry(3, "gone", 1, 1)):
            copy.apply(entry)
        assert copy.head(GROUP) == 9
        assert core.encode() == state


def test_states_that_differ_in_one_entry_differ_in_hash() -> None:
    one, other = rich(), rich()
    other.apply(EpochEntry((2, 2, 2)))
    assert state_hash(one.encode()) != state_hash(other.encode())


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"\xc1",
        b"\x90",
        rich().encode()[:-1],
        rich().encode() + b"\x00",
        msgspec.msgpack.encode([1, b"", 5, 0, 1, CONFIGURATION, []]),
        msgspec.msgpack.encode([1, HASH_NONE, (1, 1, 1), 0, 1, CONFIGURATION, [(1, "rows")]]),
    ],
)
def test_a_malformed_snapshot_raises_one_clear_error(state: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        Core.decode(state, SETTINGS)
