"""A node whose disk misbehaves: the process is the real one, only the calls by which it reaches its
files are changed. Run as `python -m tests.real.bad_disk FAULTS samcast.cli.main node ...`, where
FAULTS is a file that may change while the node runs:

    {"fsync_fails": true, "fsync_sleep_s": 0.2, "lost": 0.1, "is_lazy": true, "room": 1000,
     "free": 5000, "no_room": true}

`lost` is the share of writes that say they were done and were not; `is_lazy` keeps everything that
isn't synced in memory, so that `kill -9` is a power cut; `room` is how many bytes the disk takes
before it fails, `free` how many it says are left; with `no_room` nothing can be allocated. No
compiler is needed, as it would be for a library that is loaded before the others; the node's files
are only ever reached by these calls.
"""

import errno
import json
import os
import random
import shutil
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Piece = tuple[int, bytes]  # offset, what is to be there


class BadDisk:
    """Stands between a node and its files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = 0
        self._faults: dict[str, Any] = {}
        self._chance = random.Random(path.name)
        self._unsynced: defaultdict[int, list[Piece]] = defaultdict(list)
        self._written = 0
        self._lock = threading.RLock()
        self._pwritev, self._pwrite = os.pwritev, os.pwrite
        self._pread, self._fdatasync, self._fsync = os.pread, os.fdatasync, os.fsync
        self._posix_fallocate, self._close = os.posix_fallocate, os.close
        self._disk_usage = shutil.disk_usage

    def install(self) -> None:
        for name in (
            "pwritev",
            "pwrite",
            "pread",
            "fdatasync",
            "fsync",
            "posix_fallocate",
            "close",
        ):
            setattr(os, name, getattr(self, name))
        shutil.disk_usage = self.disk_usage

    def faults(self) -> dict[str, Any]:
        try:
            stamp = self._path.stat().st_mtime_ns
            if stamp != self._stamp:
                self._faults = json.loads(self._path.read_text())
                self._stamp = stamp
        except (OSError, ValueError):
            pass  # It is being written.
        return self._faults

    def pwritev(self, fd: int, parts: Sequence[bytes], offset: int) -> int:
        return self.pwrite(fd, b"".join(parts), offset)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        faults = self.faults()
        with self._lock:
            room = faults.get("room")
            if room is not None:
                data = data[: max(0, room - self._written)]
                if not data:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._written += len(data)
            if self._chance.random() < faults.get("lost", 0):
                return len(data)
            if faults.get("is_lazy"):
                self._unsynced[fd].append((offset, bytes(data)))
                return len(data)
            return self._pwrite(fd, data, offset)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        with self._lock:
            found = bytearray(self._pread(fd, length, offset))
            for at, data in self._unsynced[fd]:
                start, end = max(at, offset), min(at + len(data), offset + length)
                if start < end:
                    found += bytes(max(0, end - offset - len(found)))
                    found[start - offset : end - offset] = data[start - at : end - at]
        return bytes(found)

    def disk_usage(self, path: Any) -> Any:
        usage = self._disk_usage(path)
        free = self.faults().get("free")
        return usage if free is None else usage._replace(free=free)

    def fdatasync(self, fd: int) -> None:
        faults = self.faults()
        if faults.get("fsync_sleep_s"):
            threading.Event().wait(faults["fsync_sleep_s"])
        if faults.get("fsync_fails"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._write_back(fd)
        self._fdatasync(fd)

    def fsync(self, fd: int) -> None:
        self._write_back(fd)
        self._fsync(fd)

    def _write_back(self, fd: int) -> None:
        with self._lock:
            for offset, data in self._unsynced.pop(fd, []):
                self._pwrite(fd, data, offset)

    def close(self, fd: int) -> None:
        with self._lock:
            self._unsynced.pop(fd, None)  # Lost sooner than it must be; the number is used again.
        self._close(fd)

    def posix_fallocate(self, fd: int, offset: int, length: int) -> None:
        if self.faults().get("no_room"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._posix_fallocate(fd, offset, length)


def launcher(faults: Path) -> list[str]:
    """What runs a node with such a disk."""
    return [sys.executable, "-m", "tests.real.bad_disk", str(faults), "samcast.cli.main"]


def main() -> None:
    BadDisk(Path(sys.argv[1])).install()
    from samcast.cli.main import main as samcast  # after the calls are changed

    sys.argv = sys.argv[2:]
    samcast()


if __name__ == "__main__":
    main()
