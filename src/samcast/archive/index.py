"""An archive on disk: which messages it holds, in which files.

    archive.json                          whose messages these are
    index/0000000000000000001.json        one part: its files, their numbers and hashes
    messages/part=0000000000000000001/    its Parquet files
    staging/, progress/                   of the job that writes it

A part is there once its entry in the index is, and never changes. Parts follow each other without
a gap, so where the last one ends is where the archive goes on. What lies in `messages` without an
entry is of a job that was interrupted: nobody reads it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from samcast.errors import ConfigError, DiskError

ABOUT = "archive.json"
INDEX = "index"
MESSAGES = "messages"
STAGING = "staging"
PROGRESS = "progress"
LOCK = "lock"
FORMAT = 1
NUMBER_DIGITS = 19  # of the largest number that there can be

T = TypeVar("T")


class About(msgspec.Struct, frozen=True):
    """What an archive says of itself."""

    format: int
    id: str
    cluster: str
    group: str
    first: int  # its first number


class File(msgspec.Struct, frozen=True):
    """One Parquet file: messages `first` up to, but not with, `end`."""

    name: str
    first: int
    end: int
    size: int
    sha256: str


class Part(msgspec.Struct, frozen=True):
    """What was archived at once."""

    first: int
    end: int
    files: list[File]

    @property
    def key(self) -> str:
        """As in the names of its entry and its folder."""
        return f"{self.first:0{NUMBER_DIGITS}d}"


class Archive:
    """An archive as it is now."""

    def __init__(self, folder: Path, about: About, parts: list[Part]) -> None:
        self.folder = folder
        self.about = about
        self.parts = parts

    @property
    def first(self) -> int:
        """Its first message."""
        return self.about.first

    @property
    def end(self) -> int:
        """The number behind its last message."""
        return self.parts[-1].end if self.parts else self.about.first

    def entry_of(self, part: Part) -> Path:
        """Where the index tells of a part."""
        return self.folder / INDEX / f"{part.key}.json"

    def place_of(self, part: Part) -> Path:
        """Where its files are."""
        return self.folder / MESSAGES / f"part={part.key}"

    def files(self, first: int, end: int) -> Iterator[tuple[Path, File]]:
        """Those that hold any of these messages, in order."""
        for part in self.parts:
            if part.end <= first or part.first >= end:
                continue
            for file in part.files:
                if file.first < end and first < file.end:
                    yield self.place_of(part) / file.name, file

    def check_of(self, group: str, cluster: str = "") -> None:
        """Whether it is of this group; nobody wants to mix two."""
        about = self.about
        if about.group != group or (cluster and about.cluster != cluster):
            raise ConfigError(
                f"{self.folder / ABOUT}: this archive is of group {about.group!r} of cluster"
                f" {about.cluster}, not of {group!r}" + (f" of {cluster}" if cluster else "")
            )


def open_archive(folder: Path) -> Archive:
    """Read what an archive holds; a `DiskError` names the file that is wrong."""
    try:
        about = _read(folder / ABOUT, About)
    except FileNotFoundError:
        raise DiskError(f"{folder} is no archive: it has no {ABOUT}") from None
    if about.format != FORMAT:
        raise DiskError(f"{folder / ABOUT}: format {about.format}; this version reads {FORMAT}")
    parts: list[Part] = []
    end = about.first
    for path in sorted((folder / INDEX).glob("*.json")):
        part = _read(path, Part)
        if part.first != end or not _follow(part):
            raise DiskError(
                f"{path} doesn't go on at {end}: an entry before it is missing, or it was altered"
            )
        parts.append(part)
        end = part.end
    return Archive(folder, about, parts)


def _follow(part: Part) -> bool:
    at = part.first
    for file in part.files:
        if file.first != at or file.end <= at or "/" in file.name:
            return False
        at = file.end
    return at == part.end > part.first


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise DiskError(f"{path} can't be read: {error}") from None
