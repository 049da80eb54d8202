"""What becomes of cost and memory when there is more of everything, or it goes on for long."""

import os
import shutil
import subprocess
import sys
import time

from samcast.bench.failures import NODES
from samcast.bench.measuring import Measuring, Result
from samcast.client.blocking import connect
from samcast.client.leading import sequencer_of

PROBE = 200_000  # messages whose cost is measured ...
REPEATS = 5  # ... so many times
GROUPS = 1000
ROOM_BYTES = 8 * 1024**3


def _cost(m: Measuring, target_name: str) -> Result:
    """Rate and the nodes' processor time per message, for some messages more."""
    bodies = m.bodies(m.scaled(PROBE))
    with m.client() as client:
        target = client.group(target_name)
        target.send(b"ready").number()
        own, kernel = m.cpu_s()
        began = time.perf_counter()
        for _ in range(REPEATS):
            target.send_many(bodies)
            target.flush()
        took = time.perf_counter() - began
        own_after, kernel_after = m.cpu_s()
    count = REPEATS * len(bodies)
    return {"per_s": round(count / took), "own_cpu_us": round((own_after - own) / count * 1e6, 2),
            "kernel_cpu_us": round((kernel_after - kernel) / count * 1e6, 2),
            "resident_mb": m.resident_mb()}  # fmt: skip


def stored(m: Measuring) -> Result:
    """Cost per message with 10 thousand, 1 million and 10 million messages stored."""
    results: Result = {}
    name = m.name()
    held = 0
    for goal in (10_000, 1_000_000, 10_000_000):
        goal = m.scaled(goal)
        with m.client() as client:
            target = client.group(name)
            while held < goal:
                bodies = m.bodies(min(100_000, goal - held), held)
                target.send_many(bodies)
                held += len(bodies)
            target.flush()
        results[f"at_{goal}"] = cost = _cost(m, name)
        held += REPEATS * m.scaled(PROBE) + 1
        cost["stored"] = held
    return results


def groups(m: Measuring) -> Result:
    """Cost per message with one group, and with a thousand that have all been used."""
    results: Result = {"groups_1": _cost(m, m.name())}
    with m.client() as client:
        for i in range(m.scaled(GROUPS)):
            client.group(f"one-of-many-{i}").send(b"x")
    results[f"groups_{m.scaled(GROUPS)}"] = _cost(m, m.name())
    return results


def soak(m: Measuring) -> Result:
    """Full load beside two busy loops for ten minutes, or until the disk is nearly full (it takes
    some 80 GB): elections, memory, rate."""
    sequencer_of(m.cluster)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    samples: list[Result] = []
    seconds = m.scaled(600)
    try:
        epoch = _epoch(m)
        began = time.monotonic()
        with m.client() as client:
            target = client.group(m.name())
            sent = before = 0
            next_s = seconds / 10
            bodies = m.bodies(20_000)
            while time.monotonic() - began < seconds and has_room(m):
                target.send_many(bodies)
                sent += len(bodies)
                if time.monotonic() - began >= next_s:
                    target.flush()
                    samples.append({"per_s": round((sent - before) / (seconds / 10)),
                                    "resident_mb": m.resident_mb()})  # fmt: skip
                    before, next_s = sent, next_s + seconds / 10
        took_s = round(time.monotonic() - began)
        elections = _epoch(m) - epoch
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return {"seconds": took_s, "processors": os.cpu_count(), "messages": sent,
            "elections": elections, "samples": samples}  # fmt: skip


def has_room(m: Measuring) -> bool:
    """Whether the disk has enough left for others."""
    return shutil.disk_usage(m.cluster.folder).free > ROOM_BYTES


def _epoch(m: Measuring) -> int:
    """How often somebody was elected so far."""
    found = 0
    for name in NODES:
        node = m.cluster.plan().node(name)
        with connect(f"{node.host}:{node.port}") as client:
            found = max(found, int(str(client.status()["epoch"])))
    return found
