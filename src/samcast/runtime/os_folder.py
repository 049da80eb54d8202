"""Folders of the operating system, as stores want them (`disk.folder`)."""

import contextlib
import ctypes
import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from samcast.disk.folder import Handle, Identity
from samcast.disk.layout import IDENTITY_INODE_AND_DEVICE

IDENTITY_INODE_AND_BIRTH = 2  # copies are born later, and nobody can set that time
IDENTITY_HANDLE = 3  # the kernel's own: inode and generation, which no other file ever has again
IOV_MAX = 512

_AT_FDCWD = -100
_HANDLE_BYTES_MAX = 128
_STATX_BTIME = 0x800
_STATX_BYTES = 256
_STATX_BTIME_AT = 80  # in `struct statx`: seconds, then nanoseconds
_system = ctypes.CDLL(None, use_errno=True)


class _FileHandle(ctypes.Structure):
    _fields_ = (
        ("handle_bytes", ctypes.c_uint),
        ("handle_type", ctypes.c_int),
        ("handle", ctypes.c_ubyte * _HANDLE_BYTES_MAX),
    )


class OsFolder:
    """One folder; handles are file descriptors."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> str:
        """For texts."""
        return str(self._path)

    def names(self) -> list[str]:
        """All files and folders in it."""
        return sorted(os.listdir(self._path))

    def make_folder(self, name: str) -> None:
        """A folder in it, unless it is there."""
        (self._path / name).mkdir(exist_ok=True)

    def folder(self, name: str) -> "OsFolder":
        """A folder in it, whether it is there or not."""
        return OsFolder(self._path / name)

    def create(self, name: str) -> Handle:
        """A new, empty file."""
        return os.open(self._path / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)

    def open(self, name: str) -> Handle:
        """A file that is there."""
        return os.open(self._path / name, os.O_RDWR)

    def close(self, handle: Handle) -> None:
        """Of no more use."""
        os.close(handle)

    def size(self, handle: Handle) -> int:
        """In bytes."""
        return os.fstat(handle).st_size

    def allocate(self, handle: Handle, size: int) -> None:
        """Make a file so long, with room for all of it."""
        os.posix_fallocate(handle, 0, size)

    def write(self, handle: Handle, offset: int, parts: Sequence[bytes]) -> None:
        """All of these, one behind the other."""
        write_all(handle, offset, parts)

    def read(self, handle: Handle, offset: int, length: int) -> bytes:
        """As much of it as there is."""
        return os.pread(handle, length, offset)

    def sync(self, handle: Handle) -> None:
        """Bytes and length are durable when this returns."""
        os.fsync(handle)

    def drop_cached(self, handle: Handle) -> None:
        """Have the next read ask the disk itself, as far as all was synced."""
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def rename(self, old: str, new: str) -> None:
        """In the place of whatever had that name."""
        (self._path / old).rename(self._path / new)

    def unlink(self, name: str) -> None:
        """A file goes."""
        (self._path / name).unlink()

    def sync_names(self) -> None:
        """Which files there are is durable when this returns."""
        sync_folder(self._path)

    def identity(self, name: str, kind: int = 0) -> Identity:
        """Of a file; by the best means there is, or by one kind (0: the best)."""
        path = self._path / name
        status = path.stat()
        inode = status.st_ino
        if kind in (0, IDENTITY_HANDLE) and (handle := _handle_of(path)):
            return Identity(IDENTITY_HANDLE, _number_of(handle), inode)
        if kind in (0, IDENTITY_INODE_AND_BIRTH) and (birth := _birth_of(path)):
            value = _number_of(inode.to_bytes(8, "little") + birth)
            return Identity(IDENTITY_INODE_AND_BIRTH, value, inode)
        value = (inode << 20 ^ status.st_dev) % 2**62 or 1
        return Identity(IDENTITY_INODE_AND_DEVICE, value, inode)

    def free_bytes(self) -> int:
        """Room on this disk."""
        return shutil.disk_usage(self._path).free


def _number_of(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") % 2**62 or 1


def _handle_of(path: Path) -> bytes:
    """What names a file over restarts and mounts (`name_to_handle_at`); empty: not to be had."""
    found = _FileHandle(_HANDLE_BYTES_MAX)
    mount = ctypes.c_int()
    with contextlib.suppress(AttributeError):  # another system
        if not _system.name_to_handle_at(
            _AT_FDCWD, os.fsencode(path), ctypes.byref(found), ctypes.byref(mount), 0
        ):
            handle = bytes(found.handle[: found.handle_bytes])
            kind: int = found.handle_type
            return kind.to_bytes(4, "little", signed=True) + handle
    return b""


def _birth_of(path: Path) -> bytes:
    """When a file was made (`statx`); empty: not to be had."""
    found = ctypes.create_string_buffer(_STATX_BYTES)
    with contextlib.suppress(AttributeError):
        failed = _system.statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, found)
        if not failed and int.from_bytes(found.raw[:4], "little") & _STATX_BTIME:
            return found.raw[_STATX_BTIME_AT : _STATX_BTIME_AT + 12]
    return b""


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, offset: int, parts: Sequence[bytes]) -> None:
    """Write these one after the other; a short write is gone on with."""
    for at in range(0, len(parts), IOV_MAX):
        piece = parts[at : at + IOV_MAX]
        wanted = sum(map(len, piece))
        written = os.pwritev(fd, piece, offset)
        while written < wanted:
            rest = b"".join(piece)[written:]
            written += os.pwrite(fd, rest, offset + written)
        offset += wanted
