"""A bug in a client's own thread ends that client: whoever waits, and whoever comes later, hears
which; a mistake of somebody else's doesn't."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import samcast
from samcast.client.blocking import Client
from samcast.errors import ClientFailedError, NotConnectedError
from samcast.machine.ports import Effect, Event
from samcast.runtime.local_cluster import LocalCluster
from tests.real.striking import NODES

WAIT_S = 30.0
BUG = "AssertionError('what must never be')"


class Broken:
    """A role with a bug."""

    _handlers: dict[type, Any] = {}  # noqa: RUF012

    def step(self, events: Sequence[Event]) -> list[Effect]:
        raise AssertionError("what must never be")

    def due_ms(self) -> int:
        return 0


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    made = samcast.connect(cluster.address)
    yield made
    made.engine.close()


def test_a_bug_in_a_role_is_told_to_all_who_wait_and_to_all_who_come(
    cluster: LocalCluster, client: Client
) -> None:
    group, table = client.group("orders"), client.table("places")
    named = client.transactions("mine")
    reading = group.read(1)
    for name in NODES:
        cluster.kill(name)
    transaction = named.begin()
    transaction.send(group, b"x")
    waiting: list[Callable[[], Any]] = [
        group.send(b"a").number,
        lambda: next(reading),
        transaction.commit,
        group.head,
        lambda: table.wait_for(1),
        lambda: client.group("another"),
    ]
    with ThreadPoolExecutor(len(waiting)) as pool:
        calls = [pool.submit(call) for call in waiting]
        client.engine.call(client.engine.add_role(Broken(), lambda effect: None))
        for call in calls:
            error = call.exception(WAIT_S / 2)
            assert isinstance(error, ClientFailedError)
            assert BUG in str(error)
    later: list[Callable[[], Any]] = [
        lambda: group.send(b"b"),
        lambda: next(group.read(1)),
        client.transaction,
        lambda: table.get(b"k"),
        client.status,
        group.flush,
    ]
    for comes in later:
        with pytest.raises(ClientFailedError, match="what must never be"):
            comes()


@pytest.mark.parametrize("where", ["watch", "callback", "keep", "thread"])
def test_whatever_breaks_beside_the_roles_ends_the_client_too(
    client: Client, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise (
            SystemExit("what must never be")
            if where == "thread"
            else AssertionError("what must never be")
        )

    engine = client.engine
    group = client.group("orders")
    if where == "watch":
        reading = group.read(1)
        monkeypatch.setattr("samcast.client.inbox.Inbox.see_whether_stuck", fail)
    elif where == "keep":
        reading = group.read(1)
        monkeypatch.setattr(engine._link, "_forget", fail)
        connection = engine._link._connection
        assert connection is not None
        engine.wake(connection.abort)
    else:
        reading = group.read(1)
        engine.wake(fail)
    with pytest.raises(ClientFailedError, match="what must never be"):
        next(reading)
    with pytest.raises(ClientFailedError, match="what must never be"):
        client.status()


def test_an_address_that_is_none_does_not_keep_a_client_from_coming_back(client: Client) -> None:
    group = client.group("orders")
    link = client.engine._link
    link._addresses[:0] = [("x" * 70 + ".example", 1)]
    link._turn = -1
    connection = link._connection
    assert connection is not None
    client.engine.wake(connection.abort)
    assert group.send(b"a").number(WAIT_S / 2) == 1
    with pytest.raises(NotConnectedError, match="no node answered"):
        samcast.connect("x" * 70 + ".example:1")


def test_what_a_user_has_called_when_done_cannot_hurt_the_client(client: Client) -> None:
    group = client.group("orders")

    def fail() -> None:
        raise KeyError("mine")

    group.send(b"a").when_done(fail)
    assert [group.send(b"b").number(WAIT_S) for _ in range(2)] == [2, 3]
