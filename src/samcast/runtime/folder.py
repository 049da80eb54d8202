"""The folder of one node: who may use it, and whether it is the disk that it was.

Files are made durable before they are used: contents synced, then their folder.
"""

import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from samcast.disk.data_segments import LIST
from samcast.disk.folder import NEW
from samcast.disk.layout import CHECKPOINTS, DATA, GIVEN_UP, ORDER, SUPER, lay_out
from samcast.disk.order_store import NO_VOTE, SEGMENT, VOTE
from samcast.errors import DiskError
from samcast.runtime.os_folder import OsFolder, sync_folder
from samcast.wire.records import SuperRecord

LOCK = "lock"
FIRST_SEGMENT = f"{SEGMENT}{1:010d}"
HALF_MADE = {  # by part: what is in it before a disk has its superblock
    ORDER: {VOTE, VOTE + NEW, FIRST_SEGMENT, FIRST_SEGMENT + NEW},
    DATA: {LIST, LIST + NEW},
    CHECKPOINTS: set[str](),
}
FULL = (errno.ENOSPC, errno.EDQUOT)
COMMAND = re.compile(r"`samcast disk (\w+)`")


@contextmanager
def plain_errors(folder: Path, name: str = "", config: Path | None = None) -> Iterator[None]:
    """Whatever a disk refuses is one line: where, why, and what to do. With the name of the node,
    commands are told as they are to be typed."""
    try:
        yield
    except DiskError as error:
        where = f" --config {config}" if config is not None else ""
        text = COMMAND.sub(
            lambda found: f"`samcast disk {found[1]} {name}{where}`" if name else found[0],
            str(error),
        )
        raise DiskError(text) from error.__cause__
    except OSError as error:
        raise DiskError(_plainly(folder, error)) from error


def _plainly(folder: Path, error: OSError) -> str:
    path = error.filename or folder
    if error.errno in FULL:
        return f"no room on the disk of {path}: {error.strerror}; free some, then start again"
    return (
        f"{path} can't be used as a part of the disk {folder}: {error.strerror or error}; see that"
        " it is there, mounted for writing, and this user's own, then start again"
    )


def write_durably(path: Path, data: bytes) -> None:
    """Put a whole new file in place: either all of it is there after a crash, or the old one."""
    fresh = path.with_name(path.name + ".new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    try:
        left = memoryview(data)
        while left:  # A full disk takes a part; the next write says why, and nothing is renamed.
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    fresh.rename(path)
    sync_folder(path.parent)


def lock_folder(folder: Path) -> int:
    """Keep other processes out until this one ends; the descriptor holds the lock."""
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise DiskError(
            f"{folder} is in use by another process; stop that node, or give this one a folder"
            " of its own"
        ) from None
    return fd


def format_folder(folder: Path, node: int, uuid: int = 0) -> SuperRecord:
    """Begin a disk; without a uuid it is one that nobody knows yet, and must be let in."""
    with plain_errors(folder):
        made = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for path in made:
            sync_folder(path.parent)
        return lay_out(OsFolder(folder), node, uuid or 1 + secrets.randbelow(2**62))


def set_aside(folder: Path) -> Path | None:
    """Move what a lost disk still holds out of the way; where it is now. Only a disk that was never
    finished is deleted instead, or each try to make one on a full disk would leave another."""
    held = [p for p in folder.iterdir() if p.name != LOCK and not p.name.startswith("lost-")]
    if not held:
        return None
    if _is_half_made(folder, {path.name for path in held}):
        _delete_half_made(folder)
        return None
    given_up = folder / GIVEN_UP
    if (folder / SUPER).exists():  # first: who finds the rest without it knows what it is
        (folder / SUPER).rename(given_up)
        sync_folder(folder)
    aside = folder / f"lost-{secrets.token_hex(4)}"
    aside.mkdir()
    for path in held:
        if path.name not in (SUPER, GIVEN_UP):
            path.rename(aside / path.name)
    sync_folder(aside)
    sync_folder(folder)
    if given_up.exists():  # last, for the same reason, however often this was interrupted
        given_up.rename(aside / SUPER)
        sync_folder(aside)
        sync_folder(folder)
    return aside


def _is_half_made(folder: Path, held: set[str]) -> bool:
    """Whether there is only what `lay_out` makes before the superblock: no node has ever relied on
    it. Anything else, even in a part that was mounted here since, may be of use to somebody."""
    if SUPER + NEW not in held or not held <= {SUPER + NEW, *HALF_MADE}:
        return False
    for part in held - {SUPER + NEW}:
        if not (folder / part).is_dir() or not {*os.listdir(folder / part)} <= HALF_MADE[part]:
            return False
    vote = folder / ORDER / VOTE
    return not vote.exists() or vote.read_bytes() == NO_VOTE


def _delete_half_made(folder: Path) -> None:
    """All but the name that says so, which `lay_out` makes anew when the rest is gone."""
    for part, names in HALF_MADE.items():
        for name in sorted(names):
            (folder / part / name).unlink(missing_ok=True)
        with suppress(OSError):  # It may be a link or a mount, and is good for the next one.
            (folder / part).rmdir()
    sync_folder(folder)
