"""Not tests: what `./dev multicast rates | sizes | members | stopped | parity` measure, in a
network namespace of its own, with one line of JSON for each case.
"""

import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import Any

import samcast
from samcast.client.blocking import Client, Group
from samcast.client.leading import sequencer_of
from samcast.runtime.cluster_text import write_cluster_file
from samcast.runtime.local_cluster import LocalCluster
from tests.real.conftest import running
from tests.real.listening import Process, listening
from tests.real.striking import NODES, pause
from tests.real.test_metrics import numbers_of, value

GROUP = "members"
MESSAGES = 100
PERIOD_S = 0.25
STOPPED_S = 60.0
PACE = 30_000  # messages per second
BURST = 600
KINDS = ("sent", "received", "asked", "repeated", "given_up")


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def counted(cluster: LocalCluster, what: str) -> float:
    """Of the nodes' datagrams."""
    return sum(value(numbers_of(cluster, name), "samcast_datagrams_total", what=what)
               for name in NODES)  # fmt: skip


def totals(cluster: LocalCluster) -> dict[str, float]:
    """What all nodes have done so far."""
    pages = [numbers_of(cluster, name) for name in NODES]
    return {
        "datagrams": sum(value(p, "samcast_datagrams_total", what="sent") for p in pages),
        "datagram_bytes": sum(value(p, "samcast_datagrams_total", what="sent_bytes")
                              for p in pages),
        "bytes_on_connections": sum(value(p, "samcast_sent_bytes_total") for p in pages),
        "turns": sum(value(p, "samcast_turns_total") for p in pages),
    }  # fmt: skip


def members(make: Any, folder: Path) -> None:
    """What a message costs the nodes with 3 and with 100 members; one piece lost by all of them."""
    for count in (3, 100):
        place = folder / str(count)
        place.mkdir()
        cluster: LocalCluster = make(place)
        with running(cluster), beside_the_sequencer(cluster) as client:
            group = client.group(GROUP)
            group.send(b"first").number(30)
            with listening(cluster, count, group=GROUP) as staff:
                per_message = cost(cluster, group)
                told = [member.result(1 + MESSAGES) for member in staff]
                assert len({member["digest"] for member in told}) == 1
                lost = lose_at_all(cluster, group, staff)
        live = sum(member["live"] for member in told)
        say(members=count, live=live, per_message=per_message, one_piece_lost_by_all=lost)


def beside_the_sequencer(cluster: LocalCluster) -> Client:
    """A client of the sequencer's node: where two nodes speak, both tell which frame was last."""
    node = cluster.plan().node(sequencer_of(cluster))
    return samcast.connect(f"{node.host}:{node.port}")


def cost(
    cluster: LocalCluster, group: Group, messages: int = MESSAGES, period_s: float = PERIOD_S
) -> dict[str, float]:
    """Of one message, sent at a slow and steady pace, beyond what the cluster says by itself in the
    same time: heartbeats, which frame was the last, answers to who asks whether it is there."""
    start = totals(cluster)
    pause(messages * period_s)
    before, began = totals(cluster), time.monotonic()
    for i in range(messages):
        group.send(b"x" * 1000).number(30)
        pause(max(0.0, began + (i + 1) * period_s - time.monotonic()))
    after = totals(cluster)
    return {
        what: round((after[what] - 2 * before[what] + start[what]) / messages, 1) for what in after
    }


def lose_at_all(cluster: LocalCluster, group: Group, staff: list[Process]) -> dict[str, float]:
    for member in staff:
        member.say("lose")
    before = {what: counted(cluster, what) for what in ("answered", "repeated")}
    group.send(b"y" * 3000).number(30)
    told = [member.result(2 + MESSAGES) for member in staff]
    assert len({member["digest"] for member in told}) == 1
    return {
        "members_that_asked": sum(member["asked"] > 0 for member in told),
        "questions": counted(cluster, "answered") - before["answered"],
        "pieces_repeated": counted(cluster, "repeated") - before["repeated"],
    }


def stopped(make: Any, folder: Path) -> None:
    """A member is stopped for a minute, then catches up while a sender keeps its pace."""
    cluster: LocalCluster = make(folder)
    with running(cluster), samcast.connect(cluster.address) as client:
        group = client.group(GROUP)
        group.send(b"first").number(30)
        with listening(cluster, 3, group=GROUP) as staff:
            sent = 1 + paced(group, "before", 10.0)
            staff[0].stop()
            sent += paced(group, "one of three members is stopped", STOPPED_S)
            staff[0].go_on()
            sent += paced(group, "it catches up", 10.0)
            began = time.monotonic()
            told = [member.result(sent) for member in staff]
            say(seconds_after_the_last_message=round(time.monotonic() - began, 2))
            assert len({member["digest"] for member in told}) == 1
            say(messages=sent, members_agree=True, live=[member["live"] for member in told])


def paced(group: Group, what: str, seconds: float) -> int:
    """Send at a pace, if the cluster keeps it."""
    began, sent, waits = time.monotonic(), 0, []
    while time.monotonic() < began + seconds:
        at = time.monotonic()
        receipt = group.send_many([b"x" * 100] * BURST)
        assert receipt is not None
        receipt.number(30)
        waits.append((time.monotonic() - at) * 1000)
        sent += BURST
        pause(max(0.0, began + sent / PACE - time.monotonic()))
    took = time.monotonic() - began
    say(while_=what, per_s=round(sent / took), confirmed_ms=round(statistics.median(waits), 1))
    return sent


def sizes(make: Any, folder: Path) -> None:
    """How large datagrams may be decides what they cost: 1,400 bytes on usual networks, 8,900 where
    they have jumbo frames, 60,000 within one machine."""
    for size in (1400, 8900, 60_000):
        place = folder / str(size)
        place.mkdir()
        cluster: LocalCluster = make(place)
        write_cluster_file(dataclasses.replace(cluster.plan(), datagram_bytes=size))
        measured(cluster, datagram_bytes=size)


def rates(make: Any, folder: Path) -> None:
    """At several losses, and on connections."""
    for loss in (None, 0.0, 0.01, 0.05, 0.2):
        place = folder / f"{loss}"
        place.mkdir()
        cluster: LocalCluster = make(place, loss or 0.0)
        if loss is None:
            write_cluster_file(dataclasses.replace(cluster.plan(), multicast=""))
        measured(cluster, loss=loss if loss is not None else "on connections")


def parity(make: Any, folder: Path) -> None:
    """What forward error correction changes under loss."""
    for loss in (0.01, 0.05):
        for percent in (0, 10, 20):
            place = folder / f"{loss}-{percent}"
            place.mkdir()
            cluster: LocalCluster = make(place, loss)
            write_cluster_file(dataclasses.replace(cluster.plan(), parity_percent=percent))
            measured(cluster, loss=loss, parity_percent=percent)


def measured(cluster: LocalCluster, **facts: Any) -> None:
    with running(cluster), samcast.connect(cluster.address) as client:
        group = client.group("rates")
        group.send(b"ready").number(30)
        facts["per_s"] = sorted(rate(group) for _ in range(3))
        if cluster.plan().multicast:
            facts |= {what: counted(cluster, what) for what in KINDS}
        facts["one_ms"] = one(group)
    say(**facts)


def rate(group: Group) -> int:
    bodies = [b"x" * 100] * 400_000
    began = time.perf_counter()
    group.send_many(bodies)
    group.flush()
    return round(len(bodies) / (time.perf_counter() - began))


def one(group: Group) -> dict[str, float]:
    """How long a message takes that goes alone."""
    waits: list[float] = []
    for _ in range(300):
        began = time.perf_counter()
        group.send(b"x" * 100).number(30)
        waits.append((time.perf_counter() - began) * 1000)
    waits.sort()
    return {"median": round(waits[150], 1), "of_100_the_worst": round(waits[297], 1)}
