"""A server that has just started says nothing of what there is before it can know it."""

from collections.abc import Sequence

import pytest

from samcast.group.commit_server import CommitServer
from samcast.group.data_server import DataServer
from samcast.machine.ports import Received
from samcast.wire.batch import Batch
from samcast.wire.control import Control
from samcast.wire.group import (
    Commit,
    CommitSubmit,
    GroupRequest,
    Head,
    HeadRequest,
    Heartbeat,
    OrderReply,
    Outcome,
    OutcomeKind,
    Propose,
)
from samcast.wire.names import Names, NamesRequest
from samcast.wire.order import CELL, HASH_NONE, Epoch, EpochEntry, Keep
from samcast.wire.retention import Checkpoints, CheckpointsRequest, KeepRequest
from tests.group.build import (
    CLIENT,
    GROUP,
    batch,
    commit_server,
    data_server,
    led_cell,
    run_entry,
    sent,
)

QUESTIONS: tuple[Control, ...] = (
    HeadRequest(GROUP),
    CheckpointsRequest(GROUP),
    Propose(7, GroupRequest("orders", 2**30, 1000)),
    NamesRequest(CELL, b""),
    Propose(8, KeepRequest(GROUP, Keep())),  # what it was, as far as this prefix goes
)
NEXT: Epoch = (9, 1, 1)


def said(server: CommitServer | DataServer, questions: Sequence[Control]) -> list[Control | Batch]:
    return sent(server.step([Received(CLIENT, question) for question in questions]), CLIENT)


def restarted() -> CommitServer:
    """Node 2, whose log holds the group and three runs, all of which were committed."""
    cell = led_cell()
    for counter in (1, 2, 3):
        cell.send(batch(counter))
    cell.run(200)
    assert said(cell.commit[2], QUESTIONS[:1]) == [Head(GROUP, 3)]
    return commit_server(2, recovery=cell.disks[2].recovery())


@pytest.mark.req("GRP-09")
def test_a_commit_server_that_has_heard_nobody_says_nothing() -> None:
    server = restarted()
    assert server.core.head(GROUP) < 3  # What is committed of its log is not its to say.
    assert said(server, QUESTIONS) == []
    assert not server.queries.is_current


@pytest.mark.req("GRP-09")
def test_who_leads_anew_may_not_know_either_until_its_first_entry_is_committed() -> None:
    server = restarted()
    # Whoever leads has restarted as well: it claims no more than it has folded itself.
    server.step([Received(1, Heartbeat(1, NEXT, server.core.index, HASH_NONE, ()))])
    assert said(server, QUESTIONS) == []


@pytest.mark.req("GRP-09")
def test_it_answers_once_it_has_folded_what_the_sequencer_began_with() -> None:
    server = restarted()
    epoch, length = server.log_epoch, server.log.length
    last = server.log.last_hash
    server.step([Received(epoch[1], Heartbeat(1, epoch, length + 1, HASH_NONE, ()))])
    assert said(server, QUESTIONS) == []  # It hears that it lacks something.
    entry = run_entry(batch(4), 4)
    submit = CommitSubmit(1, epoch, length + 1, (entry,), length + 1, last)
    server.step([Received(epoch[1], submit)])
    head, there, opened, named, kept = said(server, QUESTIONS)
    assert isinstance(named, Names)
    assert head == Head(GROUP, 4)
    assert isinstance(there, Checkpoints)
    assert opened == Outcome(7, OutcomeKind.GROUP, GROUP)
    assert kept == Outcome(8, OutcomeKind.DONE)
    # Of a group that it doesn't know it says nothing: others may know it.
    assert said(server, [HeadRequest(GROUP + 1), CheckpointsRequest(GROUP + 1)]) == []


@pytest.mark.req("GRP-09")
def test_a_data_server_does_not_take_another_ones_past_for_the_present() -> None:
    cell = led_cell()
    cell.send(batch(1))
    cell.run(200)
    log, epoch = cell.leader.log, cell.leader.log_epoch
    entries = tuple(log.slice(1, log.length))
    server = data_server(3)
    # A commit server that has just started says how far it has come itself.
    reply = OrderReply(1, epoch, 1, entries[:-1], log.length - 1, HASH_NONE, 0)
    server.step([Received(2, reply)])
    assert server.follower.core.index == log.length - 1
    assert said(server, QUESTIONS[:1]) == []
    server.step([Received(epoch[1], Heartbeat(1, epoch, log.length, HASH_NONE, ()))])
    assert said(server, QUESTIONS[:1]) == []
    server.step(
        [Received(epoch[1], Commit(1, epoch, log.length, entries[-1:], log.length, HASH_NONE))]
    )
    assert said(server, QUESTIONS[:1]) == [Head(GROUP, 1)]
    # Another one leads: what it began with may hold more than we know.
    server.step([Received(1, Heartbeat(1, NEXT, log.length, HASH_NONE, ()))])
    assert said(server, QUESTIONS[:1]) == []
    begun = (EpochEntry(NEXT),)
    server.step([Received(1, Commit(1, NEXT, log.length + 1, begun, log.length + 1, HASH_NONE))])
    assert said(server, QUESTIONS[:1]) == [Head(GROUP, 1)]
