"""Payloads on disk: data segments that only grow, a device that syncs them, reads by place.

A segment is a file of its own generation; each start begins another one, so that what a crash left
behind is never written over. A full one is sealed with a footer once all of it is synced, and never
touched again.
"""

from array import array
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, takewhile
from operator import itemgetter
from typing import Protocol

import msgspec

from samcast.disk.data_segments import (
    FULL,
    LIST,
    MOVING,
    OPEN_MAX,
    SPARSE,
    SegmentReader,
    read_columns,
    read_list,
    segment_name,
    segments_in,
    write_footer,
    write_list,
)
from samcast.disk.folder import NEW, Begin, Chunk, Device, Folder, Handle, missing_text
from samcast.errors import DiskError
from samcast.group.listing import DataRecovery, Listed, Listing, SegmentColumns, columns_of
from samcast.group.recovery import KIND_BATCH, KIND_MARKS, DataScan, Place
from samcast.group.run_map import RunMap
from samcast.group.storage import BatchKey, RunSlice, StoreBatch, StoreMarks
from samcast.group.stretches import Found, find_stretch
from samcast.machine.ports import Store
from samcast.wire.batch import Batch, batch_parts, encode_batch
from samcast.wire.records import decode_mark
from samcast.wire.segment import record_parts

SEGMENT_BYTES = 128 * 1024 * 1024
SEGMENT_BATCHES = 30_000  # a start after a crash looks at so many one by one
LAZY_S = 0.02
COPIED_BYTES_MAX = 16 * 1024  # a copy of less costs less than one more part to write


class Timer(Protocol):
    """Something that will be called."""

    def cancel(self) -> object:
        """Not any more."""
        ...


Later = Callable[[float, Callable[[], None]], Timer]  # call that after so many seconds


class _Sealed(msgspec.Struct):
    """A segment into which nothing more comes, until all of it is synced."""

    token: int
    handle: Handle
    generation: int
    end: int
    listing: Listing


def begin_data(folder: Folder) -> None:
    """All that a start will look for: the list, of no segment yet."""
    write_list(folder, ())


class DataStore:
    """The data device of one node."""

    def __init__(self, folder: Folder, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._handle: Handle = -1  # of the segment that is being written
        self._sealed: deque[_Sealed] = deque()
        self._reader = self.reader()
        self._generation = 0  # of the segment that is being written
        self._generation_last = 0
        self._at = 0
        self._listing = Listing()  # of the segment that is being written
        self._listed: dict[int, None] = {}  # segments that are there, and must be
        self._places = RunMap("IQI")  # generation of the segment, offset, length
        self._unsynced: dict[BatchKey, tuple[int, Batch]] = {}  # not readable yet
        self._batches: Counter[int] = Counter()  # by segment: all that it has
        self._live: Counter[int] = Counter()  # ... and those that are still of use, or more
        self._device: Device | None = None
        self._later: Later | None = None
        self._lazy: list[Chunk] = []  # written, in order, with the next payload or soon
        self._lazy_token = 0
        self._lazy_timer: Timer | None = None
        self._parked: list[Store] = []  # few: who is told that there is no room sends no payloads
        self.bytes_written = 0
        self.moved = 0  # payloads, by tidying
        self.deleted = 0  # segments

    def recover(self, uuid: int) -> DataRecovery | None:
        """What the segments hold; None: which there should be can't be read, and the disk counts
        as lost."""
        folder = self._folder
        names = folder.names()
        if LIST in names and not self.has_all():
            return None
        for name in names:
            if name.startswith(MOVING) or name.endswith(NEW):
                folder.unlink(name)  # It never came to its end; what it was made from is there.
        return self._recover(uuid)

    def recover_left(self, uuid: int) -> DataRecovery:
        """What is left of them, where a rescue has to do with that."""
        try:
            return self._recover(uuid)
        except FileNotFoundError:  # the folder itself
            return DataRecovery(uuid)

    def _recover(self, uuid: int) -> DataRecovery:
        folder = self._folder
        scan = DataScan(uuid)
        empty: list[int] = []
        for generation in segments_in(folder):
            self._generation_last = generation
            columns = read_columns(folder, generation)
            self._find_places(generation, columns)
            scan.add(columns)
            if columns.is_empty and self._is_empty(generation):
                empty.append(generation)  # A life in which nothing was stored.
            else:
                self._listed[generation] = None
        folder.sync_names()
        for generation in empty:
            del self._batches[generation]
        if empty and self._write_list():  # Without room they stay, and are nobody's concern.
            for generation in empty:
                folder.unlink(segment_name(generation))
        self._places.sort()
        self._live.update(self._places.column(0))
        return scan.recovery()

    def has_all(self) -> bool:
        """Whether the list can be read; an error if a segment is missing that it tells of."""
        listed = read_list(self._folder)
        if listed is None:
            return False
        found = set(segments_in(self._folder))
        for generation in listed.generations:
            is_lost = generation not in found
            if is_lost or (generation != listed.open and self._is_empty(generation)):
                raise DiskError(missing_text(f"{self._folder.path}/{segment_name(generation)}"))
        self._generation_last = max(listed.generations, default=0)
        return True

    def _is_empty(self, generation: int) -> bool:
        handle = self._folder.open(segment_name(generation))
        try:
            return not self._folder.size(handle)
        finally:
            self._folder.close(handle)

    def _write_list(self) -> bool:
        """False if there is no room to say what has changed."""
        try:
            write_list(self._folder, self._listed, self._generation)
        except OSError as error:
            if error.errno not in FULL:
                raise
            return False
        return True

    def _find_places(self, generation: int, columns: SegmentColumns) -> None:
        for runs in columns.runs:
            generations = (array("I", [generation]) * len(runs)).tobytes()
            self._places.extend(runs.sender, runs.counters, generations, runs.offsets, runs.lengths)
        for listed in columns.stages:
            self._places.put(listed.key, generation, listed.offset, listed.length)
        self._batches[generation] = sum(map(len, columns.runs)) + len(columns.stages)

    def start(self, begin: Begin, on_synced: Callable[[int], None], later: Later) -> None:
        """From now on stores are carried out."""

        def synced(token: int) -> None:
            for key in list(self._unsynced):  # in the order in which they were stored
                if self._unsynced[key][0] > token:
                    break
                del self._unsynced[key]
            while self._sealed and self._sealed[0].token <= token:
                self._finish(self._sealed.popleft())
            on_synced(token)

        self._later = later
        self._device = begin(synced)
        self._begin_segment()

    def look(self) -> None:
        """Where there was no room for a segment, there may be now."""
        if self._handle < 0 and self._device is not None and self._begin_segment():
            parked, self._parked = self._parked, []
            for effect in parked:
                self.store(effect)

    def close(self) -> None:
        """Finish what waits."""
        self._write_lazy()
        is_sound = self._device is None or self._device.close()
        if self._handle >= 0:
            self._sealed.append(self._seal(0))
        while self._sealed:
            sealed = self._sealed.popleft()
            if is_sound and sealed.end:
                self._write_footer(sealed)
            else:
                self._folder.close(sealed.handle)
        self._handle = -1
        self._reader.close()

    def _begin_segment(self) -> bool:
        """An empty segment that is there to stay; False if there is no room for one."""
        generation, folder = self.next_generation(), self._folder
        name, before = segment_name(generation), self._generation
        try:
            handle = folder.create(name)
        except OSError as error:
            if error.errno not in FULL:
                raise
            return False
        folder.sync(handle)
        folder.sync_names()
        self._generation = generation
        if not self.list_segment(generation):
            self._generation = before
            folder.close(handle)
            folder.unlink(name)
            return False
        self._at, self._listing, self._handle = 0, Listing(), handle
        return True

    def list_segment(self, generation: int) -> bool:
        """A segment is there to stay; False if there is no room to say so."""
        self._listed[generation] = None
        if self._write_list():
            return True
        del self._listed[generation]
        return False

    def unlist_segment(self, generation: int) -> bool:
        """A segment is about to go; False if there is no room to say so."""
        del self._listed[generation]
        if self._write_list():
            return True
        self._listed[generation] = None
        return False

    def _seal(self, token: int) -> _Sealed:
        """Nothing more comes into this segment."""
        return _Sealed(token, self._handle, self._generation, self._at, self._listing)

    def _finish(self, sealed: _Sealed) -> None:
        """All of it is synced: now it gets its footer."""
        assert self._device is not None
        self._device.put(0, [], lambda: self._write_footer(sealed))

    def _write_footer(self, sealed: _Sealed) -> None:
        columns = columns_of(sealed.listing)
        write_footer(self._folder, sealed.handle, columns, sealed.generation, sealed.end)
        self._folder.close(sealed.handle)

    # storing

    def store(self, effect: Store) -> None:
        """Take a store effect; it is answered when it and all before it are durable."""
        assert self._later is not None
        if self._handle < 0:  # There is no room: nothing is taken, and what has come waits.
            self._parked.append(effect)
            return
        if self._at >= self._segment_bytes or len(self._listing.batches) >= SEGMENT_BATCHES:
            sealed = self._seal(effect.token)  # All of it is written before that.
            if self._begin_segment():  # Else this one grows on.
                self._sealed.append(sealed)
        if type(effect) is StoreBatch:
            key, batch = effect.key, effect.batch
            at, size = self._at, self._append(KIND_BATCH, batch_parts(batch))
            self._unsynced[key] = (effect.token, batch)
            self._places.put(key, self._generation, at, size)
            self._batches[self._generation] += 1
            self._live[self._generation] += 1
            self._listing.batches.append(
                Listed(key, batch.count, batch.birth, batch.digest, at, size, batch.sent_ms)
            )
        else:
            assert type(effect) is StoreMarks
            self._append(KIND_MARKS, (effect.record,))
            self._listing.add_marks(decode_mark(effect.record))
        self._lazy_token = effect.token
        if type(effect) is StoreBatch:
            self._write_lazy()
        elif self._lazy_timer is None:  # Nobody waits for a mark: it goes with what comes next.
            self._lazy_timer = self._later(LAZY_S, self._write_lazy)

    def _append(self, kind: int, body: tuple[bytes, ...]) -> int:
        """Have a record written at the end; its size."""
        handle, start = self._handle, self._at
        parts = record_parts(kind, body, generation=self._generation, offset=start)
        if sum(map(len, body)) < COPIED_BYTES_MAX:
            parts = (b"".join(parts),)
        for part in parts:
            self._lazy.append((handle, self._at, part))
            self._at += len(part)
        self.bytes_written += self._at - start
        return self._at - start

    def _write_lazy(self) -> None:
        if self._lazy_timer is not None:
            self._lazy_timer.cancel()
            self._lazy_timer = None
        if self._lazy and self._device is not None:
            chunks, self._lazy = self._lazy, []
            self._device.put(self._lazy_token, chunks)

    # reading

    def read(self, key: BatchKey) -> bytes | None:
        """A payload as stored, verified; None if it is gone or rotten."""
        unsynced = self._unsynced.get(key)
        if unsynced is not None:
            return encode_batch(unsynced[1])
        place = self.place_of(key)
        if place is None:
            return None
        payload = self._reader.read(place)
        if payload is None:
            self._places.pop(key)
        return payload

    def read_many(self, keys: Sequence[BatchKey], bytes_max: int) -> list[bytes | None]:
        """The first of these as `read` gives them: as many as are on the disk and not more than so
        many bytes; at least one."""
        places: list[Place] = list(takewhile(bool, self._places.get_many(keys)))
        if self._unsynced:
            there = zip(keys, places, strict=False)
            places = [p for _, p in takewhile(lambda here: here[0] not in self._unsynced, there)]
        if not places:
            return [self.read(key) for key in keys[:1]]
        sizes = accumulate(map(itemgetter(2), places))
        most = bisect_right(list(sizes), bytes_max)
        found = self._reader.read_many(places[: max(1, most)])
        if None not in found:
            return found
        # A look at each alone tells whether it is rotten, or only lay beside a bad sector.
        return [p if p is not None else self.read(k) for p, k in zip(found, keys, strict=False)]

    def read_stretch(self, runs: RunSlice, bytes_max: int) -> tuple[Found, bytes] | None:
        """Where the first of these runs lie, and what was read there, at which nobody has looked;
        None if they don't lie together."""
        found = find_stretch(self._places, runs)
        if found is None or found.end - found.first > min(SPARSE * found.size, bytes_max):
            return None
        if self._unsynced:
            oldest = self._places.get(next(iter(self._unsynced)))
            if oldest is None or oldest[:2] < (found.segment, found.end):
                return None  # Not all may be there yet.
        reach = found.end - found.first
        return found, self._reader.image(found.segment, found.first, reach)

    def reader(self, open_max: int = OPEN_MAX) -> SegmentReader:
        """Reads by place; one for each thread that wants to."""
        return SegmentReader(self._folder, open_max)

    def stored_keys(self) -> Iterator[BatchKey]:
        """All that is stored, or on its way there."""
        return self._places.keys()

    def place_of(self, key: BatchKey) -> Place | None:
        """Where a payload can be read back from; None while it isn't durable, or if it is gone."""
        found = None if key in self._unsynced else self._places.get(key)
        return None if found is None else (found[0], found[1], found[2])

    def forget(self, keys: Iterable[BatchKey]) -> None:
        """Payloads were given up."""
        self._live.subtract(self._places.drop(keys))

    # room

    def spent_segments(self, share: float) -> list[int]:
        """Full segments of whose payloads at most that share is of use, oldest first."""
        open_ = {self._generation, *(sealed.generation for sealed in self._sealed)}
        return sorted(
            generation
            for generation, count in self._batches.items()
            if generation not in open_ and self._live[generation] <= share * count
        )

    def next_generation(self) -> int:
        """For a segment that is written now, here or beside."""
        self._generation_last += 1
        return self._generation_last

    @property
    def folder(self) -> Folder:
        """Where the segments are."""
        return self._folder

    def is_spent(self, generation: int) -> bool:
        """Whether nothing at all of a segment is of use."""
        return self._live[generation] <= 0

    def is_stored(self, key: BatchKey) -> bool:
        """Whether a payload is of use, in whatever segment."""
        return key in self._places

    def take_over(self, moved: Iterable[tuple[Listed, int]], source: int, generation: int) -> None:
        """Payloads of one segment have been written again in another; where they were."""
        for listed, offset in moved:
            self.moved += 1
            if self.place_of(listed.key) == (source, offset, listed.length):
                self._places.put(listed.key, generation, listed.offset, listed.length)
                self._live[generation] += 1
            self._batches[generation] += 1

    def let_go(self, generation: int) -> None:
        """A segment of which nothing is of use any more is about to be deleted."""
        self.deleted += 1
        self._reader.let_go(generation)
        del self._batches[generation], self._live[generation]
