"""What a node writes about itself: for people, and for tools."""

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from samcast.client.leading import sequencer_of
from samcast.runtime.local_cluster import LocalCluster, log_path
from samcast.runtime.log import Form, Log
from tests.real.striking import pause


def command(cluster: LocalCluster, *options: str) -> list[str]:
    config = str(cluster.folder / "cluster.toml")
    return [sys.executable, "-m", "samcast.cli.main", "node", "--config", config, "--name", "n3",
            *options]  # fmt: skip


@pytest.mark.req("OPS-05")
def test_a_node_tells_who_is_there_and_who_leads(cluster: LocalCluster) -> None:
    cluster.kill("n3")
    with subprocess.Popen(
        command(cluster, "--log", "json"), stderr=subprocess.PIPE, text=True
    ) as node:
        assert node.stderr is not None
        leader = sequencer_of(cluster)
        said: list[dict[str, Any]] = []
        while not said or said[-1]["event"] != "leader":
            said.append(json.loads(node.stderr.readline()))
        node.send_signal(signal.SIGTERM)
        assert node.wait(20) == 0
    assert {line["node"] for line in said} == {"n3"}
    assert {line["peer"] for line in said if line["event"] == "connected"} == {"n1", "n2"}
    assert (said[-1]["leader"], said[-1]["epoch"] >= 1) == (leader, True)


def await_line(cluster: LocalCluster, line: str) -> None:
    for _ in range(200):
        if line in log_path(cluster.plan().node("n1")).read_text():
            return
        pause(0.05)
    raise AssertionError(log_path(cluster.plan().node("n1")).read_text())


def test_the_usual_log_is_for_people(cluster: LocalCluster) -> None:
    await_line(cluster, "samcast: connected with n2\n")
    cluster.kill("n2")
    await_line(cluster, "samcast: lost the connection with n2\n")
    await_line(cluster, " numbers messages, epoch ")
    for line in log_path(cluster.plan().node("n1")).read_text().splitlines():
        assert datetime.fromisoformat(line.split()[0]).tzinfo is UTC


def test_a_node_with_another_file_is_refused_and_that_is_said_once(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.kill("n3")
    other = cluster.folder / "other.toml"
    other.write_text(
        (cluster.folder / "cluster.toml").read_text().replace("k_data = 2", "k_data = 1")
    )
    with subprocess.Popen(
        [*command(cluster)[:5], str(other), "--name", "n3"], stderr=subprocess.PIPE, text=True
    ) as node:
        await_line(cluster, "node 3 was refused")
        pause(3)  # for two tries more
        troubles = subprocess.run(
            [sys.executable, "-m", "samcast.cli.main", "doctor", "--dir", str(cluster.folder)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        node.send_signal(signal.SIGTERM)
        assert node.wait(20) == 0
        assert node.stderr is not None
        said = node.stderr.read()
    assert said.count("refused us") == 2  # by n1 and by n2
    assert "differ in k_data" in said
    assert log_path(cluster.plan().node("n1")).read_text().count("node 3 was refused") == 1
    assert troubles.returncode == 1
    assert "n3 is connected with 0 of the 2 other nodes" in troubles.stdout


def test_another_form_is_refused(cluster: LocalCluster) -> None:
    failed = subprocess.run(
        command(cluster, "--log", "xml"), capture_output=True, text=True, check=False
    )
    assert failed.returncode == 1
    assert failed.stderr == "samcast: --log is 'xml'; it must be plain or json\n"


def test_a_line_is_a_line_whatever_it_says(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Log("n1", Form.JSON).say("odd", 'two\nlines and "quotes"', free_bytes=3)
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert (said["text"], said["free_bytes"]) == ('two\nlines and "quotes"', 3)
    assert said["at"].endswith("+00:00")


def test_a_log_that_can_not_be_written_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    Log("n1").say("disk-failed", "the disk failed")
