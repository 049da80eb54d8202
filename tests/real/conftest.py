"""A cluster of real processes per test."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from samcast.runtime.local_cluster import LocalCluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "cluster")
    made.make(3)
    made.start_all()
    try:
        made.await_ready()
        yield made
    finally:
        for process in made.processes():
            made.kill(process.plan.name, signal.SIGCONT)
        made.stop_all()
