"""Running a pipeline: a plain PySpark file, in this process, with a session that is ready for it.

What its streaming queries do is shown while it runs, from Spark's own progress.
"""

import os
import re
import runpy
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from samcast import errors
from samcast.errors import ConfigError, SamcastError
from samcast.pipeline.java import ensure_java

LOOK_S = 0.5
SPARK_LEAST = (4, 2)
CONFIG = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}

Show = Callable[[str, dict[str, Any]], None]  # name of a query, and its progress
Count = Callable[[str, int, int], None]  # what is counted, how many, and of how many


def check_spark() -> str:
    """The version of PySpark; an error that says what to do if there is none that will do."""
    try:
        import pyspark
    except ModuleNotFoundError:
        raise ConfigError("PySpark is missing: pip install 'samcast[spark]'") from None
    version = str(pyspark.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < SPARK_LEAST:
        raise ConfigError(f"PySpark {version} is too old: pip install 'samcast[spark]'")
    return version


def prepare(master: str, cluster: str, settings: Sequence[str] = ()) -> None:
    """Have `SparkSession.builder.getOrCreate()` do the right thing; Spark's own settings, as
    `key=value`, come last."""
    for one in settings:
        if not re.fullmatch(r"spark\.[\w.]+=.*", one):
            raise ConfigError(f"{one!r} is no setting of Spark; say spark.KEY=VALUE")
    check_spark()
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if cluster:
        os.environ["SAMCAST_CLUSTER"] = cluster
    said = [f"--master {master}"]
    said += [f"--conf {key}={value}" for key, value in CONFIG.items()]
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        said.append("--conf spark.driver.bindAddress=127.0.0.1")  # Nobody else is to reach it.
        # Spark's default is for clusters: 200 tasks for a handful of rows.
        said.append(f"--conf spark.sql.shuffle.partitions={2 * (os.cpu_count() or 1)}")
    said += [f"--conf {shlex.quote(one)}" for one in settings]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*said, "pyspark-shell"])


def run_file(
    path: Path,
    arguments: list[str],
    master: str,
    cluster: str,
    show: Show,
    settings: Sequence[str] = (),
) -> None:
    """Run a file as `python FILE ARGUMENTS` would; its streaming queries are waited for."""
    if not path.exists():
        raise ConfigError(f"{path}: no such file")
    prepare(master, cluster, settings)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.parent.resolve()))
    with watched(show):
        runpy.run_path(str(path), run_name="__main__")
        _await_queries(show)


def watched(show: Show) -> AbstractContextManager[None]:
    """Have shown what the streaming queries of this process do meanwhile."""
    return _beside(lambda over: _watch(over, show))


def counted_tasks(spark: Any, show: Count) -> AbstractContextManager[None]:
    """Have shown how many tasks of each stage are done meanwhile."""
    return _beside(lambda over: _count(spark, over, show))


@contextmanager
def _beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """A thread that looks on, and ends soon after it is told that all is over."""
    over = threading.Event()
    watcher = threading.Thread(target=work, args=(over,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(2 * LOOK_S)


def _count(spark: Any, over: threading.Event, show: Count) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not over.wait(LOOK_S):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                show(f"tasks of stage {stage}", info.numCompletedTasks, info.numTasks)


@contextmanager
def session(name: str) -> Iterator[Any]:
    """A session of our own, for a job of ours."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName(name).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    except PySparkException as error:
        raise in_plain_words(error) from error
    finally:
        spark.stop()


def in_plain_words(error: Exception) -> SamcastError:
    """What a task of ours has said, out of all that Spark says about it; or Spark's first line."""
    said = re.findall(r"samcast\.errors\.(\w+): (.+)", str(error))
    kind = getattr(errors, said[-1][0], None) if said else None
    if isinstance(kind, type) and issubclass(kind, SamcastError):
        return kind(said[-1][1])
    return SamcastError(f"Spark: {(str(error) or repr(error)).splitlines()[0]}")


def _session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession._instantiatedSession


def _await_queries(show: Show) -> None:
    session = _session()
    if session is not None:
        for query in session.streams.active:
            query.awaitTermination()
            _show_one(query, show)


def _watch(over: threading.Event, show: Show) -> None:
    while not over.wait(LOOK_S):
        session = _session()
        if session is None:
            continue
        for query in session.streams.active:
            _show_one(query, show)


def _show_one(query: Any, show: Show) -> None:
    progress = query.lastProgress
    if progress is not None:
        show(query.name or str(query.id)[:8], dict(progress))
