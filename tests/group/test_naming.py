"""Names: those that users chose stay, those that nobody uses again go, and nothing is decided twice
because somebody was forgotten.
"""

from hashlib import blake2b

import msgspec
import pytest

from samcast.group.core import Core
from samcast.group.settings import GroupSettings
from samcast.group.storage import DropBatch, StoreBatch
from samcast.wire.group import (
    DecisionRequest,
    OpenRequest,
    Outcome,
    OutcomeKind,
    SenderRemovalRequest,
)
from samcast.wire.order import (
    CELL,
    HASH_NONE,
    DecisionEntry,
    EpochEntry,
    GroupEntry,
    OpenEntry,
    Part,
    SenderRemovedEntry,
    StageRef,
    chain_hash,
    decode_entry,
    named_sender,
)
from tests.group.build import CONFIGURATION, GROUP, batch, led_cell, only, run_entry, settle
from tests.group.test_data_server import arrived, commit, serving

SETTINGS = GroupSettings(named_max=2, anonymous_max=2, tombstones_max=2)
STAGES = (StageRef(1, 1, bytes(16)),)
FILLER = EpochEntry((1, 1, 1))


def who(at: int) -> bytes:
    return named_sender(f"anonymous {at}")


def opened(at: int, birth: int, incarnation: int = 1) -> OpenEntry:
    return OpenEntry(CELL, who(at), incarnation, 0, birth, 7, "", True)


def named(name: str, birth: int, incarnation: int = 1, scope: int = CELL) -> OpenEntry:
    return OpenEntry(scope, named_sender(name), incarnation, 0, birth, 7, name)


def request_of(entry: OpenEntry) -> OpenRequest:
    return OpenRequest(*msgspec.structs.astuple(entry))


def decided(core: Core, owner: bytes, tx: int = 1) -> DecisionEntry:
    return DecisionEntry(owner, 1, tx, (Part(GROUP, core.head(GROUP) + 1, STAGES),))


def asked(owner: bytes, seen: int, tx: int = 1) -> DecisionRequest:
    return DecisionRequest(owner, 1, tx, ((GROUP, STAGES),), seen)


def made(settings: GroupSettings = SETTINGS) -> Core:
    core = Core(CONFIGURATION, settings)
    assert core.apply(GroupEntry(GROUP, "orders", 1000, 10))
    return core


def crowded(core: Core, count: int = 2) -> Core:
    """Others open so many that whoever does nothing is forgotten."""
    for at in range(100, 100 + count):
        assert core.apply(opened(at, core.index))
    return core


def outcome(core: Core, request: DecisionRequest | OpenRequest) -> OutcomeKind | None:
    said = core.outcome(1, request)
    return OutcomeKind(said.kind) if said is not None else None


# Owners that nobody uses again.


def test_anonymous_owners_never_take_the_room_of_names_and_always_find_some() -> None:
    core = made()
    for at in range(20):
        assert core.apply(opened(at, core.index))
        assert len(core.groups[CELL].anonymous) <= 2
    assert core.apply(named("a", core.index))
    assert core.apply(named("b", core.index))
    third = named("c", core.index)
    assert not core.apply(third)
    assert core.outcome(1, request_of(third), is_settled=True) == Outcome(1, OutcomeKind.REFUSED, 2)
    assert core.apply(opened(20, core.index))
    assert list(core.groups[CELL].anonymous) == [who(19), who(20)]


def test_74_20000_owners_that_vanish_leave_no_more_than_their_share() -> None:
    core = made(GroupSettings(named_max=10, anonymous_max=100))
    for at in range(20_000):
        assert core.apply(opened(at, core.index))
    assert len(core.groups[CELL].named) == 100
    assert len(core.encode()) < 10_000
    assert core.apply(named("a user's", core.index))


def test_the_one_that_did_nothing_for_longest_goes() -> None:
    core = made()
    assert core.apply(opened(1, 1))
    assert core.apply(opened(2, 1))
    assert core.apply(decided(core, who(1)))
    assert core.apply(opened(3, core.index))
    assert list(core.groups[CELL].anonymous) == [who(1), who(3)]


def test_a_late_open_or_decision_of_one_that_was_forgotten_finds_nothing() -> None:
    core = made()
    late = opened(1, core.index)
    assert core.apply(late)
    assert core.apply(decided(core, who(1)))
    crowded(core)
    assert not core.apply(late)
    assert outcome(core, request_of(late)) is OutcomeKind.REMOVED
    assert not core.apply(decided(core, who(1)))
    assert not core.apply(decided(core, who(1), 2))


def test_an_owner_that_was_forgotten_hears_whether_its_decision_can_have_been_made() -> None:
    core = made()
    assert core.apply(opened(1, core.index))
    seen = core.index
    short = core.copy()
    assert core.apply(decided(core, who(1)))
    assert outcome(core, asked(who(1), seen)) is OutcomeKind.DECIDED
    crowded(core)
    assert outcome(core, asked(who(1), seen)) is OutcomeKind.REMOVED  # It was made, as it happens.
    assert outcome(crowded(short), asked(who(1), short.index)) is OutcomeKind.EXPIRED
    assert outcome(short, asked(who(1), short.index + 1)) is None  # It has seen more than this.
    assert outcome(short, asked(who(1), 0)) is None  # It doesn't say what it has seen.


def test_stages_of_an_owner_that_was_forgotten_may_go() -> None:
    core = made()
    birth = core.index
    assert core.apply(opened(1, birth))
    assert not core.may_drop_stage(who(1), 1, 1, birth)
    crowded(core)
    assert core.may_drop_stage(who(1), 1, 1, birth)
    assert not core.may_drop_stage(who(50), 1, 1, core.index)  # It may open yet.


def test_only_owners_of_the_cell_are_anonymous() -> None:
    core = made()
    of_group = msgspec.structs.replace(opened(1, 0), scope=GROUP)
    assert not core.apply(of_group)
    assert outcome(core, request_of(of_group)) is OutcomeKind.REFUSED


# Names that were given up.


def test_tombstones_are_bounded_and_what_came_before_them_stays_refused() -> None:
    core = made()
    late = opened(1, core.index)
    for at in range(1, 10):
        assert core.apply(opened(at, core.index))
        assert core.apply(SenderRemovedEntry(CELL, who(at)))
        assert len(core.groups[CELL].tombstones) <= 2
    assert not core.apply(late)
    assert outcome(core, request_of(late)) is OutcomeKind.REMOVED
    assert core.apply(opened(10, core.index))


def test_a_name_that_was_given_up_begins_anew_above_whoever_had_it() -> None:
    core = made()
    assert core.apply(named("a", core.index, 3))
    assert core.apply(decided_by("a", core, 3))
    birth = core.index
    assert core.apply(SenderRemovedEntry(CELL, named_sender("a")))
    assert outcome(core, request_of(named("a", birth, 4))) is OutcomeKind.REMOVED
    for then in (core, forgotten(core)):
        again = request_of(named("a", then.index))
        assert then.outcome(1, again) == Outcome(1, OutcomeKind.FENCED, 3, head=then.index)
        assert not then.apply(named("a", then.index, 3))
        assert then.apply(named("a", then.index, 4))
        assert then.groups[CELL].named[named_sender("a")].next == 1
        assert not then.apply(decided_by("a", then, 3, 2))  # It doesn't know of all this.


def decided_by(name: str, core: Core, incarnation: int, tx: int = 1) -> DecisionEntry:
    return msgspec.structs.replace(decided(core, named_sender(name), tx), incarnation=incarnation)


def forgotten(core: Core) -> Core:
    """The same after so many others were given up that there is no trace of it."""
    core = core.copy()
    for name in ("x", "y"):
        assert core.apply(named(name, core.index))
        assert core.apply(SenderRemovedEntry(CELL, named_sender(name)))
    assert named_sender("a") not in core.groups[CELL].tombstones
    return core


def test_a_silent_group_gives_up_no_more_names_than_it_can_remember() -> None:
    """Its floor can't rise above its head: nothing could be sent any more."""
    core = made()
    for at in range(2):
        assert core.apply(named(f"n{at}", 0, scope=GROUP))
        assert core.apply(SenderRemovedEntry(GROUP, named_sender(f"n{at}")))
    assert core.apply(named("n2", 0, scope=GROUP))
    removal = SenderRemovedEntry(GROUP, named_sender("n2"))
    assert not core.apply(removal)
    assert core.apply(run_entry(batch(1), 1))
    assert core.apply(removal)
    assert core.groups[GROUP].memory_floor == 1
    assert core.apply(run_entry(batch(2, birth=1), 2))


@pytest.mark.parametrize("scope", [CELL, GROUP])
def test_a_late_copy_of_a_removal_leaves_whoever_opened_the_name_since(scope: int) -> None:
    """Proposers repeat to servers in turn: one that was paused passes a copy on much later."""
    cell, x = led_cell(), named_sender("a")
    removal = SenderRemovalRequest(scope, x, 1)

    def open_(incarnation: int) -> Outcome | None:
        head = cell.leader.core.head(scope)
        return cell.propose(request_of(named("a", head, incarnation, scope)), incarnation)

    assert said_of(open_(1)) is OutcomeKind.OPENED
    assert cell.propose(removal, 70) == Outcome(70, OutcomeKind.DONE)
    assert cell.propose(removal, 70) == Outcome(70, OutcomeKind.DONE)
    if scope == GROUP:
        cell.send(batch(1))
        cell.run(200)
    assert said_of(open_(2)) is OutcomeKind.OPENED
    length = cell.leader.core.index
    assert cell.propose(removal, 70) == Outcome(70, OutcomeKind.DONE, 2)
    assert cell.leader.core.index == length
    assert cell.leader.core.groups[scope].named[x].incarnation == 2


def said_of(answer: Outcome | None) -> OutcomeKind | None:
    return OutcomeKind(answer.kind) if answer is not None else None


def test_a_removal_takes_no_higher_incarnation_than_it_says() -> None:
    core, a = made(), named_sender("a")
    assert core.apply(named("a", core.index, 3))
    assert not core.apply(SenderRemovedEntry(CELL, a, 2))
    assert core.outcome(1, SenderRemovalRequest(CELL, a, 2)) == Outcome(1, OutcomeKind.DONE, 3)
    assert core.outcome(1, SenderRemovalRequest(CELL, a, 3)) is None
    for below in (3, 4, 0):  # 0: of the time before removals said it
        then = core.copy()
        assert then.apply(SenderRemovedEntry(CELL, a, below))
        assert then.groups[CELL].buried == {a: 3}


def test_a_state_that_knows_an_older_removal_only_says_nothing_of_a_later_one() -> None:
    core, a = made(), named_sender("a")
    assert core.apply(named("a", core.index))
    assert core.apply(SenderRemovedEntry(CELL, a, 1))
    assert core.outcome(1, SenderRemovalRequest(CELL, a, 1)) == Outcome(1, OutcomeKind.DONE)
    assert core.outcome(1, SenderRemovalRequest(CELL, a, 2)) is None  # It may be open since.


# What is written down.


def test_a_snapshot_holds_all_of_it() -> None:
    core = made()
    assert core.apply(named("a", 0))
    assert core.apply(named("b", 0))
    crowded(core, 3)
    assert core.apply(SenderRemovedEntry(CELL, named_sender("b")))
    again = Core.decode(core.encode(), SETTINGS)
    assert again.encode() == core.encode() == core.copy().encode()
    cell = again.groups[CELL]
    assert cell.named[named_sender("a")].label == "a"
    assert list(cell.anonymous) == [who(101), who(102)]
    assert cell.buried == {named_sender("b"): 1}


def test_a_snapshot_of_the_time_before_is_read() -> None:
    core = made()
    assert core.apply(OpenEntry(CELL, named_sender("a"), 1, 0, 0, 7))
    fields = msgspec.msgpack.decode(core.encode())
    again = Core.decode(msgspec.msgpack.encode(fields[:-1]), SETTINGS)
    assert again.groups[CELL].named[named_sender("a")].label == ""
    assert again.encode() == core.encode()


def test_an_open_of_the_time_before_is_read_and_keeps_its_hash() -> None:
    old = msgspec.msgpack.encode([3, CELL, named_sender("a"), 1, 0, 5, 7])
    entry = decode_entry(old)
    assert entry == OpenEntry(CELL, named_sender("a"), 1, 0, 5, 7)
    assert chain_hash(HASH_NONE, entry) == blake2b(old, key=HASH_NONE, digest_size=32).digest()
    assert chain_hash(HASH_NONE, entry) != chain_hash(HASH_NONE, named("a", 5))


@pytest.mark.parametrize("label", ["another", ""])
def test_a_label_that_is_not_the_name_is_not_kept(label: str) -> None:
    core = made()
    assert core.apply(OpenEntry(CELL, named_sender("a"), 1, 0, 0, 7, label))
    assert core.groups[CELL].named[named_sender("a")].label == ""
    assert core.apply(FILLER)


def test_a_data_server_drops_the_stages_of_an_owner_that_was_pushed_out() -> None:
    server = serving(GroupSettings(anonymous_max=1))
    server.step([commit(server, opened(1, 1))])
    staged = batch(1, sender=who(1), birth=1, stage=1)
    settle(server, [arrived(staged)])
    assert len(server.unnumbered) == 1
    server.step([commit(server, named("a", 1))])
    assert len(server.unnumbered) == 1
    effects = server.step([commit(server, opened(2, server.follower.core.index))])
    assert [drop.key[1] for drop in only(DropBatch, effects)] == [who(1)]
    assert not server.unnumbered.owners()
    late = server.step([arrived(batch(1, sender=who(1), birth=1, stage=2))])
    assert not only(StoreBatch, late)
