"""Whether an archive is what it was when it was written: every file, every byte."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from samcast.archive import delta
from samcast.archive.index import INDEX, MESSAGES, NUMBER_DIGITS, Archive, open_archive
from samcast.archive.reading import numbers_of
from samcast.archive.writing import sha256_of
from samcast.errors import DiskError


class Verified(msgspec.Struct, frozen=True):
    """What is in an archive."""

    group: str
    first: int
    last: int
    files: int
    size: int


def verify(
    folder: Path, progress: Callable[[int, int], None], say: Callable[[str], None]
) -> Verified:
    """Read all of it; a `DiskError` names the first file that is wrong."""
    archive = open_archive(folder)
    done = size = files = 0
    total = sum(file.size for part in archive.parts for file in part.files)
    for path, file in archive.files(archive.first, archive.end):
        if not path.exists():
            raise DiskError(f"{path} is missing; the archive's index has it")
        if path.stat().st_size != file.size or sha256_of(path) != file.sha256:
            raise DiskError(f"{path} was altered: it isn't what its index says")
        if numbers_of(path) != (file.first, file.end):
            raise DiskError(f"{path} doesn't hold messages {file.first} to {file.end - 1}")
        files += 1
        size += file.size
        done += file.size
        progress(done, total)
    strays = _strays(archive)
    end = f"part={archive.end:0{NUMBER_DIGITS}d}"
    if len(strays) > 1 or any(stray.name < end for stray in strays):
        raise DiskError(
            f"{archive.folder / INDEX} lacks entries: {len(strays)} parts are there without one,"
            " and an interrupted job leaves one, at the end. Don't delete them: get the entries"
            " back"
        )
    for stray in strays:
        say(f"{stray} is not in the index: it is left of a job that was interrupted")
    if delta.has_log(archive):
        delta.check(archive)
    return Verified(archive.about.group, archive.first, archive.end - 1, files, size)


def _strays(archive: Archive) -> list[Path]:
    known = {archive.place_of(part) for part in archive.parts}
    there = (archive.folder / MESSAGES).glob("part=*")
    return sorted(path for path in there if path not in known)
