"""The order on disk: journal segments, the vote, core snapshots; one thread syncs them all.

Formats and recovery are `wire` and `group.recovery`; here they meet files. Segments are made whole
and durable before they are written to, so that a sync never has to store a file's length.
"""

import os
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from pathlib import Path

from samcast.errors import DiskError
from samcast.group.recovery import KIND_SNAPSHOT, read_snapshots, read_vote, recover_order
from samcast.group.storage import (
    OrderRecovery,
    RewriteOrder,
    StoreOrder,
    StoreSnapshot,
    StoreVote,
)
from samcast.machine.ports import Store
from samcast.runtime.folder import sync_folder, write_durably
from samcast.runtime.histogram import Histogram
from samcast.runtime.sync_thread import Chunk, SyncThread
from samcast.wire.journal import JournalWriter, Write
from samcast.wire.records import encode_record as encode_small
from samcast.wire.segment import encode_record
from samcast.wire.twin import TWIN_BYTES, encode_twin

SEGMENT_BYTES = 16 * 1024 * 1024


class OrderStore:
    """The order device of one node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(exist_ok=True)
        self._fds: dict[int, int] = {}
        self._vote_fd = -1
        self._vote_sequence = 0
        self._writer = JournalWriter(segment_bytes=SEGMENT_BYTES)
        self._waiting: deque[tuple[int, int]] = deque()  # token, journal sequence
        self._thread: SyncThread | None = None

    # starting

    def recover(self, uuid: int) -> OrderRecovery | None:
        """What the files say; None: what binds us can't be read, the disk counts as lost."""
        vote_path = self._folder / "vote"
        data = vote_path.read_bytes() if vote_path.exists() else b""
        found = read_vote(data)
        if not found.is_readable:
            return None
        self._vote_sequence = found.sequence
        if found.vote is not None and not found.is_whole:
            write_durably(vote_path, encode_twin(found.sequence, encode_small(found.vote)))
        elif not data:
            write_durably(vote_path, bytes(TWIN_BYTES))
        self._vote_fd = os.open(vote_path, os.O_RDWR)
        segments: dict[int, bytes] = {}
        for path in sorted(self._folder.glob("segment-*")):
            number = int(path.name.removeprefix("segment-"))
            segments[number] = path.read_bytes()
            self._fds[number] = os.open(path, os.O_RDWR)
        recovery, self._writer, _ = recover_order(
            uuid, found.vote, segments, SEGMENT_BYTES, self._read_snapshots()
        )
        return recovery

    def _snapshot_paths(self) -> list[Path]:
        return sorted(self._folder.glob("snapshot-*[0-9]"))

    def _read_snapshots(self) -> list[bytes]:
        return read_snapshots(path.read_bytes() for path in self._snapshot_paths())

    def start(
        self,
        loop: AbstractEventLoop,
        on_synced: Callable[[int], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        """From now on stores are carried out."""

        def synced(token: int) -> None:
            while self._waiting and self._waiting[0][0] <= token:
                self._writer.note_synced(self._waiting.popleft()[1])
            on_synced(token)

        self._thread = SyncThread(loop, "order", synced, on_failed)

    def close(self) -> None:
        """Finish what waits."""
        if self._thread is not None:
            self._thread.close()
        for fd in [*self._fds.values(), self._vote_fd]:
            if fd >= 0:
                os.close(fd)
        self._fds.clear()
        self._vote_fd = -1

    # storing

    @property
    def syncs(self) -> int:
        """How often the disk was waited for."""
        return self._thread.syncs if self._thread is not None else 0

    @property
    def sync_s(self) -> Histogram:
        """How long it took."""
        return self._thread.sync_s if self._thread is not None else Histogram()

    def store(self, effect: Store) -> None:
        """Take a store effect; it is answered when it and all before it are durable."""
        assert self._thread is not None
        if type(effect) is StoreOrder:
            self._append(effect.token, self._writer.append(effect.records))
        elif type(effect) is RewriteOrder:
            self._append(effect.token, self._writer.start_fresh(effect.records))
        elif type(effect) is StoreVote:
            self._vote_sequence += 1
            twin = encode_twin(self._vote_sequence, effect.record)
            self._thread.put(effect.token, [(self._vote_fd, 0, twin)])
        else:
            assert type(effect) is StoreSnapshot
            path = self._folder / f"snapshot-{effect.index:020d}"
            record = encode_record(KIND_SNAPSHOT, effect.state, generation=1, offset=0)
            kept = effect.kept
            self._thread.put(effect.token, [], lambda: self._keep_snapshot(path, record, kept))

    def _append(self, token: int, writes: list[Write]) -> None:
        assert self._thread is not None
        chunks: list[Chunk] = [(self._segment(w.segment), w.offset, w.data) for w in writes]
        self._waiting.append((token, self._writer.sequence))
        self._thread.put(token, chunks)

    def _segment(self, number: int) -> int:
        fd = self._fds.get(number)
        if fd is None:
            path = self._folder / f"segment-{number:010d}"
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
                os.posix_fallocate(fd, 0, SEGMENT_BYTES)
                os.fsync(fd)
            except OSError as error:
                raise DiskError(
                    f"no room for the order in {self._folder}: {error}; free some, then start again"
                ) from error
            sync_folder(self._folder)
            self._fds[number] = fd
        return fd

    def _keep_snapshot(self, path: Path, record: bytes, kept: tuple[int, ...]) -> None:
        write_durably(path, record)
        for old in self._snapshot_paths():
            if int(old.name.removeprefix("snapshot-")) not in kept:
                old.unlink()
