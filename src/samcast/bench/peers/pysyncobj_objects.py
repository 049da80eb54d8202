"""PySyncObj: three replicas of a Python object, each in a process of its own."""

import importlib.util
import sys
from pathlib import Path

from samcast.bench.peers.peer import WINDOW
from samcast.bench.peers.workers import Workers
from samcast.runtime.local_cluster import free_ports

REPLICAS = 3


class PySyncObj:
    """A replicated method call per message, called at the first replica."""

    name = "pysyncobj"
    promise = "applied by a quorum; written to a file, not fsynced"

    def __init__(self) -> None:
        self._replicas = Workers("a replica of PySyncObj")

    def missing(self) -> str:
        """What must be installed first."""
        is_here = importlib.util.find_spec("pysyncobj") is not None
        return "" if is_here else "pip install pysyncobj"

    def start(self, folder: Path) -> None:
        """Three replicas."""
        places = [f"127.0.0.1:{port}" for port in free_ports(REPLICAS)]
        commands = []
        for i, own in enumerate(places):
            others = [place for place in places if place != own]
            commands.append([sys.executable, "-m", "samcast.bench.peers.pysyncobj_replica",
                             str(folder / f"journal-{i}"), own, *others])  # fmt: skip
        self._replicas.start(folder, commands)

    def stop(self) -> None:
        """End it."""
        self._replicas.stop()

    def rate(self, bodies: list[bytes], window: int = WINDOW) -> float:
        """Calls with a callback each."""
        return self._replicas.rate(bodies, window)

    def one(self, body: bytes, count: int) -> list[float]:
        """One call after the other."""
        return self._replicas.one(body, count)
