"""A node that has just started while others are stopped tells nobody that something isn't there."""

import pytest

import samcast
from samcast.client import blocking, tracing
from samcast.client.tracing import trace
from samcast.errors import WaitTimeoutError
from samcast.runtime.local_cluster import LocalCluster


@pytest.mark.req("OPS-05")
def test_a_node_alone_after_a_restart_does_not_say_that_there_is_nothing(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "HEAR_S", 0.3)
    monkeypatch.setattr(tracing, "ASK_S", 0.3)
    with samcast.connect(cluster.address) as client:
        group = client.group("old")
        group.send_many([b"a", b"b", b"c"])
        group.flush(30)
        id = group.id
    cluster.stop_all()
    cluster.start("n1")
    cluster.await_ready("n1")
    node = cluster.plan().node("n1")
    address = f"{node.host}:{node.port}"
    with samcast.connect(address) as client:
        for ask in (
            client.groups,
            lambda: client.group("old", create=False),
            lambda: trace(address, "old", 1),
        ):
            with pytest.raises(WaitTimeoutError, match=r"has (not )?heard since its start"):
                ask()
        with pytest.raises(TimeoutError):
            client.engine.call(client.engine.head(id), 0.3)
        with pytest.raises(TimeoutError):
            client.engine.call(client.engine.checkpoints(id), 0.3)
    monkeypatch.undo()
    cluster.start("n2")
    with samcast.connect(address) as client:
        assert client.groups() == {"old": 3}
        assert client.group("old", create=False).head() == 3
    assert trace(address, "old", 3).count == 3
