"""What all measurements share: a cluster, names, and another process that reads back."""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from samcast.client.blocking import Client, connect
from samcast.errors import SamcastError
from samcast.runtime.local_cluster import LocalCluster

BODY_BYTES = 100
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
READ_BACK = """
import hashlib, sys, samcast
digest = hashlib.sha256()
with samcast.connect(sys.argv[1]) as client:
    for message in client.group(sys.argv[2]).read(1, count=int(sys.argv[3]), timeout=30):
        digest.update(message.body)
print(digest.hexdigest())
"""

Result = dict[str, Any]


class Measuring:
    """One cluster under measurement."""

    def __init__(self, cluster: LocalCluster, scale: float) -> None:
        self.cluster = cluster
        self._scale = scale
        self._groups = 0

    def client(self) -> Client:
        """A client of its own."""
        return connect(self.cluster.address)

    def name(self) -> str:
        """A group that nobody has used."""
        self._groups += 1
        return f"bench-{self._groups}"

    def scaled(self, count: float) -> int:
        """So many, or as much less as was asked for."""
        return max(10, int(count * self._scale))

    def bodies(self, count: int, first: int = 0) -> list[bytes]:
        """Messages of the usual size."""
        return [(b"%08d" % i).ljust(BODY_BYTES, b"x") for i in range(first, first + count)]

    def read_back(self, group: str, bodies: Iterable[bytes], count: int, node: str = "") -> Result:
        """Another process reads it all, from any node or a certain one; its hash must be ours."""
        address = self.cluster.address
        if node:
            plan = self.cluster.plan().node(node)
            address = f"{plan.host}:{plan.port}"
        began = time.perf_counter()
        command = [sys.executable, "-c", READ_BACK, address, group, str(count)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        took = time.perf_counter() - began
        digest = hashlib.sha256()
        for body in bodies:
            digest.update(body)
        if found.stdout.strip() != digest.hexdigest():
            raise SamcastError(f"what was read back is not what was confirmed: {found.stderr}")
        return {"read_back": "equal", "read_per_s": round(count / took)}

    def resident_mb(self) -> dict[str, float]:
        """Memory of each node's process."""
        found: dict[str, float] = {}
        for process in self.cluster.processes():
            if process.pid:
                text = Path(f"/proc/{process.pid}/status").read_text()
                line = next(row for row in text.splitlines() if row.startswith("VmRSS"))
                found[process.plan.name] = round(int(line.split()[1]) / 1024, 1)
        return found

    def cpu_s(self) -> tuple[float, float]:
        """Processor time of all nodes so far: their own, and the kernel's for them."""
        own = kernel = 0.0
        for process in self.cluster.processes():
            if process.pid:
                fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                own += int(fields[11]) / TICKS_PER_S
                kernel += int(fields[12]) / TICKS_PER_S
        return own, kernel
