"""Folds that users have written, in real checkpoint servers: a good one, one that fails, and one
that comes to another state in each of them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import samcast
from samcast.cli.doctor import look_at_cluster
from samcast.client.blocking import Group
from samcast.client.joining import fetch_table
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.order import Checkpoint, Keep
from tests.checkpoint.installing import install
from tests.real.conftest import running
from tests.real.striking import pause

WAIT_S = 40.0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """Its nodes have the folds installed."""
    install(tmp_path, monkeypatch)
    made = LocalCluster(tmp_path / "cluster")
    made.make(3)
    with running(made):
        yield made


def send(group: Group, count: int) -> None:
    for i in range(count):
        group.send(b"%d" % i if i % 50 else b"no number", b"key-%d" % (i % 7))
    group.flush()


def folded(group: Group, name: str) -> None:
    group.set_keep(Keep(fold=name, fold_version=1, interval=100))


def await_advertised(group: Group, number: int) -> Checkpoint:
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        found = group.checkpoints().checkpoints
        if found and found[-1].number == number:
            return found[-1]
        pause(0.1)
    raise AssertionError(f"no checkpoint {number}")


def await_said(cluster: LocalCluster, words: str) -> str:
    """By any of the nodes, in its log."""
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        for log in cluster.folder.glob("*.log"):
            for line in log.read_text().splitlines():
                if words in line:
                    return line
        pause(0.1)
    raise AssertionError(f"nobody says {words!r}")


@pytest.mark.req("GRP-15")
def test_a_fold_of_a_user_is_as_good_as_ours(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("amounts")
        folded(group, "totals")
        send(group, 300)
        table = fetch_table(client.engine, group.id, await_advertised(group, 300))
        expected = {
            b"key-%d" % key: sum(i for i in range(300) if i % 50 and i % 7 == key)
            for key in range(7)
        }
        found = {key: table.get(key) for key in table.keys()}  # noqa: SIM118 - not a dict
        assert {key: int(row.value) for key, row in found.items() if row} == expected
        said = await_said(cluster, "can take")
        assert "messages of 'amounts' are nothing that fold 'totals' can take" in said
        assert "the first is 1" in said


@pytest.mark.req("GRP-15", "GRP-20")
def test_a_fold_that_fails_stops_its_checkpoints_and_nothing_else(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        bad, good = client.group("bad"), client.group("good")
        folded(bad, "raising")
        folded(good, "totals")
        send(bad, 200)
        send(good, 200)
        assert "fold 'raising', messages 2 to" in await_said(cluster, "KeyError('colour')")
        troubles = look_at_cluster(cluster.folder, "")
        assert any("KeyError('colour')" in trouble for trouble in troubles)
        await_advertised(good, 200)  # Others go on, and so does this group:
        bad.send(b"more").number(30)
        assert bad.checkpoints().checkpoints == ()
        assert bad.oldest() == 1
        assert len(list(bad.read(1, count=201, timeout=5))) == 201


@pytest.mark.req("GRP-16", "GRP-20")
def test_servers_that_come_to_different_states_are_named(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("amounts")
        folded(group, "different")
        send(group, 300)
        said = await_said(cluster, "come to different states")
        assert "nothing is collected there" in said
        troubles = look_at_cluster(cluster.folder, "")
        assert any("come to different states" in trouble for trouble in troubles)
        assert group.checkpoints().checkpoints == ()
        assert group.oldest() == 1
        group.send(b"more").number(30)
