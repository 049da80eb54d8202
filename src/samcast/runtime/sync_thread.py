"""A thread that writes and syncs, so that the event loop goes on meanwhile.

Everything that waits is written and synced together: group commit comes from this by itself. A
write or a sync that fails is final: nobody knows what is on the disk then, so the node must stop.
"""

import os
import queue
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence

Chunk = tuple[int, int, bytes]  # file descriptor, offset, what to write there
Job = tuple[int, Sequence[Chunk], Callable[[], None] | None]  # token, writes, done before the sync


class SyncThread:
    """Writes of one device, in order."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        name: str,
        on_synced: Callable[[int], None],
        on_failed: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.syncs = 0
        self._thread.start()

    def put(
        self, token: int, chunks: Sequence[Chunk], before: Callable[[], None] | None = None
    ) -> None:
        """Have this written; `on_synced` is called in the loop with the highest token done."""
        self._jobs.put((token, chunks, before))

    def close(self) -> None:
        """Finish what waits, then end."""
        self._jobs.put(None)
        self._thread.join()

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
            except OSError as error:
                self._tell(self._on_failed, error)
                return
            self._tell(self._on_synced, jobs[-1][0])
            if is_last:
                return

    def _tell(self, call: Callable[..., None], argument: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, argument)
        except RuntimeError:  # The loop is closed: nobody waits for it any more.
            return

    def _write(self, jobs: list[Job]) -> None:
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


IOV_MAX = 512


def write_all(fd: int, offset: int, parts: list[bytes]) -> None:
    """Write these one after the other; a short write is gone on with."""
    for at in range(0, len(parts), IOV_MAX):
        piece = parts[at : at + IOV_MAX]
        wanted = sum(map(len, piece))
        written = os.pwritev(fd, piece, offset)
        while written < wanted:
            rest = b"".join(piece)[written:]
            written += os.pwrite(fd, rest, offset + written)
        offset += wanted
