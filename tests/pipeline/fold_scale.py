"""One fold, four engines: many messages onto many keys, folded by checkpoint servers, in one
process, on Spark in this process, and on a standalone cluster with two workers. All must come to
one hash.

    python -m tests.pipeline.fold_scale --messages 20000000 --keys 1000000

Then once more with values so large that the state doesn't fit into the driver: it has less memory
than that by its settings, and is watched.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import samcast
from samcast.client.blocking import Group
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.order import Keep
from tests.pipeline.standalone import standalone
from tests.real.conftest import running
from tests.real.striking import pause

PROGRAM = str(Path(sys.executable).with_name("samcast"))
AT_ONCE = 20_000
FOLD_S = 1800.0
KEYS_SEED = 5
DRIVER_MB = 512


def say(text: str) -> None:
    print(text, flush=True)


def fill(group: Group, messages: int, keys: int, size: int) -> None:
    """Random keys; each body is told by its number, and no two are alike."""
    chance = random.Random(KEYS_SEED)
    began = time.monotonic()
    for first in range(0, messages, AT_ONCE):
        count = min(AT_ONCE, messages - first)
        names = [b"key-%09d" % chance.randrange(keys) for _ in range(count)]
        if size > 100:
            bodies = [chance.randbytes(size) for _ in range(count)]
        else:
            bodies = [b"%0*d" % (size, first + at) for at in range(count)]
        columns = [pa.array(names, pa.binary()), pa.array(bodies, pa.binary())]
        group.send_arrow(pa.RecordBatch.from_arrays(columns, names=["key", "body"]))
    group.flush(600)
    say(f"{messages} messages sent in {time.monotonic() - began:.0f} s")


def consolidated(cluster: LocalCluster, name: str, *options: str) -> dict[str, Any]:
    command = [PROGRAM, "pipeline", "consolidate", name, "--cluster", cluster.address, "--json"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False, timeout=FOLD_S
    )
    if not done.stdout:
        raise AssertionError(done.stderr[-3000:])
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    say(f"{' '.join(options)}: {made['rows']} rows, {made['size']} bytes, {made['seconds']:.1f} s"
        f" ({time.monotonic() - began:.1f} s with all that starts), {made['hash'][:16]}...,"
        f" same: {made['same']}, differ: {made['differ']}")  # fmt: skip
    return made


def await_servers(group: Group, number: int) -> str:
    began = time.monotonic()
    while time.monotonic() < began + FOLD_S:
        for found in group.checkpoints().checkpoints:
            if found.number == number:
                say(f"servers advertise {number} {time.monotonic() - began:.0f} s later")
                return found.hash.hex()
        pause(0.5)
    raise AssertionError(f"no checkpoint at {number}")


def equal(folder: Path, messages: int, keys: int) -> None:
    """Of all engines."""
    made = LocalCluster(folder / "cluster")
    made.make(3)
    with running(made), samcast.connect(made.address) as client:
        group = client.group("state")
        group.lease("whoever compares")
        group.set_keep(Keep(fold="latest", fold_version=1, interval=messages))
        fill(group, messages, keys, 80)
        hashes = {await_servers(group, messages)}
        for engine in ("local", "spark"):
            hashes.add(consolidated(made, "state", "--compare", "--engine", engine)["hash"])
        with standalone(folder / "spark") as spark:
            options = ("--compare", "--engine", "spark", "--master", spark.address)
            hashes.add(consolidated(made, "state", *options)["hash"])
    assert len(hashes) == 1, hashes
    say("equal by content hash: checkpoint servers, one process, Spark, Spark with two workers")


class Watching:
    """The most memory that a process and its children have had at once."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self.most = 0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self.most = max(self.most, sum(map(resident, [self._pid, *children(self._pid)])))

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self.most


def children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            below = [int(one) for one in path.read_text().split()]
        except OSError:
            continue
        for one in below:
            found += [one, *children(one)]
    return found


def resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def small_driver(folder: Path, keys: int, size: int) -> None:
    """A state that is larger than all the memory that its driver ever has."""
    made = LocalCluster(folder / "large")
    made.make(3)
    with running(made), samcast.connect(made.address) as client:
        group = client.group("state")
        group.set_keep(Keep(fold="latest", fold_version=1, by_jobs=True))
        fill(group, 2 * keys, keys, size)
        with standalone(folder / "spark-large") as spark:
            command = [
                PROGRAM, "pipeline", "consolidate", "state", "--cluster", made.address, "--json",
                "--engine", "spark", "--master", spark.address,
                "--conf", f"spark.driver.memory={DRIVER_MB}m",
            ]  # fmt: skip
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as driver:
                watching = Watching(driver.pid)
                output, _ = driver.communicate()
                most = watching.stop()
        found = json.loads(output.splitlines()[-1])
        say(f"driver with {DRIVER_MB} MB: state {found['size'] >> 20} MB, driver at most"
            f" {most >> 20} MB, {found['seconds']:.0f} s, handed to {found['handed_to']}, held by"
            f" {found['same']}, advertised: {found['advertised']}")  # fmt: skip
        assert most < found["size"]
        again = consolidated(made, "state", "--compare", "--engine", "local", "--at", str(2 * keys))
        assert again["hash"] == found["hash"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--large-keys", type=int, default=1_000_000, help="0: leave that part out")
    parser.add_argument("--large-bytes", type=int, default=1500, help="of a value")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="samcast-fold-", dir=Path.cwd()) as place:
        if options.messages:
            equal(Path(place), options.messages, options.keys)
        if options.large_keys:
            small_driver(Path(place), options.large_keys, options.large_bytes)


if __name__ == "__main__":
    main()
