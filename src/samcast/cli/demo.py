"""The demo behind `./dev up`: a sender and a member at work, and what they see of the cluster."""

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from samcast.client.blocking import Client, connect
from samcast.errors import SamcastError
from samcast.runtime.local_cluster import LocalCluster

GROUP = "demo"
RATE_PER_S = 2000  # enough to see, little enough to leave the machine usable
TICK_S = 0.02
POLL_S = 0.5


@dataclass
class Seen:
    """What the demo shows; written by its threads, read by the screen."""

    sent: int = 0
    confirmed: int = 0
    delivered: int = 0
    gaps: int = 0
    latency_ms: float = 0.0
    longest_wait_ms: float = 0.0
    rate: float = 0.0
    nodes: list[dict[str, Any]] = field(default_factory=list)
    events: deque[str] = field(default_factory=lambda: deque(maxlen=8))
    trouble: str = ""


class Demo:
    """Runs until it is stopped."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.seen = Seen()
        self._expected = 0  # the next number for the member
        self._leader = ""
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=(work,), daemon=True)
            for work in (self._send, self._read, self._watch)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, within a second or so."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(timeout=3)

    def say(self, text: str) -> None:
        """Something happened."""
        self.seen.events.append(f"{time.strftime('%H:%M:%S')}  {text}")

    def _guard(self, work: Any) -> None:
        """What goes wrong is shown, never swallowed."""
        while not self._is_over.is_set():
            try:
                work()
                return
            except SamcastError as error:
                self.seen.trouble = str(error)
                self._is_over.wait(0.5)

    def _client(self) -> Client:
        return connect(self._cluster.address)

    def _send(self) -> None:
        client = self._client()
        group = client.group(GROUP)
        per_tick = max(1, int(RATE_PER_S * TICK_S))
        while not self._is_over.wait(TICK_S):
            began = time.monotonic()
            last = None
            for _ in range(per_tick):
                self.seen.sent += 1
                last = group.send(b"message %d" % self.seen.sent)
            assert last is not None
            last.number(60)
            waited_ms = (time.monotonic() - began) * 1000
            self.seen.confirmed += per_tick
            self.seen.trouble = ""
            self.seen.latency_ms += (waited_ms - self.seen.latency_ms) / 16
            self.seen.longest_wait_ms = max(self.seen.longest_wait_ms, waited_ms)
        client.close()

    def _read(self) -> None:
        client = self._client()
        group = client.group(GROUP)
        if not self._expected:  # The first time: after trouble it goes on where it was.
            self._expected = group.head() + 1
        while not self._is_over.is_set():
            for message in group.read(self._expected, timeout=0.5):
                self.seen.gaps += message.number != self._expected
                self._expected = message.number + 1
                self.seen.delivered += 1
                if self._is_over.is_set():
                    break
        client.close()

    def _watch(self) -> None:
        before, at = 0, time.monotonic()
        while not self._is_over.wait(POLL_S):
            now = time.monotonic()
            self.seen.rate = (self.seen.confirmed - before) / (now - at)
            before, at = self.seen.confirmed, now
            self.seen.nodes = [self._ask(p.plan, p.pid) for p in self._cluster.processes()]
            self._notice_leader()

    def _notice_leader(self) -> None:
        leading = [node for node in self.seen.nodes if node.get("sequencing")]
        if len(leading) == 1 and leading[0]["name"] != self._leader:
            self._leader = leading[0]["name"]
            self.say(
                f"{self._leader} numbers messages, epoch {leading[0].get('epoch')}; longest wait"
                f" for a confirmation so far: {self.seen.longest_wait_ms:.0f} ms"
            )

    def _ask(self, plan: Any, pid: int) -> dict[str, Any]:
        said: dict[str, Any] = {"name": plan.name, "pid": pid, "state": "down"}
        if not pid:
            return said
        try:
            client = connect(f"{plan.host}:{plan.port}")
        except SamcastError:
            said["state"] = "starting"
            return said
        try:
            said.update(client.status())
        except (SamcastError, TimeoutError):
            said["state"] = "doesn't answer"
        client.close()
        return said
