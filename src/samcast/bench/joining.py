"""Joining a large table under load, beside what the same costs where another cluster serves it.

A newcomer has a machine of its own in life; here it shares the processors with the nodes and the
sender. So the same process also joins an equal table of another cluster on this machine, in turn:
what is left of the difference is what serving a newcomer does to those who send.
"""

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from samcast.bench.measuring import Measuring, Result
from samcast.bench.state import KEYS, WRITES, fill
from samcast.client.blocking import Client, connect
from samcast.runtime.local_cluster import LocalCluster

BURST = 200
CALM_S = 10.0
ROUNDS = 5
MOST = 500_000  # messages for the highest rate
TURNS = 5  # of writing all keys: enough for a checkpoint that holds them all

# Keeps a rate until its input ends, and notes how long each burst took.
SENDER = """
import collections, json, sys, threading, time, samcast
address, name, pause_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
noted, waiting = [], collections.deque()
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
with samcast.connect(address) as client:
    group = client.group(name)
    bodies = [b"x" * 100] * 200
    due = time.monotonic()
    while not ended.is_set():
        waiting.append((time.monotonic(), group.send_many(bodies)))
        while waiting and waiting[0][1].is_confirmed:
            began, _ = waiting.popleft()
            noted.append((time.monotonic(), (time.monotonic() - began) * 1000))
        due = max(due + pause_s, time.monotonic() - 0.2)
        time.sleep(max(0.0, due - time.monotonic()))
print(json.dumps(noted))
"""
NEWCOMER = """
import json, os, sys, time, samcast
os.nice(19)
began, seen = time.monotonic(), []
with samcast.connect(sys.argv[1]) as client:
    table = client.table("large", progress=lambda here, of: seen.append(here))
    took = time.monotonic() - began
    table.sync()
    print(json.dumps([began, began + took, len(seen), table.content_hash()]))
"""

Stretch = tuple[float, float]


def join(m: Measuring) -> Result:
    """Processes join a large table while another one sends at half of the highest rate."""
    keys = m.scaled(KEYS)
    with _another(m) as other, m.client() as client, connect(other.address) as elsewhere:
        most_per_s = _most_per_s(m, client)
        size, expected = _make_table(client, keys)
        _make_table(elsewhere, keys)
        time.sleep(2 * CALM_S)  # until the folds have caught up, too
        memory = m.resident_mb()
        pause_s = 2 * BURST / most_per_s
        command = [sys.executable, "-c", SENDER, m.cluster.address, m.name(), str(pause_s)]
        grown = memory
        joined, beside, calm = list[Stretch](), list[Stretch](), list[Stretch]()
        found: list[tuple[int, str]] = []
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as load:
            for _ in range(ROUNDS):
                calm.append(_calm())
                joined.append(_newcomer(m.cluster, found))
                grown = m.resident_mb()
                calm.append(_calm())
                beside.append(_newcomer(other, []))
            said, _ = load.communicate()
    noted = json.loads(said)
    return {"keys": keys, "bytes": size, "most_per_s": round(most_per_s),
            "seconds_to_current": [round(end - first, 1) for first, end in joined],
            "seconds_elsewhere": [round(end - first, 1) for first, end in beside],
            "steps_of_progress": found[0][0],
            "equal": all(content == expected for _, content in found),
            "calm": _within(noted, calm), "joining": _within(noted, joined),
            "joining_elsewhere": _within(noted, beside),
            "resident_mb": memory, "resident_mb_joined": grown}  # fmt: skip


@contextlib.contextmanager
def _another(m: Measuring) -> Iterator[LocalCluster]:
    other = LocalCluster(m.cluster.folder.parent / "other")
    other.make(3)
    try:
        other.start_all()
        other.await_ready()
        yield other
    finally:
        other.stop_all()


def _most_per_s(m: Measuring, client: Client) -> float:
    group = client.group(m.name())
    bodies = m.bodies(m.scaled(MOST))
    began = time.perf_counter()
    for at in range(0, len(bodies), BURST):
        group.send_many(bodies[at : at + BURST])
    group.flush()
    return len(bodies) / (time.perf_counter() - began)


def _make_table(client: Client, keys: int) -> tuple[int, str]:
    """Until a checkpoint with all keys is advertised: its bytes, and the table's hash."""
    made = client.table("large", checkpoint_every=max(1, keys // WRITES // 4))
    for turn in range(TURNS):
        fill(made, keys, turn)
    made.sync()
    group = client.group("table/large")
    limit = time.monotonic() + 300
    while time.monotonic() < limit:
        there = group.checkpoints().checkpoints
        if there and there[-1].rows == keys:
            return there[-1].size, made.content_hash()
        time.sleep(0.5)
    raise TimeoutError(f"no checkpoint of {keys} rows is advertised")


def _calm() -> Stretch:
    time.sleep(CALM_S / 5)  # until what was before has gone by
    first = time.monotonic()
    time.sleep(CALM_S)
    return first, first + CALM_S


def _newcomer(cluster: LocalCluster, found: list[tuple[int, str]]) -> Stretch:
    command = [sys.executable, "-c", NEWCOMER, cluster.address]
    said = subprocess.run(command, capture_output=True, check=True).stdout
    first, end, steps, content = json.loads(said)
    found.append((steps, content))
    return first, end


def _within(noted: list[list[float]], stretches: list[Stretch]) -> Result:
    """What the sender saw in these stretches of time; of each by itself, the 99 %, too."""
    each = [sorted(w for at, w in noted if first <= at < end) for first, end in stretches]
    waits = sorted(wait for found in each for wait in found)
    seconds = sum(end - first for first, end in stretches)
    return {"per_s": round(BURST * len(waits) / seconds),
            "p50_ms": round(statistics.median(waits), 1), "p99_ms": _of_99(waits),
            "p99_ms_each": [_of_99(found) for found in each]}  # fmt: skip


def _of_99(waits: list[float]) -> float:
    return round(waits[int(len(waits) * 0.99)], 1)
