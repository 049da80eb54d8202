"""A Spark cluster of its own: a master and workers from the Spark that pip installed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from samcast.pipeline.java import ensure_java
from samcast.runtime.local_cluster import free_ports
from tests.real.striking import pause

START_S = 60.0
LAUNCHER = "org.apache.spark.deploy"


class Standalone:
    """One master and some workers with a core each; every one a group of processes."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        import pyspark

        ensure_java()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._home = Path(pyspark.__file__).parent
        ports = free_ports(2 + workers)
        self.address = f"spark://127.0.0.1:{ports[0]}"
        self._ui_ports = ports[1:]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        master = ("--host", "127.0.0.1", "--port", str(ports[0]), "--webui-port", str(ports[1]))
        self._start("master", f"{LAUNCHER}.master.Master", *master)
        self._await("master", "I have been elected leader")
        self.workers = [f"worker{at}" for at in range(1, workers + 1)]
        for name in self.workers:
            self.start_worker(name)

    def _start(self, name: str, what: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(Path.cwd()),  # for classes of the tests that workers get to see
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [self._home / "bin" / "spark-class", what, *arguments],
                stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
            )  # fmt: skip

    def start_worker(self, name: str) -> None:
        """And wait until the master knows it."""
        (self.folder / f"{name}.log").write_bytes(b"")
        work = self.folder / name
        port = self._ui_ports[int(name.removeprefix("worker"))]
        self._start(
            name, f"{LAUNCHER}.worker.Worker", "--host", "127.0.0.1", "--cores", "1",
            "--memory", "1g", "--webui-port", str(port), "--work-dir", str(work), self.address,
        )  # fmt: skip
        self._await(name, "Successfully registered with master")

    def _await(self, name: str, words: str) -> None:
        limit = time.monotonic() + START_S
        log = self.folder / f"{name}.log"
        while words not in (text := log.read_text(errors="replace")):
            if time.monotonic() > limit or self._processes[name].poll() is not None:
                raise AssertionError(f"{name} of Spark has not started:\n{text[-2000:]}")
            pause(0.1)

    def kill(self, name: str) -> None:
        """A worker with all that it runs."""
        process = self._processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """All of it."""
        for name in reversed(list(self._processes)):
            self.kill(name)


@contextlib.contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[Standalone]:
    """For as long as the block lasts."""
    made = Standalone(folder, workers)
    try:
        yield made
    finally:
        made.stop()


@contextlib.contextmanager
def master(folder: Path, is_apart: bool) -> Iterator[str]:
    """A cluster with two workers, or Spark in the process that asks for it."""
    if not is_apart:
        yield "local[*]"
        return
    with standalone(folder) as made:
        yield made.address
