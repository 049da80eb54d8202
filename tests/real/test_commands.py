"""Manners of the commands: what they say when something isn't as it should be."""

import signal
import socket
import subprocess
import sys

import pytest

from samcast.runtime.local_cluster import LocalCluster, can_connect
from tests.real.striking import pause

SAMCAST = [sys.executable, "-m", "samcast.cli.main"]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*SAMCAST, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.req("OPS-02")
def test_status_says_when_nobody_can_lead(cluster: LocalCluster) -> None:
    cluster.kill("n2")
    cluster.kill("n3")
    shown = run("status", "--dir", str(cluster.folder))
    for _ in range(100):
        if "nobody leads" in shown.stdout:
            break
        pause(0.1)
        shown = run("status", "--dir", str(cluster.folder))
    assert "nobody leads: 1 of 3 nodes answer" in shown.stdout
    assert shown.returncode == 0


def test_ctrl_c_while_it_waits_ends_without_noise(cluster: LocalCluster) -> None:
    cluster.kill("n2")
    cluster.kill("n3")
    waiting = subprocess.Popen(
        [*SAMCAST, "read", "nothing", "--follow", "--dir", str(cluster.folder)],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert waiting.stderr is not None
    assert "still waiting" in waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    said = waiting.communicate(timeout=20)[1]
    assert waiting.returncode == 130
    assert "Task" not in said
    assert "Traceback" not in said


def test_down_does_not_take_a_stranger_for_a_node(cluster: LocalCluster) -> None:
    node = cluster.plan().node("n3")
    cluster.kill("n3")
    with socket.create_server((node.host, node.port)):
        done = run("down", "--dir", str(cluster.folder))
    assert (done.returncode, done.stdout) == (0, "cluster is down\n")
    assert not any(can_connect(n.host, n.port) for n in cluster.plan().nodes)


def test_an_empty_address_is_a_mistake_and_not_the_default(cluster: LocalCluster) -> None:
    for command in (["status"], ["doctor"], ["read", "g"], ["send", "g"], ["trace", "g", "1"]):
        done = run(*command, "--dir", str(cluster.folder), "--cluster", "")
        assert done.returncode == 1
        assert done.stderr.startswith("samcast: --cluster is empty; write host:port")
