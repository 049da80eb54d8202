"""A cluster of real processes per test."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from samcast.runtime.local_cluster import LocalCluster


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
    made.make(3)
    with running(made):
        yield made
