"""A peer's nonsense, kind by kind: it is turned away, and what a role holds stays as it was."""

from collections.abc import Callable

import msgspec
import pytest

from samcast.group.commit_server import CommitServer
from samcast.group.data_server import DataServer
from samcast.machine.ports import Effect, NodeId, Received, Store
from samcast.wire.batch import Batch, encode_batch
from samcast.wire.change import Join, Moved
from samcast.wire.control import Control
from samcast.wire.group import (
    Commit,
    CommitAck,
    CommitSubmit,
    DataReport,
    Heartbeat,
    LogReply,
    LogRequest,
    NumberRequest,
    OrderReply,
    OrderRequest,
    PayloadRequest,
    PreVote,
    PreVoteReply,
    Promise,
    Refusal,
    Repair,
    Reported,
    Seal,
    SnapshotReply,
    SnapshotRequest,
    Start,
    StartReply,
)
from samcast.wire.order import (
    EPOCH_NONE,
    HASH_NONE,
    ConfigEntry,
    Epoch,
    EpochEntry,
    GroupEntry,
)
from tests.group.build import (
    ANN,
    BOB,
    CLIENT,
    CONFIGURATION,
    GROUP,
    batch,
    codes,
    only,
    reported,
    run_entry,
    sent,
    settle,
)
from tests.group.nonsense import IMPOSSIBLE, LAST
from tests.group.states import following, leading, serving_data

OTHER = b"\x09" * 32
Case = tuple[str, NodeId, Callable[[Epoch, int], Control | Batch], str]


def holdings(server: CommitServer) -> tuple[object, ...]:
    """All that a commit server would miss if it were another."""
    sequencer = server.sequencer
    leads = (sequencer.epoch, sequencer.committed, sequencer.log.length) if sequencer else None
    log = server.log
    return (
        server.core.encode(),
        (log.base, log.length, log.last_hash, server.durable_length),
        (server.promised, server.log_epoch, server.configuration, server.unknown_from),
        leads,
    )


def submit(epoch: Epoch, first: int, *entries: object, committed: int = 0) -> CommitSubmit:
    return CommitSubmit(1, epoch, first, entries, committed, OTHER)  # type: ignore[arg-type]


ENTRY = GroupEntry(2, "second", 5, 5)

# For a server that follows: what it is, who says it, the message (given the epoch in force and the
# length of the log), and the code of the warning, if it deserves one.
TO_FOLLOWER: list[Case] = [
    ("submit of nobody", 1, lambda e, n: submit(EPOCH_NONE, n + 1, ENTRY), "epoch-of-other"),
    ("submit of another", 3, lambda e, n: submit(e, n + 1, ENTRY), "epoch-of-other"),
    ("submit from index 0", 1, lambda e, n: submit(e, 0, *[ENTRY] * 40), ""),
    ("submit behind a hole", 1, lambda e, n: submit(e, n + 2, ENTRY), ""),
    ("submit at the end of all", 1, lambda e, n: submit(e, LAST, ENTRY), ""),
    ("submit of what is there", 1, lambda e, n: submit(e, n, ENTRY), ""),
    ("submit below the promise", 1, lambda e, n: submit((1, 1, 1), n + 1, ENTRY), ""),
    (
        "submit of an older configuration",
        1,
        lambda e, n: msgspec.structs.replace(submit(e, n + 1, ENTRY), configuration=0),
        "",
    ),
    (
        "submit of a configuration to come",
        1,
        lambda e, n: msgspec.structs.replace(submit(e, n + 1, ENTRY), configuration=LAST),
        "",
    ),
    (
        "commit of another's epoch",
        3,
        lambda e, n: Commit(1, e, 1, (), LAST, OTHER),
        "epoch-of-other",
    ),
    ("commit of an epoch to come", 2, lambda e, n: Commit(1, (9, 2, 9), 1, (), LAST, OTHER), ""),
    (
        "heartbeat of nobody",
        0,
        lambda e, n: Heartbeat(1, EPOCH_NONE, n, OTHER, ()),
        "epoch-of-other",
    ),
    ("heartbeat from the future", 1, lambda e, n: Heartbeat(1, e, LAST, OTHER, ((9, LAST),)), ""),
    ("seal for another", 3, lambda e, n: Seal(1, (9, 2, 1)), "epoch-of-other"),
    ("seal of nobody", 0, lambda e, n: Seal(1, EPOCH_NONE), "epoch-of-other"),
    ("seal of the last round", 3, lambda e, n: Seal(1, (LAST, 3, 1)), "epoch-of-other"),
    ("seal with another nonce", 1, lambda e, n: Seal(1, (e[0], e[1], e[2] + 1)), ""),
    ("seal of a configuration to come", 3, lambda e, n: Seal(2, (9, 3, 1)), ""),
    ("pre-vote of the last round", 3, lambda e, n: PreVote(1, LAST, e, 0), ""),
    (
        "pre-vote reply of a stranger",
        99,
        lambda e, n: PreVoteReply(1, 1, True, LAST),
        "vote-of-stranger",
    ),
    ("promise that nobody asked for", 3, lambda e, n: Promise(1, e, 103, e, n, 0, 0, ()), ""),
    ("refusal with the last round", 3, lambda e, n: Refusal(e, (LAST, 3, 1), CONFIGURATION), ""),
    ("refusal that moves nowhere", 3, lambda e, n: Refusal(e, e, IMPOSSIBLE[0]), ""),
    ("log request of another", 3, lambda e, n: LogRequest((9, 3, 1), 1), ""),
    ("log request beyond the log", 1, lambda e, n: LogRequest(e, LAST), ""),
    ("log reply that nobody asked for", 3, lambda e, n: LogReply(e, n + 1, (ENTRY,), 0), ""),
    ("order request beyond the log", 3, lambda e, n: OrderRequest(LAST), ""),
    (
        "number request of nothing",
        3,
        lambda e, n: NumberRequest(((9, 1, LAST), (1, LAST, LAST))),
        "",
    ),
    ("number request of the cell", 3, lambda e, n: NumberRequest(((0, 1, LAST),)), ""),
    ("snapshot request beyond its end", 3, lambda e, n: SnapshotRequest(0, LAST), ""),
    ("snapshot that nobody asked for", 3, lambda e, n: SnapshotReply(n + 1, 0, 1, b"\x90"), ""),
    (
        "start of another's epoch",
        3,
        lambda e, n: Start(CONFIGURATION, e, 0, HASH_NONE, 1, (ENTRY,), 1),
        "epoch-of-other",
    ),
    (
        "start that begins below its base",
        2,
        lambda e, n: Start(CONFIGURATION, (9, 2, 1), n, OTHER, n, (ENTRY,), n + 1),
        "start-range",
    ),
    (
        "start that ends below its base",
        2,
        lambda e, n: Start(CONFIGURATION, (9, 2, 1), LAST, OTHER, LAST, (ENTRY,), 1),
        "start-range",
    ),
    (
        "start without a quorum",
        2,
        lambda e, n: Start(IMPOSSIBLE[1], (1, 2, 1), 0, HASH_NONE, 1, (ENTRY,), 1),
        "install-undoes-committed",
    ),
    ("data report to no sequencer", 3, lambda e, n: DataReport(1, e, 103, LAST, ()), ""),
    ("ack to no sequencer", 3, lambda e, n: CommitAck(1, e, 103, LAST, True, LAST, OTHER), ""),
    ("join to no sequencer", 3, lambda e, n: Join(3, 333, 1), ""),
    *(
        (f"move to nowhere {at}", 3, lambda e, n, to=to: Moved(to), "")
        for at, to in enumerate(IMPOSSIBLE)
    ),
]


@pytest.mark.req("GRP-27")
@pytest.mark.parametrize(
    ("what", "sender", "message", "code"), TO_FOLLOWER, ids=[c[0] for c in TO_FOLLOWER]
)
def test_nonsense_changes_nothing_that_a_following_commit_server_holds(
    what: str, sender: NodeId, message: Callable[[Epoch, int], Control], code: str
) -> None:
    server = following().role
    assert isinstance(server, CommitServer)
    before = holdings(server)
    effects = settle(server, [Received(sender, message(server.log_epoch, server.log.length))])
    assert holdings(server) == before, what
    assert codes(effects) == ([code] if code else [])


def bad_report(epoch: Epoch, **changes: object) -> DataReport:
    run = msgspec.structs.replace(reported(batch(4)), **changes)
    return DataReport(1, epoch, 103, 0, (run,))


def bad_ack(epoch: Epoch, **changes: object) -> CommitAck:
    ack = CommitAck(1, epoch, 103, 0, False, 0, HASH_NONE)
    return msgspec.structs.replace(ack, **changes)


TO_LEADER: list[Case] = [
    ("report of no messages", 3, lambda e, n: bad_report(e, count=0), "report-range"),
    ("report of too many", 3, lambda e, n: bad_report(e, count=LAST), "report-range"),
    ("report of counter 0", 3, lambda e, n: bad_report(e, counter_first=0), "report-range"),
    (
        "report of the last counter",
        3,
        lambda e, n: bad_report(e, counter_first=LAST),
        "report-range",
    ),
    ("report from the future", 3, lambda e, n: bad_report(e, birth=LAST), ""),
    ("report of an unknown group", 3, lambda e, n: bad_report(e, group=LAST), ""),
    ("report of the cell", 3, lambda e, n: bad_report(e, group=0), ""),
    (
        "report of a stage of nothing",
        3,
        lambda e, n: bad_report(e, stage=1, count=0),
        "report-range",
    ),
    ("report of other content", 3, lambda e, n: bad_report(e, digest=OTHER), ""),
    ("report of an overlap", 3, lambda e, n: bad_report(e, counter_first=3, count=5), ""),
    ("report of another disk", 3, lambda e, n: DataReport(1, e, 9, 0, ()), "report-of-other-disk"),
    ("report of a stranger", 99, lambda e, n: DataReport(1, e, 103, 0, ()), "report-of-other-disk"),
    ("report to another epoch", 3, lambda e, n: DataReport(1, (9, 9, 9), 103, LAST, ()), ""),
    ("ack of the future", 3, lambda e, n: bad_ack(e, index=LAST), "ack-of-unknown-index"),
    ("ack of an older configuration", 3, lambda e, n: bad_ack(e, index=n, configuration=0), ""),
    ("ack of another disk", 3, lambda e, n: bad_ack(e, index=n, uuid=9), ""),
    ("snapshot from the future", 3, lambda e, n: bad_ack(e, snapshot=LAST), ""),
    (
        "start reply of the future",
        3,
        lambda e, n: StartReply(1, e, 103, True, 0, LAST, ()),
        "ack-of-unknown-index",
    ),
    (
        "start reply that never was",
        3,
        lambda e, n: StartReply(1, e, 103, False, LAST, LAST, ()),
        "",
    ),
    ("join for another", 3, lambda e, n: Join(2, 222, 1), ""),
    ("join of a stranger", 99, lambda e, n: Join(99, 999, 1), ""),
    ("join of a configuration to come", 3, lambda e, n: Join(3, 333, LAST), ""),
    ("submit in our own name", 3, lambda e, n: submit(e, n + 1, ENTRY), "epoch-of-other"),
    ("seal in our own name", 3, lambda e, n: Seal(1, (9, 1, 1)), "epoch-of-other"),
    ("pre-vote of the last round", 3, lambda e, n: PreVote(1, LAST, e, 0), ""),
    ("promise that nobody asked for", 3, lambda e, n: Promise(1, e, 103, e, LAST, 0, 0, ()), ""),
    ("refusal that knows nothing", 3, lambda e, n: Refusal(e, EPOCH_NONE, IMPOSSIBLE[2]), ""),
    ("move to nowhere", 3, lambda e, n: Moved(IMPOSSIBLE[3]), ""),
]


@pytest.mark.req("GRP-27")
@pytest.mark.parametrize(
    ("what", "sender", "message", "code"), TO_LEADER, ids=[c[0] for c in TO_LEADER]
)
def test_nonsense_changes_nothing_that_a_sequencer_holds(
    what: str, sender: NodeId, message: Callable[[Epoch, int], Control], code: str
) -> None:
    server = leading().role
    assert isinstance(server, CommitServer)
    assert server.sequencer is not None
    length = server.sequencer.log.length
    for _ in range(3):  # once more doesn't make it better
        before = holdings(server)
        effects = settle(server, [Received(sender, message(server.sequencer.epoch, length))])
        assert holdings(server) == before, what
        assert codes(effects) == ([code] if code else [])


def kept(server: DataServer) -> tuple[object, ...]:
    """All that a data server holds for others."""
    return (
        server.follower.core.encode(),
        server.follower.epoch,
        sorted(server.unnumbered.all()),
        [server.numbered.at(GROUP, number) for number in range(1, 9)],
        server.numbered.is_whole,
    )


def claim(epoch: Epoch, first: int, *entries: object, committed: int = LAST) -> Commit:
    return Commit(1, epoch, first, entries, committed, OTHER)  # type: ignore[arg-type]


NEXT = run_entry(batch(4), 5)
TO_DATA_SERVER: list[Case] = [
    ("commit by another", 3, lambda e, n: claim(e, n + 1, NEXT), "epoch-of-other"),
    ("commit of nobody", 0, lambda e, n: claim(EPOCH_NONE, n + 1, NEXT), "epoch-of-other"),
    ("commit above its own claim", 1, lambda e, n: claim(e, n + 1, NEXT, committed=n), ""),
    ("commit of what is folded", 1, lambda e, n: claim(e, 1, EpochEntry(e), committed=1), ""),
    ("commit from index 0", 1, lambda e, n: claim(e, 0, NEXT, committed=0), ""),
    ("heartbeat of the last round", 3, lambda e, n: Heartbeat(1, (LAST, 3, 1), n, OTHER, ()),
     "epoch-of-other"),
    ("submit by another", 3, lambda e, n: submit(e, n + 1, NEXT, committed=LAST), "epoch-of-other"),
    ("other content for an id that has a number", 3, lambda e, n: batch(1, 2, text="x"), ""),
    ("other content for an id that waits", 3, lambda e, n: batch(4, text="x"), "run-conflict"),
    ("a run that overlaps one that waits", 3, lambda e, n: batch(3, 5), ""),
    ("a run of the cell", 3, lambda e, n: batch(1, group=0), ""),
    ("a stage of an owner without a name", 3, lambda e, n: batch(1, stage=1), "stage-refused"),
    ("a repair that is no batch", 3, lambda e, n: Repair(((1, b"\x00" * 90),)), "repair-malformed"),
    ("a repair of a number that we have", 3, lambda e, n: repair(1, batch(1, sender=BOB)), ""),
    ("a repair of a number to come", 3, lambda e, n: repair(LAST, batch(1, sender=BOB)), ""),
    ("a repair of other content", 3, lambda e, n: repair(0, batch(4, text="x")), ""),
    ("a snapshot that nobody asked for", 3, lambda e, n: SnapshotReply(LAST, 0, 1, b"x"), ""),
    ("an order reply of nothing", 3, lambda e, n: OrderReply(1, e, LAST, (NEXT,), 0, OTHER, 0), ""),
    ("a request for nothing", 3, lambda e, n: PayloadRequest((), (), ((9, LAST, LAST),)), ""),
    ("a request for everything", 3, lambda e, n: PayloadRequest((), (), ((1, 1, LAST),)), ""),
]  # fmt: skip


def repair(number: int, of: Batch) -> Repair:
    return Repair(((number, encode_batch(of)),))


@pytest.mark.req("GRP-27")
@pytest.mark.parametrize(
    ("what", "sender", "message", "code"), TO_DATA_SERVER, ids=[c[0] for c in TO_DATA_SERVER]
)
def test_nonsense_changes_nothing_that_a_data_server_holds(
    what: str, sender: NodeId, message: Callable[[Epoch, int], Control], code: str
) -> None:
    subject = serving_data()
    server = subject.role
    assert isinstance(server, DataServer)
    before = kept(server)
    epoch, index = server.follower.epoch, server.follower.core.index
    effects = server.step([Received(sender, message(epoch, index))])
    assert kept(server) == before, what
    assert codes(effects) == ([code] if code else [])
    assert only(Store, effects) == []


def test_a_data_server_folds_an_entry_of_an_unknown_group_without_effect() -> None:
    server = serving_data().role
    assert isinstance(server, DataServer)
    epoch, index = server.follower.epoch, server.follower.core.index
    odd = run_entry(batch(1, group=9), 1)
    effects: list[Effect] = server.step([Received(1, claim(epoch, index + 1, odd))])
    assert server.follower.core.index == index + 1
    assert server.numbered.is_whole
    assert codes(effects) == []


def test_a_configuration_that_could_never_have_been_made_is_a_no_op_in_the_log() -> None:
    server = serving_data().role
    assert isinstance(server, DataServer)
    epoch, index = server.follower.epoch, server.follower.core.index
    server.step([Received(1, claim(epoch, index + 1, ConfigEntry(IMPOSSIBLE[0])))])
    assert server.follower.core.configuration == CONFIGURATION


def test_what_one_reporter_says_of_one_id_is_bounded() -> None:
    server = leading().role
    assert isinstance(server, CommitServer)
    assert server.sequencer is not None
    epoch = server.sequencer.epoch
    of = reported(batch(4))
    for at in range(100):
        digest = at.to_bytes(16, "big")
        run: Reported = msgspec.structs.replace(of, digest=digest)
        server.step([Received(3, DataReport(1, epoch, 103, 0, (run,)))])
    pending = server.sequencer._numbering._pending[(GROUP, ANN, 1, 4)]
    assert len(pending.reporters) < 10


def test_an_answer_to_a_stranger_reveals_nothing_that_is_not_committed() -> None:
    server = leading().role
    assert isinstance(server, CommitServer)
    (reply,) = sent(server.step([Received(CLIENT, OrderRequest(LAST))]), CLIENT)
    assert isinstance(reply, OrderReply)
    assert (reply.entries, reply.committed) == ((), server.core.index)
