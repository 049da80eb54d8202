"""Samcast itself, measured by the same harness."""

import time
from pathlib import Path

from samcast.bench.peers.peer import WINDOW
from samcast.client.blocking import connect
from samcast.runtime.local_cluster import LocalCluster


class Samcast:
    """Three nodes with all roles."""

    promise = "fsynced on 2 of 3, payload and order"

    def __init__(self, multicast: str = "") -> None:
        self.name = "samcast-multicast" if multicast else "samcast"
        self._multicast = multicast
        self._cluster: LocalCluster | None = None
        self._groups = 0

    def missing(self) -> str:
        """Nothing."""
        return ""

    def start(self, folder: Path) -> None:
        """Start a new cluster in a folder."""
        self._cluster = LocalCluster(folder)
        self._cluster.make(3, multicast=self._multicast)
        self._cluster.start_all()
        self._cluster.await_ready()

    def stop(self) -> None:
        """End it."""
        if self._cluster is not None:
            self._cluster.stop_all()

    def rate(self, bodies: list[bytes], window: int = WINDOW) -> float:
        """`send()` in a loop; the client has a window of its own, in bytes."""
        assert self._cluster is not None
        self._groups += 1
        with connect(self._cluster.address) as client:
            target = client.group(f"rate-{self._groups}")
            began = time.perf_counter()
            for body in bodies:
                target.send(body)
            target.flush()
            return time.perf_counter() - began

    def one(self, body: bytes, count: int) -> list[float]:
        """`send().number()` in a loop."""
        assert self._cluster is not None
        waits: list[float] = []
        with connect(self._cluster.address) as client:
            target = client.group("one")
            for _ in range(count):
                began = time.perf_counter()
                target.send(body).number()
                waits.append((time.perf_counter() - began) * 1000)
        return waits
