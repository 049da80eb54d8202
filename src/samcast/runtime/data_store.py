"""Payloads on disk: data segments that only grow, one thread that syncs them, reads by place.

A segment is a file of its own generation. A start scans them all; each start begins another one,
so that what a crash left behind is never written over.
"""

import asyncio
import os
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from pathlib import Path

from samcast.group.recovery import KIND_BATCH, KIND_MARKS, DataScan, Place
from samcast.group.storage import BatchKey, DataRecovery, StoreBatch, StoreMarks
from samcast.machine.ports import Store
from samcast.runtime.folder import sync_folder
from samcast.runtime.sync_thread import Chunk, SyncThread
from samcast.wire.segment import encode_record, read_record

SEGMENT_BYTES = 128 * 1024 * 1024
LAZY_S = 0.02


class DataStore:
    """The data device of one node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(exist_ok=True)
        self._fds: dict[int, int] = {}
        self._generation = 0
        self._at = 0
        self._places: dict[BatchKey, Place] = {}
        self._unsynced: dict[BatchKey, tuple[int, bytes]] = {}  # not yet readable: token, payload
        self._thread: SyncThread | None = None
        self._loop: AbstractEventLoop = asyncio.get_running_loop()
        self._lazy: list[Chunk] = []  # written, in order, with the next payload or soon
        self._lazy_token = 0
        self._lazy_timer: TimerHandle | None = None
        self.bytes_written = 0

    def recover(self, uuid: int) -> DataRecovery:
        """What the segments hold."""
        scan = DataScan(uuid)
        for path in sorted(self._folder.glob("segment-*")):
            generation = int(path.name.removeprefix("segment-"))
            scan.add(generation, path.read_bytes())
            self._fds[generation] = os.open(path, os.O_RDONLY)
            self._generation = generation
        self._places = scan.places
        return scan.recovery()

    def start(
        self,
        loop: AbstractEventLoop,
        on_synced: Callable[[int], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        """From now on stores are carried out."""

        def synced(token: int) -> None:
            for key in list(self._unsynced):  # in the order in which they were stored
                if self._unsynced[key][0] > token:
                    break
                del self._unsynced[key]
            on_synced(token)

        self._begin_segment()
        self._thread = SyncThread(loop, "data", synced, on_failed)

    def close(self) -> None:
        """Finish what waits."""
        self._write_lazy()
        if self._thread is not None:
            self._thread.close()
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def _begin_segment(self) -> None:
        self._generation += 1
        self._at = 0
        path = self._folder / f"segment-{self._generation:010d}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
        os.fsync(fd)
        sync_folder(self._folder)
        self._fds[self._generation] = fd

    # storing

    @property
    def syncs(self) -> int:
        """How often the disk was waited for."""
        return self._thread.syncs if self._thread is not None else 0

    def store(self, effect: Store) -> None:
        """Take a store effect; it is answered when it and all before it are durable."""
        assert self._thread is not None
        if type(effect) is StoreBatch:
            kind, body = KIND_BATCH, effect.payload
            self._unsynced[effect.key] = (effect.token, body)
        else:
            assert type(effect) is StoreMarks
            kind, body = KIND_MARKS, effect.record
        if self._at >= SEGMENT_BYTES:
            self._begin_segment()
        record = encode_record(kind, body, generation=self._generation, offset=self._at)
        self._lazy.append((self._fds[self._generation], self._at, record))
        self._lazy_token = effect.token
        if type(effect) is StoreBatch:
            self._places[effect.key] = (self._generation, self._at, len(record))
            self._write_lazy()
        elif self._lazy_timer is None:  # Nobody waits for a mark: it goes with what comes next.
            self._lazy_timer = self._loop.call_later(LAZY_S, self._write_lazy)
        self._at += len(record)
        self.bytes_written += len(record)

    def _write_lazy(self) -> None:
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
            self._lazy_timer = None
        if self._lazy and self._thread is not None:
            chunks, self._lazy = self._lazy, []
            self._thread.put(self._lazy_token, chunks)

    def read(self, key: BatchKey) -> bytes | None:
        """A payload as stored, verified; None if it is gone or rotten."""
        unsynced = self._unsynced.get(key)
        if unsynced is not None:
            return unsynced[1]
        place = self._places.get(key)
        if place is None:
            return None
        generation, offset, length = place
        image = os.pread(self._fds[generation], length, offset)
        found = read_record(image, generation=generation, offset=offset)
        if found is None:
            del self._places[key]
            return None
        return found[1]

    def forget(self, key: BatchKey) -> None:
        """A payload was given up."""
        self._places.pop(key, None)
