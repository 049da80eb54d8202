"""Archiving a group: a streaming query moves what is committed to Parquet files, each message once,
and a lease keeps what is not there yet.

Spark repeats a batch with the same numbers after a crash, and a part of the archive is known by
its numbers: so a batch that was entered is passed over, and one that wasn't is written again.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samcast.archive.index import PROGRESS, STAGING, Archive
from samcast.archive.writing import add_part, begin_archive, locked
from samcast.errors import CollectedError, SamcastError
from samcast.pipeline.reading import connected, open_group
from samcast.pipeline.running import Show, prepare, session, watched

DAY_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class Job:
    """What to archive, where, and how."""

    cluster: str
    group: str
    folder: Path
    once: bool  # only what there is now
    every_s: int  # between two parts, if it goes on
    rows: int  # of a part, at most
    lease_days: int  # how long the job may be away before its messages may go


def archive_group(job: Job, master: str, show: Show) -> Archive:
    """Run until there is no more, or for ever."""
    prepare(master, job.cluster)
    with watched(show), session("samcast archive") as spark:
        return archive_in(spark, job)


def archive_in(spark: Any, job: Job) -> Archive:
    """The same in a session that is there."""
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    with locked(job.folder):
        archive = _begin(job)
        failed: list[SamcastError] = []
        query = _query(spark, job, archive, failed)
        try:
            query.awaitTermination()
        except Exception:
            if failed:
                raise failed[0] from None
            raise
        finally:
            query.stop()
        return archive


def _begin(job: Job) -> Archive:
    with connected(job.cluster) as client:
        group = open_group(client, job.group)
        oldest = group.oldest()
        archive = begin_archive(job.folder, client.engine.identity, job.group, oldest)
        if archive.end < oldest:
            raise CollectedError(
                f"messages {archive.end} to {oldest - 1} of group {job.group!r} are gone, and"
                f" {job.folder} ends before them: the job was away for longer than its lease."
                " Begin another archive, in another folder"
            )
        group.lease(_lease(archive), archive.end - 1, ttl=float(job.lease_days * DAY_S))
        return archive


def _lease(archive: Archive) -> str:
    return f"archive-{archive.about.id}"


def _query(spark: Any, job: Job, archive: Archive, failed: list[SamcastError]) -> Any:
    def take(frame: Any, batch: int) -> None:
        try:
            _take(frame, archive, job.folder / STAGING / f"batch-{batch}")
        except SamcastError as error:
            failed.append(error)
            raise

    options = {
        "cluster": job.cluster,
        "group": job.group,
        "start": str(archive.end),
        "rows_per_trigger": str(job.rows),
        "lease": _lease(archive),
        "lease_seconds": str(job.lease_days * DAY_S),
    }
    stream = spark.readStream.format("samcast").options(**options).load()
    writer = stream.writeStream.queryName(f"archive of {job.group}").foreachBatch(take)
    when = {"availableNow": True} if job.once else {"processingTime": f"{job.every_s} seconds"}
    place = str((job.folder / PROGRESS).resolve())
    return writer.trigger(**when).option("checkpointLocation", place).start()


def _take(frame: Any, archive: Archive, staged: Path) -> None:
    shutil.rmtree(staged, ignore_errors=True)
    frame.write.option("compression", "zstd").parquet(str(staged.resolve()))
    add_part(archive, staged)
