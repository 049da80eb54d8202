"""A copy of a node's folder, started beside the node: it changes nothing, everybody hears of it,
and it gets the node's place only by a person's word."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from samcast import connect
from samcast.cli.main import app
from samcast.group.settings import GroupSettings
from samcast.runtime.cluster_file import NodePlan
from samcast.runtime.cluster_text import write_cluster_file
from samcast.runtime.local_cluster import LocalCluster, free_ports, log_path
from tests.real.conftest import running


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[LocalCluster]:
    """Nobody is let in by itself here."""
    made = LocalCluster(tmp_path / "cluster")
    made.make(3, GroupSettings(rejoin_silence_ms=600_000))
    with running(made):
        yield made


def copy_of(cluster: LocalCluster, name: str, folder: Path) -> list[str]:
    """What `cp -a` and another port make of a node; the command that runs it."""
    plan = cluster.plan()
    folder.mkdir()
    subprocess.run(["cp", "-a", str(plan.node(name).folder), str(folder / name)], check=True)
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    nodes = tuple(
        dataclasses.replace(n, folder=folder / name, listen=listen, socket=None, metrics="")
        if n.name == name
        else n
        for n in plan.nodes
    )
    path = folder / "cluster.toml"
    write_cluster_file(dataclasses.replace(plan, path=path, nodes=nodes))
    return [sys.executable, "-m", "samcast.cli.main", "node", "--config", str(path), "--name", name]


def statuses(nodes: Sequence[NodePlan]) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    for node in nodes:
        with connect(f"{node.host}:{node.port}") as client:
            said.append(client.status())
    return said


def until(true: Callable[[], bool], limit_s: float = 15.0) -> None:
    limit = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < limit
        os.sched_yield()


@pytest.mark.req("GRP-23")
@pytest.mark.parametrize("name", ["n3", "n1"])  # one dials the others, the other is dialed
def test_a_copy_changes_nothing_and_a_person_may_admit_it(
    patient: LocalCluster, tmp_path: Path, name: str
) -> None:
    cluster = patient
    with connect(cluster.address) as client:
        sender = client.group("orders")
        sender.send(b"before").number(10)
        command = copy_of(cluster, name, tmp_path / "copy")
        with (tmp_path / "copy.log").open("wb") as log:
            copy = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            until(lambda: all(said["two_lives"] for said in statuses(cluster.plan().present)))
            for at in range(50):
                sender.send(str(at)).number(10)
            said = statuses(cluster.plan().present)
            assert [s["configuration"] for s in said] == [1, 1, 1]
            assert all(s["connected"]["nodes"] == 2 for s in said)
            facts = said[0]["two_lives"][0]
            assert facts["name"] == name
            assert facts["first"].endswith(f"{os.uname().nodename})")
            assert f"process {copy.pid} " in facts["second"]
            assert facts["first_disk"] != facts["second_disk"]
            for node in cluster.plan().present:
                assert "ALARM: two processes run as" in log_path(node).read_text()
            doctor = CliRunner().invoke(app, ["doctor", "--dir", str(cluster.folder)])
            assert f"two processes run as {name}" in doctor.output
            assert f"samcast node admit {name}" in doctor.output
            if name == "n3":
                admit(cluster, name, facts["second_disk"])
                sender.send(b"after").number(10)
        finally:
            copy.kill()
            copy.wait()


def admit(cluster: LocalCluster, name: str, disk: int) -> None:
    """The original is gone for good, and a person says so."""
    cluster.kill(name)
    shutil.rmtree(cluster.plan().node(name).folder)
    others = [n for n in cluster.plan().present if n.name != name]
    address = ",".join(f"{n.host}:{n.port}" for n in others)

    def is_asking() -> bool:
        asked = [said.get("asking", []) for said in statuses(others)]
        return [a["disk"] for asking in asked for a in asking] == [disk]

    until(is_asking)
    done = CliRunner().invoke(app, ["node", "admit", name, "--cluster", address])
    assert done.exit_code == 0, done.output
    assert f"disk {disk} has the place of {name}" in done.output
    assert "configuration 2" in done.output
    listed = json.loads(CliRunner().invoke(app, ["status", "--json", "--cluster", address]).output)
    assert {n["configuration"] for n in listed["nodes"] if "configuration" in n} == {2}
