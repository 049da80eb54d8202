"""When too few disks are left to agree: what they hold, and a record of what is lost."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import samcast
from samcast.client.backup import INCIDENT, restore
from samcast.client.rescue import LOST, rescue
from samcast.errors import DiskError
from samcast.runtime.local_cluster import LocalCluster
from tests.real.conftest import running
from tests.real.striking import pause
from tests.real.test_checkpoints import await_checkpoint, filled
from tests.real.test_retention import sent


def quiet(text: str) -> None:
    """Nobody reads it."""


def stopped(cluster: LocalCluster) -> str:
    """With the same messages on all disks, and a table of which the first part is folded; its
    content."""
    with samcast.connect(cluster.address) as client:
        sent(client.group("orders"), 50)
        content = filled(client, 1050).content_hash()
        await_checkpoint(client, 1000)
    cluster.stop_all()
    return content


def await_heads(cluster: LocalCluster, name: str, heads: dict[str, int]) -> None:
    """A node knows, and has on its disk, what others have confirmed."""
    node = cluster.plan().node(name)
    with samcast.connect(f"{node.host}:{node.port}") as client:
        while True:
            status = client.status()
            data = status["data"]
            assert isinstance(data, dict)
            known = client.groups()
            if data["is_whole"] and all(known.get(g) == head for g, head in heads.items()):
                return
            pause(0.05)


@pytest.mark.req("GRP-23")
def test_a_new_cluster_is_made_of_one_disk_of_three(cluster: LocalCluster, tmp_path: Path) -> None:
    with samcast.connect(cluster.address) as client:
        before = [b"%d" % i for i in range(100)]
        client.group("orders").send_many(before)
        client.group("orders").flush(30)
        await_heads(cluster, "n1", {"orders": 100})  # The other two were enough to confirm it.
        cluster.kill("n1")
        client.group("orders").send(b"n1 will never know").number(30)
    cluster.stop_all()
    backup, folder = tmp_path / "backup", tmp_path / "new"
    words = ["rescue", str(backup), "n1", "--config", str(cluster.folder / "cluster.toml")]
    command = [sys.executable, "-m", "samcast.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "too few disks to tell" in done.stdout
    restore(backup, folder, quiet, nodes=1)
    incident = json.loads((folder / INCIDENT).read_text())
    assert not incident["is_order_whole"]
    assert [survivor["name"] for survivor in incident["survivors"]] == ["n1"]
    again = LocalCluster(folder)
    assert again.plan().cluster != cluster.plan().cluster
    with running(again), samcast.connect(again.address) as client:
        orders = client.group("orders")
        assert [m.body for m in orders.read(count=100)] == before
        assert orders.head() == 100


@pytest.mark.req("GRP-23")
def test_tables_and_messages_come_from_whichever_disk_has_them(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    content = stopped(cluster)
    shutil.rmtree(cluster.plan().node("n1").folder / "data")
    shutil.rmtree(cluster.plan().node("n2").folder / "checkpoints", ignore_errors=True)
    backup = tmp_path / "backup"
    incident = rescue(cluster.plan(), ["n1", "n2"], backup, quiet)
    assert incident.is_order_whole
    assert [group.lost for group in incident.groups] == [[], []]
    restore(backup, tmp_path / "new", quiet, nodes=1)
    again = LocalCluster(tmp_path / "new")
    with running(again), samcast.connect(again.address) as client:
        assert [m.number for m in client.group("orders").read(count=50)] == list(range(1, 51))
        table = client.table("routes")
        table.wait_for(1050, 30)
        assert table.content_hash() == content


@pytest.mark.req("GRP-23")
def test_where_a_message_is_lost_an_empty_one_keeps_its_place(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with samcast.connect(cluster.address) as client:
        sent(client.group("orders"), 7)
    cluster.stop_all()
    shutil.rmtree(cluster.plan().node("n1").folder / "data")
    backup = tmp_path / "backup"
    incident = rescue(cluster.plan(), ["n1"], backup, quiet)
    assert incident.groups[0].lost == [(1, 7)]
    restore(backup, tmp_path / "new", quiet, nodes=1)
    again = LocalCluster(tmp_path / "new")
    with running(again), samcast.connect(again.address) as client:
        orders = client.group("orders")
        assert [(m.body, m.headers) for m in orders.read(count=7)] == [(b"", LOST)] * 7
        assert orders.send(b"next").number(30) == 8


def test_what_can_t_be_rescued_is_refused_with_the_reason(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    plan = cluster.plan()
    with pytest.raises(DiskError, match="in use by another process"):
        rescue(plan, ["n1"], tmp_path / "backup", quiet)
    cluster.stop_all()
    shutil.rmtree(plan.node("n2").folder)
    with pytest.raises(DiskError, match="is no disk of a node"):
        rescue(plan, ["n2"], tmp_path / "backup", quiet)
    (plan.node("n3").folder / "super").write_bytes(b"\0" * 1024)
    with pytest.raises(DiskError, match="can't be read; do without"):
        rescue(plan, ["n3"], tmp_path / "backup", quiet)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(DiskError, match="is not empty"):
        rescue(plan, ["n1"], tmp_path / "used", quiet)
