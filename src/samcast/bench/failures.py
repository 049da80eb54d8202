"""What users notice when something fails."""

import itertools
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from samcast.bench.measuring import Measuring, Result
from samcast.client.blocking import connect
from samcast.client.leading import sequencer_of
from samcast.client.outbox import Receipt
from samcast.errors import SamcastError

BURST = 100
UNDER_WAY = 20  # bursts
NODES = ("n1", "n2", "n3")


class Load:
    """A sender that never stops, and when what was confirmed."""

    def __init__(self, m: Measuring) -> None:
        self._m = m
        self.group = m.name()
        self.sent = 0
        self.confirmed_at: list[float] = []
        self.problem: Exception | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            with self._m.client() as client:
                target = client.group(self.group)
                waiting: list[Receipt] = []
                while not self._is_over.is_set():
                    burst = [b"%d" % (self.sent + i) for i in range(BURST)]
                    self.sent += BURST
                    receipt = target.send_many(burst)
                    assert receipt is not None
                    waiting.append(receipt)
                    while len(waiting) > UNDER_WAY or (waiting and waiting[0].is_confirmed):
                        waiting.pop(0).number()
                        self.confirmed_at.append(time.monotonic())
        except Exception as error:  # noqa: BLE001 - told by whoever ends the load
            self.problem = error

    def bodies(self) -> Iterator[bytes]:
        """All that was sent, in order."""
        return (b"%d" % i for i in range(self.sent))

    def longest_gap_s(self, since: float) -> float:
        """The longest time without a confirmation."""
        times = [since, *[at for at in self.confirmed_at if at > since]]
        return max((b - a for a, b in itertools.pairwise(times)), default=time.monotonic() - since)

    @contextmanager
    def running(self) -> Iterator["Load"]:
        """Until the block is left; then all of it is confirmed."""
        self._thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            self._thread.join(60)
        if self.problem is not None:
            raise self.problem


def _distribution(gaps_s: list[float]) -> Result:
    ms = sorted(round(gap * 1000) for gap in gaps_s)
    return {"kills": len(ms), "gap_ms_min": ms[0], "gap_ms_median": round(statistics.median(ms)),
            "gap_ms_p90": ms[int(len(ms) * 0.9)], "gap_ms_max": ms[-1]}  # fmt: skip


def failover(m: Measuring) -> Result:
    """The sequencer is killed every 2 seconds under load, then all nodes at once: how long nothing
    is confirmed; afterwards each node must tell the same."""
    gaps: list[float] = []
    with Load(m).running() as load:
        time.sleep(1)
        for _ in range(max(3, m.scaled(60))):
            name = sequencer_of(m.cluster)
            began = time.monotonic()
            m.cluster.kill(name)
            time.sleep(1)
            m.cluster.start(name)
            m.cluster.await_ready()
            time.sleep(max(0.0, began + 2 - time.monotonic()))
            gaps.append(load.longest_gap_s(began))
        began = time.monotonic()
        for process in m.cluster.processes():
            os.kill(process.pid, signal.SIGKILL)
        for name in NODES:
            m.cluster.kill(name)
        m.cluster.start_all()
        m.cluster.await_ready()
        time.sleep(2)
        all_down_s = load.longest_gap_s(began)
    for name in NODES:
        m.read_back(load.group, load.bodies(), load.sent, name)
    return {**_distribution(gaps), "all_killed_gap_ms": round(all_down_s * 1000),
            "messages": load.sent, "read_back_from_each_node": "equal"}  # fmt: skip


def restart(m: Measuring) -> Result:
    """A node is killed and started: how long until it votes again."""
    node = m.cluster.plan().present[0]
    took: list[float] = []
    for _ in range(5):
        m.cluster.kill(node.name)
        began = time.perf_counter()
        m.cluster.start(node.name)
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
        took.append(time.perf_counter() - began)
    return {"seconds_median": round(statistics.median(took), 3), "seconds_max": round(max(took), 3)}


SLOW_READER = """
import sys, time, samcast
with samcast.connect(sys.argv[1]) as client:
    for i, message in enumerate(client.group(sys.argv[2]).read(1)):
        if i % 100 == 0:
            time.sleep(1)
"""


def stalled(m: Measuring) -> Result:
    """A stopped reader, a slow reader, and a stopped server: what the others notice."""
    results: Result = {}

    def rate(what: str) -> None:
        group = m.name()
        bodies = m.bodies(m.scaled(500_000))
        with m.client() as client:
            target = client.group(group)
            began = time.perf_counter()
            target.send_many(bodies)
            target.flush()
            took = time.perf_counter() - began
        results[what] = {"per_s": round(len(bodies) / took), "resident_mb": m.resident_mb()}

    rate("healthy")
    for what, number in (("reader_stopped", signal.SIGSTOP), ("reader_slow", None)):
        command = [sys.executable, "-c", SLOW_READER, m.cluster.address, "bench-1"]
        with subprocess.Popen(command) as reader:
            time.sleep(1)
            if number is not None:
                reader.send_signal(number)
            rate(what)
            reader.kill()
    leader = sequencer_of(m.cluster)
    idle = next(name for name in NODES if name != leader)
    m.cluster.kill(idle, signal.SIGSTOP)
    try:
        rate("server_stopped")
    finally:
        m.cluster.kill(idle, signal.SIGCONT)
    rate("healthy_again")
    return results
