"""Writes and syncs of one device: in a thread, so that the event loop goes on meanwhile.

Everything that waits is written and synced together: group commit comes from this by itself. Where
little is to be written and nothing is under way, the loop does it itself, since waking a thread and
being woken costs more than the sync. A write or a sync that fails is final: nobody knows what is on
the disk then, so the node must stop.
"""

import os
import queue
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence

from samcast.disk.folder import Chunk, Hook
from samcast.runtime.histogram import Histogram
from samcast.runtime.os_folder import write_all

Job = tuple[int, Sequence[Chunk], Hook | None]  # token, writes, what is done before them

INLINE_BYTES = 64 * 1024
INLINE_PAUSE_S = 0.001  # since the last sync: a busy device is the thread's
SLOW_S = 0.002  # a sync that takes longer is not for the loop
SLOW_PAUSE_S = 0.2


class SyncThread:
    """Writes of one device, in order."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        name: str,
        on_synced: Callable[[int], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._under_way = 0  # jobs that the thread has
        self._inline: list[Job] = []  # jobs that the loop will do
        self._inline_from = 0.0
        self._has_failed = False
        self.syncs = 0
        self.sync_s = Histogram()
        self._thread.start()

    def put(self, token: int, chunks: Sequence[Chunk], before: Hook | None = None) -> None:
        """Have this written; `on_synced` is called in the loop with the highest token done."""
        if self._has_failed:
            return  # Nothing that comes after a failure may ever count as stored.
        job = (token, chunks, before)
        if before is not None and self._inline:  # It may take its time: not in the loop.
            inline, self._inline = self._inline, []
            for waiting in inline:
                self._under_way += 1
                self._jobs.put(waiting)
        if self._inline:
            self._inline.append(job)
        elif self._may_inline(chunks, before):
            self._inline.append(job)
            # After this turn, whose frames leave first.
            self._loop.call_soon(self._sync_inline)
        else:
            self._under_way += 1
            self._jobs.put(job)

    def _may_inline(self, chunks: Sequence[Chunk], before: Hook | None) -> bool:
        if self._under_way or before is not None or time.monotonic() < self._inline_from:
            return False
        return sum(len(data) for _, _, data in chunks) <= INLINE_BYTES

    def _sync_inline(self) -> None:
        jobs, self._inline = self._inline, []
        if not jobs:
            return
        began = time.monotonic()
        try:
            self._write(jobs)
        except Exception as error:  # noqa: BLE001 - Whatever it is, nothing more is synced.
            self._has_failed = True
            self._on_failed(error)
            return
        now = time.monotonic()
        self._inline_from = now + (SLOW_PAUSE_S if now - began > SLOW_S else INLINE_PAUSE_S)
        self._tell_synced(jobs)

    def _tell_synced(self, jobs: list[Job]) -> None:
        token = max(token for token, _, _ in jobs)
        if token:
            self._on_synced(token)

    def close(self) -> bool:
        """Finish what waits, then end; False if something failed."""
        self._sync_inline()
        self._jobs.put(None)
        self._thread.join()
        return not self._has_failed

    # the thread

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            jobs = [job]
            is_last = False
            while not self._jobs.empty():
                more = self._jobs.get()
                if more is None:
                    is_last = True
                    break
                jobs.append(more)
            try:
                self._write(jobs)
            except Exception as error:  # noqa: BLE001 - Whatever it is, nothing more is synced.
                self._has_failed = True
                self._tell(self._on_failed, error)
                return
            self._tell(self._on_done, jobs)
            if is_last:
                return

    def _on_done(self, jobs: list[Job]) -> None:
        self._under_way -= len(jobs)
        self._inline_from = time.monotonic() + INLINE_PAUSE_S
        self._tell_synced(jobs)

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # The loop is closed: nobody waits for it any more.
            return

    def _write(self, jobs: list[Job]) -> None:
        began = time.monotonic()
        touched: dict[int, None] = {}
        at: tuple[int, int] | None = None  # where the writes gathered so far end
        start = 0
        gathered: list[bytes] = []
        for _, chunks, before in jobs:
            if before is not None:
                before()
            for fd, offset, data in chunks:
                if at != (fd, offset):
                    if at is not None:
                        write_all(at[0], start, gathered)
                    start, gathered = offset, []
                gathered.append(data)
                at = (fd, offset + len(data))
                touched[fd] = None
        if at is not None:
            write_all(at[0], start, gathered)
        for fd in touched:
            os.fdatasync(fd)
        self.syncs += 1
        self.sync_s.note(time.monotonic() - began)
