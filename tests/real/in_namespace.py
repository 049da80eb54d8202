"""Plays a scenario of multicast in a network of its own, so that nobody else hears it. Run by
`test_multicast.py` as `unshare --net ... python -m tests.real.in_namespace SCENARIO FOLDER`.
"""

import dataclasses
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import samcast
from samcast.client.leading import sequencer_of
from samcast.client.listener import Listener
from samcast.errors import ConfigError
from samcast.runtime.cluster_file import DATAGRAM_BYTES
from samcast.runtime.cluster_text import write_cluster_file
from samcast.runtime.datagrams import Datagrams, datagrams_of
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.datagram import Envelope, Lacking, Source
from tests.real import multicast_costs
from tests.real.conftest import running
from tests.real.listening import listening
from tests.real.lossy import CUT, install, launcher
from tests.real.multicast_costs import beside_the_sequencer, cost, counted
from tests.real.striking import NODES, SECONDS, every, judged, pause, restart
from tests.real.test_metrics import numbers_of
from tests.real.three_hosts import three_hosts

GROUP = "239.77.1.2:7477"


def multicast_cluster(folder: Path, loss: float = 0.0) -> LocalCluster:
    cluster = LocalCluster(folder / "cluster")
    cluster.make(3, multicast=GROUP, datagram_bytes=DATAGRAM_BYTES)  # as on usual networks
    for name in NODES:
        cluster.launchers[name] = launcher(loss)
    return cluster


def weather(folder: Path, loss: float) -> None:
    """Senders at work while datagrams are lost, doubled and late."""
    cluster = multicast_cluster(folder, loss)
    install(loss, Listener)  # for the reader, which is a member
    with running(cluster):
        judged(cluster, lambda: pause(SECONDS))
        assert doctor(cluster).returncode == 0
        assert counted(cluster, "received") > 100
        assert (counted(cluster, "repeated") > 0) == (loss > 0)


def four_groups(folder: Path) -> None:
    """Each channel in a group of its own, nodes that have one role only, members that hear two."""
    cluster = multicast_cluster(folder, 0.02)
    plan = cluster.plan()
    nodes = [*plan.nodes[:2], dataclasses.replace(plan.nodes[2], roles=("data",))]
    apart = dataclasses.replace(
        plan, nodes=tuple(nodes), k_commit=2, e_commit=1, is_multicast_apart=True
    )
    write_cluster_file(apart)
    install(0.02, Listener)
    with running(cluster):
        judged(cluster, lambda: pause(SECONDS))


def several_hosts(folder: Path) -> None:
    """A host for each node, on a network of their own; the sequencer is killed on the way."""
    install(0.01, Listener)

    def strike() -> None:
        victim = sequencer_of(cluster)
        cluster.kill(victim)
        pause(0.5)
        restart(cluster, victim)

    with three_hosts(folder, GROUP, 0.01) as cluster, running(cluster):
        judged(cluster, lambda: every(2, strike))
        assert counted(cluster, "heard") > 100


def killed(folder: Path) -> None:
    """The sequencer is killed again and again; each life has a sequence of its own."""
    cluster = multicast_cluster(folder, 0.05)

    def strike() -> None:
        victim = sequencer_of(cluster)
        cluster.kill(victim)
        pause(0.3)
        restart(cluster, victim)

    with running(cluster):
        judged(cluster, lambda: every(2, strike))


def leads(cluster: LocalCluster, name: str) -> bool:
    node = cluster.plan().node(name)
    with samcast.connect(f"{node.host}:{node.port}") as client:
        return bool(client.status()["sequencing"])


def cut_off(folder: Path) -> None:
    """The sequencer hears nobody and is heard by nobody, then comes back."""
    cluster = multicast_cluster(folder)
    for name in NODES:
        cluster.launchers[name] = ["env", f"{CUT}={folder / name}", *launcher(0.01)]
    ids = {node.name: str(node.id) for node in cluster.plan().nodes}

    def strike() -> None:
        victim = sequencer_of(cluster)
        for name in NODES:
            others = [ids[other] for other in NODES if other != victim]
            (folder / name).write_text(" ".join(others) if name == victim else ids[victim])
        pause(1)
        assert any(leads(cluster, name) for name in NODES if name != victim)
        for name in NODES:
            (folder / name).unlink()

    with running(cluster):
        judged(cluster, lambda: every(2, strike))


def made_up(folder: Path) -> None:
    """Parity makes up for most of what is lost, so that hardly anybody asks. A machine that stands
    still for a moment has them ask for much that was not lost, so there are three tries."""
    asked: dict[int, float] = {}
    for attempt in range(3):
        asked = asked_by_parity(folder / str(attempt))
        if asked[20] < asked[0] / 2:
            return
    raise AssertionError(asked)


def asked_by_parity(folder: Path) -> dict[int, float]:
    asked: dict[int, float] = {}
    for percent in (0, 20):
        place = folder / str(percent)
        place.mkdir(parents=True)
        cluster = multicast_cluster(place, 0.02)
        write_cluster_file(dataclasses.replace(cluster.plan(), parity_percent=percent))
        with running(cluster), samcast.connect(cluster.address) as client:
            group = client.group("made-up")
            bodies = [b"%d" % i * 100 for i in range(20_000)]
            group.send_many(bodies)
            group.flush()
            found = group.read(1, count=len(bodies), timeout=20)
            assert [message.body for message in found] == bodies
            asked[percent] = counted(cluster, "repeated")
    return asked


def members(folder: Path) -> None:
    """Members as processes of their own, one of them stopped for a while."""
    cluster = multicast_cluster(folder, 0.02)
    with running(cluster), samcast.connect(cluster.address) as client:
        group = client.group("members")
        group.send(b"first").number(10)
        with listening(cluster, 4, 0.02) as staff:
            staff[0].stop()
            for _ in range(int(SECONDS * 20)):
                group.send_many([b"%d" % i for i in range(100)])
                pause(0.05)
            staff[0].go_on()
            count = 1 + int(SECONDS * 20) * 100
            group.flush()
            told = [member.result(count) for member in staff]
        wanted = hashlib.sha256()
        for message in group.read(1, count=count, timeout=20):
            wanted.update(b"%d %s\n" % (message.number, message.body))
    assert [member["digest"] for member in told] == 4 * [wanted.hexdigest()]
    assert all(member["live"] for member in told)


def doctor(cluster: LocalCluster) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "samcast.cli.main", "doctor", "--dir", str(cluster.folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def deaf(folder: Path) -> None:
    """A network that doesn't carry multicast: nobody can lead, and doctor says why."""
    cluster = multicast_cluster(folder, 1.0)
    said = ""
    with running(cluster):
        for _ in range(100):
            found = doctor(cluster)
            assert found.returncode == 1
            said = found.stdout
            if "hears none of them by multicast" in said:
                return
            pause(0.1)
    raise AssertionError(said)


def paced(folder: Path) -> None:
    """At a pace that is far below what the machine could do nothing lacks."""
    cluster = multicast_cluster(folder, 0.01)
    write_cluster_file(dataclasses.replace(cluster.plan(), pace_mb_per_s=2))
    with running(cluster), samcast.connect(cluster.address) as client:
        group = client.group("paced")
        bodies = [b"%d" % i * 100 for i in range(20_000)]  # some 10 MB
        group.send_many(bodies)
        group.flush()
        assert [m.body for m in group.read(1, count=len(bodies), timeout=30)] == bodies


def many_members(folder: Path) -> None:
    """What a message costs the nodes doesn't grow with its members."""
    found: dict[int, dict[str, float]] = {}
    for count in (2, 12):
        place = folder / str(count)
        place.mkdir()
        cluster = multicast_cluster(place)
        with running(cluster), beside_the_sequencer(cluster) as client:
            group = client.group("members")
            group.send(b"first").number(30)
            with listening(cluster, count) as staff:
                found[count] = cost(cluster, group, 40, 0.1)
                told = [member.result(41) for member in staff]
                assert len({member["digest"] for member in told}) == 1
    few, many = found[2], found[12]
    assert many["datagrams"] < few["datagrams"] + 3, found  # 12 members would be 10 more
    assert many["datagram_bytes"] < few["datagram_bytes"] + 1000, found
    # A stream to each would be 1,000 bytes and more for every one of them.
    assert many["bytes_on_connections"] < few["bytes_on_connections"] + 1000, found


def no_group(folder: Path) -> None:
    """Who wants to listen where there is nothing to hear is told so."""
    cluster = LocalCluster(folder / "cluster")
    cluster.make(3)
    with running(cluster), pytest.raises(ConfigError, match="has no multicast"):
        samcast.connect(cluster.address, multicast=True)


def large(folder: Path) -> None:
    """What is too large for datagrams goes by connections; what is just small enough doesn't."""
    cluster = multicast_cluster(folder, 0.01)
    with running(cluster), samcast.connect(cluster.address) as client:
        group = client.group("large")
        bodies = [b"a" * 60_000, b"b" * 70_000, b"c" * 1_000_000, b"d" * 64_000]
        for body in bodies:
            group.send(body)
        group.flush()
        assert [m.body for m in group.read(1, count=4, timeout=20)] == bodies


def strangers(folder: Path) -> None:
    """Datagrams that are spoofed, cut off, of others, or claim gigabytes: dropped and counted."""
    cluster = multicast_cluster(folder)
    with running(cluster):
        with samcast.connect(cluster.address) as client:
            client.group("before").send(b"x").number(10)
        plan = cluster.plan()
        edge = datagrams_of(plan, plan.node("n1"))
        assert edge is not None
        place = (plan.node("n1").host, plan.node("n1").port)
        end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        end.bind((place[0], 0))
        for data in nonsense(edge):
            end.sendto(data, place)
        expect(cluster, "n1", {
            "datagram-truncated": 1, "datagram-magic": 1, "datagram-cluster": 1,
            "datagram-check": 1, "datagram-source": 1002, "datagram-length": 1,
        })  # fmt: skip
        end.settimeout(0.3)
        try:
            raise AssertionError(f"somebody unknown was answered: {end.recv(100)!r}")
        except TimeoutError:
            pass
        end.close()
        with samcast.connect(cluster.address) as client:
            client.group("after").send(b"x").number(10)


def nonsense(edge: Datagrams) -> list[bytes]:
    cluster = edge.lanes_of_members()[0][2]
    ours = Envelope(cluster, Source(2, 2**62))
    good = ours.cut(1, b"hello", 100)[0]
    huge = Envelope(cluster, Source(2, 2**62))._sealed(0, 1, 0, 65535, 60000, bytes(60000))
    asking = ours.question(edge.life, (Lacking(1, 0, 0),))
    pieces = [ours.piece(n, bytes(5000), 1000, 0, 5) for n in range(1, 1001)]
    return [
        good[:20], b"SAMX" + good[4:], Envelope(1, Source(2, 9)).cut(1, b"x", 9)[0],
        good[:-1] + b"!", good, huge, asking, *pieces,
    ]  # fmt: skip


def expect(cluster: LocalCluster, name: str, wanted: dict[str, int]) -> None:
    dropped: dict[str, float] = {}
    for _ in range(100):
        found = numbers_of(cluster, name)
        dropped = {
            code: found.get(("samcast_datagrams_dropped_total", (("code", code),)), 0)
            for code in wanted
        }
        if dropped == wanted:
            return
        pause(0.05)
    raise AssertionError(f"{dropped} instead of {wanted}")


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "clean": lambda folder: weather(folder, 0.0),
    "four groups": four_groups,
    "loss of 1 %": lambda folder: weather(folder, 0.01),
    "loss of 5 %": lambda folder: weather(folder, 0.05),
    "loss of 20 %": lambda folder: weather(folder, 0.2),
    "several hosts": several_hosts,
    "killed": killed,
    "cut off": cut_off,
    "listening": members,
    "many members": many_members,
    "no group": no_group,
    "deaf": deaf,
    "paced": paced,
    "made up": made_up,
    "large": large,
    "strangers": strangers,
}


ON_MULTICAST = {  # tests of all clusters, on such ones
    "faults": ["process_faults", "disk_faults", "step_faults"],
    "tests": ["cluster", "aio", "client_manners", "commands", "log", "metrics", "trace"],
}
MEASURED = {
    "rates": multicast_costs.rates,
    "sizes": multicast_costs.sizes,
    "members": multicast_costs.members,
    "stopped": multicast_costs.stopped,
    "parity": multicast_costs.parity,
}


def main() -> None:
    for command in (["link", "set", "lo", "up"], ["link", "set", "lo", "multicast", "on"],
                    ["route", "add", "224.0.0.0/4", "dev", "lo"]):  # fmt: skip
        subprocess.run(["ip", *command], check=True)
    if sys.argv[1] == "bench":
        command = ["samcast", "bench", "--multicast", GROUP, *sys.argv[2:]]
        os.execv(Path(sys.executable).with_name("samcast"), command)
    if sys.argv[1] in ON_MULTICAST:
        os.environ["SAMCAST_TEST_MULTICAST"] = GROUP
        files = [f"tests/real/test_{what}.py" for what in ON_MULTICAST[sys.argv[1]]]
        os.execv(sys.executable, [sys.executable, "-m", "pytest", "-v", *files, *sys.argv[2:]])
    if sys.argv[1] in MEASURED:
        with tempfile.TemporaryDirectory(dir=".") as folder:
            MEASURED[sys.argv[1]](multicast_cluster, Path(folder))
        return
    SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps({"played": sys.argv[1]}))


if __name__ == "__main__":
    main()
