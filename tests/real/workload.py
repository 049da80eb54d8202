"""Senders at work against a real cluster, and a judge of what came of it.

Every body names its sender and its place. Afterwards each node is read from the beginning; all must
tell one history in which everything confirmed is there, once, under its number, in its sender's
order.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import samcast
from samcast.client.blocking import Group
from samcast.client.outbox import Receipt
from samcast.errors import NotConnectedError
from samcast.runtime.local_cluster import LocalCluster

GROUP = "work"
BURST = 50
UNDER_WAY = 2000


class Worker(threading.Thread):
    """One sender; keeps what it was told."""

    def __init__(self, address: str, name: str, pause_s: float) -> None:
        super().__init__(name=name, daemon=True)
        self._address = address
        self._pause_s = pause_s
        self._is_over = threading.Event()
        self.sent = 0
        self.numbers: dict[int, int] = {}  # place -> number
        self.confirmed_at: list[float] = []
        self.problem: BaseException | None = None
        self.began = threading.Event()  # something is confirmed, or nothing ever will be

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - told to whoever waits for this thread
            self.problem = error
            self.began.set()

    def _work(self) -> None:
        with samcast.connect(self._address) as client:
            group = client.group(GROUP)
            waiting: list[tuple[int, Receipt]] = []
            while not self._is_over.is_set():
                for _ in range(BURST):
                    self.sent += 1
                    body = f"{self.name}:{self.sent}".encode()
                    waiting.append((self.sent, group.send(body)))
                if self._pause_s:
                    self._is_over.wait(self._pause_s)
                waiting = self._settle(waiting, UNDER_WAY)
            self._settle(waiting, 0)

    def _settle(self, waiting: list[tuple[int, Receipt]], most: int) -> list[tuple[int, Receipt]]:
        while len(waiting) > most or (waiting and waiting[0][1].is_confirmed):
            place, receipt = waiting.pop(0)
            self.numbers[place] = receipt.number(60)
            self.confirmed_at.append(time.monotonic())
            self.began.set()
        return waiting

    def stop(self) -> None:
        self._is_over.set()


class Reader(threading.Thread):
    """A member that reads all the while, through whatever happens."""

    def __init__(self, address: str, *, is_listening: bool = False) -> None:
        super().__init__(name="reader", daemon=True)
        self._address = address
        self._is_listening = is_listening  # to the multicast group
        self._is_over = threading.Event()
        self.bodies: list[bytes] = []
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            with samcast.connect(self._address, multicast=self._is_listening) as client:
                group = client.group(GROUP)
                while not self._is_over.is_set():
                    self._read(group)
        except Exception as error:  # noqa: BLE001 - told to whoever waits for this thread
            self.problem = error

    def _read(self, group: Group) -> None:
        try:
            for message in group.read(len(self.bodies) + 1, timeout=0.2):
                assert message.number == len(self.bodies) + 1
                self.bodies.append(message.body)
        except NotConnectedError:
            return  # It goes on where it was.

    def check(self, history: list[bytes]) -> None:
        """It must come to see just this."""
        limit = time.monotonic() + 60
        while len(self.bodies) < len(history) and time.monotonic() < limit:
            if self.problem is not None:
                raise self.problem
            self._is_over.wait(0.05)
        self._is_over.set()
        self.join(30)
        if self.problem is not None:
            raise self.problem
        assert self.bodies == history


@contextmanager
def working(
    cluster: LocalCluster, workers: int = 2, pause_s: float = 0.01, address: str = ""
) -> Iterator[list[Worker]]:
    """Senders that work until the block is left; then all of theirs is confirmed."""
    staff = [Worker(address or cluster.address, f"w{i}", pause_s) for i in range(workers)]
    for worker in staff:
        worker.start()
    try:
        for worker in staff:
            assert worker.began.wait(60), "nothing was confirmed"
        yield staff
    finally:
        for worker in staff:
            worker.stop()
        for worker in staff:
            worker.join(120)
    for worker in staff:
        if worker.problem is not None:
            raise worker.problem
        assert not worker.is_alive(), f"{worker.name} still waits for confirmations"
        assert len(worker.numbers) == worker.sent


def history_of(cluster: LocalCluster, node: str) -> list[bytes]:
    """Everything, as one node tells it."""
    plan = cluster.plan().node(node)
    with samcast.connect(f"{plan.host}:{plan.port}") as client:
        group = client.group(GROUP)
        head = group.head()
        messages = list(group.read(1, count=head, timeout=60))
    assert [m.number for m in messages] == list(range(1, head + 1))
    return [m.body for m in messages]


def check_history(cluster: LocalCluster, staff: list[Worker]) -> list[bytes]:
    """All nodes tell one history, and it keeps what was promised; that history."""
    names = [process.plan.name for process in cluster.processes() if process.pid]
    histories = [history_of(cluster, name) for name in names]
    shortest = min(map(len, histories))
    for name, history in zip(names, histories, strict=True):
        assert history[:shortest] == histories[0][:shortest], f"{name} tells another history"
    history = max(histories, key=len)
    assert len(set(history)) == len(history), "something was numbered twice"
    for worker in staff:
        for place, number in worker.numbers.items():
            assert history[number - 1] == f"{worker.name}:{place}".encode(), (worker.name, place)
        mine = [body for body in history if body.startswith(f"{worker.name}:".encode())]
        assert mine == [f"{worker.name}:{i}".encode() for i in range(1, worker.sent + 1)]
    return history


def longest_gap_s(staff: list[Worker], since: float, until: float) -> float:
    """The longest time without a confirmation."""
    times = sorted(at for worker in staff for at in worker.confirmed_at if since <= at <= until)
    points = [since, *times, until]
    return max(b - a for a, b in pairwise(points))
