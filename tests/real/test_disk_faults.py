"""Bad disks under real processes. Numbers in names are the rows of the fault catalogue."""

import json
import os
import random
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import samcast
from samcast.client.leading import sequencer_of
from samcast.runtime.local_cluster import LocalCluster, log_end
from tests.real.bad_disk import launcher
from tests.real.conftest import MULTICAST, SETTINGS, running
from tests.real.striking import NODES, SECONDS, every, judged, pause, restart


class BadDisks:
    """A cluster whose disks misbehave when told to."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        for name in NODES:
            self.set(name)
            cluster.launchers[name] = launcher(self._path(name))

    def _path(self, name: str) -> Path:
        return self.cluster.folder / f"{name}.faults"

    def set(self, name: str, **faults: Any) -> None:
        fresh = self._path(name).with_suffix(".new")
        fresh.write_text(json.dumps(faults))
        fresh.rename(self._path(name))


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[BadDisks]:
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.make(3, SETTINGS, multicast=MULTICAST)
    made = BadDisks(cluster)
    with running(cluster):
        yield made


def cut_power(cluster: LocalCluster) -> None:
    """All at once, then all come back."""
    for name in NODES:
        os.kill(cluster.pid_of(cluster.plan().node(name)), signal.SIGKILL)
    for name in NODES:
        cluster.kill(name)
    cluster.start_all()
    cluster.await_ready()


@pytest.mark.req("GRP-23", "GRP-27")
def test_23_the_power_goes_everywhere_with_all_that_is_not_synced(disks: BadDisks) -> None:
    for name in NODES:
        disks.set(name, is_lazy=True, fsync_sleep_s=0.002)
    judged(disks.cluster, lambda: every(2, lambda: cut_power(disks.cluster)))


def test_31_a_sync_that_fails_stops_its_node_and_nobody_else(disks: BadDisks) -> None:
    cluster = disks.cluster
    plan = cluster.plan().node("n2")

    def strike() -> None:
        disks.set("n2", fsync_fails=True)
        while cluster.pid_of(plan):
            pause(0.05)
        assert "the disk failed" in log_end(plan)
        pause(0.3)
        disks.set("n2")
        restart(cluster, "n2")

    judged(cluster, lambda: every(2, strike))


def test_31_a_disk_that_fails_a_write_stops_its_node_and_nobody_else(cluster: LocalCluster) -> None:
    plan = cluster.plan().node("n2")

    def strike() -> None:
        data = max((plan.folder / "data").glob("segment-*"))
        most = data.stat().st_size + 20_000
        resource.prlimit(cluster.pid_of(plan), resource.RLIMIT_FSIZE, (most, most))
        while cluster.pid_of(plan):
            pause(0.05)
        assert "the disk failed" in log_end(plan)
        pause(0.3)
        restart(cluster, "n2")

    judged(cluster, strike)


def test_32_there_is_no_room_in_the_middle_of_a_record(disks: BadDisks) -> None:
    cluster = disks.cluster
    plan = cluster.plan().node("n2")

    def strike() -> None:
        disks.set("n2", room=30_011)
        while cluster.pid_of(plan):
            pause(0.05)
        assert "No space left" in log_end(plan)
        disks.set("n2")
        restart(cluster, "n2")

    judged(cluster, strike)


def test_33_there_is_no_room_for_a_promise(disks: BadDisks) -> None:
    """Both others can't store their promise: nobody leads until they can."""
    cluster = disks.cluster

    def strike() -> None:
        leader = sequencer_of(cluster)
        others = [name for name in NODES if name != leader]
        for name in others:
            disks.set(name, room=0)
        cluster.kill(leader)
        pause(1)
        for name in others:
            disks.set(name)
        cluster.start_all()
        cluster.await_ready()

    judged(cluster, strike)


def test_34_the_last_record_is_torn_at_any_byte(cluster: LocalCluster) -> None:
    chance = random.Random(34)

    def strike() -> None:
        cluster.kill("n2")
        for part in ("order", "data"):
            tear_end(newest(cluster, "n2", part), chance)
        restart(cluster, "n2")

    judged(cluster, lambda: every(1, strike))


def test_35_one_node_loses_what_is_not_synced_and_others_pause(disks: BadDisks) -> None:
    cluster = disks.cluster
    disks.set("n1", is_lazy=True)

    def strike() -> None:
        cluster.kill("n2", signal.SIGSTOP)
        pause(0.3)
        cluster.kill("n1")
        cluster.start("n1")
        cluster.kill("n3", signal.SIGSTOP)
        cluster.kill("n2", signal.SIGCONT)
        pause(1)
        cluster.kill("n3", signal.SIGCONT)
        cluster.await_ready()

    judged(cluster, lambda: every(2, strike))


def newest(cluster: LocalCluster, name: str, part: str) -> Path:
    """The last segment with something in it."""
    paths = sorted((cluster.plan().node(name).folder / part).glob("segment-*"))
    return [path for path in paths if path.stat().st_size][-1]


def held(path: Path) -> tuple[bytearray, int]:
    """A file's content, and how much of it isn't just room."""
    data = path.read_bytes()
    return bytearray(data), len(data.rstrip(b"\0"))


def tear_end(path: Path, chance: random.Random) -> None:
    """As if the last write had not come to its end."""
    data, end = held(path)
    lost = chance.randrange(1, 600)
    data[max(0, end - lost) : end] = bytes(min(end, lost))
    path.write_bytes(data)


def flip(path: Path, chance: random.Random, first: float, last: float) -> None:
    """Rot: flip a bit somewhere in this part of what a file holds."""
    data, end = held(path)
    at = chance.randrange(int(end * first), max(1 + int(end * first), int(end * last)))
    data[min(at, len(data) - 1)] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


@pytest.mark.parametrize("part", [(0.0, 0.1), (0.4, 0.6), (0.9, 1.0)])
def test_36_the_order_rots_on_one_disk(cluster: LocalCluster, part: tuple[float, float]) -> None:
    chance = random.Random(8)

    def strike() -> None:
        cluster.kill("n2")
        flip(newest(cluster, "n2", "order"), chance, *part)
        restart(cluster, "n2")

    judged(cluster, strike)


def test_37_payloads_rot_on_one_disk(cluster: LocalCluster) -> None:
    chance = random.Random(9)

    def strike() -> None:
        cluster.kill("n1")
        for _ in range(20):
            flip(newest(cluster, "n1", "data"), chance, 0.0, 1.0)
        restart(cluster, "n1")

    judged(cluster, strike)


def test_38_the_end_of_the_order_rots_and_its_disk_must_vote(cluster: LocalCluster) -> None:
    """Neither the rotten one alone nor the others may take what was confirmed for torn."""
    chance = random.Random(38)

    def strike() -> None:
        leader = sequencer_of(cluster)
        victim = next(name for name in NODES if name != leader)
        cluster.kill(victim)
        path = newest(cluster, victim, "order")
        data, end = held(path)
        data[end - chance.randrange(1, 60)] ^= 0xFF
        path.write_bytes(data)
        cluster.kill(leader)
        cluster.start(victim)
        pause(0.5)
        restart(cluster, leader)

    judged(cluster, lambda: every(2, strike))


def test_39_the_vote_rots_and_the_disk_counts_as_lost(cluster: LocalCluster) -> None:
    def strike() -> None:
        cluster.kill("n2")
        vote = cluster.plan().node("n2").folder / "order" / "vote"
        vote.write_bytes(b"\xff" * vote.stat().st_size)
        restart(cluster, "n2")

    judged(cluster, strike)


@pytest.mark.parametrize("is_leader", [False, True])
def test_42_a_disk_is_lost_and_the_server_is_let_in_again(
    cluster: LocalCluster, is_leader: bool
) -> None:
    """Also the sequencer's (row 25): it may not use its epoch again."""

    def strike() -> None:
        victim = sequencer_of(cluster) if is_leader else "n3"
        cluster.kill(victim)
        shutil.rmtree(cluster.plan().node(victim).folder)
        restart(cluster, victim)

    judged(cluster, strike)


def test_43_a_disk_is_replaced_by_an_old_copy_of_itself(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    def strike() -> None:
        folder = cluster.plan().node("n3").folder
        cluster.kill("n3")
        shutil.copytree(folder, tmp_path / "copy")
        restart(cluster, "n3")
        pause(0.5)
        cluster.kill("n3")
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "copy", folder)
        restart(cluster, "n3")

    judged(cluster, strike)


def test_45_writes_are_lost_though_the_disk_said_they_were_done(disks: BadDisks) -> None:
    cluster = disks.cluster

    def strike() -> None:
        disks.set("n3", lost=0.1)
        pause(0.7)
        disks.set("n3")
        cluster.kill("n3")
        restart(cluster, "n3")

    judged(cluster, lambda: every(2, strike))


@pytest.mark.parametrize("name", ["n1", "n2", "n3"])
def test_46_one_disk_is_very_slow(disks: BadDisks, name: str) -> None:
    """Those that are fast make up the quorum."""

    def strike() -> None:
        disks.set(name, fsync_sleep_s=0.1)
        pause(SECONDS / 2)
        disks.set(name)

    judged(disks.cluster, strike)


def is_full(cluster: LocalCluster, name: str) -> bool:
    node = cluster.plan().node(name)
    with samcast.connect(f"{node.host}:{node.port}") as client:
        data = client.status()["data"]
    assert isinstance(data, dict)
    return bool(data["is_full"])


def await_full(cluster: LocalCluster, names: tuple[str, ...], wanted: bool) -> None:
    while any(is_full(cluster, name) is not wanted for name in names):
        pause(0.05)


def test_32_a_full_disk_is_said_so_and_hinders_nobody(disks: BadDisks) -> None:
    def strike() -> None:
        disks.set("n2", free=1_000_000)
        await_full(disks.cluster, ("n2",), wanted=True)
        pause(0.5)
        disks.set("n2")
        await_full(disks.cluster, ("n2",), wanted=False)

    judged(disks.cluster, strike)


def test_32_when_all_disks_are_full_nodes_go_on_voting_until_there_is_room(disks: BadDisks) -> None:
    cluster = disks.cluster

    def strike() -> None:
        for name in NODES:
            disks.set(name, free=1_000_000)
        await_full(cluster, NODES, wanted=True)
        first = sequencer_of(cluster)
        cluster.kill(first)
        assert sequencer_of(cluster) != first  # They vote from the room that is reserved for it.
        restart(cluster, first)
        for name in NODES:
            disks.set(name)
        await_full(cluster, NODES, wanted=False)

    judged(cluster, strike)
