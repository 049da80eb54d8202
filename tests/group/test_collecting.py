"""Giving payloads up: a data server drops what the order names, says what is gone, and a member
doesn't wait for it."""

import pytest

from samcast.group import collecting
from samcast.group.core import Core
from samcast.group.data_server import DataServer
from samcast.group.listing import DataRecovery, Listed, Listing, columns_of
from samcast.group.member import Deliver, Lost, Member
from samcast.group.milestones import STEP_BYTES
from samcast.group.settings import GroupSettings
from samcast.group.storage import DropCollected, SendStored, StoreBatch
from samcast.machine.ports import Effect, NodeId, Received, Ticked
from samcast.wire.batch import Batch, encode_batch
from samcast.wire.group import (
    Commit,
    Follow,
    Head,
    NumberReply,
    OrderReply,
    PayloadRequest,
    Repair,
    SnapshotReply,
)
from samcast.wire.order import (
    HASH_NONE,
    AnyEntry,
    CollectEntry,
    DecisionEntry,
    Epoch,
    EpochEntry,
    GroupEntry,
    GroupRemovedEntry,
    Keep,
    KeepEntry,
    Part,
)
from samcast.wire.retention import Collected, Holdings
from tests.group.build import (
    CLIENT,
    CONFIGURATION,
    GROUP,
    OWNER,
    SETTINGS,
    batch,
    data_server,
    key_of,
    only,
    run_entry,
    sent,
    settle,
    stage_ref,
)

EPOCH: Epoch = (1, 1, 5)
OPENING: list[AnyEntry] = [
    EpochEntry(EPOCH),
    GroupEntry(GROUP, "orders", 10**6, 1000),
    KeepEntry(GROUP, Keep(count=1)),
]
RUNS = [batch(1 + 10 * i, 10) for i in range(4)]  # numbers 1 to 40


def commit(server: DataServer, *entries: AnyEntry) -> Received:
    first = server.follower.core.index + 1
    last = first + len(entries) - 1
    return Received(EPOCH[1], Commit(1, EPOCH, first, entries, last, HASH_NONE))


def numbered(runs: list[Batch]) -> list[AnyEntry]:
    return [run_entry(of, of.counter_first) for of in runs]


def holding(*runs: Batch, node: NodeId = 1, settings: GroupSettings = SETTINGS) -> DataServer:
    """It has these payloads; all four runs are committed."""
    server = data_server(node, settings=settings)
    settle(server, [commit(server, *OPENING)])
    settle(server, [Received(CLIENT, of) for of in runs])
    settle(server, [commit(server, *numbered(RUNS))])
    return server


@pytest.mark.req("GRP-20")
def test_what_the_order_names_goes_and_a_batch_is_never_cut() -> None:
    server = holding(*RUNS)
    effects = server.step([commit(server, CollectEntry(GROUP, 25))])
    assert only(DropCollected, effects) == [DropCollected(tuple(key_of(of) for of in RUNS[:2]))]
    assert server.numbered.at(GROUP, 20) is None
    assert server.numbered.at(GROUP, 21) == (key_of(RUNS[2]), 21, 10)
    assert key_of(RUNS[0]) not in server.numbered


@pytest.mark.req("GRP-20")
def test_who_asks_for_it_hears_that_it_is_gone() -> None:
    server = holding(*RUNS)
    settle(server, [commit(server, CollectEntry(GROUP, 25))])
    question = Received(CLIENT, PayloadRequest((), (), ((GROUP, 5, 30),)))
    assert Collected(GROUP, 25) in sent(server.step([question]), CLIENT)
    stage = (GROUP, RUNS[0].sender, 1, 1, 3)  # of a transaction, and gone as well
    question = Received(CLIENT, PayloadRequest((), (stage,), ()))
    assert Collected(GROUP, 25) in sent(server.step([question]), CLIENT)
    question = Received(CLIENT, Follow(GROUP, 1, 10))
    effects = server.step([question])
    assert Collected(GROUP, 25) in sent(effects, CLIENT)
    firsts = [number for stored in only(SendStored, effects) for number, _ in stored.batches]
    assert firsts == [21, 31]  # It begins at once with what there is.
    question = Received(CLIENT, PayloadRequest((), (), ((GROUP, 26, 10),)))
    effects = server.step([question])
    assert Collected(GROUP, 25) not in sent(effects, CLIENT)
    assert only(SendStored, effects)[0].batches[0] == (21, key_of(RUNS[2]))


@pytest.mark.req("GRP-20", "GRP-27")
def test_what_is_lacking_and_gone_is_not_asked_for_and_the_rest_of_a_batch_is() -> None:
    server = holding(RUNS[3])
    assert not server.numbered.is_whole
    settle(server, [commit(server, CollectEntry(GROUP, 25))])
    effects = server.step([Ticked(10_000)])
    (question,) = [m for m in sent(effects) if isinstance(m, PayloadRequest)]
    assert question.spans == ((GROUP, 26, 5),)
    repair = Repair(((21, encode_batch(RUNS[2])),))
    effects = server.step([Received(2, repair)])
    assert [store.key for store in only(StoreBatch, effects)] == [key_of(RUNS[2])]
    assert server.numbered.is_whole


@pytest.mark.req("GRP-20")
def test_a_payload_that_comes_late_and_is_gone_is_not_stored() -> None:
    server = holding(*RUNS[1:])
    settle(server, [commit(server, CollectEntry(GROUP, 25))])
    assert only(StoreBatch, server.step([Received(CLIENT, RUNS[0])])) == []


@pytest.mark.req("GRP-20")
def test_the_sequencer_hears_what_is_beyond_the_bounds() -> None:
    large = [batch(i, text="x" * STEP_BYTES) for i in range(1, 9)]
    server = data_server(2)
    keep = KeepEntry(GROUP, Keep(size=3 * STEP_BYTES))
    settle(server, [commit(server, *OPENING, keep)])
    settle(server, [Received(CLIENT, of) for of in large])
    settle(server, [commit(server, *numbered(large))])
    effects = server.step([Ticked(5000)])
    (said,) = [m for m in sent(effects, 1) if isinstance(m, Holdings)]
    assert said.numbers == ((GROUP, 5, Keep(size=3 * STEP_BYTES)),)
    settle(server, [commit(server, KeepEntry(GROUP, Keep(size=90 * STEP_BYTES)))])
    effects = server.step([Ticked(9000)])
    (said,) = [m for m in sent(effects, 1) if isinstance(m, Holdings)]
    assert said.numbers == ((GROUP, 0, Keep(size=90 * STEP_BYTES)),)  # it takes its word back


@pytest.mark.req("GRP-20")
def test_what_a_disk_gave_back_is_as_old_as_this_life() -> None:
    month_ms = 30 * 86_400_000
    found = [Listed(key_of(of), 10, 0, of.digest, 0, 100) for of in RUNS]
    marks = [(key_of(of), of.counter_first) for of in RUNS]
    runs = columns_of(Listing(found, marks)).runs
    server = data_server(2, recovery=DataRecovery(102, runs))
    server.step([Ticked(month_ms)])  # the machine has been up for long
    week = KeepEntry(GROUP, Keep(age_ms=7 * 86_400_000))
    settle(server, [commit(server, *OPENING, *numbered(RUNS), week)])
    effects = server.step([Ticked(month_ms + 5000)])
    (said,) = [m for m in sent(effects, 1) if isinstance(m, Holdings)]
    assert said.numbers[0][:2] == (GROUP, 0)
    effects = server.step([Ticked(month_ms + 8 * 86_400_000)])
    (said,) = [m for m in sent(effects, 1) if isinstance(m, Holdings)]
    assert said.numbers[0][:2] == (GROUP, 31)  # in a week from then; its last batch stays


@pytest.mark.req("GRP-20")
def test_a_large_collection_takes_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "RUNS_PER_TURN", 1)
    server = holding(*RUNS)
    given_up = only(DropCollected, server.step([commit(server, CollectEntry(GROUP, 40))]))
    assert server.due_ms() <= 2
    for now_ms in range(2, 10):
        given_up += only(DropCollected, server.step([Ticked(now_ms)]))
    assert [key for drop in given_up for key in drop.keys] == [key_of(of) for of in RUNS]
    assert server.due_ms() > 11


@pytest.mark.req("GRP-20")
def test_who_begins_with_a_snapshot_lacks_nothing_of_a_removed_group() -> None:
    core = Core(CONFIGURATION, SETTINGS)
    removed = (*OPENING, *numbered(RUNS), CollectEntry(GROUP, 10), GroupRemovedEntry(GROUP))
    for entry in removed:
        assert core.apply(entry)
    server = data_server(2)
    index, state = core.index, core.encode()
    behind = OrderReply(1, EPOCH, 1, (), index, core.hash, index)
    server.step([Ticked(1)])
    server.step([Received(1, behind)])
    server.step([Received(1, SnapshotReply(index, 0, len(state), state))])
    assert server.follower.core.index == index
    assert server.numbered.is_whole


def delivered(effects: list[Effect]) -> list[int]:
    return [number for deliver in only(Deliver, effects) for number, _ in deliver.runs]


@pytest.mark.req("GRP-20")
def test_a_member_does_not_wait_for_what_is_gone() -> None:
    member = Member(CLIENT, CONFIGURATION, SETTINGS, GROUP)
    member.step([Received(1, Head(GROUP, 40))])
    effects = member.step([Received(1, Collected(GROUP, 25))])
    assert only(Lost, effects) == [Lost(GROUP, 25)]
    other = Member(CLIENT, CONFIGURATION, SETTINGS, GROUP, 26)
    assert only(Lost, other.step([Received(1, Collected(GROUP, 25))])) == []


@pytest.mark.req("GRP-20")
def test_who_wants_the_oldest_begins_with_what_there_is() -> None:
    member = Member(CLIENT, CONFIGURATION, SETTINGS, GROUP, 1, is_from_oldest=True)
    entries = NumberReply(tuple(numbered(RUNS)), ())
    member.step([Received(1, Head(GROUP, 40)), Received(1, entries)])
    effects = member.step([Received(1, Collected(GROUP, 25))])
    assert only(Lost, effects) == []
    repair = Repair(tuple((of.counter_first, encode_batch(of)) for of in RUNS[2:]))
    assert delivered(member.step([Received(1, repair)])) == [21, 31]
    effects = member.step([Received(1, Collected(GROUP, 45))])  # it fell behind since
    assert only(Lost, effects) == [Lost(GROUP, 45)]


@pytest.mark.req("GRP-20")
@pytest.mark.parametrize("is_one_step", [False, True])
def test_of_a_transaction_across_the_floor_the_rest_is_delivered(is_one_step: bool) -> None:
    stages = [batch(1, 10, sender=OWNER, stage=i, text=f"stage {i}") for i in (1, 2, 3)]
    part = Part(GROUP, 1, tuple(stage_ref(of) for of in stages))
    settings = GroupSettings(is_one_step=is_one_step)
    member = Member(CLIENT, CONFIGURATION, settings, GROUP, 1, is_from_oldest=True)
    entries = NumberReply((DecisionEntry(OWNER, 1, 1, (part,)),), ())
    member.step([Received(1, Head(GROUP, 30)), Received(1, entries)])
    effects = member.step([Received(1, Collected(GROUP, 15))])
    assert only(Lost, effects) == []
    repair = Repair(((11, encode_batch(stages[1])), (21, encode_batch(stages[2]))))
    assert delivered(member.step([Received(1, repair)])) == [11, 21]
    again = member.step([Received(1, Collected(GROUP, 15))])
    assert only(Lost, again) == []
