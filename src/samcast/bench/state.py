"""State under load: tables, and a disk that stays as it is."""

import statistics
import threading
import time
from pathlib import Path

from samcast.bench.comparison import running
from samcast.bench.measuring import Measuring, Result
from samcast.bench.peers.etcd_keys import Etcd
from samcast.bench.peers.pysyncobj_objects import PySyncObj
from samcast.client.table import ReplicatedTable
from samcast.wire.order import Keep

KEYS = 1_000_000
VALUE_BYTES = 80
WRITES = 5_000  # of one batch
WRITERS = 3
ROUNDS = 3
GB = 10**9
LOOK_S = 5.0
FULL_S = 1200.0


def fill(table: ReplicatedTable, keys: int, turn: int, first: int = 0, step: int = WRITES) -> None:
    """All keys, or every so manieth batch of them; each batch is waited for."""
    for at in range(first, keys, step):
        with table.batch() as writes:
            for key in range(at, min(keys, at + WRITES)):
                writes.put(b"key-%016d" % key, b"%d" % turn * VALUE_BYTES)


def _batched_per_s(table: ReplicatedTable, keys: int) -> int:
    """By some threads, since each waits for its batches: the median of rounds."""
    found: list[float] = []
    for turn in range(ROUNDS):
        threads = [
            threading.Thread(target=fill, args=(table, keys, turn, at * WRITES, WRITERS * WRITES))
            for at in range(WRITERS)
        ]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found.append(keys / (time.perf_counter() - began))
    return round(statistics.median(found))


def table(m: Measuring) -> Result:
    """Reads beside a dict's, writes in batches, in a loop, and one after the other."""
    with m.client() as client:
        made = client.table("bench")
        keys = m.scaled(KEYS / 5)
        batched = _batched_per_s(made, keys)
        began = time.perf_counter()
        for i in range(keys):
            made.put(b"key-%016d" % i, b"v" * VALUE_BYTES)
        made.sync()
        loop_s = time.perf_counter() - began
        rounds = [_beside(m, made) for _ in range(3)]
        plain = dict(made.items())
        wanted = list(plain)
        ratios = [_reads(made.get, wanted) / _reads(plain.get, wanted) for _ in range(5)]
    return {"keys": keys, "puts_per_s_batched": batched,
            "writers": WRITERS,
            "puts_per_s_in_a_loop": round(keys / loop_s),
            "put_p50_ms_by_round": {name: [found[name] for found in rounds] for name in rounds[0]},
            "a_read_takes_so_many_dict_reads": round(statistics.median(ratios), 1)}  # fmt: skip


def _beside(m: Measuring, made: ReplicatedTable) -> dict[str, float]:
    """How long a put takes that goes alone: ours, and of those that are installed, in turn."""
    count = m.scaled(500)
    waits: list[float] = []
    for i in range(count):
        began = time.perf_counter()
        made.put(b"key-%016d" % i, b"w" * VALUE_BYTES).number()
        waits.append((time.perf_counter() - began) * 1000)
    found = {"samcast": round(statistics.median(waits), 2)}
    for peer in (Etcd(), PySyncObj()):
        if not peer.missing():
            with running(peer, m.cluster.folder.parent / peer.name):
                found[peer.name] = round(statistics.median(peer.one(b"w" * VALUE_BYTES, count)), 2)
    return found


def _reads(get: object, keys: list[bytes]) -> float:
    assert callable(get)
    began = time.perf_counter()
    for key in keys:
        get(key)
    return time.perf_counter() - began


def kept(m: Measuring) -> Result:
    """Full load for a long time into a group that keeps a GB: disk and memory, over time."""
    seconds = FULL_S * m.scaled(1000) / 1000
    series: list[Result] = []
    with m.client() as client:
        group = client.group(m.name())
        group.set_keep(Keep(size=GB))
        bodies = m.bodies(4096)
        sent = 0
        began = time.monotonic()
        look_at = began
        while time.monotonic() - began < seconds:
            group.send_many(bodies)
            sent += len(bodies)
            if time.monotonic() >= look_at:
                look_at += LOOK_S
                series.append(_looked(m, time.monotonic() - began, sent))
        group.flush()
        oldest = group.oldest()
    half = [row["disk_mb"] for row in series[len(series) // 2 :]]
    memory = [row["memory_mb"] for row in series]
    return {"seconds": round(seconds), "messages": sent, "per_s": round(sent / seconds),
            "oldest": oldest, "disk_mb_second_half": [min(half), max(half)],
            "memory_mb_at_quarters": [memory[len(memory) * i // 4 - (i == 4)] for i in range(5)],
            "series": series}  # fmt: skip


def _looked(m: Measuring, at_s: float, sent: int) -> Result:
    disks = [_bytes_in(node.folder) for node in m.cluster.plan().present]
    return {"s": round(at_s), "messages": sent, "disk_mb": round(max(disks) / 1e6),
            "memory_mb": max(m.resident_mb().values())}  # fmt: skip


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # It was collected just now.
    return total
