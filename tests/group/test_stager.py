"""Stages that another process will decide about: safe on enough disks, or known not to be."""

from dataclasses import replace

import msgspec
import pytest

from samcast.group.stage_window import ASK_MS
from samcast.group.stager import (
    AGAIN_MS,
    Place,
    Stage,
    StageHeld,
    Stager,
    StagingOver,
)
from samcast.machine.ports import NEVER_MS, Channel, Effect, Multicast, Received, Send, Ticked
from samcast.wire.batch import Batch
from samcast.wire.blocked import Blocked, Reason
from samcast.wire.change import Moved
from samcast.wire.group import OpenRequest
from samcast.wire.order import CELL, Server
from samcast.wire.stages import StageKey, Stages, StagesRequest
from tests.group.build import (
    CONFIGURATION,
    GROUP,
    OWNER,
    SETTINGS,
    Cell,
    columns,
    key_of,
    led_cell,
    only,
    sent,
)

PLACE = Place(OWNER, 1, 3, 0, 4097)


def staged() -> tuple[Stager, Batch]:
    stager = Stager(70, CONFIGURATION, PLACE)
    (effect,) = stager.step([Ticked(0), Stage(GROUP, columns("a", 2), 2)])
    assert isinstance(effect, Multicast)
    assert effect.channel is Channel.DATA
    assert isinstance(effect.message, Batch)
    return stager, effect.message


def asked(effects: list[Effect]) -> dict[int, tuple[StageKey, ...]]:
    return {
        effect.to: effect.message.stages
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, StagesRequest)
    }


def uuid_of(node: int) -> int:
    return next(server.uuid for server in CONFIGURATION.servers if server.node == node)


def said(node: int, *durable: StageKey, uuid: int = 0) -> Received:
    return Received(node, Stages(uuid or uuid_of(node), durable, (), (), ()))


@pytest.mark.req("PIP-03")
def test_a_stage_is_held_once_enough_listed_disks_have_it() -> None:
    stager, batch = staged()
    key = key_of(batch)
    assert key == (GROUP, OWNER, 1, 3, 4097)
    assert asked(stager.step([Ticked(ASK_MS)])) == {1: (key,), 2: (key,), 3: (key,)}
    assert not only(StageHeld, stager.step([said(1, key)]))
    assert not only(StageHeld, stager.step([said(1, key)]))  # the same one again
    assert not only(StageHeld, stager.step([said(2, key, uuid=999)]))  # a disk that isn't listed
    (held,) = only(StageHeld, stager.step([said(2, key)]))
    assert (held.group, held.ref.stage, held.ref.count) == (GROUP, 4097, 2)
    assert held.ref.digest == batch.digest
    assert stager.due_ms() == NEVER_MS
    assert not stager.step([Ticked(10_000)])


@pytest.mark.req("PIP-03")
def test_only_the_disks_of_those_who_serve_by_now_count() -> None:
    stager, batch = staged()
    key = key_of(batch)
    stager.step([Ticked(ASK_MS), said(1, key)])
    servers = tuple(Server(node, 100 + node, 7) for node in (1, 4, 5))
    told = msgspec.structs.replace(CONFIGURATION, number=9, servers=servers, node_last=5)
    effects = stager.step([Received(70, Moved(told))])
    assert asked(effects) == {1: (key,), 4: (key,), 5: (key,)}
    later = [Ticked(AGAIN_MS), Received(4, Stages(104, (), (), (), (key,)))]
    assert batch in sent(stager.step(later), 4)
    assert not only(StageHeld, stager.step([said(2, key), said(4, key, uuid=104)]))
    assert only(StageHeld, stager.step([said(5, key, uuid=105)]))


def test_questions_become_rarer_and_go_to_those_who_have_not_got_it() -> None:
    stager, batch = staged()
    key = key_of(batch)
    stager.step([Ticked(ASK_MS), said(1, key)])
    due_ms = stager.due_ms()
    assert list(asked(stager.step([Ticked(due_ms)]))) == [2, 3]
    assert stager.due_ms() - due_ms > ASK_MS


def test_who_has_not_heard_of_a_stage_gets_it_again_but_not_at_once() -> None:
    stager, batch = staged()
    unknown = Received(3, Stages(uuid_of(3), (), (), (), (key_of(batch),)))
    assert batch not in sent(stager.step([Ticked(20), unknown]))  # It may be on its way.
    assert batch in sent(stager.step([Ticked(AGAIN_MS), unknown]), 3)
    assert batch not in sent(stager.step([Ticked(AGAIN_MS + 20), unknown]))
    writing = Received(2, Stages(uuid_of(2), (), (key_of(batch),), (), ()))
    assert batch not in sent(stager.step([Ticked(2 * AGAIN_MS), writing]), 2)


def test_a_transaction_that_is_over_is_not_waited_for() -> None:
    stager, batch = staged()
    over = Received(2, Stages(uuid_of(2), (), (), (key_of(batch),), ()))
    assert only(StagingOver, stager.step([over]))
    assert stager.due_ms() == NEVER_MS


def test_stages_have_numbers_of_their_own() -> None:
    stager, _ = staged()
    (effect,) = stager.step([Stage(GROUP, columns("b"), 1)])
    assert isinstance(effect, Multicast)
    assert isinstance(effect.message, Batch)
    assert effect.message.stage == 4098


def test_why_a_data_server_does_not_take_a_stage_is_kept_until_enough_have_it() -> None:
    stager, batch = staged()
    said = Blocked(((key_of(batch), Reason.OWNER_STAGES, 9),))
    assert stager.step([Received(1, said)]) == []
    assert stager.blocked == (Reason.OWNER_STAGES, 9)
    held = [Received(n, Stages(uuid_of(n), (key_of(batch),), (), (), ())) for n in (2, 3)]
    assert only(StageHeld, stager.step(held))
    assert stager.blocked is None


# The other side.


def answers(cell: Cell, node: int, key: StageKey, digest: bytes) -> Stages:
    before = len(cell.seen)
    cell.receive(node, 70, StagesRequest((key,), (digest,)))
    (answer,) = [m for m in sent((e for _, e in cell.seen[before:]), 70) if isinstance(m, Stages)]
    return answer


@pytest.mark.req("PIP-03")
def test_data_servers_say_what_is_on_their_disks_and_what_is_in_vain() -> None:
    cell = led_cell()
    cell.propose(OpenRequest(CELL, OWNER, 1, 0, 0, 4))
    _, batch = staged()
    key = key_of(batch)
    uuid = cell.data[1].uuid
    assert answers(cell, 1, key, batch.digest) == Stages(uuid, (), (), (), (key,))
    cell.receive(1, 70, batch)
    assert answers(cell, 1, key, batch.digest) == Stages(uuid, (key,), (), (), ())
    assert answers(cell, 1, key, bytes(16)) == Stages(uuid, (), (), (key,), ())
    cell.propose(OpenRequest(CELL, OWNER, 2, 0, 0, 5))
    assert answers(cell, 1, key, batch.digest) == Stages(uuid, (), (), (key,), ())


@pytest.mark.req("PIP-03")
def test_stages_that_were_abandoned_are_aborted_in_time() -> None:
    settings = replace(SETTINGS, abandoned_ms=5000)
    cell = led_cell(settings=settings)
    _, batch = staged()
    cell.propose(OpenRequest(CELL, OWNER, 1, 0, 0, 5))
    for node in (1, 2, 3):
        cell.receive(node, 70, batch)
    key = key_of(batch)
    cell.run(4000)
    assert answers(cell, 1, key, batch.digest).durable == (key,)
    cell.run(3000)
    assert answers(cell, 1, key, batch.digest).over == (key,)
