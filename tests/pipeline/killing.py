"""Exactly once, for real: a stream from group to group whose processes are killed again and again.

    python -m tests.pipeline.killing --rows 4000000 --kills 20

Four kinds of kills take turns: the driver just after the sink's commit and before Spark's own, the
driver anywhere, a worker of Spark with all that it runs, a node of the cluster. In the end every
row is in the target once, with its content, and each batch in a range of its own. That is counted
by SQLite from what `samcast read` prints.
"""

import argparse
import contextlib
import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import samcast
from samcast.runtime.local_cluster import LocalCluster
from tests.pipeline.standalone import Standalone, standalone
from tests.real.conftest import running
from tests.real.striking import pause

PROGRESS_S = 240.0
COMMIT, DRIVER, WORKER, NODE = "driver, between the two commits", "driver", "worker", "node"
Say = Callable[[str], None]
KINDS = (COMMIT, WORKER, DRIVER, NODE)


def body_of(row: int) -> bytes:
    """Its number, and what can only be told by who knows the number."""
    return b"%012d:%s" % (row, hashlib.sha256(b"%d" % row).hexdigest().encode())


def fill(address: str, rows: int) -> None:
    with samcast.connect(address) as client:
        group = client.group("orders")
        client.group("target")
        for first in range(0, rows, 10_000):
            group.send_many([body_of(row) for row in range(first, min(rows, first + 10_000))])
        group.flush(120)


class Killing:
    """The stream, and what is done to it."""

    def __init__(
        self,
        cluster: LocalCluster,
        spark: Standalone,
        rows_per_batch: int,
        say: Callable[..., None],
    ) -> None:
        self.cluster = cluster
        self.spark = spark
        self.rows_per_batch = rows_per_batch
        self.say = say
        self.folder = spark.folder / "checkpoint"
        self.kills: dict[str, int] = dict.fromkeys(KINDS, 0)
        self.starts = 0
        self._chance = random.Random(7)
        self._driver: subprocess.Popen[bytes] | None = None

    def start_driver(self) -> None:
        """Unless it runs."""
        if self._driver is not None and self._driver.poll() is None:
            return
        self.starts += 1
        with (self.spark.folder / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "tests.pipeline.copying", self.spark.address,
                 self.cluster.address, str(self.folder), str(self.rows_per_batch)],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _kill_driver(self) -> None:
        assert self._driver is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()

    def head(self) -> int:
        with samcast.connect(self.cluster.address) as client:
            return client.group("target").head()

    def await_progress(self, until: Callable[[int], bool]) -> None:
        """A driver that was killed, or has failed, is started again."""
        limit = time.monotonic() + PROGRESS_S
        while not until(self.head()):
            self.start_driver()
            if time.monotonic() > limit:
                log = (self.spark.folder / "driver.log").read_text(errors="replace")
                raise AssertionError(f"no progress; the end of the driver's log:\n{log[-4000:]}")
            pause(0.2)

    def kill(self, kind: str, rows: int) -> None:
        before = self.head()
        assert before < rows, f"all is copied after {sum(self.kills.values())} kills: more rows"
        self.await_progress(lambda head: head > before)
        pause(self._chance.random() * 1.5)
        if kind == COMMIT:
            mark = self.folder.with_name(self.folder.name + ".die")
            mark.touch()
            self.await_progress(lambda head: not mark.exists())
            assert self._driver is not None
            self._driver.wait(30)
            assert self._driver.returncode == -signal.SIGKILL
        elif kind == DRIVER:
            self._kill_driver()
        elif kind == WORKER:
            name = self._chance.choice(self.spark.workers)
            self.spark.kill(name)
            self.spark.start_worker(name)
        else:
            name = self._chance.choice([node.name for node in self.cluster.plan().present])
            self.cluster.kill(name)
            pause(1)
            self.cluster.start(name)
        self.kills[kind] += 1
        self.say(f"killed: {kind}; {self.head()} rows there")

    def finish(self, rows: int) -> None:
        """Until all is copied and the driver has ended by itself."""
        self.await_progress(lambda head: head >= rows)
        assert self._driver is not None
        assert self._driver.wait(PROGRESS_S) in (0, -signal.SIGKILL)

    def stop(self) -> None:
        if self._driver is not None and self._driver.poll() is None:
            self._kill_driver()


def count(cluster: LocalCluster, folder: Path, rows: int, rows_per_batch: int) -> None:
    """What is in the target, by SQLite."""
    printed = folder / "target.txt"
    with printed.open("wb") as out:
        program = str(Path(sys.executable).with_name("samcast"))
        command = [program, "read", "target", "--cluster", cluster.address]
        subprocess.run(command, stdout=out, check=True)
    with contextlib.closing(sqlite3.connect(folder / "target.db")) as found:
        found.execute("create table target (number integer, row integer, content text)")
        with printed.open("rb") as lines:
            rows_of = (line.rstrip(b"\n").split(b"\t", 1) for line in lines)
            found.executemany(
                "insert into target values (?, ?, ?)",
                ((int(n), int(body[:12]), body.decode()) for n, body in rows_of),
            )

        def ask(query: str) -> list[tuple[int, ...]]:
            return found.execute(query).fetchall()

        assert ask("select count(*), count(distinct row), min(row), max(row) from target") == [
            (rows, rows, 0, rows - 1)
        ]
        assert ask("select count(distinct number), min(number), max(number) from target") == [
            (rows, 1, rows)
        ]
        batches = ask(
            f"select row / {rows_per_batch}, max(number) - min(number) + 1, count(*) from target"
            " group by 1"
        )
        assert len(batches) == -(-rows // rows_per_batch)
        assert all(span == number for _, span, number in batches), batches
        cells = found.execute("select row, content from target")
        wrong = [row for row, text in cells if text.encode() != body_of(row)]
        assert not wrong, wrong[:10]


def run(folder: Path, rows: int, kills: int, rows_per_batch: int, say: Say) -> None:
    made = LocalCluster(folder / "cluster")
    made.make(3)
    with running(made), standalone(folder / "spark") as spark:
        fill(made.address, rows)
        killing = Killing(made, spark, rows_per_batch, say)
        try:
            for at in range(kills):
                killing.kill(KINDS[at % len(KINDS)], rows)
            killing.finish(rows)
        finally:
            killing.stop()
        count(made, folder, rows, rows_per_batch)
        say(f"{rows} rows, each once, each batch in its own range; {killing.starts} drivers,"
            f" kills: {killing.kills}")  # fmt: skip


def say_aloud(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows-per-batch", type=int, default=25_000)
    said = parser.parse_args()
    if said.kills * said.rows_per_batch > said.rows // 2:
        parser.error("too few rows: every kill needs a batch or two")
    with tempfile.TemporaryDirectory() as folder:
        run(
            Path(folder),
            said.rows,
            said.kills,
            said.rows_per_batch,
            lambda text: print(text, flush=True),
        )


if __name__ == "__main__":
    main()
