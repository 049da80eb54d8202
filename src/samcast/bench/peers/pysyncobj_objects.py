"""PySyncObj: three replicas of a Python object, one of them in the process that sends."""

import importlib.util
import sys
import threading
import time
from pathlib import Path
from typing import Any

from samcast.bench.peers.peer import WINDOW, Processes
from samcast.bench.peers.pysyncobj_replica import READY_S, replica
from samcast.errors import SamcastError
from samcast.runtime.local_cluster import free_ports


class PySyncObj:
    """A replicated method call per message."""

    name = "pysyncobj"
    promise = "applied by a quorum; written to a file, not fsynced"

    def __init__(self) -> None:
        self._processes: Processes | None = None
        self._own: Any = None

    def missing(self) -> str:
        """What must be installed first."""
        is_here = importlib.util.find_spec("pysyncobj") is not None
        return "" if is_here else "pip install pysyncobj"

    def start(self, folder: Path) -> None:
        """Two other replicas, and ours."""
        self._processes = Processes(folder)
        places = [f"127.0.0.1:{port}" for port in free_ports(3)]
        for i in (1, 2):
            others = [place for place in places if place != places[i]]
            command = [sys.executable, "-m", "samcast.bench.peers.pysyncobj_replica",
                       str(folder / f"journal-{i}"), places[i], *others]  # fmt: skip
            self._processes.start(f"pysyncobj-{i}", command)
        self._own = replica(str(folder / "journal-0"), places[0], places[1:])
        limit = time.monotonic() + READY_S
        while not self._own.isReady():
            if time.monotonic() > limit:
                raise SamcastError(f"PySyncObj is not ready after {READY_S:.0f} s")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it."""
        if self._own is not None:
            self._own.destroy()
        if self._processes is not None:
            self._processes.stop()

    def rate(self, bodies: list[bytes], window: int = WINDOW) -> float:
        """Calls with a callback each."""
        room = threading.Semaphore(window)
        failed: list[object] = []

        def on_done(result: object, error: object) -> None:
            if error:
                failed.append(error)
            room.release()

        began = time.perf_counter()
        for body in bodies:
            room.acquire()
            self._own.take(body, callback=on_done)
        for _ in range(window):
            room.acquire()
        took = time.perf_counter() - began
        if failed:
            raise SamcastError(f"PySyncObj failed: {failed[0]}")
        return took

    def one(self, body: bytes, count: int) -> list[float]:
        """One call after the other."""
        waits: list[float] = []
        for _ in range(count):
            began = time.perf_counter()
            self._own.take(body, sync=True)
            waits.append((time.perf_counter() - began) * 1000)
        return waits
