"""Every server of a cluster is replaced, one after the other, under load, and killed while it
happens."""

import shutil
import time

import pytest

import samcast
from samcast.errors import SamcastError
from samcast.runtime.local_cluster import LocalCluster
from tests.real.striking import NODES, judged, pause

WAIT_S = 60.0


def is_whole(cluster: LocalCluster, name: str) -> bool:
    """It votes, and has every payload."""
    node = cluster.plan().node(name)
    try:
        with samcast.connect(f"{node.host}:{node.port}") as client:
            said = client.status()
    except SamcastError:
        return False
    data = said["data"]
    assert isinstance(data, dict)
    return said["state"] in ("following", "sequencing") and bool(data["is_whole"])


def replace(cluster: LocalCluster, name: str) -> None:
    """Another disk in its place; the node dies once more before it is whole."""
    folder = cluster.plan().node(name).folder
    cluster.kill(name)
    shutil.rmtree(folder)
    cluster.start(name)
    pause(0.4)
    cluster.kill(name)
    cluster.start(name)
    limit = time.monotonic() + WAIT_S
    while not is_whole(cluster, name):
        assert time.monotonic() < limit, f"{name} is not whole after {WAIT_S} s"
        pause(0.1)


@pytest.mark.req("GRP-22", "GRP-23")
def test_each_server_is_replaced_under_load(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        before = client.group("before")
        before.send_many([b"%d" % i for i in range(20_000)])
        before.flush(30)
        table = client.table("routes")
        table.put("owner", "somebody").number(30)

    def strike() -> None:
        for name in NODES:
            replace(cluster, name)

    judged(cluster, strike)
    with samcast.connect(cluster.address) as client:  # nobody is left who was there at first
        found = [m.body for m in client.group("before").read(count=20_000)]
        assert found == [b"%d" % i for i in range(20_000)]
        assert client.table("routes").get("owner") == b"somebody"
