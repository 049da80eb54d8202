"""A client that sends what makes no sense takes nothing from the others (FAULTS 74)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import samcast
from samcast.group.settings import GroupSettings
from samcast.machine.ports import NEVER_MS, Channel, Effect, Event, Multicast
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.batch import Batch, Message, columns_from_messages, make_batch
from samcast.wire.order import named_sender, unnamed_sender
from tests.real.conftest import running
from tests.real.striking import NODES

SMALL = GroupSettings(
    held_runs_max=100, held_runs_reserve=20, held_stages_max=100, decision_stages_max=10
)
MANY = 500  # of each kind
WAIT_S = 20.0
COLUMNS = columns_from_messages([Message(b"junk")])


class Threw(Event, frozen=True, gc=False):
    """Have these sent as they are."""

    batches: tuple[Batch, ...]


class Thrower:
    """A role without any manners."""

    node = 0
    _handlers: ClassVar[dict[type, Any]] = {}

    def step(self, events: Sequence[Event]) -> list[Effect]:
        thrown = [batch for event in events if type(event) is Threw for batch in event.batches]
        return [Multicast(Channel.DATA, batch) for batch in thrown]

    def due_ms(self) -> int:
        return NEVER_MS


def junk(number: int, group: int, *, counter: int = 1, birth: int = 0, stage: int = 0) -> Batch:
    owner = named_sender(f"nobody-{number}")
    sender = owner if stage else unnamed_sender((number << 8).to_bytes(16, "little"))
    return make_batch(
        group=group, sender=sender, incarnation=1, counter_first=counter, count=1, birth=birth,
        confirmed_below=1, seen=0, sent_ms=0, configuration=1, stage=stage, columns=COLUMNS,
    )  # fmt: skip


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "cluster")
    made.make(3, settings=SMALL)
    with running(made):
        yield made


def throw(cluster: LocalCluster, group: int) -> None:
    """Unknown groups, births of the future, gaps, owners that don't exist, from one client."""
    batches = [junk(n, group + 100 + n % 7) for n in range(MANY)]
    batches += [junk(MANY + n, group, birth=2**40) for n in range(MANY)]
    batches += [junk(2 * MANY + n, group, counter=5) for n in range(MANY)]
    batches += [junk(3 * MANY + n, group, stage=1) for n in range(MANY)]
    with samcast.connect(cluster.address) as client:
        engine = client._engine
        at = engine.call(engine.add_role(Thrower(), lambda effect: None))
        engine.post(at, Threw(tuple(batches)))
        assert client.status()  # What was sent before it has been read by our node.


def test_junk_of_one_client_keeps_nobody_else_from_sending(small: LocalCluster) -> None:
    with samcast.connect(small.address) as client:
        orders = client.group("orders")
        assert orders.send(b"before").number(WAIT_S) == 1
        throw(small, orders.id)
        assert orders.send(b"after").number(WAIT_S) == 2
        assert client.group("more").send(b"a").number(WAIT_S) == 1
    for name in NODES:
        small.kill(name)
    small.start_all()
    small.await_ready()
    with samcast.connect(small.address) as client:
        assert client.group("orders").send(b"again").number(WAIT_S) == 3
        assert client.group("still more").send(b"a").number(WAIT_S) == 1
