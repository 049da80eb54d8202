"""Real Spark reads groups of real clusters."""

import json
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import samcast
from samcast.runtime.local_cluster import LocalCluster
from tests.pipeline.conftest import HAS_SPARK
from tests.real.striking import pause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 20_000
pytestmark = pytest.mark.skipif(not HAS_SPARK, reason="needs PySpark and Java")


def filled(cluster: LocalCluster, count: int = ROWS, first: int = 0) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        for at in range(first, first + count, 1000):
            group.send_many([b"%d" % i for i in range(at, min(first + count, at + 1000))])
        group.flush(60)


def read(spark: "SparkSession", where: LocalCluster, **options: Any) -> "DataFrame":
    reader = spark.read.format("samcast")
    for key, value in {"group": "orders", "cluster": where.address, **options}.items():
        reader = reader.option(key, value)
    return reader.load()


@pytest.mark.req("PIP-01")
def test_a_group_is_read_whole_and_in_ranges(spark: "SparkSession", cluster: LocalCluster) -> None:
    filled(cluster)
    with samcast.connect(cluster.address) as client:
        client.group("orders").send(b"the last", b"key", b"headers").number(30)
    rows = read(spark, cluster, partitions=3).orderBy("number").collect()
    assert [row.number for row in rows] == list(range(1, ROWS + 2))
    assert [bytes(row.body) for row in rows[:-1]] == [b"%d" % i for i in range(ROWS)]
    last = rows[-1]
    assert (bytes(last.key), bytes(last.headers), bytes(last.body)) == (
        b"key", b"headers", b"the last",
    )  # fmt: skip
    assert len(bytes(last.sender)) == 16
    assert last.sent.year >= 2024
    part = read(spark, cluster, start=501, end=1503, rows_per_batch=100).orderBy("number").collect()
    assert [row.number for row in part] == list(range(501, 1503))
    frame = read(spark, cluster)
    assert frame.where("number > 100 and number <= 300").count() == 200
    assert [bytes(row.body) for row in frame.where("number = 7").collect()] == [b"6"]
    assert frame.where("number > 99999999").count() == 0
    some = read(spark, cluster, columns="body, number").where("number = 7")
    assert some.columns == ["body", "number"]
    assert [(bytes(row.body), row.number) for row in some.collect()] == [(b"6", 7)]
    assert read(spark, cluster, columns="key").count() == ROWS + 1


@pytest.mark.req("PIP-01")
def test_filters_on_numbers_are_not_read_past(spark: "SparkSession", cluster: LocalCluster) -> None:
    from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, LessThanOrEqual

    from samcast.pipeline.options import read_options
    from samcast.pipeline.source import FilteringReader, Range

    filled(cluster, 1000)
    reader = FilteringReader(read_options({"cluster": cluster.address, "group": "orders"}))
    other = EqualTo(("key",), b"a")
    filters: list[Filter] = [
        GreaterThan(("number",), 100),
        LessThanOrEqual(("number",), 300),
        other,
    ]
    assert list(reader.pushFilters(filters)) == [other]
    found = [p for p in reader.partitions() if isinstance(p, Range)]
    assert (found[0].first, found[-1].end) == (101, 301)


@pytest.mark.req("PIP-01")
def test_what_was_sent_at_another_time_is_not_read(
    spark: "SparkSession", cluster: LocalCluster
) -> None:
    """Servers find it by an index, also after a start from their disks."""
    from samcast.pipeline.reading import record_batches

    filled(cluster, 1000)
    pause(0.05)
    between_ms = int(time.time() * 1000)
    pause(0.05)
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        group.send_many([b"late"] * 300)
        group.flush(30)
    between = f"timestamp_millis({between_ms})"

    def look() -> None:
        brought = [
            sum(len(batch) for batch in record_batches(cluster.address, "orders", 1, 1301, 100, of))
            for of in ((0, between_ms), (between_ms, 2**62), (5, 6))
        ]
        assert brought == [1000, 300, 0]
        late = read(spark, cluster).where(f"sent >= {between}")
        assert {bytes(row.body) for row in late.collect()} == {b"late"}
        assert late.count() == 300
        assert read(spark, cluster).where(f"sent < {between}").count() == 1000

    look()
    for node in cluster.plan().present:
        cluster.kill(node.name)
    cluster.start_all()
    cluster.await_ready()
    look()


@pytest.mark.req("PIP-01")
@pytest.mark.parametrize(
    ("kind", "micros", "expected"),
    [
        ("GreaterThan", 5000, (5, 2**62)),
        ("GreaterThanOrEqual", 5001, (6, 2**62)),
        ("LessThan", 5000, (0, 6)),
        ("LessThanOrEqual", 5999, (0, 6)),
        ("EqualTo", 5000, (5, 6)),
        ("EqualNullSafe", 5000, (0, 2**62)),
    ],
)
def test_filters_on_times_become_milliseconds(
    kind: str, micros: int, expected: tuple[int, int]
) -> None:
    from pyspark.sql import datasource

    from samcast.pipeline.source import EPOCH, narrowed

    one = getattr(datasource, kind)(("sent",), EPOCH + timedelta(microseconds=micros))
    assert narrowed((0, 2**62), one, one.value) == expected
    assert narrowed((0, 2**62), one, one.value.replace(tzinfo=None)) == (0, 2**62)


@pytest.mark.req("PIP-01")
@pytest.mark.parametrize("pushes", ["true", "false"])
def test_sessions_that_push_filters_and_those_that_do_not(
    spark: "SparkSession", cluster: LocalCluster, pushes: str
) -> None:
    filled(cluster, 1000)
    conf = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(conf)
    spark.conf.set(conf, pushes)
    try:
        frame = read(spark, cluster).where("number > 900 and number <= 950")
        assert frame.count() == 50
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert ("Filter (" not in plan) == (pushes == "true")
    finally:
        spark.conf.set(conf, before)


@pytest.mark.req("PIP-01")
def test_a_node_that_dies_in_the_middle_is_done_without(
    spark: "SparkSession", cluster: LocalCluster
) -> None:
    filled(cluster, 200_000)
    frame = read(spark, cluster, rows_per_batch=1000, partitions=3)

    def kill() -> None:
        pause(0.4)
        cluster.kill("n2")

    killer = threading.Thread(target=kill)
    killer.start()
    numbers = frame.selectExpr("count(*)", "sum(number)", "count(distinct number)").collect()[0]
    killer.join()
    assert tuple(numbers) == (200_000, 200_000 * 200_001 // 2, 200_000)


@pytest.mark.req("PIP-02")
def test_a_stream_goes_on_where_it_stopped(
    spark: "SparkSession", cluster: LocalCluster, tmp_path: Path
) -> None:
    filled(cluster)
    target, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run() -> None:
        stream = spark.readStream.format("samcast").option("cluster", cluster.address)
        query = (
            stream.option("group", "orders").option("rows_per_trigger", 3000).load()
            .writeStream.format("parquet").option("path", target)
            .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(120)
        sizes = [progress["numInputRows"] for progress in query.recentProgress]
        assert max(sizes) <= 3000

    run()
    filled(cluster, 5000, ROWS)
    run()
    rows = spark.read.parquet(target).orderBy("number").collect()
    assert [row.number for row in rows] == list(range(1, ROWS + 5001))
    assert [bytes(row.body) for row in rows] == [b"%d" % i for i in range(ROWS + 5000)]


@pytest.mark.req("PIP-02")
def test_a_query_keeps_what_it_has_not_read_and_hears_if_that_is_gone(
    spark: "SparkSession", cluster: LocalCluster
) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    from samcast.errors import CollectedError
    from samcast.pipeline.options import read_options
    from samcast.pipeline.source import StreamReader
    from tests.real.test_retention import await_oldest

    filled(cluster, 3000)
    said = {"cluster": cluster.address, "group": "orders", "lease": "query"}
    reader = StreamReader(read_options(said))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(1000))
    assert (start, end) == ({"number": 1}, {"number": 1001})
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        group.keep(count=10)
        pause(2.0)
        assert group.oldest() == 1  # the query's lease
        reader.commit(end)
        await_oldest(group, 1001)
        with pytest.raises(CollectedError, match=r"messages 1 to 1000 .* came back too late"):
            reader.latestOffset(start, ReadMaxRows(1000))


@pytest.mark.req("PIP-02")
def test_a_query_that_starts_again_has_its_own_lease_again(cluster: LocalCluster) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    from samcast.client.leases import groups_of, leases_of
    from samcast.pipeline.options import read_options
    from samcast.pipeline.source import StreamReader

    filled(cluster, 3000)
    options = read_options({"cluster": cluster.address, "group": "orders"})
    reader = StreamReader(options)
    at = reader.initialOffset()
    for life in range(3):
        reader = StreamReader(options)
        kept = json.loads(json.dumps(at))  # as Spark's checkpoint folder has it
        at = reader.latestOffset(kept, ReadMaxRows(1000))
        if life:  # The batch that was under way is repeated, and committed.
            reader.commit(at)
    assert reader.latestOffset(at, ReadMaxRows(1000)) == at  # no batch without a message
    before = reader.latestOffset({"number": 1}, ReadMaxRows(10))  # of a folder made before
    reader.commit(before)
    with samcast.connect(cluster.address) as client:
        found = leases_of(groups_of(client))
    assert len(found) == 2
    assert [(one.name, one.number) for one in found] == [(before["lease"], 10), (at["lease"], 3000)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"group": "nothing"}, "there is no group 'nothing' here"),
        ({"cluster": "127.0.0.1:1"}, "no node answered"),
        ({"start": "yesterday"}, "option start is 'yesterday'"),
        ({"colour": "red"}, "option 'colour' is none that samcast reads with"),
    ],
)
def test_a_mistake_is_told_when_the_query_is_planned(
    spark: "SparkSession", cluster: LocalCluster, options: dict[str, str], told: str
) -> None:
    filled(cluster, 10)
    with pytest.raises(Exception, match=told):
        read(spark, cluster, **options)
