"""The examples, run as their first lines say."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import samcast
from samcast.cli.progress import Bars
from samcast.runtime.local_cluster import LocalCluster
from tests.pipeline.conftest import HAS_SPARK

EXAMPLES = Path("examples").resolve()


def run(cluster: LocalCluster, folder: Path, name: str, *arguments: str) -> str:
    program = str(Path(sys.executable).with_name("samcast"))
    command = [program, "pipeline", "run", "--cluster", cluster.address, str(EXAMPLES / name)]
    done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.mark.req("PIP-08", "PIP-09")
@pytest.mark.skipif(not HAS_SPARK, reason="needs PySpark and Java")
def test_orders_and_a_table_become_a_table_and_a_report(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with samcast.connect(cluster.address) as client:
        regions = client.table("regions")
        for product, region in ((b"tea", b"east"), (b"beer", b"west")):
            regions.put(product, region).number()
        orders = client.group("orders")
        for turn in range(300):
            orders.send(b"an order", [b"tea", b"beer", b"snow"][turn % 3])
        orders.flush(30)
    run(cluster, tmp_path, "orders_by_region.py")
    with samcast.connect(cluster.address) as client:
        counts: dict[bytes, int] = {}
        for key, value in client.table("orders_per_minute").items():
            region = key.split(b" ")[2]
            counts[region] = counts.get(region, 0) + int(value)
    assert counts == {b"east": 100, b"west": 100, b"nowhere": 100}
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    said = run(cluster, tmp_path, "daily_report.py", "orders", today, "report.html")
    assert f"report.html: 300 orders on {today}" in said  # unless it is midnight
    assert (tmp_path / "report.html").read_text().count("<rect") == 24


@pytest.mark.req("PIP-08")
@pytest.mark.skipif(not HAS_SPARK, reason="needs PySpark and Java")
def test_clicks_become_sessions(cluster: LocalCluster, tmp_path: Path) -> None:
    with samcast.connect(cluster.address) as client:
        clicks = client.group("clicks")
        for turn in range(10):
            clicks.send(b"a click", b"ann" if turn % 2 else b"bob")
        clicks.flush(30)
    said = run(cluster, tmp_path, "sessions.py")
    assert "sessions: batch 0, 10 rows" in said  # They are open: no pause has passed.
    with samcast.connect(cluster.address) as client:
        assert client.group("sessions", create=False).head() == 0


def test_progress_is_drawn_from_what_spark_tells() -> None:
    with Bars() as bars:
        for end in (1001, 2001):
            source = {"startOffset": '{"number": 1}', "endOffset": f'{{"number": {end}}}',
                      "latestOffset": '{"number": 4001}'}  # fmt: skip
            bars.show("copy", {"sources": [source], "processedRowsPerSecond": 500.0})
        (task,) = bars._bars.tasks
        assert (task.completed, task.total, task.fields["rate"]) == (2000, 4000, "500 rows/s")
