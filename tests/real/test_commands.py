"""Manners of the commands: what they say when something isn't as it should be."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import samcast
from samcast import errors
from samcast.runtime.local_cluster import LocalCluster, can_connect
from tests.real.striking import hear_ctrl_c, pause

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
        stderr=subprocess.PIPE, text=True, preexec_fn=hear_ctrl_c,
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


def test_wrong_arguments_are_named(cluster: LocalCluster, tmp_path: Path) -> None:
    where = ["--dir", str(cluster.folder)]
    for command, said in (
        (["send", "g", "--name", "", *where], "--name is empty"),
        (["up", "--nodes", "0", "--dir", str(tmp_path / "new")], "1 to 7"),
        (["node", "--config", str(tmp_path), "--name", "n1"], "can't be read: Is a directory"),
        (
            ["node", "--config", str(tmp_path / "no.toml"), "--name", "n1"],
            "no such file; write one",
        ),
        (["status", "--dir", str(tmp_path)], f"`samcast up --dir {tmp_path}` makes one"),
        (["read", "g", "--dir", str(tmp_path)], f"there is no cluster in {tmp_path}"),
        (["group", "create", "a\tb", *where], "has no control characters"),
        (["status", "--cluster", "127.0.0.1:1"], "name them, too: host:port,host:port"),
    ):
        done = run(*command)
        assert done.returncode == 1, command
        assert said in done.stderr, command
    for command in (
        ["read", "g", "--count", "0", *where],
        ["read", "g", "--timeout", "-1", *where],
    ):
        assert run(*command).returncode == 2


def test_up_says_whether_it_was_up_already_and_where(cluster: LocalCluster) -> None:
    done = run("up", "--detach", "--dir", str(cluster.folder))
    assert done.stdout.startswith("cluster was up already: ")
    assert f"samcast down --dir {cluster.folder}" in done.stdout


def test_a_transaction_that_is_dropped_says_so(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("g")
        with pytest.warns(ResourceWarning, match="dropped without commit"):
            client.transaction().send(group, b"x")
        assert group.head() == 0


def test_errors_are_found_where_people_look() -> None:
    assert samcast.SamcastError is errors.SamcastError
    assert samcast.WaitTimeoutError is errors.WaitTimeoutError
    with pytest.raises(AttributeError, match="no attribute 'NoSuchError'"):
        samcast.NoSuchError  # type: ignore[attr-defined]  # noqa: B018
