"""Checkpoints on real nodes: equal at every server, joined with, through kills and damage."""

import dataclasses
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from msgspec import structs

import samcast
from samcast.checkpoint.blocks import check_checkpoint, write_checkpoint
from samcast.checkpoint.places import place_of
from samcast.client.blocking import Client, Group
from samcast.client.leading import sequencer_of
from samcast.errors import CollectedError
from samcast.group.table import Table
from samcast.runtime.cluster_text import write_cluster_file
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.order import Keep
from tests.real.conftest import running
from tests.real.striking import NODES, pause, restart

WAIT_S = 40.0


def group_of(client: Client) -> Group:
    return client.group("table/routes")


def await_checkpoint(client: Client, number: int) -> None:
    """Until one of that number, or a later one, is advertised."""
    limit = time.monotonic() + WAIT_S
    there: list[int] = []
    while time.monotonic() < limit:
        there = [found.number for found in group_of(client).checkpoints().checkpoints]
        if there and there[-1] >= number:
            return
        pause(0.1)
    pytest.fail(f"no checkpoint {number}; there are {there}")


def filled(client: Client, count: int, first: int = 0) -> samcast.client.table.ReplicatedTable:
    table = client.table("routes", checkpoint_every=100)
    for i in range(first, first + count):
        table.put(b"key-%d" % (i % 40), b"value-%d" % i)
    table.sync()
    return table


def two_generations(client: Client) -> samcast.client.table.ReplicatedTable:
    """A thousand changes, and two checkpoints that let some of them go."""
    filled(client, 600)
    await_checkpoint(client, 600)
    table = filled(client, 400, 600)
    await_checkpoint(client, 1000)
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        there = group_of(client).checkpoints()
        if there.collected == there.checkpoints[0].number:  # Nothing more goes now.
            break
        pause(0.1)
    return table


def places(cluster: LocalCluster, name: str) -> list[Path]:
    folder = cluster.plan().node(name).folder / "checkpoints"
    return sorted(path for path in folder.glob("*/[0-9]*"))


@pytest.mark.req("GRP-15", "GRP-16", "GRP-17")
def test_whoever_opens_a_table_begins_with_a_checkpoint(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        table = filled(client, 600)
        await_checkpoint(client, 600)
        seen: list[tuple[int, int]] = []
        with samcast.connect(cluster.address) as other:
            joined = other.table("routes", progress=lambda here, of: seen.append((here, of)))
            assert seen == [(40, 40)]
            joined.wait_for(table.number)
            assert joined.content_hash() == table.content_hash()
            assert joined.get("key-39") == b"value-599"
            joined.put("key-39", "anew").number(30)
            table.sync()
            assert table.get("key-39") == b"anew"


@pytest.mark.req("GRP-16", "GRP-20", "GRP-24")
def test_messages_that_two_checkpoints_hold_go_and_the_past_is_still_told(
    cluster: LocalCluster,
) -> None:
    with samcast.connect(cluster.address) as client:
        table = two_generations(client)
        oldest = group_of(client).oldest()
        assert oldest > 100
        assert table.as_of(oldest + 50).get("key-0") is not None
        with pytest.raises(CollectedError, match="what table 'routes' was at 3 is gone"):
            table.as_of(3)
        changes = table.changes(oldest + 10, "key-7")
        first = next(changes)
        assert first.number > oldest + 10
        assert first.key == b"key-7"


@pytest.mark.req("GRP-15")
def test_the_interval_changes_at_one_number_for_all_servers(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        filled(client, 500)
        await_checkpoint(client, 500)
        group = group_of(client)
        cluster.kill("n3", signal.SIGSTOP)  # It hears of it long after the others.
        keep = group.checkpoints().keep
        group.set_keep(structs.replace(keep, interval=70))
        filled(client, 340, 500)
        await_checkpoint(client, 560)
        cluster.kill("n3", signal.SIGCONT)
        filled(client, 300, 840)
        limit = time.monotonic() + WAIT_S
        while True:
            advertised = [found.number for found in group.checkpoints().checkpoints]
            own = [[int(path.name) for path in places(cluster, name)] for name in NODES]
            if all(advertised[-1] in numbers for numbers in own) and advertised[-1] % 70 == 0:
                break
            assert time.monotonic() < limit, (advertised, own)
            pause(0.1)
        assert all(n % 70 == 0 for numbers in own for n in numbers if n > 500), own


@pytest.mark.req("GRP-15", "GRP-24")
def test_all_servers_come_to_the_same_state_across_kills(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        for turn in range(4):
            filled(client, 300, 300 * turn)
            name = sequencer_of(cluster) if turn % 2 else NODES[turn % 3]
            cluster.kill(name)
            restart(cluster, name)
        filled(client, 300, 1200)
        number = client.table("routes").number
        await_checkpoint(client, number - number % 100)
        pause(1)
    hashes: dict[int, set[str]] = {}
    for name in NODES:
        for place in places(cluster, name):
            listed = check_checkpoint(place)
            hashes.setdefault(listed.number, set()).add(listed.hash)
    assert len(hashes) >= 2
    assert all(len(found) == 1 for found in hashes.values()), hashes


@pytest.mark.req("GRP-17", "GRP-23")
def test_a_damaged_or_lost_checkpoint_is_had_from_others(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        table = two_generations(client)
        for place in places(cluster, "n1"):
            block = place / "block-00001.parquet"
            data = bytearray(block.read_bytes())
            data[60] ^= 8
            block.write_bytes(data)
        with samcast.connect(cluster.address) as other:
            joined = other.table("routes")
            joined.wait_for(table.number)
            assert joined.content_hash() == table.content_hash()
        cluster.kill("n1")
        for place in (cluster.plan().node("n1").folder / "checkpoints").iterdir():
            shutil.rmtree(place)  # The folder itself is a part of a disk that must be there.
        cluster.start("n1")
        cluster.await_ready()
        filled(client, 400, 1000)
        limit = time.monotonic() + WAIT_S
        while not places(cluster, "n1") and time.monotonic() < limit:
            pause(0.1)
        assert check_checkpoint(places(cluster, "n1")[-1]).rows == 40


@pytest.mark.req("GRP-15")
def test_a_checkpoint_of_another_cluster_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    stranger = Table()
    for number in range(1, 151):
        stranger.merge(number, 1, [b"key-%d" % number], [b"of somebody else"], [number])
    with samcast.connect(cluster.address) as client:
        filled(client, 100)
        group = group_of(client).id
        await_checkpoint(client, 100)
        cluster.kill("n2")
        place = place_of(cluster.plan().node("n2").folder / "checkpoints", group, 150)
        write_checkpoint(place, stranger, ("elsewhere", "table/routes", "table", 1))
        restart(cluster, "n2")
        log = cluster.folder / "n2.log"
        limit = time.monotonic() + WAIT_S
        while "elsewhere" not in log.read_text() and time.monotonic() < limit:
            pause(0.1)
        assert "checkpoint 150: it is of elsewhere/table/routes" in log.read_text()
        filled(client, 100, 100)
        await_checkpoint(client, 200)
        assert not place.exists()


@pytest.mark.req("GRP-15")
def test_a_server_that_keeps_no_order_folds_too(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster")
    plan = cluster.make(3)
    nodes = (*plan.nodes[:2], dataclasses.replace(plan.nodes[2], roles=("data", "checkpoint")))
    write_cluster_file(dataclasses.replace(plan, nodes=nodes, k_commit=2, e_commit=1))
    with running(cluster), samcast.connect(cluster.address) as client:
        filled(client, 300)
        limit = time.monotonic() + WAIT_S
        while not places(cluster, "n3") and time.monotonic() < limit:
            pause(0.1)
        assert check_checkpoint(places(cluster, "n3")[-1]).rows == 40


@pytest.mark.req("GRP-15")
def test_a_fold_that_is_not_installed_is_said_and_serving_goes_on(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        group.set_keep(Keep(0, 0, 0, "no-such-fold", 1, 10))
        for i in range(50):
            group.send(b"%d" % i).number(30)
        log = cluster.folder / "n1.log"
        limit = time.monotonic() + WAIT_S
        while "no-such-fold" not in log.read_text() and time.monotonic() < limit:
            pause(0.1)
        assert "no fold 'no-such-fold' is installed here; there are table" in log.read_text()
        assert group.checkpoints().checkpoints == ()
        assert group.oldest() == 1
        assert len(list(group.read(count=50))) == 50


@pytest.mark.req("GRP-15")
def test_the_folding_process_ends_with_its_node_and_comes_back_if_it_dies(
    cluster: LocalCluster,
) -> None:
    with samcast.connect(cluster.address) as client:
        filled(client, 200)
        await_checkpoint(client, 200)
        node = next(process for process in cluster.processes() if process.plan.name == "n1")
        workers = children_of(node.pid)
        assert len(workers) == 1
        os.kill(workers[0], signal.SIGKILL)
        filled(client, 300, 200)
        limit = time.monotonic() + WAIT_S
        again = workers  # which is a child, though a dead one, until its node has noticed
        while again in ([], workers) and time.monotonic() < limit:
            pause(0.1)
            again = children_of(node.pid)
        assert again not in ([], workers)
        await_checkpoint(client, 500)
        cluster.kill("n1")
        limit = time.monotonic() + WAIT_S
        while Path(f"/proc/{again[0]}").exists() and time.monotonic() < limit:
            pause(0.1)
        assert not Path(f"/proc/{again[0]}").exists()


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]
