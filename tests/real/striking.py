"""How faults strike while senders work; what came of it is judged afterwards.

`./dev faults` lets each last for longer than the tests do.
"""

import os
import signal
import threading
from collections.abc import Callable

from samcast.runtime.local_cluster import LocalCluster
from tests.real.workload import Reader, Worker, check_history, working

SECONDS = float(os.environ.get("SAMCAST_FAULT_SECONDS", "4"))
NODES = ("n1", "n2", "n3")


def hear_ctrl_c() -> None:
    """In a child before it runs: who was started in the background may have been told not to."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def pause(seconds: float) -> None:
    """Let the senders work."""
    threading.Event().wait(seconds)


def every(seconds: float, strike: Callable[[], None]) -> None:
    """Strike again and again for as long as a fault lasts here."""
    for _ in range(max(1, int(SECONDS / seconds))):
        pause(seconds)
        strike()


def judged(cluster: LocalCluster, strike: Callable[[], None], workers: int = 2) -> list[Worker]:
    """Senders and a reader at work, a fault among them; then everything confirmed must be there,
    once, for everybody."""
    reader = Reader(cluster.address, is_listening=bool(cluster.plan().multicast))
    reader.start()
    with working(cluster, workers) as staff:
        pause(0.3)
        strike()
        pause(0.3)
    history = check_history(cluster, staff)
    assert history
    reader.check(history)
    return staff


def restart(cluster: LocalCluster, name: str) -> None:
    """Start a node that isn't running, and wait for it."""
    cluster.start(name)
    cluster.await_ready()
