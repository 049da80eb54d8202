"""A group's messages from its archive and from the cluster, as if they had never been apart."""

import importlib.util
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from samcast.archive.index import Archive, open_archive
from samcast.client.inbox import Message
from samcast.errors import ClientError, CollectedError, ConfigError

if TYPE_CHECKING:
    from samcast.client.blocking import Group, Start

ROWS = 1024  # read from a file at once
NEEDS_ARROW = "an archive is read with pyarrow: pip install 'samcast[arrow]'"


def archive_of(group: "Group", folder: Path) -> Archive:
    """The archive of this very group; what is missing between it and the cluster is told."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ClientError(NEEDS_ARROW)
    oldest = group.oldest()  # first: what goes meanwhile is in the archive by then
    archive = open_archive(folder)
    archive.check_of(group.name, group.engine.identity)
    if oldest > archive.end:
        raise CollectedError(
            f"messages {archive.end} to {oldest - 1} of group {group.name!r} are gone, and not in"
            f" {folder}, which ends before them"
        )
    return archive


def read_through(
    group: "Group", folder: Path, start: "Start", count: int | None, timeout: float | None
) -> Iterator[Message]:
    """As `Group.read`."""
    archive = archive_of(group, folder)
    first = group.first_of(start) or archive.first  # 0: the oldest
    if first < archive.first:
        raise ConfigError(f"{folder} begins with message {archive.first}, not with {first}")
    return islice(_both(group, archive, first, count, timeout), count)


def _both(
    group: "Group", archive: Archive, first: int, count: int | None, timeout: float | None
) -> Iterator[Message]:
    """The archive may grow, and the cluster let go, for as long as somebody reads: where one ends
    and the other begins is looked at when it matters."""
    while first < archive.end:
        for message in archived(archive, first, archive.end):
            yield message
            first += 1
            if count is not None:
                count -= 1
                if not count:
                    return
        if first < group.oldest():
            archive = archive_of(group, archive.folder)
    yield from group.read(first, count=count, timeout=timeout)


def archived(archive: Archive, first: int, end: int) -> Iterator[Message]:
    """Messages of an archive alone."""
    from samcast.archive.reading import record_batches

    if first >= end:
        return
    for batch in record_batches(archive, first, end, ROWS):
        columns = [batch.column(name).to_pylist() for name in ("number", "body", "key", "headers")]
        yield from map(Message, *columns)
