"""`samcast bench`: what a cluster on this machine does, measured through the shipped client.

A rate counts from the first send until the last confirm has come back; what was confirmed is then
read back by another process and compared by its hash.
"""

import hashlib
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from samcast.errors import SamcastError

BODY_BYTES = 100
LARGE_BYTES = 1_000_000
READ_BACK = """
import hashlib, sys, samcast
digest = hashlib.sha256()
with samcast.connect(sys.argv[1]) as client:
    for message in client.group(sys.argv[2]).read(1, count=int(sys.argv[3]), timeout=30):
        digest.update(message.body)
print(digest.hexdigest())
"""


class Bench:
    """Measurements of one cluster."""

    def __init__(self, cluster: Any, scale: float) -> None:
        self._cluster = cluster
        self._scale = scale
        self._groups = 0

    def _client(self) -> Any:
        from samcast.client.blocking import connect

        return connect(self._cluster.address)

    def _name(self) -> str:
        self._groups += 1
        return f"bench-{self._groups}"

    def _scaled(self, count: int) -> int:
        return max(10, int(count * self._scale))

    def _read_back(self, group: str, bodies: list[bytes], repeat: int = 1) -> dict[str, Any]:
        """Another process reads it all; its hash must be ours."""
        count = len(bodies) * repeat
        began = time.perf_counter()
        command = [sys.executable, "-c", READ_BACK, self._cluster.address, group, str(count)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        took = time.perf_counter() - began
        digest = hashlib.sha256()
        for _ in range(repeat):
            for body in bodies:
                digest.update(body)
        if found.stdout.strip() != digest.hexdigest():
            raise SamcastError(f"what was read back is not what was confirmed: {found.stderr}")
        return {"read_back": "equal", "read_per_s": round(count / took)}

    def _rate(self, count: int, send: Callable[[Any, list[bytes]], None]) -> dict[str, Any]:
        bodies = [(b"%08d" % i).ljust(BODY_BYTES, b"x") for i in range(count)]
        group = self._name()
        with self._client() as client:
            target = client.group(group)
            began = time.perf_counter()
            send(target, bodies)
            target.flush()
            took = time.perf_counter() - began
        result = {"messages": count, "seconds": round(took, 3), "per_s": round(count / took)}
        return {**result, **self._read_back(group, bodies)}

    def send(self) -> dict[str, Any]:
        """`send()` in a loop, 100-byte messages."""

        def loop(target: Any, bodies: list[bytes]) -> None:
            send = target.send
            for body in bodies:
                send(body)

        return self._rate(self._scaled(1_000_000), loop)

    def many(self) -> dict[str, Any]:
        """`send_many`, 100-byte messages."""
        return self._rate(self._scaled(3_000_000), lambda target, bodies: target.send_many(bodies))

    def one(self) -> dict[str, Any]:
        """One message in flight: how long until it is confirmed."""
        waits: list[float] = []
        with self._client() as client:
            target = client.group(self._name())
            for _ in range(self._scaled(3000)):
                began = time.perf_counter()
                target.send(b"x" * BODY_BYTES).number()
                waits.append((time.perf_counter() - began) * 1000)
        waits.sort()
        return {"messages": len(waits), "p50_ms": round(statistics.median(waits), 3),
                "p99_ms": round(waits[int(len(waits) * 0.99)], 3)}  # fmt: skip

    def large(self) -> dict[str, Any]:
        """Messages of 1 MB."""
        count = self._scaled(500)
        body = bytes(range(250)) * (LARGE_BYTES // 250)
        group = self._name()
        with self._client() as client:
            target = client.group(group)
            began = time.perf_counter()
            for _ in range(count):
                target.send(body)
            target.flush()
            took = time.perf_counter() - began
        result = {"messages": count, "mb_per_s": round(count * LARGE_BYTES / took / 1e6, 1)}
        return {**result, **self._read_back(group, [body], count)}

    def failover(self) -> dict[str, Any]:
        """The sequencer is killed under load: how long nothing is confirmed."""
        gaps: list[float] = []
        group = self._name()
        is_over = threading.Event()
        confirmed: list[float] = []
        bodies: list[bytes] = []

        def work() -> None:
            with self._client() as client:
                target = client.group(group)
                while not is_over.is_set():
                    burst = [b"%d" % (len(bodies) + i) for i in range(100)]
                    bodies.extend(burst)
                    target.send_many(burst).number()
                    confirmed.append(time.monotonic())

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(max(3, int(5 * self._scale))):
            time.sleep(2)
            name = self._sequencer()
            killed_at = time.monotonic()
            self._cluster.kill(name)
            time.sleep(2)
            times = [killed_at, *[at for at in confirmed if at > killed_at]]
            gaps.append(max(b - a for a, b in itertools.pairwise(times)))
            self._cluster.start(name)
            self._cluster.await_ready()
        is_over.set()
        thread.join()
        result = {"kills": len(gaps), "gaps_ms": [round(gap * 1000) for gap in sorted(gaps)]}
        return {**result, **self._read_back(group, bodies)}

    def _sequencer(self) -> str:
        from samcast.client.blocking import connect

        for _ in range(100):
            for process in self._cluster.processes():
                if process.pid:
                    with connect(f"{process.plan.host}:{process.plan.port}") as client:
                        if client.status()["sequencing"]:
                            return str(process.plan.name)
            time.sleep(0.05)
        raise SamcastError("nobody leads")

    def restart(self) -> dict[str, Any]:
        """A node is killed and started: how long until it votes again."""
        from samcast.client.blocking import connect

        node = self._cluster.plan().nodes[0]
        self._cluster.kill(node.name)
        began = time.perf_counter()
        self._cluster.start(node.name)
        while True:
            try:
                with connect(f"{node.host}:{node.port}") as client:
                    said = client.status()
            except SamcastError:
                time.sleep(0.005)
                continue
            if said["sequencing"] or (said["leader"] and said["state"] == "following"):
                break
            time.sleep(0.005)
        return {"seconds": round(time.perf_counter() - began, 3)}


WHAT = ("send", "many", "one", "large", "failover", "restart")


def run(
    what: Annotated[list[str] | None, typer.Argument(help=", ".join(WHAT))] = None,
    scale: Annotated[float, typer.Option(help="Do so much of the usual amount.")] = 1.0,
    folder: Annotated[Path | None, typer.Option("--dir", help="On which disk; a new one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Measure a fresh cluster of three nodes on this machine."""
    from samcast.runtime.local_cluster import LocalCluster

    chosen = what or list(WHAT)
    unknown = [name for name in chosen if name not in WHAT]
    if unknown:
        raise SamcastError(
            f"no such measurement: {', '.join(unknown)}; there are {', '.join(WHAT)}"
        )
    place = Path(tempfile.mkdtemp(prefix="samcast-bench-", dir=folder or Path.cwd()))
    cluster = LocalCluster(place / "cluster")
    results: dict[str, Any] = {}
    try:
        cluster.make(3)
        cluster.start_all()
        cluster.await_ready()
        bench = Bench(cluster, scale)
        for name in chosen:
            results[name] = getattr(bench, name)()
            if not as_json:
                typer.echo(f"{name:9} {json.dumps(results[name])}")
    finally:
        cluster.stop_all()
        shutil.rmtree(place)
    if as_json:
        typer.echo(json.dumps(results))
