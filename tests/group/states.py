"""Roles in realistic states, each with what nonsense must know to come close to it."""

from collections.abc import Callable
from typing import NamedTuple

from samcast.group.commit_server import CommitServer
from samcast.group.entry import Entry
from samcast.group.member import Member
from samcast.group.owner import Owner, Transacted
from samcast.group.sender import Sender, Submitted
from samcast.group.settings import GroupSettings
from samcast.group.storage import OrderRecovery
from samcast.machine.ports import Received, Role, Ticked
from samcast.wire.group import (
    Answers,
    Commit,
    Head,
    NumberReply,
    OpenRequest,
    OrderReply,
    Outcome,
    OutcomeKind,
    PreVoteReply,
)
from samcast.wire.order import HASH_NONE, Epoch, EpochEntry
from tests.group.build import (
    ANN,
    BOB,
    CLIENT,
    CONFIGURATION,
    GROUP,
    GROUP_ENTRY,
    NAMED,
    OWNER,
    Cell,
    Draws,
    OrderDisk,
    batch,
    columns,
    commit_server,
    data_server,
    led_cell,
    run_entry,
    settle,
)
from tests.group.nonsense import BATCHES, STAGES, Hints

TINY = GroupSettings(
    sender_runs_max=4,
    named_max=2,
    cell_lifetime=100,
    snapshot_interval=3,
    entries_per_message_max=4,
    entries_per_record_max=2,
    pending_runs_max=6,
    held_runs_max=4,
    held_runs_reserve=4,
    member_runs_max=4,
    spans_per_request_max=2,
    repairs_per_reply_max=2,
)
EPOCH: Epoch = (1, 1, 5)


class Subject(NamedTuple):
    role: Role
    hints: Hints
    disk: OrderDisk | None = None


def busy_cell(settings: GroupSettings = TINY) -> Cell:
    """A cell where two senders have numbers, a name is open, and an owner has staged."""
    cell = led_cell(settings)
    for of in (batch(1, 2), batch(3), batch(1, sender=BOB)):
        cell.send(of)
    cell.propose(OpenRequest(GROUP, NAMED, 1, 0, 0, 7))
    cell.propose(OpenRequest(0, OWNER, 1, 0, 0, 7))
    for stage in STAGES:
        cell.send(stage)
    return cell


def hints_of(cell: Cell) -> Hints:
    """What is true in a cell: its epoch, its hashes, its snapshots."""
    hints = Hints()
    server = cell.leader
    assert server.sequencer is not None
    hints.epochs = [*[server.sequencer.epoch] * 8, *hints.epochs]
    log = server.sequencer.log
    known = [log.hash_at(index) for index in range(log.base, log.length + 1)]
    hints.hashes += [h for h in known if h is not None]
    snapshot = server.snapshots.get(0)
    hints.blobs += [snapshot[1], server.core.encode()] if snapshot else [server.core.encode()]
    return hints


def leading() -> Subject:
    cell = busy_cell()
    return Subject(cell.leader, hints_of(cell), cell.disks[1])


def following() -> Subject:
    cell = busy_cell()
    return Subject(cell.commit[2], hints_of(cell), cell.disks[2])


def following_with_an_uncommitted_end() -> Subject:
    cell = busy_cell()
    hints = hints_of(cell)
    cell.down.update({2: None, 3: None})
    cell.propose(OpenRequest(GROUP, NAMED, 2, 0, 0, 8))
    return Subject(cell.leader, hints, cell.disks[1])


def fresh_commit_server() -> Subject:
    return Subject(commit_server(settings=TINY), Hints(), OrderDisk(101))


def learner() -> Subject:
    return Subject(commit_server(settings=TINY, recovery=OrderRecovery(555)), Hints())


def rotten() -> Subject:
    server = commit_server(settings=TINY, recovery=OrderRecovery(101, is_rotten=True))
    assert server.unknown_from
    return Subject(server, Hints())


def sealing() -> Subject:
    server: CommitServer = commit_server(settings=TINY)
    server.step([Ticked(1000)])
    server.step([Received(node, PreVoteReply(1, 1, True, 0)) for node in (1, 2)])
    hints = Hints()
    hints.epochs = [*[server.election._epoch] * 8, *hints.epochs]
    return Subject(server, hints)


def serving_data() -> Subject:
    cell = busy_cell()
    cell.down.update({2: None, 3: None})
    cell.receive(1, CLIENT, batch(4, sender=ANN))
    return Subject(cell.data[1], hints_of(cell))


def fresh_data_server() -> Subject:
    return Subject(data_server(settings=TINY), Hints())


def data_server_behind_a_base() -> Subject:
    server = data_server(settings=TINY)
    settle(server, [Received(2, OrderReply(1, EPOCH, 1, (), 40, HASH_NONE, 30))])
    hints = hints_of(busy_cell())
    return Subject(server, hints)


def _member(settings: GroupSettings) -> Subject:
    member = Member(50, CONFIGURATION, settings, GROUP)
    entries = (EpochEntry(EPOCH), GROUP_ENTRY, run_entry(BATCHES[0], 1))
    member.step([Received(1, Commit(1, EPOCH, 1, entries, 3, HASH_NONE))])
    member.step([Received(1, NumberReply((run_entry(BATCHES[1], 3),), ()))])
    hints = Hints()
    hints.epochs = [*[EPOCH] * 8, *hints.epochs]
    return Subject(member, hints)


def member() -> Subject:
    return _member(TINY)


def one_step_member() -> Subject:
    return _member(GroupSettings(member_runs_max=4, is_one_step=True))


def sending() -> Subject:
    sender = Sender(60, CONFIGURATION, TINY, Draws(6), GROUP)
    sender.id = ANN
    for token, count in ((1, 2), (2, 1)):
        sender.step([Submitted(token, columns("a", count), count)])
    sender.step([Received(1, Head(GROUP, 0))])
    return Subject(sender, Hints())


def named_sending() -> Subject:
    sender = Sender(60, CONFIGURATION, TINY, Draws(6), GROUP, name="till-7")
    sender.step([Submitted(1, columns("a"), 1), Received(1, Head(GROUP, 0))])
    sender.step([Received(1, Outcome(sender.nonce, OutcomeKind.OPENED, 1))])
    return Subject(sender, Hints())


def named_opening() -> Subject:
    sender = Sender(60, CONFIGURATION, TINY, Draws(6), GROUP, name="till-7")
    sender.step([Submitted(1, columns("a"), 1), Received(1, Head(GROUP, 0))])
    hints = Hints()
    hints.nonces = [*[sender.nonce] * 4, *hints.nonces]
    return Subject(sender, hints)


def owner_opening() -> Subject:
    owner = Owner(70, CONFIGURATION, TINY, Draws(7), "sink-1")
    owner.step([Transacted(1, ((GROUP, columns("a"), 1),)), Received(1, Head(0, 3))])
    hints = Hints()
    hints.nonces = [*[owner.nonce] * 4, *hints.nonces]
    return Subject(owner, hints)


def owner_deciding() -> Subject:
    owner = Owner(70, CONFIGURATION, TINY, Draws(7), "sink-1")
    owner.step([Transacted(1, ((GROUP, columns("a"), 1),)), Received(1, Head(0, 3))])
    owner.step([Received(1, Outcome(owner.nonce, OutcomeKind.OPENED, 1))])
    hints = Hints()
    hints.nonces = [*[owner.nonce] * 4, *hints.nonces]
    return Subject(owner, hints)


def entry() -> Subject:
    role = Entry(80, CONFIGURATION, TINY)
    role.step([Received(CLIENT, of) for of in BATCHES])
    role.step([Received(1, Answers((), GROUP, 0))])
    return Subject(role, Hints())


STATES: list[Callable[[], Subject]] = [
    fresh_commit_server,
    learner,
    rotten,
    sealing,
    following,
    following_with_an_uncommitted_end,
    leading,
    fresh_data_server,
    serving_data,
    data_server_behind_a_base,
    member,
    one_step_member,
    sending,
    named_opening,
    named_sending,
    owner_opening,
    owner_deciding,
    entry,
]
