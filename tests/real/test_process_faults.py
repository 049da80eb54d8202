"""Processes that die, stop and starve. Numbers in names are the rows of the fault catalogue."""

import os
import random
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import samcast
from samcast.client.leading import sequencer_of
from samcast.runtime.local_cluster import LocalCluster
from tests.real.striking import NODES, SECONDS, every, judged, pause, restart

READER = """
import sys, samcast
with samcast.connect(sys.argv[1]) as client:
    for message in client.group("work").read(1, timeout=20):
        print(message.number, flush=True)
"""


def test_15_a_reader_that_is_stopped_most_of_the_time_hinders_nobody_and_catches_up(
    cluster: LocalCluster,
) -> None:
    command = [sys.executable, "-c", READER, cluster.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:

        def strike() -> None:
            reader.send_signal(signal.SIGSTOP)
            pause(0.9)
            reader.send_signal(signal.SIGCONT)
            pause(0.1)

        staff = judged(cluster, lambda: every(1, strike))
        sent = sum(worker.sent for worker in staff)
        assert reader.stdout is not None
        numbers = [int(reader.stdout.readline()) for _ in range(sent)]
        reader.kill()
    assert numbers == list(range(1, sent + 1))


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
        victim = chance.choice(NODES)
        cluster.kill(victim)
        pause(chance.random() / 2)
        restart(cluster, victim)

    judged(cluster, lambda: every(1, strike))


def test_19_the_sequencer_is_stopped_and_goes_on_later(cluster: LocalCluster) -> None:
    def strike() -> None:
        victim = sequencer_of(cluster)
        cluster.kill(victim, signal.SIGSTOP)
        pause(1)
        cluster.kill(victim, signal.SIGCONT)

    judged(cluster, lambda: every(2, strike))


def test_20_servers_pause_at_any_moment_for_any_time(cluster: LocalCluster) -> None:
    chance = random.Random(20)

    def strike() -> None:
        victim = chance.choice(NODES)
        cluster.kill(victim, signal.SIGSTOP)
        pause(chance.choice((0.01, 0.05, 0.2, 0.6)))
        cluster.kill(victim, signal.SIGCONT)

    judged(cluster, lambda: every(0.2, strike))


def test_22_a_server_is_killed_while_it_recovers_from_being_killed(cluster: LocalCluster) -> None:
    chance = random.Random(22)

    def strike() -> None:
        victim = chance.choice(NODES)
        for _ in range(3):
            cluster.kill(victim)
            cluster.start(victim)
            pause(chance.uniform(0.2, 1.0))
        cluster.await_ready()

    judged(cluster, lambda: every(2, strike))


def test_24_every_server_is_restarted_in_turn(cluster: LocalCluster) -> None:
    def strike() -> None:
        for name in NODES:
            cluster.kill(name, signal.SIGTERM)
            restart(cluster, name)

    judged(cluster, strike)


def test_29_others_take_the_processors(cluster: LocalCluster) -> None:
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(4 * (os.cpu_count() or 1))
    ]
    try:
        judged(cluster, lambda: pause(SECONDS))
    finally:
        for process in busy:
            process.kill()
            process.wait()


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


def test_66_those_that_hold_a_message_die_before_it_is_ordered(cluster: LocalCluster) -> None:
    """Two of three at once, so that some of what they had stored has no number yet."""
    chance = random.Random(66)

    def strike() -> None:
        victims = chance.sample(NODES, 2)
        for name in victims:
            os.kill(cluster.pid_of(cluster.plan().node(name)), signal.SIGKILL)
        for name in victims:
            cluster.kill(name)
        pause(chance.random() / 2)
        cluster.start_all()
        cluster.await_ready()

    judged(cluster, lambda: every(2, strike))


SENDER = """
import sys, samcast
with samcast.connect(sys.argv[1]) as client:
    group = client.group("doomed")
    for i in range(10**9):
        print(group.send(b"%d" % i).number(), flush=True)
"""


def test_66_the_sender_dies_too(cluster: LocalCluster) -> None:
    """What it was told is there; behind that at most what it had on its way, in order."""
    command = [sys.executable, "-c", SENDER, cluster.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as sender:
        assert sender.stdout is not None
        told = [int(sender.stdout.readline()) for _ in range(200)]
        sender.kill()
        for name in ("n1", "n2"):
            cluster.kill(name)
        told += [int(line) for line in sender.stdout.read().split(b"\n") if line.strip()]
    cluster.start_all()
    cluster.await_ready()
    with samcast.connect(cluster.address) as client:
        group = client.group("doomed")
        end = group.send(b"end").number(30)
        bodies = [m.body for m in group.read(1, count=end, timeout=30)]
    assert told == list(range(1, len(told) + 1))
    assert bodies == [b"%d" % i for i in range(end - 1)] + [b"end"]
    assert len(told) <= end - 1 <= len(told) + 1
