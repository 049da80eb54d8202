"""Archiving a group: a streaming query moves what is committed to Parquet files, each message once,
and a lease keeps what is not there yet.

Each life of the job goes on where the index ends: what was entered is there, what wasn't is written
again. A batch that Spark repeats within one life has the same numbers, and is passed over.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from samcast.archive import delta
from samcast.archive.index import ABOUT, PROGRESS, STAGING, About, Archive, open_archive
from samcast.archive.writing import add_part, begin_archive, locked, new_about
from samcast.client.blocking import Group
from samcast.errors import CollectedError, SamcastError
from samcast.pipeline.reading import connected, open_group
from samcast.pipeline.running import Show, prepare, session, watched

DAY_S = 24 * 3600
TRIES = 5  # to hold what a group is just letting go


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
    delta: bool = False  # a log for tools that speak Delta; once there, it goes on


def archive_group(job: Job, master: str, show: Show, settings: Sequence[str] = ()) -> Archive:
    """Run until there is no more, or for ever."""
    prepare(master, job.cluster, settings)
    with watched(show), session("samcast archive") as spark:
        return archive_in(spark, job)


def archive_in(spark: Any, job: Job) -> Archive:
    """The same in a session that is there."""
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    with locked(job.folder):
        archive = _begin(job)
        _follow(job, archive)
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
    """What there is, or the beginning of it, and a lease on all that comes behind."""
    with connected(job.cluster) as client:
        group = open_group(client, job.group)
        if (job.folder / ABOUT).exists():
            about = open_archive(job.folder).about
            here = structs.replace(about, cluster=client.engine.identity, group=job.group)
            archive = begin_archive(job.folder, here)
            oldest = group.oldest()
            if archive.end < oldest:
                raise CollectedError(
                    f"messages {archive.end} to {oldest - 1} of group {job.group!r} are gone, and"
                    f" {job.folder} ends before them: the job was away for longer than its lease."
                    " Begin another archive, in another folder"
                )
            _hold(group, job, archive.about, archive.end - 1)
            return archive
        about = new_about(client.engine.identity, job.group, group.oldest())
        for left in reversed(range(TRIES)):
            try:
                _hold(group, job, about, about.first - 1)
                break
            except CollectedError:  # Some of it went in between.
                if not left:
                    raise
                about = new_about(about.cluster, about.group, group.oldest())
        return begin_archive(job.folder, about)


def _hold(group: Group, job: Job, about: About, number: int) -> None:
    group.lease(_lease(about), number, ttl=float(job.lease_days * DAY_S))


def _lease(about: About) -> str:
    return f"archive-{about.id}"


def _query(spark: Any, job: Job, archive: Archive, failed: list[SamcastError]) -> Any:
    def take(frame: Any, batch: int) -> None:
        try:
            _take(frame, archive, job.folder / STAGING / f"batch-{batch}")
            _follow(job, archive)
        except SamcastError as error:
            failed.append(error)
            raise

    options = {
        "cluster": job.cluster,
        "group": job.group,
        "start": str(archive.end),
        "rows_per_trigger": str(job.rows),
        "lease": _lease(archive.about),
        "lease_seconds": str(job.lease_days * DAY_S),
    }
    stream = spark.readStream.format("samcast").options(**options).load()
    writer = stream.writeStream.queryName(f"archive of {job.group}").foreachBatch(take)
    when = {"availableNow": True} if job.once else {"processingTime": f"{job.every_s} seconds"}
    place = str((job.folder / PROGRESS).resolve())
    return writer.trigger(**when).option("checkpointLocation", place).start()


def _follow(job: Job, archive: Archive) -> None:
    if archive.parts and (job.delta or delta.has_log(archive)):
        delta.follow(archive)


def _take(frame: Any, archive: Archive, staged: Path) -> None:
    shutil.rmtree(staged, ignore_errors=True)
    frame.write.option("compression", "zstd").parquet(str(staged.resolve()))
    add_part(archive, staged)
