"""Spark reading and writing groups, beside Parquet files with the same rows, in one session."""

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from samcast.bench.measuring import Measuring, Result
from samcast.errors import ConfigError

ROWS = 2_000_000
STREAMED = 5_000_000
SINGLES = 1_000_000
SENDERS = 100
ROUNDS = 3
FORMAT = "samcast"
REPEATING = "samcast_repeating"


def spark(m: Measuring) -> Result:
    """Ratios; each a median of rounds in turn."""
    session = new_session()
    place = Path(tempfile.mkdtemp(prefix="samcast-spark-", dir=m.cluster.folder))
    try:
        return {
            "batch": _batch(m, session, place),
            "stream": _stream(m, session, place),
            "single": _single(m, session),
            "sink": _sink(m, session, place),
        }
    finally:
        session.stop()
        shutil.rmtree(place)


def new_session() -> Any:
    """Embedded, on two cores."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise ConfigError("PySpark is missing: pip install 'samcast[spark]'") from None

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "4")  # as jobs have it here
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def fill_group(m: Measuring, count: int) -> str:
    """A group with so many messages, in batches; its name."""
    name = m.name()
    with m.client() as client:
        group = client.group(name)
        for first in range(0, count, 100_000):
            group.send_many(m.bodies(min(100_000, count - first), first))
        group.flush(300)
    return name


def _frame(m: Measuring, session: Any, group: str, kind: str = FORMAT) -> Any:
    reader = session.read.format(kind).option("cluster", m.cluster.address)
    return reader.option("group", group).load()


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _consume(make: Callable[[], Any]) -> None:
    make().write.format("noop").mode("overwrite").save()


def _batch(m: Measuring, session: Any, place: Path) -> Result:
    rows = m.scaled(ROWS)
    group = fill_group(m, rows)
    files = str(place / "batch")
    _frame(m, session, group).write.parquet(files)
    session.dataSource.register(_tuples())
    session.dataSource.register(_repeating())
    frames = {
        "samcast": lambda: _frame(m, session, group),
        "parquet": lambda: session.read.parquet(files),
        "any_python_source": lambda: _frame(m, session, group, REPEATING),
        "tuples": lambda: _frame(m, session, group, "samcast_tuples"),
    }
    times = _rounds({name: partial(_consume, make) for name, make in frames.items()})
    return {"rows": rows, "rows_per_s": _per_s(rows, times),
            "of_parquet": round(times["parquet"] / times["samcast"], 2),
            "of_any_python_source": round(times["any_python_source"] / times["samcast"], 2),
            "times_tuples": round(times["tuples"] / times["samcast"], 1)}  # fmt: skip


def _stream(m: Measuring, session: Any, place: Path) -> Result:
    rows = m.scaled(STREAMED)
    group = fill_group(m, rows)
    files = str(place / "stream")
    frame = _frame(m, session, group)
    frame.write.parquet(files)

    def ours(kind: str = FORMAT) -> Any:
        stream = session.readStream.format(kind).option("cluster", m.cluster.address)
        # Parquet's, too, is one micro-batch.
        return stream.option("group", group).option("rows_per_trigger", rows).load()

    def theirs() -> Any:
        return session.readStream.schema(frame.schema).parquet(files)

    def run(make: Callable[[], Any]) -> None:
        checkpoint = tempfile.mkdtemp(dir=place)
        stream = make().writeStream.format("noop").option("checkpointLocation", checkpoint)
        stream.trigger(availableNow=True).start().awaitTermination()

    times = _rounds({
        "samcast": lambda: run(ours),
        "parquet": lambda: run(theirs),
        "any_python_source": lambda: run(partial(ours, REPEATING)),
    })  # fmt: skip
    return {"rows": rows, "rows_per_s": _per_s(rows, times),
            "of_parquet": round(times["parquet"] / times["samcast"], 2),
            "of_any_python_source": round(times["any_python_source"] / times["samcast"], 2),
            }  # fmt: skip


def _single(m: Measuring, session: Any) -> Result:
    """Messages that came one by one, of many slow senders: each waits until its last one has its
    number."""
    rows = m.scaled(SINGLES)
    name, each = m.name(), max(1, rows // SENDERS)
    with m.client() as client:
        senders = [client.group(name).sender(f"sender-{at}") for at in range(SENDERS)]
        for body in m.bodies(each):
            for sent in [sender.send(body) for sender in senders]:
                sent.number(60)
    batched = fill_group(m, each * SENDERS)
    times = _rounds(
        {
            "single": partial(_consume, partial(_frame, m, session, name)),
            "batched": partial(_consume, partial(_frame, m, session, batched)),
        }
    )
    return {"rows": each * SENDERS, "rows_per_s": _per_s(each * SENDERS, times),
            "of_batched": round(times["batched"] / times["single"], 2)}  # fmt: skip


def _sink(m: Measuring, session: Any, place: Path) -> Result:
    """The same rows written to a group and to Parquet files."""
    rows = m.scaled(ROWS)
    frame = _frame(m, session, fill_group(m, rows)).select("body").cache()
    frame.count()
    options = {"cluster": m.cluster.address, "group": m.name(), "create": "true"}

    def theirs() -> None:
        frame.write.parquet(tempfile.mkdtemp(dir=place) + "/sink")

    def ours() -> None:
        frame.write.format(FORMAT).options(**options).mode("append").save()

    times = _rounds({"samcast": ours, "parquet": theirs})
    frame.unpersist()
    return {"rows": rows, "rows_per_s": _per_s(rows, times),
            "of_parquet": round(times["parquet"] / times["samcast"], 2)}  # fmt: skip


def _rounds(works: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Seconds of each: one round to get warm, then medians of rounds in turn."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(ROUNDS + 1):
        for name, work in works.items():
            took = _timed(work)
            if turn:
                found[name].append(took)
    return {name: statistics.median(times) for name, times in found.items()}


def _per_s(rows: int, times: dict[str, float]) -> dict[str, int]:
    return {name: round(rows / took) for name, took in times.items()}


def _repeating() -> Any:
    """As many rows of the same form, without reading them: what Spark itself takes for the rows of
    any source in Python, however fast."""
    from samcast.pipeline.options import read_options
    from samcast.pipeline.source import Range, Reader, SamcastSource, StreamReader

    def repeated(batches: Iterator[Any], partition: Any) -> Iterator[Any]:
        left = partition.end - partition.first if isinstance(partition, Range) else 0
        batch = next(batches, None)
        while batch is not None and left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows

    class RepeatingReader(Reader):
        def read(self, partition: Any) -> Iterator[Any]:
            return repeated(super().read(partition), partition)

    class RepeatingStream(StreamReader):
        def read(self, partition: Any) -> Iterator[Any]:
            return repeated(super().read(partition), partition)

    class RepeatingSource(SamcastSource):
        @classmethod
        def name(cls) -> str:
            return REPEATING

        def reader(self, schema: Any) -> Any:
            return RepeatingReader(read_options(self._said))

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
            return RepeatingStream(read_options(self._said))

    return RepeatingSource


def _tuples() -> Any:
    """The same source, row by row: what the usual Python source does."""
    from samcast.pipeline.options import read_options
    from samcast.pipeline.source import Reader, SamcastSource

    class TupleReader(Reader):
        def read(self, partition: Any) -> Iterator[Any]:
            for batch in super().read(partition):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    class TupleSource(SamcastSource):
        @classmethod
        def name(cls) -> str:
            return "samcast_tuples"

        def reader(self, schema: Any) -> Any:
            return TupleReader(read_options(self._said))

    return TupleSource
