"""Archives as users make and read them: the command, real Spark, real clusters."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import samcast
from samcast.client.inbox import Message
from samcast.pipeline.archiving import Job, archive_in
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.order import Keep
from tests.pipeline.conftest import HAS_SPARK
from tests.real.striking import pause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 12_000
KEPT = 2_000
pytestmark = pytest.mark.skipif(not HAS_SPARK, reason="needs PySpark and Java")


def run(*arguments: str | Path, is_well: bool = True) -> str:
    command = [sys.executable, "-m", "samcast.cli.main", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode == 0) == is_well, done.stderr
    return done.stdout if is_well else done.stderr


def archive(spark: "SparkSession", cluster: LocalCluster, folder: Path) -> None:
    """As the command does it, in a session that is there already."""
    archive_in(spark, Job(cluster.address, "orders", folder, True, 10, 5000, 1))


def send(cluster: LocalCluster, first: int, end: int) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        for at in range(first, end, 1000):
            group.send_many([b"%d" % i for i in range(at, min(end, at + 1000))])
        group.send(b"with a key", b"key %d" % end, b"headers").number(30)


def messages(cluster: LocalCluster, **options: object) -> list[Message]:
    with samcast.connect(cluster.address) as client:
        return list(client.group("orders").read(timeout=1, **options))  # type: ignore[arg-type]


def collect(cluster: LocalCluster) -> int:
    """Have all but a few go; the oldest that is left."""
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        group.set_keep(Keep(count=KEPT))
        for _ in range(300):
            if group.oldest() > ROWS // 2:
                return group.oldest()
            pause(0.1)
    raise AssertionError("nothing was collected")


@pytest.fixture
def other(tmp_path: Path) -> Iterator[LocalCluster]:
    cluster = LocalCluster(tmp_path / "other")
    cluster.make(3)
    cluster.start_all()
    cluster.await_ready()
    yield cluster
    cluster.stop_all()


@pytest.mark.req("PIP-05")
def test_what_is_archived_may_go_and_is_read_as_if_it_had_not(
    spark: "SparkSession", cluster: LocalCluster, other: LocalCluster, tmp_path: Path
) -> None:
    import deltalake

    send(cluster, 0, ROWS)
    all_of_it = messages(cluster)
    folder = tmp_path / "archive"
    said = run("pipeline", "archive", "orders", "--to", folder, "--once", "--rows", "5000",
               "--delta", "--cluster", cluster.address, "--master", "local[2]")  # fmt: skip
    assert f"messages 1 to {ROWS + 1} of 'orders', 3 parts" in said
    collect(cluster)

    # More comes; the job goes on where it was, and what it hasn't archived stays.
    send(cluster, ROWS, ROWS + 3000)
    all_of_it += messages(cluster, start=ROWS + 2)
    archive(spark, cluster, folder)
    send(cluster, ROWS + 3000, ROWS + 4000)
    all_of_it += messages(cluster, start=ROWS + 3003)
    last = all_of_it[-1].number
    assert [message.number for message in all_of_it] == list(range(1, last + 1))

    assert messages(cluster, start=1, archive=folder) == all_of_it
    assert messages(cluster, archive=folder, count=5) == all_of_it[:5]
    assert messages(cluster, start=ROWS, archive=folder) == all_of_it[ROWS - 1 :]
    printed = run("read", "orders", "--archive", folder, "--cluster", cluster.address)
    assert printed.splitlines() == [f"{m.number}\t{m.body.decode()}" for m in all_of_it]

    reader = spark.read.format("samcast").option("cluster", cluster.address)
    frame = reader.option("group", "orders").option("archive", str(folder)).load()
    rows = frame.orderBy("number").collect()
    found = [Message(r.number, bytes(r.body), bytes(r.key), bytes(r.headers)) for r in rows]
    assert found == all_of_it
    assert {row.destination for row in rows} == {"orders"}
    assert frame.where("number between 7 and 9").count() == 3

    assert f"messages 1 to {ROWS + 3002}" in run("archive", "verify", folder)
    table = deltalake.DeltaTable(folder / "messages").to_pyarrow_dataset().to_table(["number"])
    assert sorted(table["number"].to_pylist()) == list(range(1, ROWS + 3003))
    run("archive", "restore", folder, "--cluster", other.address)
    run("archive", "restore", folder, "--cluster", other.address)  # There is nothing left to do.
    assert messages(other) == all_of_it[: ROWS + 3002]
    send(other, 0, 10)
    said = run("archive", "restore", folder, "--cluster", other.address, is_well=False)
    assert "not of this archive" in said


@pytest.mark.req("PIP-05")
def test_mistakes_with_archives_are_told_in_a_sentence(
    spark: "SparkSession", cluster: LocalCluster, other: LocalCluster, tmp_path: Path
) -> None:
    send(cluster, 0, 100)
    send(other, 0, 100)
    folder = tmp_path / "archive"
    archive(spark, cluster, folder)
    with pytest.raises(samcast.ConfigError, match=r"archive\.json: this archive is of group"):
        archive(spark, other, folder)
    with pytest.raises(samcast.ConfigError, match="this archive is of group"):
        messages(other, start=1, archive=folder)
    with pytest.raises(samcast.SamcastError, match="is no archive"):
        messages(cluster, start=1, archive=tmp_path)
    entry = next((folder / "index").glob("*.json"))
    entry.write_text(entry.read_text().replace('"end": 102', '"end": 103', 1))
    with pytest.raises(samcast.SamcastError, match=re.escape(str(entry))):
        archive(spark, cluster, folder)
    with pytest.raises(samcast.SamcastError, match="'nothing'"):
        archive_in(spark, Job(cluster.address, "nothing", tmp_path / "x", True, 10, 5000, 1))
