"""etcd: three members; a key per message, put over gRPC."""

import threading
import time
from pathlib import Path
from typing import Any

from samcast.bench.peers.peer import WINDOW, Processes, await_port, missing
from samcast.errors import SamcastError
from samcast.runtime.local_cluster import free_ports

PUT = "/etcdserverpb.KV/Put"
QUOTA_BYTES = 8 * 1024**3
TIMEOUT_S = 60.0
READY_S = 30.0


class Etcd:
    """Puts at the first member, which passes them on to whoever leads."""

    name = "etcd"
    promise = "fsynced on a quorum"

    def __init__(self) -> None:
        self._processes: Processes | None = None
        self._port = 0
        self._keys = 0

    def missing(self) -> str:
        """What must be installed first."""
        return missing("etcd", "etcd-server", "grpc", "grpcio")

    def start(self, folder: Path) -> None:
        """Three members."""
        self._processes = Processes(folder)
        ports = free_ports(6)
        peers = [f"http://127.0.0.1:{port}" for port in ports[3:]]
        cluster = ",".join(f"e{i}={peer}" for i, peer in enumerate(peers))
        self._port = ports[0]
        for i, peer in enumerate(peers):
            client = f"http://127.0.0.1:{ports[i]}"
            command = [
                "etcd", "--name", f"e{i}", "--data-dir", str(folder / f"e{i}"),
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--initial-cluster", cluster, "--initial-cluster-state", "new",
                "--quota-backend-bytes", str(QUOTA_BYTES), "--log-level", "error",
            ]  # fmt: skip
            self._processes.start(f"e{i}", command)
        for port in ports:
            await_port(port)
        limit = time.monotonic() + READY_S
        while True:  # until somebody leads
            try:
                self.one(b"ready", 1)
                return
            except Exception as error:
                if time.monotonic() > limit:
                    raise SamcastError(f"etcd is not ready after {READY_S:.0f} s") from error
                time.sleep(0.2)

    def stop(self) -> None:
        """End it."""
        if self._processes is not None:
            self._processes.stop()

    def _channel(self) -> Any:
        import grpc

        return grpc.insecure_channel(f"127.0.0.1:{self._port}")

    def _request(self, body: bytes) -> bytes:
        """A PutRequest: field 1 the key, field 2 the value."""
        self._keys += 1
        key = b"m%012d" % self._keys
        return b"\x0a" + _varint(len(key)) + key + b"\x12" + _varint(len(body)) + body

    def rate(self, bodies: list[bytes], window: int = WINDOW) -> float:
        """Puts whose answers are awaited later, so many on their way."""
        room = threading.Semaphore(window)
        calls: list[Any] = []
        with self._channel() as channel:
            put = channel.unary_unary(PUT)
            began = time.perf_counter()
            for body in bodies:
                room.acquire()
                call = put.future(self._request(body), timeout=TIMEOUT_S)
                call.add_done_callback(lambda _: room.release())
                calls.append(call)
            for call in calls:
                call.result()
            return time.perf_counter() - began

    def one(self, body: bytes, count: int) -> list[float]:
        """One put after the other."""
        waits: list[float] = []
        with self._channel() as channel:
            put = channel.unary_unary(PUT)
            for _ in range(count):
                began = time.perf_counter()
                put(self._request(body), timeout=TIMEOUT_S)
                waits.append((time.perf_counter() - began) * 1000)
        return waits


def _varint(number: int) -> bytes:
    """As protocol buffers write lengths."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
