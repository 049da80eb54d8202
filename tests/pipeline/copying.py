"""A program that copies a group into another one as a stream: what tests kill.

    python -m tests.pipeline.copying MASTER CLUSTER FOLDER ROWS_PER_BATCH [forever]

It dies by kill -9 just after the sink has committed a batch, before Spark notes that, whenever the
file FOLDER.die is there (which then goes): Spark's commit runs in a process of its own, which kills
the group of processes that all of it belongs to.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from samcast.pipeline.sink import StreamWriter
from samcast.pipeline.source import SamcastSource

DIE = "SAMCAST_TEST_DIE"
GROUP = "SAMCAST_TEST_PROCESSES"
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "700m",
    "spark.executor.memory": "600m",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
}


class DyingWriter(StreamWriter):
    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        super().commit(messages, batchId)
        mark = Path(os.environ[DIE])
        if mark.exists():
            mark.unlink()
            os.killpg(int(os.environ[GROUP]), signal.SIGKILL)


class DyingSource(SamcastSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        writer = super().streamWriter(schema, overwrite)
        return DyingWriter(writer._target, writer._name)


def main() -> None:
    master, cluster, folder, rows, *rest = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ[DIE] = f"{folder}.die"
    os.environ[GROUP] = str(os.getpgid(0))
    builder = SparkSession.builder.master(master)
    for key, value in CONFIG.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(DyingSource)
    source = spark.readStream.format("samcast").option("cluster", cluster)
    source = source.option("group", "orders").option("rows_per_trigger", rows)
    writer = source.load().select("body").writeStream.format("dying").option("cluster", cluster)
    writer = writer.option("group", "target").option("checkpointLocation", folder)
    writer = writer if rest else writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
