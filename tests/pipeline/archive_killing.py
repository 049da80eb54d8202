"""Nothing is lost on its way to an archive: the job and the nodes are killed again and again while
a sender never stops, and the group lets go of all that is archived; then it is read back.

    python -m tests.pipeline.archive_killing --kills 10

What was confirmed is hashed by the sender, what is read back by `sha256sum` over what `samcast
read --archive` prints.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import samcast
from samcast.archive.index import ABOUT, open_archive
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.order import Keep
from tests.pipeline.standalone import master
from tests.real.conftest import running
from tests.real.striking import pause

PROGRESS_S = 240.0
COLLECT_S = 120.0
JOB, NODE = "job", "node"
PROGRAM = str(Path(sys.executable).with_name("samcast"))
Say = Callable[[str], None]

# Sends as fast as it is let, until its input ends; then says how much was confirmed, and its hash.
SENDER = """
import hashlib, sys, threading, samcast
address, most = sys.argv[1], int(sys.argv[2])
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
digest, row = hashlib.sha256(), 0
with samcast.connect(address) as client:
    group = client.group("orders")
    while not ended.is_set() and row < most:
        bodies = [b"%015d" % at + b"x" * 80 for at in range(row, row + 1000)]
        group.send_many(bodies)
        digest.update(b"".join(body + b"\\n" for body in bodies))
        row += len(bodies)
    ended.wait()
    group.flush(300)
print(row, digest.hexdigest())
"""


class Archiving:
    """The job, which is started again whenever it isn't there."""

    def __init__(self, cluster: LocalCluster, folder: Path, rows: int, spark: str) -> None:
        self._cluster = cluster
        self._master = spark
        self.place = folder / "archive"
        self._log = folder / "job.log"
        self._rows = rows
        self._job: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def _command(self, *more: str) -> list[str]:
        return [PROGRAM, "pipeline", "archive", "orders", "--to", str(self.place), "--cluster",
                self._cluster.address, "--rows", str(self._rows), "--master", self._master,
                *more]  # fmt: skip

    def start(self) -> None:
        if self._job is not None and self._job.poll() is None:
            return
        self.starts += 1
        with self._log.open("ab") as log:
            self._job = subprocess.Popen(
                self._command("--every", "1"), stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        if self._job is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._job.pid, signal.SIGKILL)
            self._job.wait()

    def end(self) -> int:
        return open_archive(self.place).end if (self.place / ABOUT).exists() else 1

    def await_more(self) -> None:
        """Until another part is there."""
        before, limit = self.end(), time.monotonic() + PROGRESS_S
        while self.end() <= before:
            self.start()
            if time.monotonic() > limit:
                log = self._log.read_text(errors="replace")
                raise AssertionError(f"no progress; the end of the job's log:\n{log[-3000:]}")
            pause(0.1)

    def finish(self) -> None:
        """All that there is."""
        self.kill()
        subprocess.run(self._command("--once"), check=True, capture_output=True)


@contextlib.contextmanager
def sending(cluster: LocalCluster, most: int) -> Iterator[Callable[[], tuple[int, str]]]:
    command = [sys.executable, "-c", SENDER, cluster.address, str(most)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sender:

        def stop() -> tuple[int, str]:
            said, _ = sender.communicate()
            rows, digest = said.decode().split()
            return int(rows), digest

        try:
            yield stop
        finally:
            sender.kill()


def await_gone(cluster: LocalCluster, rows: int) -> int:
    """Until all that nobody holds has gone; the oldest that is left."""
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        assert group.head() == rows
        limit = time.monotonic() + COLLECT_S
        while group.oldest() <= rows // 2:
            assert time.monotonic() < limit, "nothing is collected"
            pause(0.2)
        return group.oldest()


def read_back(cluster: LocalCluster, place: Path) -> str:
    command = [PROGRAM, "read", "orders", "--from", "1", "--raw", "--archive", str(place),
               "--cluster", cluster.address]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        hashed = subprocess.run(
            ["sha256sum"], stdin=reader.stdout, capture_output=True, check=True, text=True
        )
    assert reader.returncode == 0
    return hashed.stdout.split()[0]


def run(folder: Path, kills: int, most: int, rows: int, say: Say, spark: str) -> None:
    chance = random.Random(11)
    made = LocalCluster(folder / "cluster")
    made.make(3)
    with running(made), sending(made, most) as stop:
        with samcast.connect(made.address) as client:
            client.group("orders")
        job = Archiving(made, folder, rows, spark)
        try:
            job.await_more()
            with samcast.connect(made.address) as client:
                # From now on all goes that isn't held: what is archived is gone soon after.
                client.group("orders").set_keep(Keep(count=1))
            for at in range(kills):
                job.await_more()
                pause(chance.random() * 2)
                if at % 2 == 0:
                    job.kill()
                else:
                    name = chance.choice([node.name for node in made.plan().present])
                    made.kill(name)
                    pause(1)
                    made.start(name)
                say(f"killed: {NODE if at % 2 else JOB}; {job.end() - 1} messages archived")
            sent, digest = stop()
            job.finish()
        finally:
            job.kill()
        assert job.end() == sent + 1
        oldest = await_gone(made, sent)
        subprocess.run([PROGRAM, "archive", "verify", str(job.place)], check=True)
        assert read_back(made, job.place) == digest, "what was read back is not what was confirmed"
        say(f"{sent} messages confirmed, archived and read back from the first on, equal by their"
            f" hash; the cluster itself begins with {oldest}; {job.starts} jobs")  # fmt: skip


def say_it(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--most", type=int, default=40_000_000, help="messages, at most")
    parser.add_argument("--rows", type=int, default=500_000, help="of a part")
    parser.add_argument("--standalone", action="store_true", help="on Spark with two workers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="samcast-kills-", dir=Path.cwd()) as place:
        folder = Path(place)
        with master(folder / "spark", options.standalone) as spark:
            run(folder, options.kills, options.most, options.rows, say_it, spark)


if __name__ == "__main__":
    main()
