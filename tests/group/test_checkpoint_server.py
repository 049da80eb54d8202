"""The checkpoint server by hand, and the sequencer that counts its reports."""

import pytest
from msgspec import structs

from samcast.group import retained
from samcast.group.checkpoint_server import (
    UNADVERTISED_MAX,
    CheckpointServer,
    DropCheckpoint,
    SendBlock,
    Written,
)
from samcast.group.retained import LEASES_MAX
from samcast.machine.ports import Received, Ticked, Warn
from samcast.wire.group import Heartbeat, Outcome, OutcomeKind
from samcast.wire.order import (
    HASH_NONE,
    ROLE_CHECKPOINT,
    ROLE_COMMIT,
    ROLE_DATA,
    Checkpoint,
    Configuration,
    Keep,
    Server,
)
from samcast.wire.retention import (
    BlockRequest,
    CheckpointReport,
    Checkpoints,
    CheckpointsRequest,
    KeepRequest,
    LeaseRequest,
)
from tests.group.build import (
    CLIENT,
    CONFIGURATION,
    GROUP,
    SETTINGS,
    Cell,
    batch,
    codes,
    epoch_of,
    led_cell,
    only,
    sent,
    settle,
)

LISTED = structs.replace(
    CONFIGURATION,
    servers=tuple(
        structs.replace(s, roles=s.roles | ROLE_CHECKPOINT) for s in CONFIGURATION.servers
    ),
)
EPOCH = (3, 1, 5)
FOLD = ("table", 1)
KEEP = Keep(fold="table", fold_version=1, interval=10)
BEAT = Received(1, Heartbeat(1, EPOCH, 0, HASH_NONE, ()))


def state(number: int, content: bytes = b"same") -> Checkpoint:
    return Checkpoint(number, 5, 50, content.ljust(32, b"."))


def server_with(*numbers: int) -> CheckpointServer:
    server = CheckpointServer(2, 102, LISTED, SETTINGS)
    settle(server, [Ticked(1), BEAT, *[Written(GROUP, state(n), *FOLD) for n in numbers]])
    return server


@pytest.mark.req("GRP-16")
def test_the_newest_state_is_reported_until_it_is_advertised() -> None:
    server = CheckpointServer(2, 102, LISTED, SETTINGS)
    effects = server.step([Ticked(1), Written(GROUP, state(10), *FOLD)])
    assert not any(isinstance(m, CheckpointReport) for m in sent(effects))  # to whom?
    effects = server.step([Ticked(2), BEAT])
    assert CheckpointReport(1, EPOCH, 102, GROUP, state(10), *FOLD) in sent(effects, 1)
    assert sent(server.step([Ticked(3)])) == []
    effects = server.step([Ticked(server.due_ms())])
    assert [type(m) for m in sent(effects)] == [CheckpointReport, CheckpointsRequest]
    told = Checkpoints(GROUP, 0, KEEP, (state(10),))
    server.step([Received(3, told)])
    again = server.step([Ticked(server.due_ms())])  # Now and then, for those who leave.
    assert CheckpointReport(1, EPOCH, 102, GROUP, state(10), *FOLD) in sent(again, 1)
    assert server.due_ms() >= 5 * SETTINGS.retry_max_ms


@pytest.mark.req("GRP-16", "GRP-20")
def test_states_before_the_older_advertised_one_go_and_wrong_ones() -> None:
    server = server_with(10, 20, 30, 40)
    told = Checkpoints(GROUP, 0, KEEP, (state(20), state(30, b"other")))
    effects = server.step([Received(3, told)])
    assert only(DropCheckpoint, effects) == [
        DropCheckpoint(GROUP, 30, True),
        DropCheckpoint(GROUP, 40, True),
    ]  # fmt: skip - what follows from a wrong state is wrong
    assert codes(effects) == ["checkpoint-wrong"]
    assert list(server.held[GROUP]) == [20]


@pytest.mark.req("GRP-15")
def test_states_that_nobody_else_comes_to_dont_pile_up() -> None:
    server = CheckpointServer(2, 102, LISTED, SETTINGS)
    events = [Written(GROUP, state(n), *FOLD) for n in range(10, 100, 10)]
    effects = server.step([Ticked(1), *events])
    assert len(server.held[GROUP]) == UNADVERTISED_MAX
    assert len(only(DropCheckpoint, effects)) == len(events) - UNADVERTISED_MAX


@pytest.mark.req("GRP-15")
def test_states_of_another_fold_go() -> None:
    server = server_with(10, 20)
    server.step([Ticked(5), Written(GROUP, state(15), "table", 2)])
    assert list(server.held[GROUP]) == [15]


@pytest.mark.req("GRP-17")
def test_blocks_are_served() -> None:
    request = BlockRequest(GROUP, 10, 1, 0)
    effects = server_with(10).step([Received(CLIENT, request)])
    assert only(SendBlock, effects) == [SendBlock(CLIENT, request)]


# The sequencer.


ROLES = ROLE_COMMIT | ROLE_DATA | ROLE_CHECKPOINT
CHECKPOINTING = Configuration(
    1, tuple(Server(node, 100 + node, ROLES) for node in (1, 2, 3)), 2, 2, 2, 2
)


def cell_with_messages() -> Cell:
    """Its group has a hundred messages and a fold."""
    cell = led_cell(configuration=CHECKPOINTING)
    cell.send(batch(1, 100))
    outcome = cell.propose(KeepRequest(GROUP, KEEP), 5)
    assert outcome is not None
    assert outcome.kind is OutcomeKind.DONE
    return cell


def report(cell: Cell, node: int, found: Checkpoint, uuid: int = 0, version: int = 1) -> None:
    epoch = epoch_of(cell.leader)
    said = CheckpointReport(1, epoch, uuid or 100 + node, GROUP, found, "table", version)
    cell.receive(cell.leader.node, node, said)


def advertised(cell: Cell) -> list[int]:
    retained = cell.leader.core.retained[GROUP]
    return [found.number for found in retained.checkpoints]


@pytest.mark.req("GRP-16")
def test_a_checkpoint_is_advertised_when_enough_disks_have_the_same() -> None:
    cell = cell_with_messages()
    report(cell, 1, state(10))
    report(cell, 1, state(10))  # once more is not one more
    report(cell, 3, state(10), uuid=999)  # another disk
    assert advertised(cell) == []
    report(cell, 2, state(10))
    assert advertised(cell) == [10]
    assert all(s.core.retained[GROUP].checkpoints for s in cell.commit.values())


@pytest.mark.req("GRP-15", "GRP-16")
def test_states_of_a_fold_that_the_group_has_no_more_dont_count() -> None:
    cell = cell_with_messages()
    report(cell, 1, state(10), version=2)
    report(cell, 2, state(10), version=2)
    assert advertised(cell) == []
    report(cell, 1, state(10))
    assert cell.propose(KeepRequest(GROUP, Keep(0, 0, 0, "table", 2, 10)), 6) is not None
    report(cell, 2, state(10))
    report(cell, 3, state(10), version=2)
    assert advertised(cell) == []
    report(cell, 1, state(10), version=2)
    assert advertised(cell) == [10]


@pytest.mark.req("GRP-16")
def test_states_that_differ_are_not_advertised_and_the_servers_are_named() -> None:
    cell = cell_with_messages()
    report(cell, 1, state(10))
    report(cell, 2, state(10, b"other"))
    assert advertised(cell) == []
    warned = [e for _, e in cell.seen if isinstance(e, Warn) and e.code == "checkpoints-differ"]
    assert "servers 1, 2" in warned[-1].detail
    report(cell, 3, state(10))  # two of three agree
    assert advertised(cell) == [10]


@pytest.mark.req("GRP-16", "GRP-20")
def test_messages_go_when_two_checkpoints_hold_them_and_not_before() -> None:
    cell = cell_with_messages()
    for number in (20, 60):
        report(cell, 1, state(number))
        report(cell, 3, state(number))
        cell.run(3 * SETTINGS.collect_interval_ms)
        assert cell.leader.core.collected(GROUP) == (20 if number == 60 else 0)
    report(cell, 1, state(101))  # of messages that nobody has committed
    report(cell, 3, state(101))
    assert advertised(cell) == [20, 60]


@pytest.mark.req("GRP-20")
def test_a_silent_reader_loses_its_lease_loudly() -> None:
    cell = cell_with_messages()
    assert cell.propose(KeepRequest(GROUP, Keep(count=10)), 6) is not None
    assert cell.propose(LeaseRequest(GROUP, "archive", 30, 5000, 7), 7) is not None
    cell.run(4000)
    assert cell.leader.core.collected(GROUP) == 30
    cell.run(4000)
    assert cell.leader.core.retained[GROUP].leases == {}
    warned = [e for _, e in cell.seen if isinstance(e, Warn) and e.code == "lease-lapsed"]
    assert "'archive'" in warned[0].detail
    assert cell.leader.core.collected(GROUP) == 90


@pytest.mark.req("GRP-20")
def test_a_lease_that_has_lapsed_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "LEASES_MAX", 1)
    cell = cell_with_messages()
    assert cell.propose(LeaseRequest(GROUP, "left", 30, 1500, 7), 7) is not None
    full = cell.propose(LeaseRequest(GROUP, "next", 40, 1500, 8), 8)
    assert full == Outcome(8, OutcomeKind.REFUSED, 0, head=LEASES_MAX)  # not: they are gone
    leading = cell.leader.sequencer
    assert leading is not None
    left = cell.leader.core.retained[GROUP].leases["left"]
    while leading.retention.left_ms(GROUP, "left", left):
        cell.run(10)
    cell.run(10)
    assert "left" in cell.leader.core.retained[GROUP].leases  # nobody has looked since
    done = cell.propose(LeaseRequest(GROUP, "next", 40, 1500, 9), 9)
    assert done == Outcome(9, OutcomeKind.DONE)
    assert list(cell.leader.core.retained[GROUP].leases) == ["next"]
