"""Room for new payloads: segments of which little is of use any more are written anew, without the
rest, and deleted.

What a segment tells of payloads elsewhere, their numbers, goes along. A new segment is whole and
durable before the old one goes, so a crash at any point leaves each payload at least once.
"""

import asyncio
import errno
import os
import shutil
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from samcast.group.listing import Listed, Listing, SegmentColumns, columns_of
from samcast.group.recovery import KIND_BATCH, KIND_MARKS
from samcast.group.storage import BatchKey
from samcast.runtime.data_segments import begin_segment, footer_of, read_columns
from samcast.runtime.data_store import DataStore
from samcast.runtime.folder import sync_folder
from samcast.runtime.sync_thread import write_all
from samcast.wire.records import MarkRecord, encode_record
from samcast.wire.segment import record_parts

LOOK_S = 0.5
SHARE = 0.25  # of a segment's payloads; with more of them it isn't worth the writing
ROOM_BYTES = 512 * 1024 * 1024  # free, before anything is moved: votes come first
AT_ONCE = 1000  # payloads looked at before the loop may do something else

Numbers = dict[BatchKey, int]


class Tidying:
    """Of one data store."""

    def __init__(self, store: DataStore, on_failed: Callable[[OSError], None]) -> None:
        self._store = store
        self._on_failed = on_failed
        self.deleted = 0  # segments
        self.moved = 0  # payloads

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """One round."""
        spent = self._store.spent_segments(SHARE)
        for generation in sorted(spent, key=self._store.is_spent, reverse=True):
            if not self._store.is_spent(generation) and not self._has_room():
                return  # Nowhere to move anything to; later, perhaps.
            try:
                await self._tidy(generation)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    self._on_failed(error)
                return

    def _has_room(self) -> bool:
        return shutil.disk_usage(self._store.folder).free > ROOM_BYTES

    async def _tidy(self, generation: int) -> None:
        store = self._store
        path = store.segment_of(generation)
        columns = await asyncio.to_thread(_columns_of, path, generation)
        live, numbers = await self._live(columns, generation)
        if live or numbers:
            target = store.next_generation()
            moved = await asyncio.to_thread(self._write, live, numbers, generation, target)
            store.take_over(moved, generation, target)
            self.moved += len(moved)
        store.let_go(generation)
        await asyncio.to_thread(_delete, path)
        self.deleted += 1

    async def _live(self, columns: SegmentColumns, generation: int) -> tuple[list[Listed], Numbers]:
        """What of a segment is still of use: payloads, and numbers of payloads that are."""
        numbers = {key: number for key, number in columns.marks if self._store.is_stored(key)}
        live: list[Listed] = []
        if self._store.is_spent(generation):
            return live, numbers
        for seen, (listed, number) in enumerate(_listed(columns)):
            place = self._store.place_of(listed.key)
            if place == (generation, listed.offset, listed.length):
                live.append(listed)
                if number:
                    numbers[listed.key] = number
            if not seen % AT_ONCE:
                await asyncio.sleep(0)
        return live, numbers

    def _write(
        self, live: list[Listed], numbers: Numbers, source: int, target: int
    ) -> list[tuple[Listed, int]]:
        """In a thread: a sealed segment with these; each payload, and where it was."""
        reader = self._store.reader(open_max=1)
        listing = Listing([], list(numbers.items()))
        moved: list[tuple[Listed, int]] = []
        at = 0
        fd = begin_segment(self._store.folder, target)
        try:
            for listed in live:
                body = reader.read((source, listed.offset, listed.length))
                if body is None:
                    continue  # It has rotted; the place stays, and whoever reads it finds out.
                parts = record_parts(KIND_BATCH, (body,), generation=target, offset=at)
                write_all(fd, at, list(parts))
                size = sum(map(len, parts))
                again = msgspec.structs.replace(listed, offset=at, length=size)
                listing.batches.append(again)
                moved.append((again, listed.offset))
                at += size
            marks = tuple((*key, number) for key, number in numbers.items())
            parts = record_parts(
                KIND_MARKS, (encode_record(MarkRecord(marks, 0)),), generation=target, offset=at
            )
            write_all(fd, at, list(parts))
            at += sum(map(len, parts))
            write_all(fd, at, [footer_of(columns_of(listing), target, at)])
            os.fsync(fd)
        except OSError:
            _delete(self._store.segment_of(target))
            raise
        finally:
            os.close(fd)
            reader.close()
        return moved


def _columns_of(path: Path, generation: int) -> SegmentColumns:
    fd = os.open(path, os.O_RDWR)
    try:
        return read_columns(fd, generation)
    finally:
        os.close(fd)


def _listed(columns: SegmentColumns) -> Iterator[tuple[Listed, int]]:
    """All payloads of a segment with their numbers, as far as it tells them."""
    for runs in columns.runs:
        wide = (array("Q", runs.numbers), array("Q", runs.offsets), array("I", runs.lengths))
        for found, number, offset, length in zip(runs.found(), *wide, strict=True):
            facts = (found.key, found.count, found.birth, found.digest)
            yield Listed(*facts, offset, length, found.sent_ms), number
    for listed in columns.stages:
        yield listed, 0


def _delete(path: Path) -> None:
    path.unlink()
    sync_folder(path.parent)
