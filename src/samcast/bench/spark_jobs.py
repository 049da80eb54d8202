"""The jobs on Spark, beside the same work on Parquet files: archive, consolidation, audit."""

import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samcast.bench.measuring import Measuring, Result
from samcast.bench.spark_rates import FORMAT, fill_group, new_session

ROWS = 5_000_000
KEYS = 250_000
AUDITED = 10_000_000
MEMBERS = 2


def jobs(m: Measuring) -> Result:
    """Seconds and rows per second; one round to get warm."""
    session = new_session()
    place = Path(tempfile.mkdtemp(prefix="samcast-jobs-", dir=m.cluster.folder))
    try:
        return {
            "archive": _archive(m, session, place),
            "consolidate": _consolidate(m, session, place),
            "audit": _audit(m, session, place),
        }
    finally:
        session.stop()
        shutil.rmtree(place)


def _archive(m: Measuring, session: Any, place: Path) -> Result:
    from samcast.pipeline.archiving import Job, archive_in

    rows = m.scaled(ROWS)
    name = fill_group(m, rows)
    files = str(place / "plain")
    reader = session.read.format(FORMAT).option("cluster", m.cluster.address)
    frame = reader.option("group", name).load()
    frame.write.parquet(files)

    def ours() -> None:
        folder = Path(tempfile.mkdtemp(dir=place)) / "archive"
        archive_in(session, Job(m.cluster.address, name, folder, True, 10, rows // 4, 1))

    def theirs() -> None:
        """A stream of files into files, by Spark's own sink, in as many batches."""
        folder = Path(tempfile.mkdtemp(dir=place))
        stream = session.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1)
        writer = stream.parquet(files).writeStream.format("parquet").option("path", folder / "out")
        writer = writer.option("checkpointLocation", str(folder / "progress"))
        writer.option("compression", "zstd").trigger(availableNow=True).start().awaitTermination()

    times = {"samcast": _second(ours), "parquet": _second(theirs)}
    return {"rows": rows, "rows_per_s": {who: round(rows / took) for who, took in times.items()},
            "of_parquet": round(times["parquet"] / times["samcast"], 2)}  # fmt: skip


def _consolidate(m: Measuring, session: Any, place: Path) -> Result:
    import pyspark.sql.functions as functions

    from samcast.pipeline.consolidating import LOCAL, SPARK, consolidate
    from samcast.pipeline.consolidation import Wanted

    rows, keys = m.scaled(ROWS), m.scaled(KEYS)
    name = _fill_keyed(m, rows, keys)
    files = str(place / "keyed")
    reader = session.read.format(FORMAT).option("cluster", m.cluster.address)
    reader.option("group", name).load().write.parquet(files)
    hashes: set[str] = set()

    def ours(engine: str) -> None:
        made = consolidate(
            m.cluster.address, name, Wanted(rows, False), lambda *_: None, engine, spark=session
        )
        hashes.add(made.hash)

    def theirs() -> None:
        """The last body of each key, to files."""
        frame = session.read.parquet(files).groupBy("key").agg(
            functions.max_by("body", "number").alias("value"), functions.max("number")
        )  # fmt: skip
        frame.sort("key").write.mode("overwrite").parquet(str(place / "latest"))

    times = {
        "local": _second(lambda: ours(LOCAL)),
        "spark": _second(lambda: ours(SPARK)),
        "parquet": _second(theirs),
    }
    assert len(hashes) == 1
    return {"messages": rows, "keys": keys,
            "seconds": {who: round(took, 1) for who, took in times.items()},
            "of_parquet": {who: round(times["parquet"] / times[who], 2)
                           for who in ("local", "spark")}}  # fmt: skip


def _fill_keyed(m: Measuring, count: int, keys: int) -> str:
    """A group that jobs fold, with so many messages of so many keys; its name."""
    import pyarrow as pa

    from samcast.wire.order import Keep

    name, chance = m.name(), random.Random(5)
    with m.client() as client:
        group = client.group(name)
        group.set_keep(Keep(fold="latest", fold_version=1, by_jobs=True))
        for first in range(0, count, 20_000):
            bodies = m.bodies(min(20_000, count - first), first)
            names = [b"key-%09d" % chance.randrange(keys) for _ in bodies]
            columns = [pa.array(names, pa.binary()), pa.array(bodies, pa.binary())]
            group.send_arrow(pa.RecordBatch.from_arrays(columns, names=["key", "body"]))
        group.flush(300)
    return name


def _audit(m: Measuring, session: Any, place: Path) -> Result:
    from samcast.pipeline.auditing import audit_with, compared, runs_of, tasks_of

    rows = m.scaled(AUDITED)
    name = fill_group(m, rows)
    records = [place / f"member-{at}" for at in range(MEMBERS)]
    with m.client() as client:
        for record in records:
            for _ in client.group(name).read(1, count=rows, record=record):
                pass
    files = str(place / "runs")
    span = (1, rows + 1)
    with m.client() as client:
        tasks = tasks_of(client, client.group(name), records, span)
        runs_of(session, tasks).write.parquet(files)
    verdicts: list[str] = []

    def ours() -> None:
        verdicts.append(audit_with(session, m.cluster.address, name, records).verdict)

    def theirs() -> None:
        """The comparison alone, of what everybody says, from files."""
        compared(session, session.read.parquet(files), name, span, tasks)

    took, plain = _second(ours), _second(theirs)
    return {"messages": rows, "verdict": verdicts[-1], "seconds": round(took, 1),
            "messages_per_s": round(rows / took), "seconds_from_parquet": round(plain, 1),
            "runs": session.read.parquet(files).count()}  # fmt: skip


def _second(work: Callable[[], None]) -> float:
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
