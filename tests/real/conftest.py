"""A cluster of real processes per test."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from samcast.group.settings import GroupSettings
from samcast.runtime.local_cluster import LocalCluster

MULTICAST = os.environ.get("SAMCAST_TEST_MULTICAST", "")  # a group, if nodes are to speak to it
SETTINGS = GroupSettings(rejoin_silence_ms=1000)  # tests that lose disks don't wait for long
NAMESPACE = ["unshare", "--user", "--map-root-user", "--net", "--"]


def can_isolate() -> bool:
    """Whether this system lets us have a network of our own, where multicast disturbs nobody."""
    try:
        tried = subprocess.run(
            [*NAMESPACE, "ip", "link", "set", "lo", "up"], capture_output=True, check=False
        )
    except FileNotFoundError:
        return False
    return tried.returncode == 0


CAN_ISOLATE = can_isolate()
collect_ignore = [] if CAN_ISOLATE else ["test_multicast.py"]


def pytest_report_header() -> str:
    """Say what is left out, so that nobody takes it for tried."""
    if CAN_ISOLATE:
        return "multicast: in network namespaces"
    return "multicast: NOT TRIED HERE, since `unshare --user --net` or `ip` doesn't work"


@contextmanager
def running(cluster: LocalCluster) -> Iterator[None]:
    """Its nodes run until the block is left."""
    cluster.start_all()
    try:
        cluster.await_ready()
        yield
    finally:
        for process in cluster.processes():
            cluster.kill(process.plan.name, signal.SIGCONT)
        cluster.stop_all()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "cluster")
    made.make(3, SETTINGS, multicast=MULTICAST)
    with running(made):
        yield made
