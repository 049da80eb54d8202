"""Exactly once with real processes: those of Spark, on a cluster of its own, and our nodes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import samcast
from samcast.client.blocking import Group
from samcast.runtime.local_cluster import LocalCluster
from tests.pipeline.conftest import HAS_SPARK
from tests.pipeline.killing import body_of, fill, run
from tests.real.striking import pause

START_S = 200.0  # of a second driver, on a machine that is busy with the first one
pytestmark = pytest.mark.skipif(not HAS_SPARK, reason="needs PySpark and Java")


@pytest.mark.req("PIP-03", "PIP-08")
def test_every_row_is_there_once_whatever_is_killed(tmp_path: Path) -> None:
    """One of the kills that `./dev spark-kills` does twenty of: between the two commits."""
    run(tmp_path, rows=20_000, kills=1, rows_per_batch=4000, say=print)


@contextlib.contextmanager
def driver(cluster: LocalCluster, folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.copying", "local[1]", cluster.address,
             str(folder), "500", "forever"],
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(is_so: Callable[[], bool], seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < limit, "it took too long"
        pause(0.1)


def goes_on(target: Group, head: int) -> bool:
    for _ in range(100):
        if target.head() >= head:
            return True
        pause(0.1)
    return False


@pytest.mark.req("PIP-03")
def test_of_two_queries_with_one_checkpoint_folder_one_is_fenced_and_says_so(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    fill(cluster.address, 1000)
    folder, rows = tmp_path / "folder", 1000
    with samcast.connect(cluster.address) as client, contextlib.ExitStack() as stack:
        orders, target = client.group("orders"), client.group("target")
        logs = [tmp_path / "one.log", tmp_path / "two.log"]
        drivers = [stack.enter_context(driver(cluster, folder, logs[0]))]
        until(lambda: target.head() >= rows, 90)
        drivers.append(stack.enter_context(driver(cluster, folder, logs[1])))
        limit = time.monotonic() + START_S
        while time.monotonic() < limit:
            orders.send(body_of(rows)).number(30)
            rows += 1
            pause(0.1)
            if any(one.poll() is not None for one in drivers):
                break
        ended = [at for at, one in enumerate(drivers) if one.poll() is not None]
        assert ended
        said = logs[ended[0]].read_text(errors="replace")
        assert "the same checkpoint folder" in said or "Multiple streaming jobs" in said
        orders.send(body_of(rows)).number(30)
        if len(ended) == 2 or not goes_on(target, rows + 1):  # Spark may refuse the other one, too.
            drivers.append(stack.enter_context(driver(cluster, folder, tmp_path / "three.log")))
        until(lambda: target.head() >= rows + 1, 90)
    with samcast.connect(cluster.address) as client:
        bodies = [m.body for m in client.group("target").read(1, count=rows + 1, timeout=20)]
    assert bodies == [body_of(row) for row in range(rows + 1)]
