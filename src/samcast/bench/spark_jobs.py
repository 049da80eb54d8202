"""The jobs on Spark, beside the same work on Parquet files: archiving a group, and an audit."""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samcast.bench.measuring import Measuring, Result
from samcast.bench.spark_rates import FORMAT, fill_group, new_session

ROWS = 5_000_000
AUDITED = 10_000_000
MEMBERS = 2


def jobs(m: Measuring) -> Result:
    """Seconds and rows per second; one round to get warm."""
    session = new_session()
    place = Path(tempfile.mkdtemp(prefix="samcast-jobs-", dir=m.cluster.folder))
    try:
        return {"archive": _archive(m, session, place), "audit": _audit(m, session, place)}
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


def _audit(m: Measuring, session: Any, place: Path) -> Result:
    from samcast.pipeline.auditing import audit_with

    rows = m.scaled(AUDITED)
    name = fill_group(m, rows)
    records = [place / f"member-{at}" for at in range(MEMBERS)]
    with m.client() as client:
        for record in records:
            for _ in client.group(name).read(1, count=rows, record=record):
                pass
    began = time.perf_counter()
    found = audit_with(session, m.cluster.address, name, records)
    took = time.perf_counter() - began
    return {"messages": rows, "verdict": found.verdict, "seconds": round(took, 1),
            "messages_per_s": round(rows / took),
            "runs": sum(one.runs for one in found.participants)}  # fmt: skip


def _second(work: Callable[[], None]) -> float:
    work()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
