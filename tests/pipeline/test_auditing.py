"""An audit finds what is wrong, where, and with whom; and nothing where all is well."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import samcast
from samcast.client.recording import Delivered, Recorder, about_record, read_record
from samcast.pipeline.auditing import Audit, audit_with
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.batch import Batch, columns_from_cells, make_batch
from tests.pipeline.conftest import HAS_SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = 40
RUN = 50
ROWS = RUNS * RUN
pytestmark = pytest.mark.skipif(not HAS_SPARK, reason="needs PySpark and Java")


def filled(cluster: LocalCluster, record: Path) -> None:
    """Runs of a known size; a member has recorded them."""
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        for first in range(0, ROWS, RUN):
            group.send_many([b"message %08d" % row for row in range(first, first + RUN)])
            group.flush(30)
        list(group.read(1, count=ROWS, record=record))


class Fake:
    """Writes a record of what was never delivered so."""

    def __init__(self, like: Path, path: Path) -> None:
        about = about_record(like)
        self._recorder = Recorder(path, about.cluster, about.group)

    def write(self, runs: list[Delivered]) -> None:
        with self._recorder as recorder:
            for run in runs:
                recorder.add(run.number, _Like(run))  # type: ignore[arg-type]


class _Like:
    def __init__(self, run: Delivered) -> None:
        self.count, self.digest = run.count, run.digest


def other_run(number: int) -> Batch:
    return make_batch(
        group=1, sender=b"s" * 16, incarnation=1, counter_first=number, count=RUN, birth=0,
        confirmed_below=1, seen=0, sent_ms=0, configuration=1,
        columns=columns_from_cells([b"x"] * RUN),
    )  # fmt: skip


def brief(audit: Audit) -> list[tuple[str, str, int]]:
    return [(finding.what, finding.who, finding.number) for finding in audit.findings]


@pytest.mark.req("PIP-06")
def test_everybody_is_compared_with_everybody(
    spark: "SparkSession", cluster: LocalCluster, tmp_path: Path
) -> None:
    good = tmp_path / "good"
    filled(cluster, good)
    runs = list(read_record(good))
    numbers = [run.number for run in runs]
    assert len(runs) >= 20, "runs were put together, and there is too little to alter"
    clean = audit_with(spark, cluster.address, "orders", [good])
    assert clean.findings == []
    assert clean.verdict == f"All agree: messages 1 to {ROWS} of 'orders', 7 participants."
    assert {(p.kind, p.messages) for p in clean.participants} == {
        ("member", ROWS), ("order", ROWS), ("content", ROWS),
    }  # fmt: skip

    altered = {
        "swapped": [*runs[:5], runs[6], runs[5], *runs[7:]],
        "gap": [*runs[:7], *runs[8:]],
        "twice": [*runs[:10], runs[9], *runs[10:]],
        "late": [*runs[:12], *runs[13:], runs[12]],
    }
    expected = [
        ("order", "swapped", numbers[5]),
        ("gap", "gap", numbers[7]),
        ("duplicate", "twice", numbers[9]),
        ("order", "late", numbers[12]),
    ]
    paths = []
    for name, wanted in altered.items():
        paths.append(tmp_path / name)
        Fake(good, paths[-1]).write(wanted)
    found = audit_with(spark, cluster.address, "orders", [good, *paths])
    assert brief(found) == expected
    assert found.verdict.startswith(f"They do not agree from number {numbers[5]} on: swapped:")

    other = tmp_path / "other"
    digest = other_run(1).digest
    changed = [*runs]
    changed[3] = Delivered(runs[3].number, runs[3].count, digest, True)
    Fake(good, other).write([*changed, Delivered(ROWS + 1, 5, digest, True)])
    found = audit_with(spark, cluster.address, "orders", [good, other])
    assert brief(found) == [("content", "other", numbers[3])]  # What is behind the range is not.

    raw = bytearray(good.read_bytes())
    raw[-30] ^= 4
    broken = tmp_path / "broken"
    broken.write_bytes(bytes(raw))
    found = audit_with(spark, cluster.address, "orders", [broken])
    assert ("record", "broken", numbers[-1]) in brief(found)


@pytest.mark.req("PIP-06")
def test_a_flipped_bit_of_a_data_server_is_found_and_told(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """As a user would: the command, its page, its exit code."""
    good = tmp_path / "good"
    filled(cluster, good)
    numbers = [run.number for run in read_record(good)]
    at = next(n for n in reversed(numbers) if n <= ROWS // 2)
    node = cluster.plan().present[1]
    flip(node.folder, b"message %08d" % (at + 3))
    report = tmp_path / "page.html"
    command = [sys.executable, "-m", "samcast.cli.main", "pipeline", "audit", "orders", "--json"]
    command += ["--cluster", cluster.address, "--record", str(good), "--to", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)
    assert said["verdict"].startswith(f"They do not agree from number {at} on: {node.name}")
    assert [finding["what"] for finding in said["findings"]] == ["missing"]
    assert said["verdict"].split(" on:")[0] in report.read_text()


def flip(folder: Path, needle: bytes) -> None:
    """One bit, in the only place that has this."""
    (path, at) = next(
        (path, data.find(needle))
        for path in sorted(folder.rglob("segment-*"))
        if needle in (data := path.read_bytes())
    )
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))
