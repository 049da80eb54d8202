"""Adding to an archive: files that are whole and durable get their place, then their entry.

A part's name is its first number, so whoever writes it again after a crash puts it into the place
of what was left there. A lock keeps a second job out.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

from samcast.archive.index import (
    ABOUT,
    FORMAT,
    INDEX,
    LOCK,
    MESSAGES,
    PROGRESS,
    STAGING,
    About,
    Archive,
    File,
    Part,
    open_archive,
)
from samcast.archive.reading import numbers_of
from samcast.errors import DiskError
from samcast.runtime.folder import write_durably
from samcast.runtime.os_folder import sync_folder


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other jobs out while this one runs; the lock goes with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DiskError(
                f"{folder / LOCK} is held by another job: an archive is written by one at a time"
            ) from None
        yield


def begin_archive(folder: Path, about: About) -> Archive:
    """The archive in a folder, which is made if there is none; it must be of this group."""
    if not (folder / ABOUT).exists():
        _check_empty(folder)
        for name in (INDEX, MESSAGES):
            (folder / name).mkdir(exist_ok=True)
        write_durably(folder / ABOUT, msgspec.json.format(msgspec.json.encode(about)))
        sync_folder(folder.parent)
    archive = open_archive(folder)
    archive.check_of(about.group, about.cluster)
    # Neither was ever part of the archive. Spark's own notes of how far it was may be behind the
    # index, or before it: where to go on is what the index says, and nothing else.
    for name in (STAGING, PROGRESS):
        shutil.rmtree(folder / name, ignore_errors=True)
    return archive


def new_about(cluster: str, group: str, first: int) -> About:
    """Of an archive that begins with this message."""
    return About(FORMAT, secrets.token_hex(8), cluster, group, first)


def _check_empty(folder: Path) -> None:
    """Nothing is there but what an interrupted beginning may have left."""
    ours = (LOCK, INDEX, MESSAGES, f"{ABOUT}.new")
    strange = [path.name for path in folder.iterdir() if path.name not in ours]
    strange += [name for name in (INDEX, MESSAGES) if any((folder / name).glob("*"))]
    if strange:
        raise DiskError(f"{folder} has no {ABOUT} but {strange[0]}: an archive needs its own")


def add_part(archive: Archive, staged: Path) -> Part | None:
    """Take over the Parquet files of a folder, which hold messages that go on where the archive
    ends; None if it has them already. Whoever calls this holds the lock."""
    files = _surveyed(staged)
    if not files or files[-1].end <= archive.end:
        shutil.rmtree(staged)
        return None
    part = Part(files[0].first, files[-1].end, files)
    if part.first != archive.end:
        raise DiskError(
            f"{staged} holds messages {part.first} to {part.end - 1}, and the archive ends at"
            f" {archive.end - 1}: another job has written to it; begin with another folder"
        )
    _make_durable(staged, files)
    if archive.entry_of(part).exists():
        raise DiskError(
            f"{archive.entry_of(part)} is there already: two jobs write to this archive"
        )
    place = archive.place_of(part)
    if place.exists():  # of a life that ended before it was entered
        shutil.rmtree(place)
    staged.rename(place)
    sync_folder(place.parent)
    entry = msgspec.json.format(msgspec.json.encode(part), indent=1)
    write_durably(archive.entry_of(part), entry)
    archive.parts.append(part)
    return part


def _surveyed(staged: Path) -> list[File]:
    """What was written, by number; numbers of a file, and of all of them, follow each other."""
    files: list[File] = []
    for path in staged.glob("*.parquet"):
        first, end = numbers_of(path)
        if first < end:
            files.append(File(path.name, first, end, path.stat().st_size, sha256_of(path)))
    files.sort(key=lambda file: file.first)
    for before, after in pairwise(files):
        if before.end != after.first:
            raise DiskError(
                f"{staged / after.name} doesn't go on at {before.end}: it was altered, or two jobs"
                " write to this archive"
            )
    return files


def _make_durable(staged: Path, files: list[File]) -> None:
    """Whatever wrote them has not; what else lies there is of no use."""
    kept = [file.name for file in files]
    for path in staged.iterdir():
        if path.name not in kept:
            path.unlink()
            continue
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    sync_folder(staged)


def sha256_of(path: Path) -> str:
    """Of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
