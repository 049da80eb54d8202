"""What a client says when things are not as its user thinks: closed, cut off, fenced, mistaken."""

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import samcast
from samcast.client import leaving
from samcast.client.blocking import Client
from samcast.errors import (
    ConfigError,
    FencedError,
    NotConnectedError,
    RefusedError,
    WaitTimeoutError,
)
from samcast.runtime.local_cluster import LocalCluster
from tests.real.striking import NODES, pause

WAIT_S = 30.0


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with samcast.connect(cluster.address) as made:
        yield made


def kill_all(cluster: LocalCluster) -> None:
    for name in NODES:
        cluster.kill(name)


def test_closing_while_nobody_confirms_ends_with_an_error(cluster: LocalCluster) -> None:
    client = samcast.connect(cluster.address)
    group = client.group("orders")
    group.send(b"a").number(WAIT_S)
    kill_all(cluster)
    receipt = group.send(b"b")
    with pytest.raises(WaitTimeoutError, match=r"1 message was not confirmed within 0\.2 s"):
        client.close(0.2)
    with pytest.raises(NotConnectedError, match="is closed"):
        receipt.number(0)
    client.close()


def test_a_block_that_is_left_by_an_error_waits_a_little_and_says_what_is_open(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "LEAVE_S", 0.2)

    def work() -> None:
        with samcast.connect(cluster.address) as client:
            group = client.group("orders")
            kill_all(cluster)
            group.send(b"b")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as raised:
        work()
    assert [note.split(" within")[0] for note in raised.value.__notes__] == [
        "1 message was not confirmed"
    ]


def test_reading_from_nobody_is_not_reading_nothing(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        group.send(b"a").number(WAIT_S)
        assert list(group.read(2, timeout=0.1)) == []
        kill_all(cluster)
        with pytest.raises(NotConnectedError, match="nobody knows whether there is more"):
            list(group.read(2, timeout=4))


def test_a_sender_that_was_taken_over_says_so_each_time_and_the_client_closes(
    cluster: LocalCluster, client: Client
) -> None:
    first = client.group("orders").sender("till")
    first.send(b"mine").number(WAIT_S)
    with samcast.connect(cluster.address) as other:
        other.group("orders").sender("till").send(b"theirs").number(WAIT_S)
    first.send(b"lost")
    for _ in range(2):
        with pytest.raises(FencedError, match="another process"):
            first.flush(WAIT_S)


def test_closing_tells_the_errors_of_all_senders(cluster: LocalCluster) -> None:
    client = samcast.connect(cluster.address)
    till, orders = client.group("sales").sender("till"), client.group("orders")
    with samcast.connect(cluster.address) as other:
        other.group("sales").sender("till").send(b"theirs").number(WAIT_S)
    fenced = till.send(b"lost")
    is_known = threading.Event()
    fenced.when_done(is_known.set)
    assert is_known.wait(WAIT_S)
    kill_all(cluster)
    orders.send(b"b")
    with pytest.raises(FencedError, match="another process") as raised:
        client.close(0.2)
    assert "1 message was not confirmed" in raised.value.__notes__[0]


def test_a_closed_client_refuses_everything_in_the_same_words(cluster: LocalCluster) -> None:
    client = samcast.connect(cluster.address)
    group = client.group("orders")
    client.close()
    client.close()
    calls: list[Any] = [
        lambda: client.group("orders"),
        client.__enter__,
        client.transaction,
        client.status,
        lambda: group.send(b"x"),
        lambda: group.send_many([b"x"]),
        lambda: next(group.read(1)),
        group.flush,
        group.head,
    ]
    for call in calls:
        with pytest.raises(NotConnectedError, match="this client is closed; connect again"):
            call()


def test_a_group_is_not_made_by_who_does_not_want_it(client: Client) -> None:
    with pytest.raises(RefusedError, match="no group 'nope' here; there are: none"):
        client.group("nope", create=False)
    client.group("orders").send(b"x").number(WAIT_S)
    assert client.groups() == {"orders": 1}
    with pytest.raises(RefusedError, match="there are: orders"):
        client.group("nope", create=False)


def test_wrong_arguments_are_named(client: Client) -> None:
    group, table = client.group("orders"), client.table("places")
    lease = group.lease("mine")
    cases: list[tuple[type[Exception], str, Any]] = [
        (ConfigError, "a group's name is a str, not int", lambda: client.group(5)),  # type: ignore[arg-type]
        (ConfigError, "1 to 200 bytes; 'xxx", lambda: client.group("x" * 500)),
        (ConfigError, "a group's name has 1 to 200", lambda: client.group("")),
        (ConfigError, "an address is a str", lambda: samcast.connect(5)),  # type: ignore[arg-type]
        (ConfigError, "'' is no address", lambda: samcast.connect("")),
        (ConfigError, "can't read from '1'", lambda: group.read("1")),  # type: ignore[arg-type]
        (ConfigError, "a count is a number", lambda: group.read(1, count=-1)),
        (ConfigError, "number is an int from 0 on, not -1", lambda: group.lease("x", -1)),
        (ConfigError, "from 0 on, not '9950'", lambda: group.lease("x", "9950")),  # type: ignore[arg-type]
        (ConfigError, "from 0 on, not 9950", lambda: group.lease("x", 9950.5)),  # type: ignore[arg-type]
        (ConfigError, "from 0 on, not True", lambda: group.lease("x", True)),
        (ConfigError, "a lease's name has 1 to 200", lambda: group.lease("")),
        (ConfigError, "a lease's name is a str", lambda: group.lease(5)),  # type: ignore[arg-type]
        (ConfigError, "ttl is '5'", lambda: group.lease("x", ttl="5")),  # type: ignore[arg-type]
        (ConfigError, "ttl is None", lambda: group.lease("x", ttl=None)),  # type: ignore[arg-type]
        (ConfigError, "ttl is 0", lambda: group.lease("x", ttl=0)),
        (ConfigError, "count is True", lambda: group.keep(count=True)),
        (ConfigError, "not '2'", lambda: lease.advance("2")),  # type: ignore[arg-type]
        (ConfigError, "not 'a'", lambda: table.as_of("a")),  # type: ignore[arg-type]
        (ConfigError, "ttl is 'a'", lambda: table.put(b"k", b"v", ttl="a")),  # type: ignore[arg-type]
        (ConfigError, "ttl is 'a'", lambda: samcast.Lock(table, b"k", ttl="a")),  # type: ignore[arg-type]
        (ConfigError, "not 1.5", lambda: samcast.Counter(table, b"k").add(1.5)),  # type: ignore[arg-type]
        (TypeError, "a body is bytes or str, not int", lambda: group.send(5)),  # type: ignore[arg-type]
        (TypeError, "there is send", lambda: group.send_many("abc")),
        (TypeError, "pyarrow.RecordBatch", lambda: group.send_arrow(5)),
        (TypeError, "sends to a group", lambda: client.transaction().send("g", b"")),  # type: ignore[arg-type]
    ]
    for kind, told, call in cases:
        with pytest.raises(kind, match=told):
            call()
    assert repr(group) == "<samcast group 'orders'>"
    receipt = group.send(b"x")
    assert receipt.number(WAIT_S) == 1
    assert repr(receipt) == "<samcast receipt: confirmed as 1>"
    assert repr(client) == "<samcast client connected to n1,n2,n3>"


def test_a_node_that_knows_nothing_yet_is_given_time_to_hear_of_groups(
    cluster: LocalCluster,
) -> None:
    with samcast.connect(cluster.address) as client:
        client.group("lasting").send(b"x").number(10)
    for name in ("n2", "n3"):
        cluster.kill(name, signal.SIGSTOP)
    cluster.kill("n1")
    cluster.start("n1")
    cluster.await_ready("n1")
    node = cluster.plan().node("n1")

    def go_on() -> None:
        for name in ("n2", "n3"):
            cluster.kill(name, signal.SIGCONT)

    later = threading.Timer(0.5, go_on)
    later.start()
    with samcast.connect(f"{node.host}:{node.port}") as client:
        assert client.groups() == {"lasting": 1}
    later.join()


def test_a_reader_that_does_not_take_is_not_brought_all_there_is(client: Client) -> None:
    group = client.group("large")
    bodies = [bytes([i]) * 1_000_000 for i in range(120)]
    group.send_many(bodies)
    group.flush()
    reading = group.read(1)
    assert next(reading).body == bodies[0]
    pause(4)  # several times as long as until a member asks by itself
    held = sum(len(batch.columns) for inbox in client.engine._inboxes.values()
               for _, batch in inbox._runs)  # fmt: skip
    assert held < 40_000_000
    assert [next(reading).body for _ in bodies[1:]] == bodies[1:]
