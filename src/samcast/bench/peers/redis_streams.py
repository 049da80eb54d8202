"""Redis: a stream on a primary with two replicas; WAIT for one of them."""

import time
from pathlib import Path
from typing import Any

from samcast.bench.peers.peer import WINDOW, Processes, await_port, missing
from samcast.runtime.local_cluster import free_ports


class RedisStreams:
    """XADD, then WAIT 1."""

    name = "redis"
    promise = "in memory of the primary and one replica; fsynced every second"

    def __init__(self) -> None:
        self._processes: Processes | None = None
        self._port = 0

    def missing(self) -> str:
        """What must be installed first."""
        return missing("redis-server", "redis-server", "redis", "redis")

    def start(self, folder: Path) -> None:
        """A primary and two replicas."""
        self._processes = Processes(folder)
        ports = free_ports(3)
        self._port = ports[0]
        for i, port in enumerate(ports, 1):
            place = folder / f"redis-{i}"
            place.mkdir()
            command = ["redis-server", "--port", str(port), "--dir", str(place), "--bind",
                       "127.0.0.1", "--appendonly", "yes", "--save", ""]  # fmt: skip
            if i > 1:
                command += ["--replicaof", "127.0.0.1", str(self._port)]
            self._processes.start(f"redis-{i}", command)
        for port in ports:
            await_port(port)
        client = self._client()
        while client.execute_command("WAIT", 2, 1000) < 2:
            client.set("ready", "yes")

    def _client(self) -> Any:
        import redis

        return redis.Redis(port=self._port)

    def stop(self) -> None:
        """End it."""
        if self._processes is not None:
            self._processes.stop()

    def rate(self, bodies: list[bytes], window: int = WINDOW) -> float:
        """Pipelines of a window, each ended by WAIT."""
        client = self._client()
        began = time.perf_counter()
        for first in range(0, len(bodies), window):
            pipeline = client.pipeline(transaction=False)
            for body in bodies[first : first + window]:
                pipeline.xadd("s", {"b": body})
            pipeline.execute_command("WAIT", 1, 0)
            pipeline.execute()
        return time.perf_counter() - began

    def one(self, body: bytes, count: int) -> list[float]:
        """XADD and WAIT in one round trip."""
        client = self._client()
        waits: list[float] = []
        for _ in range(count):
            began = time.perf_counter()
            pipeline = client.pipeline(transaction=False)
            pipeline.xadd("one", {"b": body})
            pipeline.execute_command("WAIT", 1, 0)
            pipeline.execute()
            waits.append((time.perf_counter() - began) * 1000)
        return waits
