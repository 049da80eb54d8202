"""Lone messages go to every data server itself, busy senders' through their node."""

import samcast
from samcast.runtime.local_cluster import LocalCluster
from tests.real.striking import NODES, pause

WAIT_S = 30.0


def clients_of(cluster: LocalCluster, name: str) -> int:
    """Clients that a node has, apart from us who ask."""
    node = cluster.plan().node(name)
    with samcast.connect(f"{node.host}:{node.port}") as client:
        connected = client.status()["connected"]
    assert isinstance(connected, dict)
    return int(connected["clients"]) - 1


def test_a_lone_sender_is_connected_to_all_and_goes_on_without_any_of_them(
    cluster: LocalCluster,
) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        sent = 0
        while any(clients_of(cluster, name) < 1 for name in NODES):
            sent += 1
            assert group.send(b"%d" % sent).number(WAIT_S) == sent
        for name in NODES:
            cluster.kill(name)
            for _ in range(20):
                sent += 1
                assert group.send(b"%d" % sent).number(WAIT_S) == sent
            cluster.start(name)
            cluster.await_ready()
        bodies = [m.body for m in group.read(1, count=sent, timeout=WAIT_S)]
    assert bodies == [b"%d" % i for i in range(1, sent + 1)]
    while any(clients_of(cluster, name) for name in NODES):  # It takes all of them along.
        pause(0.02)


def test_a_busy_sender_and_a_reader_are_connected_to_one(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        group.send_many(b"x" * 20_000 for _ in range(200))
        group.flush(WAIT_S)
        assert len(list(group.read(1, count=200, timeout=WAIT_S))) == 200
        assert sum(clients_of(cluster, name) for name in NODES) == 1
