"""Which new disk of a listed node gets its place, and which waits for a person."""

import pytest
from msgspec import structs

from samcast.errors import ConfigError
from samcast.group.checkpoint_server import CheckpointServer
from samcast.group.commit_server import CommitServer
from samcast.group.core import Core
from samcast.machine.change import REPLACED_MAX, check_change
from samcast.machine.ports import Received, Ticked, Warn
from samcast.wire.change import ChangeRequest, Join
from samcast.wire.group import Heartbeat, OutcomeKind
from samcast.wire.order import HASH_NONE, ROLE_CHECKPOINT, ConfigEntry, Configuration, Server
from tests.group.build import (
    CONFIGURATION,
    SETTINGS,
    Cell,
    hush,
    led_cell,
    report,
    sent,
    submitted,
)

SILENCE_MS = SETTINGS.rejoin_silence_ms


def victim_of(cell: Cell) -> int:
    return next(node for node in (1, 2, 3) if node != cell.leader.node)


def with_disk(node: int, uuid: int, now: Configuration = CONFIGURATION) -> Configuration:
    servers = [structs.replace(s, uuid=uuid) if s.node == node else s for s in now.servers]
    return structs.replace(now, number=now.number + 1, servers=tuple(servers))


def admission(node: int, uuid: int, now: Configuration = CONFIGURATION) -> ChangeRequest:
    target = structs.replace(with_disk(node, uuid, now), node_last=3)
    return ChangeRequest(target, (), True, uuid)


def ask(cell: Cell, request: ChangeRequest) -> OutcomeKind | None:
    """As an administrator does: again and again."""
    for nonce in range(1, 60):
        if any(s.sequencer for n, s in cell.commit.items() if n not in cell.down):
            outcome = cell.propose(request, nonce)
            if outcome is not None:
                return outcome.kind
        cell.run(100)
    return None


def waiting(server: CommitServer) -> list[str]:
    assert server.sequencer is not None
    return [asking.why for asking in server.sequencer.changing.admitting.asking()]


@pytest.mark.req("GRP-23")
def test_a_copy_is_not_let_in_while_the_listed_disk_answers() -> None:
    cell = led_cell()
    node, leader = victim_of(cell), cell.leader
    for _ in range(100):
        cell.receive(leader.node, node, Join(node, 333, 1))
        cell.run(100)
    assert all(server.configuration.number == 1 for server in cell.commit.values())
    warned = [e for _, e in cell.seen if isinstance(e, Warn) and e.code == "two-lives"]
    assert len(warned) == 1
    assert f"disk {100 + node} is listed and answers, and disk 333" in warned[0].detail
    assert [why.partition(" ms ago")[0][:-2] for why in waiting(leader)] == [
        f"disk {100 + node} is listed and was heard"
    ]


def test_a_new_disk_is_let_in_once_the_old_one_was_silent_for_long() -> None:
    cell = led_cell()
    node, leader = victim_of(cell), cell.leader
    cell.down[node] = None
    cell.run(SILENCE_MS // 2)
    cell.receive(leader.node, node, Join(node, 333, 1))
    assert leader.configuration.number == 1
    cell.run(SILENCE_MS)
    cell.receive(leader.node, node, Join(node, 333, 1))
    assert leader.configuration == with_disk(node, 333)
    assert not [e for _, e in cell.seen if isinstance(e, Warn) and e.code == "two-lives"]


def test_a_sequencer_that_stood_still_has_not_heard_silence() -> None:
    server = led_cell(with_data=False).leader
    later = server.now_ms + 2 * SILENCE_MS
    assert submitted(server.step([Ticked(later), Received(3, Join(3, 333, 1))])) == []
    assert submitted(server.step([Ticked(later + 50), Received(3, Join(3, 333, 1))])) == []
    assert server.sequencer is not None


def test_whatever_role_a_disk_is_heard_in_it_is_alive() -> None:
    server = led_cell(with_data=False).leader
    hush(server)
    server.step([report(server, 3)])
    assert submitted(server.step([Received(3, Join(3, 333, 1))])) == []
    hush(server)
    server.step([Received(3, Join(3, 103, 1))])
    assert submitted(server.step([Received(3, Join(3, 333, 1))])) == []


def test_a_checkpoint_server_without_any_other_role_says_that_it_is_alive() -> None:
    servers = (*CONFIGURATION.servers, Server(7, 107, ROLE_CHECKPOINT))
    role = CheckpointServer(7, 107, structs.replace(CONFIGURATION, servers=servers), SETTINGS)
    beat = Heartbeat(1, (1, 2, 5), 0, HASH_NONE, ())
    first = role.step([Ticked(5), Received(2, beat)])
    assert sent(first, 2) == [Join(7, 107, 1)]
    assert sent(role.step([Ticked(6), Received(2, beat)]), 2) == []
    assert sent(role.step([Ticked(5 + SETTINGS.retry_max_ms), Received(2, beat)]), 2) != []


def test_the_place_of_whoever_leads_is_never_given_away() -> None:
    server = led_cell(with_data=False).leader
    hush(server)
    own = server.node
    assert submitted(server.step([Received(own, Join(own, 333, 1))])) == []
    assert waiting(server) == ["that is the id of the node that leads"]


def test_a_disk_that_was_replaced_gets_its_place_back_only_by_a_person() -> None:
    cell = led_cell(with_data=False)
    node = victim_of(cell)
    cell.down[node] = None
    cell.run(2 * SILENCE_MS)
    cell.receive(cell.leader.node, node, Join(node, 333, 1))
    cell.run(4 * SILENCE_MS)
    for _ in range(20):  # The new disk is silent, and the old one is there again.
        cell.receive(cell.leader.node, node, Join(node, 100 + node, 2))
        cell.run(100)
    now = cell.leader.configuration
    assert now == with_disk(node, 333)
    assert waiting(cell.leader) == ["it was replaced by another disk before"]
    assert ask(cell, admission(node, 100 + node, now)) is OutcomeKind.DONE
    assert cell.leader.core.replaced == [(node, 333)]


def test_a_person_admits_a_disk_at_once_but_not_beside_one_that_answers() -> None:
    cell = led_cell()
    node, leader = victim_of(cell), cell.leader
    request = admission(node, 333)
    assert ask(cell, request) is None
    assert leader.sequencer is not None
    waits_for = leader.sequencer.changing.waits_for
    assert waits_for == f"server {node} to stop: its disk {100 + node} answers"
    cell.down[node] = None
    assert ask(cell, request) is OutcomeKind.DONE
    assert leader.configuration == request.configuration


def test_only_the_disk_that_is_named_may_differ() -> None:
    check_change(CONFIGURATION, admission(3, 333))
    with pytest.raises(ConfigError, match="its disk and its roles must stay"):
        check_change(CONFIGURATION, structs.replace(admission(3, 333), admitted=334))
    servers = tuple(
        structs.replace(s, uuid=333, roles=1) if s.node == 3 else s for s in CONFIGURATION.servers
    )
    other = structs.replace(CONFIGURATION, number=2, servers=servers)
    with pytest.raises(ConfigError, match="its disk and its roles must stay"):
        check_change(CONFIGURATION, ChangeRequest(other, (), True, 333))


def test_the_fold_remembers_which_disks_were_replaced() -> None:
    core = Core(CONFIGURATION, SETTINGS)
    for at in range(REPLACED_MAX + 10):
        assert core.apply(ConfigEntry(with_disk(2, 1000 + at, core.configuration)))
    assert len(core.replaced) == REPLACED_MAX
    assert core.replaced[-1] == (2, 1000 + REPLACED_MAX + 8)
    again = Core.decode(core.encode(), SETTINGS)
    assert again.replaced == core.replaced == core.copy().replaced
    assert again.encode() == core.encode()
