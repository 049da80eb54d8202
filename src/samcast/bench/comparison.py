"""The same work on Samcast and on what people use today, alternating in one run."""

import os
import shutil
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from samcast.bench.measuring import BODY_BYTES
from samcast.bench.peers.corosync_groups import Corosync
from samcast.bench.peers.etcd_keys import Etcd
from samcast.bench.peers.kafka_topics import Kafka
from samcast.bench.peers.nats_jetstream import NatsJetStream
from samcast.bench.peers.ours import Samcast
from samcast.bench.peers.peer import Peer
from samcast.bench.peers.pysyncobj_objects import PySyncObj
from samcast.bench.peers.rabbitmq import RabbitMQ
from samcast.bench.peers.redis_streams import RedisStreams
from samcast.bench.settings import Comparison
from samcast.errors import SamcastError

RATE_S = 2.0  # about how long one measurement of a rate is to take
PROBE = 2000  # messages to begin with
STEP_MAX = 20  # times as many in the next try
ONE = 500
LARGE = 200
LARGE_BYTES = 1_000_000
LARGE_WINDOW = 16

PEERS: dict[str, Callable[[], list[Peer]]] = {
    "rabbitmq": lambda: [RabbitMQ("quorum"), RabbitMQ("stream")],
    "nats": lambda: [NatsJetStream(is_synced=False), NatsJetStream(is_synced=True)],
    "redis": lambda: [RedisStreams()],
    "corosync": lambda: [Corosync()],
    "etcd": lambda: [Etcd()],
    "kafka": lambda: [Kafka(is_synced=False), Kafka(is_synced=True)],
    "pysyncobj": lambda: [PySyncObj()],
}


def compare(comparison: Comparison, place: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Every system in turn, so many times, each alone on the machine in its turn; rates, latencies,
    and how many times ours they are."""
    unknown = [name for name in comparison.peers if name not in PEERS]
    if unknown:
        raise SamcastError(f"no such peer: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    found: dict[str, dict[str, list[float]]] = {}
    for system in _systems(comparison):
        if wanted := system.missing():
            raise SamcastError(f"{system.name} can't run here; first: {wanted}")
    for number in range(1, comparison.rounds + 1):
        for system in _systems(comparison):
            results = found.setdefault(system.name, {"per_s": [], "p50_ms": [], "mb_per_s": []})
            with running(system, place / f"{system.name}-{number}"):
                _measure(system, comparison.scale, results)
            say(f"round {number}: {system.name:17} {results['per_s'][-1]:>10,.0f}/s"
                f"  p50 {results['p50_ms'][-1]:.2f} ms"
                f"  1 MB messages {results['mb_per_s'][-1]:.0f} MB/s")  # fmt: skip
    return _table(_systems(comparison), found)


def _systems(comparison: Comparison) -> list[Peer]:
    ours = [Samcast(), *([Samcast(comparison.multicast)] if comparison.multicast else [])]
    return [*ours, *[peer for name in comparison.peers for peer in PEERS[name]()]]


@contextmanager
def running(system: Peer, folder: Path) -> Iterator[None]:
    """Nobody else's servers take processor time meanwhile, and what it has written is gone."""
    folder.mkdir()
    try:
        system.start(folder)
        yield
    finally:
        system.stop()
        shutil.rmtree(folder)
        os.sync()


def _measure(system: Peer, scale: float, results: dict[str, list[float]]) -> None:
    results["per_s"].append(_rate(system, scale))
    waits = system.one(b"x" * BODY_BYTES, max(50, int(ONE * scale)))
    results["p50_ms"].append(statistics.median(waits))
    large = [bytes(range(250)) * (LARGE_BYTES // 250)] * max(20, int(LARGE * scale))
    seconds = system.rate(large, LARGE_WINDOW)
    results["mb_per_s"].append(len(large) * LARGE_BYTES / 1e6 / seconds)


def _rate(system: Peer, scale: float) -> float:
    """Over about the wanted time. How many messages that takes, shorter tries tell: a fast system
    would be through with a fixed number before it has got going. They also warm it up."""
    wanted_s = RATE_S * scale
    count = PROBE
    while (took_s := _send(system, count)) < wanted_s / 2:
        count = int(count * min(STEP_MAX, wanted_s / took_s))
    count = max(PROBE, int(count * wanted_s / took_s))
    return count / _send(system, count)


def _send(system: Peer, count: int) -> float:
    return system.rate([(b"%08d" % i).ljust(BODY_BYTES, b"x") for i in range(count)])


def _table(systems: list[Peer], found: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    ours = {what: statistics.median(values) for what, values in found["samcast"].items()}
    table: dict[str, Any] = {}
    for system in systems:
        rates, waits = found[system.name]["per_s"], found[system.name]["p50_ms"]
        large = found[system.name]["mb_per_s"]
        table[system.name] = {
            "confirmed_means": system.promise,
            "per_s": round(statistics.median(rates)),
            "per_s_spread": [round(min(rates)), round(max(rates))],
            "p50_ms": round(statistics.median(waits), 2),
            "p50_ms_spread": [round(min(waits), 2), round(max(waits), 2)],
            "large_mb_per_s": round(statistics.median(large), 1),
            "large_mb_per_s_spread": [round(min(large), 1), round(max(large), 1)],
            "samcast_is_times_as_fast": round(ours["per_s"] / statistics.median(rates), 1),
        }
    return table
