"""Real Spark writes to groups and tables of real clusters."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import samcast
from samcast.runtime.local_cluster import LocalCluster
from tests.pipeline.conftest import HAS_SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.skipif(not HAS_SPARK, reason="needs PySpark and Java")


def made(cluster: LocalCluster, *groups: str) -> None:
    with samcast.connect(cluster.address) as client:
        for group in groups:
            client.group(group)


def bodies(cluster: LocalCluster, name: str = "target") -> list[bytes]:
    with samcast.connect(cluster.address) as client:
        group = client.group(name, create=False)
        return [m.body for m in group.read(1, count=group.head(), timeout=30)]


def write(frame: "DataFrame", cluster: LocalCluster, mode: str = "append", **options: Any) -> None:
    writer = frame.write.format("samcast").mode(mode)
    for key, value in {"cluster": cluster.address, **options}.items():
        writer = writer.option(key, value)
    writer.save()


def orders(spark: "SparkSession", cluster: LocalCluster) -> "DataFrame":
    source = spark.readStream.format("samcast").option("cluster", cluster.address)
    return source.option("group", "orders").option("rows_per_trigger", 400).load()


def stream(
    spark: "SparkSession", cluster: LocalCluster, folder: Path, mode: str = "append", **options: Any
) -> Any:
    return started(orders(spark, cluster).select("body"), cluster, folder, mode, **options)


def started(
    frame: "DataFrame", cluster: LocalCluster, folder: Path, mode: str = "append", **options: Any
) -> Any:
    writer = frame.writeStream.format("samcast").outputMode(mode).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder))
    for key, value in {"cluster": cluster.address, **options}.items():
        writer = writer.option(key, value)
    return writer.start()


def filled(cluster: LocalCluster, first: int = 0, count: int = 1000) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        group.send_many([b"%d" % i for i in range(first, first + count)])
        group.flush(30)


@pytest.mark.req("PIP-03")
def test_a_frame_is_written_at_once(spark: "SparkSession", cluster: LocalCluster) -> None:
    made(cluster, "target")
    frame = spark.range(50_000).selectExpr("cast(id as string) as body")
    write(frame.repartition(3), cluster, group="target")
    assert sorted(int(body) for body in bodies(cluster)) == list(range(50_000))
    rows = spark.createDataFrame(
        [(b"k", "b", b"h"), (None, "c", None)], "key binary, body string, headers binary"
    )
    write(rows.coalesce(1), cluster, group="other", create="true")
    with samcast.connect(cluster.address) as client:
        one, two = list(client.group("other").read(1, count=2, timeout=30))
        assert (one.key, one.body, one.headers) == (b"k", b"b", b"h")
        assert (two.key, two.body, two.headers) == (b"", b"c", b"")


@pytest.mark.req("PIP-03")
def test_rows_of_a_partition_stay_in_order_however_long(
    spark: "SparkSession", cluster: LocalCluster
) -> None:
    frame = spark.range(3000).coalesce(1).selectExpr("repeat(cast(id as string), 3000) as body")
    write(frame, cluster, group="target", create="true")
    found = bodies(cluster)
    assert found == [b"%d" % i * 3000 for i in range(3000)]


@pytest.mark.req("PIP-03")
def test_a_task_that_fails_leaves_nothing(spark: "SparkSession", cluster: LocalCluster) -> None:
    made(cluster, "target")
    frame = spark.range(2000).selectExpr(
        "case when id = 1999 then raise_error('no') else cast(id as string) end as body"
    )
    with pytest.raises(Exception, match="no"):
        write(frame.coalesce(1), cluster, group="target")
    assert bodies(cluster) == []


@pytest.mark.req("PIP-03", "PIP-02")
def test_a_stream_goes_on_where_it_stopped(
    spark: "SparkSession", cluster: LocalCluster, tmp_path: Path
) -> None:
    made(cluster, "target")
    filled(cluster)
    stream(spark, cluster, tmp_path / "folder", group="target").awaitTermination(120)
    assert sorted(bodies(cluster)) == sorted(b"%d" % i for i in range(1000))
    stream(spark, cluster, tmp_path / "folder", group="target").awaitTermination(120)
    assert len(bodies(cluster)) == 1000
    filled(cluster, 1000)
    stream(spark, cluster, tmp_path / "folder", group="target").awaitTermination(120)
    found = [int(body) for body in bodies(cluster)]
    assert sorted(found) == list(range(2000))
    for first in range(0, 2000, 400):  # each batch has its own range of numbers
        assert set(found[first : first + 400]) == set(range(first, first + 400))


@pytest.mark.req("PIP-09")
def test_a_stream_keeps_a_table_current(
    spark: "SparkSession", cluster: LocalCluster, tmp_path: Path
) -> None:
    filled(cluster)
    counts = orders(spark, cluster).selectExpr(
        "cast(cast(cast(body as string) as int) % 7 as string) as key"
    )
    counts = counts.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
    folder = tmp_path / "folder"
    options = {"table": "counts", "create": "true"}
    started(counts, cluster, folder, "complete", **options).awaitTermination(120)
    wanted = {b"%d" % k: b"%d" % len(range(k, 1000, 7)) for k in range(7)}
    with samcast.connect(cluster.address) as client:
        table = client.table("counts")
        assert dict(table.items()) == wanted
        rows = [("0", None), ("new", "x")]
        write(spark.createDataFrame(rows, "key string, value string"), cluster, table="counts")
        table.wait_for(client.group("table/counts").head(), 20)
        del wanted[b"0"]
        assert dict(table.items()) == {**wanted, b"new": b"x"}
    reader = spark.read.format("samcast").option("cluster", cluster.address)
    rows = reader.option("table", "counts").load().collect()
    assert {bytes(r.key): bytes(r.value) for r in rows} == {**wanted, b"new": b"x"}
    with pytest.raises(Exception, match="there is no table 'nowhere' here; there are: counts"):
        reader.option("table", "nowhere").load()


@pytest.mark.req("PIP-03")
def test_writes_with_a_name_happen_once_for_each_batch(
    spark: "SparkSession", cluster: LocalCluster, tmp_path: Path
) -> None:
    made(cluster, "target")
    filled(cluster)
    told: list[int] = []

    def twice(frame: "DataFrame", batch: int) -> None:
        told.append(batch)
        for _ in range(2):  # as if the first had failed after its decision
            write(frame.select("body"), cluster, group="target", name="each")

    for _ in range(2):
        writer = orders(spark, cluster).writeStream.foreachBatch(twice).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "folder"))
        writer.start().awaitTermination(120)
        filled(cluster, 1000, 100)
    assert told == [0, 1, 2, 3]
    assert sorted(int(body) for body in bodies(cluster)) == list(range(1100))
    one = spark.createDataFrame([("once",)], "body string")
    for _ in range(2):
        write(one, cluster, group="target", name="a load", batch=20261116)
    assert bodies(cluster)[1100:] == [b"once"]
    with pytest.raises(Exception, match="which batch of 'a load/"):
        write(one, cluster, group="target", name="a load")


# Columns, options, and what is said about them.
MISTAKES: list[tuple[str, dict[str, str], str]] = [
    ("id", {"group": "target"}, "needs a column 'body'"),
    ("id as body", {"group": "target"}, "column 'body' is bigint; cast it"),
    ("'x' as body, id", {"group": "target"}, "no place for column 'id'"),
    ("'x' as value", {"table": "t", "create": "true"}, "needs a column 'key'"),
    ("'x' as key", {"table": "t", "create": "true"}, "needs a column 'value'"),
    ("'x' as body", {"group": "nowhere"}, "there is no group 'nowhere' here"),
    ("'x' as key, 'y' as value", {"table": "nowhere"}, "there is no table 'nowhere' here"),
    ("'x' as body", {}, 'option "group" .* is missing'),
    ("'x' as body", {"group": "target", "table": "t"}, "are both there"),
    ("'x' as body", {"group": "target", "tabel": "t"}, "option 'tabel' is none"),
    ("'x' as body", {"group": "target", "create": "yes"}, "option create is 'yes'"),
    ("'x' as body", {"group": "target", "timeout": "soon"}, "option timeout is 'soon'"),
    ("'x' as body", {"group": "target", "mode": "overwrite"}, "nothing here is overwritten"),
]


@pytest.mark.req("PIP-03", "PIP-09")
def test_what_does_not_fit_is_told_before_anything_runs(
    spark: "SparkSession", cluster: LocalCluster
) -> None:
    made(cluster, "target")
    for columns, options, complaint in MISTAKES:
        frame = spark.range(3).selectExpr(*columns.split(", "))
        with pytest.raises(Exception, match=complaint) as raised:
            write(frame, cluster, **options)
        assert "Job aborted" not in str(raised.value)
    assert bodies(cluster) == []
