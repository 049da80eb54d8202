"""An audit of many messages across fail-overs: a sender never stops, the node that leads is killed
again and again, members record what they deliver; then all of them must agree.

    python -m tests.pipeline.audit_failovers --messages 10000000 --kills 5
"""

import argparse
import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import samcast
from samcast.client.leading import sequencer_of
from samcast.runtime.local_cluster import LocalCluster
from tests.pipeline.archive_killing import PROGRAM, sending
from tests.pipeline.standalone import master
from tests.real.conftest import running
from tests.real.striking import pause

MEMBERS = 2
AWAY_S = 1.0  # before a killed node comes back
LEADS_S = 60.0
READ_S = 900.0


def say(text: str) -> None:
    print(text, flush=True)


@contextlib.contextmanager
def recording(cluster: LocalCluster, folder: Path, messages: int) -> Iterator[list[Path]]:
    """Members that read all of it; waited for in the end."""
    records = [folder / f"member-{at}" for at in range(1, MEMBERS + 1)]
    readers = [
        subprocess.Popen(
            [PROGRAM, "read", "orders", "--from", "1", "--raw", "--count", str(messages),
             "--record", str(record), "--cluster", cluster.address],
            stdout=subprocess.DEVNULL,
        )
        for record in records
    ]  # fmt: skip
    try:
        yield records
        for reader in readers:
            assert reader.wait(READ_S) == 0
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()


def head(cluster: LocalCluster) -> int:
    with samcast.connect(cluster.address) as client:
        return client.group("orders").head()


def await_head(cluster: LocalCluster, number: int) -> None:
    while head(cluster) < number:
        pause(0.1)


def strike(cluster: LocalCluster, messages: int, kills: int) -> None:
    """The node that leads, each time another part of the messages is there."""
    for at in range(1, kills + 1):
        await_head(cluster, at * messages // (kills + 1))
        name = sequencer_of(cluster)
        cluster.kill(name)
        pause(AWAY_S)
        cluster.start(name)
        say(f"killed {name}, which led, at {head(cluster)}; {sequencer_of(cluster, LEADS_S)} leads")


def run(folder: Path, messages: int, kills: int, is_apart: bool) -> None:
    cluster = LocalCluster(folder / "cluster")
    cluster.make(3)
    with running(cluster):
        with samcast.connect(cluster.address) as client:
            client.group("orders")
        with recording(cluster, folder, messages) as records, sending(cluster, messages) as stop:
            strike(cluster, messages, kills)
            await_head(cluster, messages)
            stop()
        with master(folder / "spark", is_apart) as spark:
            audit(cluster, folder, records, messages, spark)


def audit(
    cluster: LocalCluster, folder: Path, records: list[Path], messages: int, spark: str
) -> None:
    began = time.monotonic()
    command = [PROGRAM, "pipeline", "audit", "orders", "--json", "--cluster", cluster.address,
               "--to", str(folder / "audit.html"), "--master", spark]  # fmt: skip
    command += [part for record in records for part in ("--record", str(record))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout.splitlines()[-1])
    say(f"{found['verdict']} {time.monotonic() - began:.0f} s,"
        f" {sum(one['runs'] for one in found['participants'])} runs")  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert found["last"] == messages


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--standalone", action="store_true", help="on Spark with two workers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="samcast-audit-", dir=Path.cwd()) as place:
        run(Path(place), options.messages, options.kills, options.standalone)


if __name__ == "__main__":
    main()
