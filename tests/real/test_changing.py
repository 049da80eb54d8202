"""Nodes of a running cluster are added, removed and replaced by command."""

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import samcast
from samcast.client.administration import Administration, Quorums, newcomer_at
from samcast.client.blocking import Client
from samcast.errors import ConfigError, RefusedError, SamcastError, WaitTimeoutError
from samcast.runtime.cluster_file import NodePlan
from samcast.runtime.local_cluster import LocalCluster
from tests.real.conftest import SETTINGS
from tests.real.striking import NODES, judged, pause

WAIT_S = 60.0


def samcast_(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "samcast.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def node_command(cluster: LocalCluster, *words: str) -> subprocess.CompletedProcess[str]:
    return samcast_("node", *words, "--dir", str(cluster.folder))


def status_of(node: NodePlan) -> dict[str, object]:
    try:
        with samcast.connect(f"{node.host}:{node.port}") as client:
            said = client.status()
    except (SamcastError, TimeoutError):
        return {}
    return said if said["name"] == node.name else {}


def await_whole(cluster: LocalCluster, name: str) -> None:
    """It votes, and has every payload."""
    node = cluster.plan().node(name)
    limit = time.monotonic() + WAIT_S
    while True:
        said = status_of(node)
        data = said.get("data")
        is_voting = said.get("state") in ("following", "sequencing")
        if is_voting and isinstance(data, dict) and data["is_whole"]:
            return
        assert time.monotonic() < limit, f"{name} is not whole after {WAIT_S} s: {said}"
        pause(0.1)


def leader_of(cluster: LocalCluster) -> str:
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        for node in cluster.plan().present:
            if status_of(node).get("sequencing"):
                return node.name
        pause(0.1)
    raise AssertionError("nobody leads")


def names_of(cluster: LocalCluster) -> list[str]:
    with samcast.connect(cluster.address) as client:
        return sorted(name for name, _, _ in client.nodes)


@pytest.mark.req("GRP-23")
def test_each_server_is_replaced_by_command_under_load_and_one_dies_in_each(
    cluster: LocalCluster,
) -> None:
    with samcast.connect(cluster.address) as client:
        before = client.group("before")
        before.send_many([b"%d" % i for i in range(20_000)])
        before.flush(30)
        client.table("routes").put("owner", "somebody").number(30)

    def killed_meanwhile(victim: str) -> None:
        pause(0.15)
        cluster.kill(victim)
        pause(0.5)
        cluster.start(victim)

    def strike() -> None:
        # The one that leaves, the one that leads, and one that stays, each in the middle.
        for leaving in NODES:
            victims = {"n1": "n1", "n2": leader_of(cluster), "n3": "n4"}
            killer = threading.Thread(target=killed_meanwhile, args=(victims[leaving],))
            killer.start()
            done = node_command(cluster, "replace", leaving, "--timeout", "60")
            killer.join()
            assert done.returncode == 0, done.stderr
            cluster.kill(leaving)  # it may have been started again just now
            for node in cluster.plan().present:
                await_whole(cluster, node.name)

    judged(cluster, strike)
    assert names_of(cluster) == ["n4", "n5", "n6"]
    with samcast.connect(cluster.address) as client:
        found = [m.body for m in client.group("before").read(count=20_000)]
        assert found == [b"%d" % i for i in range(20_000)]
        assert client.table("routes").get("owner") == b"somebody"
    # All whom their files name are gone: they find each other by what they have kept.
    cluster.stop_all()
    cluster.start_all()
    cluster.await_ready()
    with samcast.connect(cluster.address) as client:
        client.group("after").send(b"still here").number(30)


@pytest.mark.req("GRP-23")
def test_nodes_are_added_and_removed_and_quorums_follow(cluster: LocalCluster) -> None:
    added = node_command(cluster, "add")
    assert added.returncode == 0, added.stderr
    assert "k_commit 3, e_commit 2, k_data 2" in added.stdout
    assert names_of(cluster) == ["n1", "n2", "n3", "n4"]
    more = node_command(cluster, "quorums", "--k-data", "3")
    assert "k_data 3" in more.stdout, more.stderr
    leader = leader_of(cluster)
    removed = node_command(cluster, "remove", leader)
    assert removed.returncode == 0, removed.stderr
    assert "k_commit 2, e_commit 2, k_data 3" in removed.stdout
    assert leader not in names_of(cluster)
    with samcast.connect(cluster.address) as client:
        client.group("orders").send(b"a").number(30)


@pytest.mark.req("GRP-23")
def test_a_removed_node_that_comes_back_is_told_so_and_ends(cluster: LocalCluster) -> None:
    cluster.kill("n3")
    done = node_command(cluster, "remove", "n3")
    assert done.returncode == 0, done.stderr
    node = cluster.plan().node("n3")
    back = [sys.executable, "-m", "samcast.cli.main", "node"]
    back += ["--config", str(cluster.folder / "cluster.toml"), "--name", "n3"]
    ended = subprocess.run(back, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0
    assert "n3 is not of this cluster any more" in ended.stdout + ended.stderr
    assert (node.folder / "super").exists()  # nothing of it is deleted
    with samcast.connect(cluster.address) as client:
        client.group("orders").send(b"a").number(30)


@pytest.mark.req("GRP-23")
def test_of_two_administrators_one_wins_and_the_other_is_told(cluster: LocalCluster) -> None:
    first, second = cluster.prepare(4), cluster.prepare(5)
    outcomes: dict[str, BaseException | None] = {}
    with samcast.connect(cluster.address) as one, samcast.connect(cluster.address) as other:
        for node in (first, second):
            cluster.start(node.name)
            cluster.await_ready(node.name)

        def change(client: Client, node: NodePlan) -> None:
            admin = Administration(client, lambda text: None)
            try:
                newcomer = newcomer_at(f"{node.host}:{node.port}", admin.cluster)
                admin.replace("n3", newcomer, 60)
                outcomes[node.name] = None
            except SamcastError as error:
                outcomes[node.name] = error

        threads = [
            threading.Thread(target=change, args=pair) for pair in ((one, first), (other, second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    won = [name for name, error in outcomes.items() if error is None]
    lost = [error for error in outcomes.values() if error is not None]
    assert len(won) == 1
    assert isinstance(lost[0], RefusedError | ConfigError)
    assert "somebody else" in str(lost[0]) or "no node 'n3'" in str(lost[0])
    assert names_of(cluster) == sorted(["n1", "n2", *won])


@pytest.mark.req("GRP-23")
def test_a_late_node_that_loses_its_disk_comes_back(cluster: LocalCluster) -> None:
    for leaving in NODES:
        done = node_command(cluster, "replace", leaving)
        assert done.returncode == 0, done.stderr
    with samcast.connect(cluster.address) as client:
        client.group("orders").send_many([b"%d" % i for i in range(5000)])
        client.group("orders").flush(30)
    cluster.kill("n6")
    shutil.rmtree(cluster.plan().node("n6").folder)
    cluster.start("n6")
    await_whole(cluster, "n6")


@pytest.mark.req("GRP-23")
def test_nodes_with_one_role_each_are_replaced(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster")
    plan = cluster.make(3, SETTINGS)
    try:
        cluster.start_all()
        cluster.await_ready()
        for role in ("data", "checkpoint"):
            node = cluster.prepare(4, (role,))
            cluster.start(node.name)
            cluster.await_ready(node.name)
            added = node_command(cluster, "add", f"{node.host}:{node.port}")
            assert added.returncode == 0, added.stderr
        with samcast.connect(cluster.address) as client:
            client.group("orders").send_many([b"%d" % i for i in range(5000)])
            client.group("orders").flush(30)
        data = cluster.plan().node("n4")
        cluster.kill("n4")
        shutil.rmtree(data.folder)  # and it comes back with another disk
        cluster.start("n4")
        limit = time.monotonic() + WAIT_S
        while True:
            status = status_of(data)
            said = status.get("data")
            if isinstance(said, dict) and said["is_whole"] and status["is_listed"]:
                break
            assert time.monotonic() < limit
            pause(0.1)
        assert status_of(cluster.plan().node("n5"))["is_listed"]
        for name in ("n4", "n5"):
            removed = node_command(cluster, "remove", name)
            assert removed.returncode == 0, removed.stderr
    finally:
        cluster.stop_all()
    assert [node.name for node in cluster.plan().present] == [node.name for node in plan.nodes]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("remove", "n9"), "there is no node 'n9'; there are n1, n2, n3"),
        (("quorums",), "say which number is to change"),
        (("quorums", "--k-commit", "4"), "k_commit is 4 but there are 3 commit servers"),
        (("quorums", "--e-commit", "1"), "an election could miss"),
        (("replace", "n1", "127.0.0.1:1"), "no node answered"),
        (("remove", "n1", "--k-data", "3"), "k_data is 3 but there are 2 data servers"),
    ],
)
def test_what_can_t_be_is_refused_with_the_reason(
    cluster: LocalCluster, words: tuple[str, ...], told: str
) -> None:
    done = node_command(cluster, *words)
    assert done.returncode == 1
    assert told in done.stderr
    assert names_of(cluster) == list(NODES)


def test_a_node_that_is_of_the_cluster_is_not_let_in_again(cluster: LocalCluster) -> None:
    node = cluster.plan().node("n1")
    done = node_command(cluster, "add", f"{node.host}:{node.port}")
    assert done.returncode == 1
    assert "is of this cluster already" in done.stderr


def test_a_change_that_can_t_come_about_is_given_up_and_said(cluster: LocalCluster) -> None:
    node = cluster.prepare(4)
    cluster.start("n4")
    cluster.await_ready("n4")
    with samcast.connect(cluster.address) as client:
        admin = Administration(client, lambda text: None)
        newcomer = newcomer_at(f"{node.host}:{node.port}", admin.cluster)
        cluster.kill("n4")
        with pytest.raises(WaitTimeoutError, match="waiting for server 4"):
            admin.add(newcomer, Quorums(), 3)
        client.group("orders").send(b"a").number(30)  # nothing has stopped


def test_another_machine_s_node_is_prepared_from_what_the_cluster_tells(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    there = cluster.prepare(4)  # for a port that is free
    config = tmp_path / "elsewhere" / "late.toml"
    config.parent.mkdir()
    words = ["prepare", "late", "--host", there.host, "--port", str(there.port)]
    done = node_command(cluster, *words, "--config", str(config))
    assert done.returncode == 0, done.stderr
    assert f"samcast node add {there.host}:{there.port}" in done.stdout
    again = node_command(cluster, *words, "--config", str(config))
    assert "is there already" in again.stderr
    run = [sys.executable, "-m", "samcast.cli.main", "node", "--config", str(config)]
    with subprocess.Popen([*run, "--name", "late"]) as process:
        try:
            limit = time.monotonic() + WAIT_S
            added = node_command(cluster, "add", f"{there.host}:{there.port}")
            while "no node answered" in added.stderr and time.monotonic() < limit:
                added = node_command(cluster, "add", f"{there.host}:{there.port}")
            assert added.returncode == 0, added.stderr
            assert "late" in names_of(cluster)
        finally:
            process.kill()


def test_a_change_is_told_though_it_removes_the_node_that_was_asked(cluster: LocalCluster) -> None:
    node = cluster.plan().node("n2")
    done = samcast_("node", "remove", "n2", "--cluster", f"{node.host}:{node.port}")
    assert done.returncode == 0, done.stderr
    assert "configuration 2: k_commit 2" in done.stdout
