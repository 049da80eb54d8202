"""What users notice when nodes are replaced."""

import threading
import time

from samcast.bench.failures import NODES, Load
from samcast.bench.measuring import Measuring, Result
from samcast.client.administration import Administration, newcomer_at
from samcast.client.blocking import connect
from samcast.client.leading import sequencer_of
from samcast.errors import SamcastError
from samcast.machine.change import node_last

KILL_AFTER_S = 0.15
DOWN_S = 0.5
WHOLE_S = 300.0
CALM_S = 2.0


def replace(m: Measuring) -> Result:
    """Each of three nodes is replaced under load, and in the middle of each one is killed: the one
    that leaves, the one that leads, one that stays. How long nothing is confirmed, with the kill
    and, in a second turn, without."""
    found: dict[str, list[Result]] = {"with_a_kill": [], "without": []}
    with Load(m).running() as load:
        time.sleep(CALM_S)
        leaving = list(NODES)
        for turn, kind in enumerate(found):
            for at, name in enumerate(leaving):
                found[kind].append(_one(m, load, name, at if turn == 0 else None))
            leaving = [node.name for node in m.cluster.plan().present]
    for node in m.cluster.plan().present:
        m.read_back(load.group, load.bodies(), load.sent, node.name)
    return {**found, "messages": load.sent, "read_back_from_each_node": "equal"}


def _one(m: Measuring, load: Load, name: str, victim_at: int | None) -> Result:
    cluster = m.cluster
    staying = next(node.name for node in cluster.plan().present if node.name != name)
    with m.client() as client:
        admin = Administration(client, lambda text: None)
        node = cluster.prepare(node_last(admin.configuration) + 1)
        cluster.start(node.name)
        cluster.await_ready(node.name)
        newcomer = newcomer_at(f"{node.host}:{node.port}", admin.cluster)
        killer = None
        if victim_at is not None:
            victim = (name, sequencer_of(cluster), staying)[victim_at]
            killer = threading.Thread(target=_kill, args=(m, victim))
            killer.start()
        began = time.monotonic()
        admin.replace(name, newcomer, 120)
        took = time.monotonic() - began
        if killer is not None:
            killer.join()
    cluster.retire(name)
    whole = _await_whole(m, began)
    time.sleep(CALM_S)
    gap_ms = round(1000 * load.longest_gap_s(began))
    return {"replaced": name, "seconds": round(took, 2), "gap_ms": gap_ms,
            "copied_after_s": round(whole, 1)}  # fmt: skip


def _kill(m: Measuring, victim: str) -> None:
    time.sleep(KILL_AFTER_S)
    m.cluster.kill(victim)
    time.sleep(DOWN_S)
    m.cluster.start(victim)


def _await_whole(m: Measuring, began: float) -> float:
    """Until all nodes have all messages."""
    while time.monotonic() < began + WHOLE_S:
        states = []
        for node in m.cluster.plan().present:
            try:
                with connect(f"{node.host}:{node.port}") as client:
                    said = client.status()
            except (SamcastError, TimeoutError):
                said = {}
            data = said.get("data")
            states.append(isinstance(data, dict) and bool(data["is_whole"]))
        if all(states):
            return time.monotonic() - began
        time.sleep(0.1)
    raise SamcastError(f"not all nodes have all messages after {WHOLE_S:.0f} s")
