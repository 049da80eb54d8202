"""How much and how fast, when nothing goes wrong."""

import statistics
import time
from collections.abc import Callable
from itertools import repeat

from samcast.bench.measuring import BODY_BYTES, Measuring, Result
from samcast.client.blocking import Group

LARGE_BYTES = 1_000_000


def _rate(m: Measuring, count: int, send: Callable[[Group, list[bytes]], object]) -> Result:
    bodies = m.bodies(count)
    group = m.name()
    with m.client() as client:
        target = client.group(group)
        began = time.perf_counter()
        send(target, bodies)
        target.flush()
        took = time.perf_counter() - began
    result = {"messages": count, "seconds": round(took, 3), "per_s": round(count / took)}
    return {**result, **m.read_back(group, bodies, count)}


def send(m: Measuring) -> Result:
    """`send()` in a loop, 100-byte messages."""

    def loop(target: Group, bodies: list[bytes]) -> None:
        send = target.send
        for body in bodies:
            send(body)

    return _rate(m, m.scaled(1_000_000), loop)


def many(m: Measuring) -> Result:
    """`send_many`, 100-byte messages."""
    return _rate(m, m.scaled(3_000_000), lambda target, bodies: target.send_many(bodies))


def one(m: Measuring) -> Result:
    """One message in flight: how long until it is confirmed."""
    waits: list[float] = []
    with m.client() as client:
        target = client.group(m.name())
        for _ in range(m.scaled(3000)):
            began = time.perf_counter()
            target.send(b"x" * BODY_BYTES).number()
            waits.append((time.perf_counter() - began) * 1000)
    waits.sort()
    return {"messages": len(waits), "p50_ms": round(statistics.median(waits), 3),
            "p99_ms": round(waits[int(len(waits) * 0.99)], 3)}  # fmt: skip


def large(m: Measuring) -> Result:
    """Messages of 1 MB."""
    count = m.scaled(500)
    body = bytes(range(250)) * (LARGE_BYTES // 250)
    group = m.name()
    with m.client() as client:
        target = client.group(group)
        began = time.perf_counter()
        for _ in range(count):
            target.send(body)
        target.flush()
        took = time.perf_counter() - began
    result = {"messages": count, "mb_per_s": round(count * LARGE_BYTES / took / 1e6, 1)}
    return {**result, **m.read_back(group, repeat(body, count), count)}
