"""NATS: a JetStream stream with three replicas in files."""

import asyncio
import time
from pathlib import Path
from typing import Any

from samcast.bench.peers.peer import WINDOW, Processes, await_port, missing
from samcast.runtime.local_cluster import free_ports


class NatsJetStream:
    """Publish, wait for the acknowledgement of the stream's leader."""

    def __init__(self, *, is_synced: bool) -> None:
        self.name = "nats-sync" if is_synced else "nats"
        when = "fsynced on a quorum" if is_synced else "written on a quorum, fsynced within 2 min"
        self.promise = when
        self._is_synced = is_synced
        self._processes: Processes | None = None
        self._ports: list[int] = []

    def missing(self) -> str:
        """What must be installed first."""
        return missing("nats-server", "nats-server", "nats", "nats-py")

    def start(self, folder: Path) -> None:
        """Three servers."""
        self._processes = Processes(folder)
        self._ports, routes = free_ports(3), free_ports(3)
        peers = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
        sync = "sync_interval: always" if self._is_synced else ""
        for i, (port, route) in enumerate(zip(self._ports, routes, strict=True), 1):
            config = folder / f"nats-{i}.conf"
            config.write_text(
                f'server_name: n{i}\nhost: "127.0.0.1"\nport: {port}\nmax_payload: 8MB\n'
                f'jetstream {{ store_dir: "{folder}/nats-{i}"\n {sync} }}\n'
                f'cluster {{ name: bench, host: "127.0.0.1", port: {route}, routes: [{peers}] }}\n'
            )
            self._processes.start(f"nats-{i}", ["nats-server", "-c", str(config)])
        for port in self._ports:
            await_port(port)
        asyncio.run(self._make_stream())

    async def _make_stream(self) -> None:
        client = await self._connect()
        for _ in range(60):
            try:
                stream = client.jetstream()
                await stream.add_stream(name="bench", subjects=["bench.*"], num_replicas=3)
                break
            except Exception:  # noqa: BLE001 - no leader yet, in whatever words the client says so
                await asyncio.sleep(0.5)
        await client.close()

    async def _connect(self) -> Any:
        import nats

        return await nats.connect([f"nats://127.0.0.1:{port}" for port in self._ports])

    def stop(self) -> None:
        """End it."""
        if self._processes is not None:
            self._processes.stop()

    def rate(self, bodies: list[bytes], window: int = WINDOW) -> float:
        """A window of publishes under way."""

        async def main() -> float:
            client = await self._connect()
            stream = client.jetstream()
            room = asyncio.Semaphore(window)

            async def publish(body: bytes) -> None:
                try:
                    await stream.publish("bench.rate", body, timeout=60)
                finally:
                    room.release()

            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for body in bodies:
                    await room.acquire()
                    group.create_task(publish(body))
            took = time.perf_counter() - began
            await client.close()
            return took

        return asyncio.run(main())

    def one(self, body: bytes, count: int) -> list[float]:
        """Publishes one after the other."""

        async def main() -> list[float]:
            client = await self._connect()
            stream = client.jetstream()
            waits: list[float] = []
            for _ in range(count):
                began = time.perf_counter()
                await stream.publish("bench.one", body, timeout=60)
                waits.append((time.perf_counter() - began) * 1000)
            await client.close()
            return waits

        return asyncio.run(main())
