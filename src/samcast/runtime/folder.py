"""The folder of one node: who may use it, and whether it is the disk that it was.

Files are made durable before they are used: contents synced, then their folder.
"""

import fcntl
import os
import secrets
from pathlib import Path

from samcast.errors import DiskError
from samcast.group.recovery import read_super
from samcast.wire.records import SuperRecord, encode_record
from samcast.wire.twin import encode_twin

SUPER = "super"
LOCK = "lock"


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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


def identity_of(folder: Path) -> int:
    """Tells this folder from a copy or a restored one: files that are copied have other inodes."""
    status = (folder / SUPER).stat()
    return (status.st_ino << 20 ^ status.st_dev) % 2**62 or 1


def format_folder(folder: Path, node: int, uuid: int = 0) -> SuperRecord:
    """Begin a disk; without a uuid it is one that nobody knows yet, and must be let in."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SUPER
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    try:
        record = SuperRecord(node, uuid or 1 + secrets.randbelow(2**62), identity_of(folder))
        os.write(fd, encode_twin(1, encode_record(record)))
        os.fsync(fd)
    finally:
        os.close(fd)
    sync_folder(folder)
    return record


def open_folder(folder: Path, node: int) -> SuperRecord | None:
    """Whose disk this is, or None if it isn't ours as we left it: then it counts as lost."""
    try:
        data = (folder / SUPER).read_bytes()
    except FileNotFoundError:
        return None
    record = read_super(data)
    if record is None:
        return None
    if record.node != node:
        raise DiskError(
            f"{folder} belongs to node {record.node}, and this is node {node}; correct the folder"
            " in the configuration"
        )
    return record if record.identity == identity_of(folder) else None


def set_aside(folder: Path) -> Path | None:
    """Move what a lost disk still holds out of the way; nothing is ever deleted."""
    held = [p for p in folder.iterdir() if p.name != LOCK and not p.name.startswith("lost-")]
    if not held:
        return None
    aside = folder / f"lost-{secrets.token_hex(4)}"
    aside.mkdir()
    for path in held:
        path.rename(aside / path.name)
    sync_folder(folder)
    return aside
