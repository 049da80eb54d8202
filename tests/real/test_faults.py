"""Faults on real processes while senders work; the history is judged afterwards.

`./dev faults` plays them for longer. Numbers in names are the rows of the fault catalogue.
"""

import os
import random
import resource
import shutil
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from samcast.runtime.local_cluster import LocalCluster, log_end
from tests.real.relay import Relay
from tests.real.workload import Worker, check_history, sequencer_of, working

SECONDS = float(os.environ.get("SAMCAST_FAULT_SECONDS", "4"))


def pause(seconds: float) -> None:
    """Let the senders work."""
    threading.Event().wait(seconds)


def every(seconds: float, strike: Callable[[], None]) -> None:
    """Strike again and again for as long as a fault lasts here."""
    for _ in range(max(1, int(SECONDS / seconds))):
        pause(seconds)
        strike()


def judged(cluster: LocalCluster, strike: Callable[[], None], workers: int = 2) -> list[Worker]:
    with working(cluster, workers) as staff:
        pause(0.3)
        strike()
        pause(0.3)
    assert check_history(cluster, staff) > 0
    return staff


def restart(cluster: LocalCluster, name: str) -> None:
    cluster.start(name)
    cluster.await_ready()


@pytest.mark.req("GRP-14", "GRP-21", "GRP-22")
def test_17_the_sequencer_is_killed_again_and_again(cluster: LocalCluster) -> None:
    def strike() -> None:
        victim = sequencer_of(cluster)
        cluster.kill(victim)
        pause(0.5)
        restart(cluster, victim)

    judged(cluster, lambda: every(2, strike))


@pytest.mark.req("GRP-14", "GRP-27")
def test_18_any_server_is_killed_again_and_again(cluster: LocalCluster) -> None:
    chance = random.Random(2)

    def strike() -> None:
        victim = chance.choice(["n1", "n2", "n3"])
        cluster.kill(victim)
        pause(chance.random() / 2)
        restart(cluster, victim)

    judged(cluster, lambda: every(1, strike))


@pytest.mark.req("GRP-23", "GRP-27")
def test_23_the_power_goes_everywhere_at_once(cluster: LocalCluster) -> None:
    def strike() -> None:
        for name in ("n1", "n2", "n3"):
            os.kill(cluster.pid_of(cluster.plan().node(name)), signal.SIGKILL)
        for name in ("n1", "n2", "n3"):
            cluster.kill(name)
        cluster.start_all()
        cluster.await_ready()

    judged(cluster, lambda: every(2, strike))


def test_19_the_sequencer_is_stopped_and_goes_on_later(cluster: LocalCluster) -> None:
    def strike() -> None:
        victim = sequencer_of(cluster)
        cluster.kill(victim, signal.SIGSTOP)
        pause(1)
        cluster.kill(victim, signal.SIGCONT)

    judged(cluster, lambda: every(2, strike))


def test_24_every_server_is_restarted_in_turn(cluster: LocalCluster) -> None:
    def strike() -> None:
        for name in ("n1", "n2", "n3"):
            cluster.kill(name, signal.SIGTERM)
            restart(cluster, name)

    judged(cluster, strike)


def test_42_a_disk_is_lost_and_the_server_is_let_in_again(cluster: LocalCluster) -> None:
    def strike() -> None:
        cluster.kill("n3")
        shutil.rmtree(cluster.plan().node("n3").folder)
        restart(cluster, "n3")

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


def flip(path: Path, chance: random.Random, share: float) -> None:
    """Rot: flip a bit somewhere in the first part of what a file holds."""
    data = bytearray(path.read_bytes())
    held = len(bytes(data).rstrip(b"\0"))
    data[chance.randrange(max(1, int(held * share)))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_36_the_order_rots_on_one_disk(cluster: LocalCluster, share: float) -> None:
    chance = random.Random(8)

    def strike() -> None:
        cluster.kill("n2")
        flip(sorted((cluster.plan().node("n2").folder / "order").glob("segment-*"))[0],
             chance, share)  # fmt: skip
        restart(cluster, "n2")

    judged(cluster, strike)


def test_37_payloads_rot_on_one_disk(cluster: LocalCluster) -> None:
    chance = random.Random(9)

    def strike() -> None:
        cluster.kill("n1")
        for path in (cluster.plan().node("n1").folder / "data").glob("segment-*"):
            if path.stat().st_size:
                for _ in range(20):
                    flip(path, chance, 1.0)
        restart(cluster, "n1")

    judged(cluster, strike)


def test_39_the_vote_rots_and_the_disk_counts_as_lost(cluster: LocalCluster) -> None:
    def strike() -> None:
        cluster.kill("n2")
        vote = cluster.plan().node("n2").folder / "order" / "vote"
        vote.write_bytes(b"\xff" * vote.stat().st_size)
        restart(cluster, "n2")

    judged(cluster, strike)


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


def test_30_a_node_without_descriptors_refuses_and_recovers(cluster: LocalCluster) -> None:
    plan = cluster.plan().node("n1")

    def strike() -> None:
        pid = cluster.pid_of(plan)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 5, before[1]))
        idle = [socket.create_connection((plan.host, plan.port)) for _ in range(30)]
        pause(0.5)
        for one in idle:
            one.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert cluster.pid_of(plan) == pid

    judged(cluster, strike)


def test_16_connections_are_chopped_to_bytes_and_reset_in_mid_frame(cluster: LocalCluster) -> None:
    node = cluster.plan().nodes[0]
    with (
        Relay((node.host, node.port), random.Random(16)) as relay,
        working(cluster, 1, address=relay.address) as staff,
    ):
        for _ in range(max(3, int(SECONDS))):
            pause(0.4)
            relay.reset()
    assert relay.resets > 0
    assert check_history(cluster, staff) > 0
