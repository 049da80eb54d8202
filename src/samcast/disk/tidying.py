"""Writing a segment anew without what is of no more use: under another name, whole and synced,
before it gets its own, is listed, and the old one goes. A crash at any point leaves each payload at
least once, and no list of payloads that aren't there.
"""

from array import array
from collections.abc import Iterator, Sequence

import msgspec

from samcast.disk.data_segments import (
    MOVING,
    SegmentReader,
    look_at_columns,
    segment_name,
    write_footer,
)
from samcast.disk.data_store import DataStore
from samcast.disk.folder import Folder, Hook, create_anew
from samcast.group.listing import Listed, Listing, SegmentColumns, columns_of
from samcast.group.recovery import KIND_BATCH, KIND_MARKS
from samcast.group.storage import BatchKey
from samcast.wire.records import MARK_BYTES, MarkRecord, encode_record
from samcast.wire.segment import record_parts

NUMBER_BYTES = 256  # at most, of a number that goes along, in its mark and in the footer
AT_ONCE = 1000  # payloads looked at before others have their turn

Numbers = dict[BatchKey, tuple[int, bytes]]  # and how the payload's digest begins
Moved = list[tuple[Listed, int]]  # each payload, and where it was


def write_anew(
    folder: Folder, live: Sequence[Listed], numbers: Numbers, source: int, target: int
) -> Moved:
    """A sealed segment with these; it isn't listed yet."""
    reader = SegmentReader(folder, open_max=1)
    name = f"{MOVING}{target:010d}"
    handle = create_anew(folder, name)
    try:
        marks = tuple((*key, number) for key, (number, _) in numbers.items())
        digests = [digest for _, digest in numbers.values()]
        listing, moved = Listing(), Moved()
        record = MarkRecord(marks, 0, b"".join(digests) if all(digests) else b"")
        listing.add_marks(record)
        at = 0
        for listed in live:
            body = reader.read((source, listed.offset, listed.length))
            if body is None:
                continue  # It has rotted; the place stays, and whoever reads it finds out.
            parts = record_parts(KIND_BATCH, (body,), generation=target, offset=at)
            folder.write(handle, at, parts)
            size = sum(map(len, parts))
            again = msgspec.structs.replace(listed, offset=at, length=size)
            listing.batches.append(again)
            moved.append((again, listed.offset))
            at += size
        parts = record_parts(KIND_MARKS, (encode_record(record),), generation=target, offset=at)
        folder.write(handle, at, parts)
        at += sum(map(len, parts))
        folder.sync(handle)
        write_footer(folder, handle, columns_of(listing), target, at)
        folder.sync(handle)
        folder.rename(name, segment_name(target))
        folder.sync_names()
    except OSError:
        if name in folder.names():
            folder.unlink(name)
        raise
    finally:
        folder.close(handle)
        reader.close()
    return moved


def tidy(store: DataStore, generation: int, free_bytes_min: int) -> Iterator[Hook | None]:
    """Write a segment anew, or delete it, step by step. What is yielded may be called anywhere, and
    must be done before the next step; None only lets others have their turn."""
    folder = store.folder
    columns: list[SegmentColumns] = []
    yield lambda: columns.append(look_at_columns(folder, generation))
    live: list[Listed] = []
    marked = columns[0].marked()
    numbers = {
        key: (number, marked.get(key, b""))
        for key, number in columns[0].marks
        if store.is_stored(key)
    }
    if not store.is_spent(generation):
        for seen, (listed, number) in enumerate(listed_in(columns[0])):
            if store.place_of(listed.key) == (generation, listed.offset, listed.length):
                live.append(listed)
                if number:
                    numbers[listed.key] = (number, listed.digest[:MARK_BYTES])
            if not seen % AT_ONCE:
                yield None
    if live or numbers:
        takes = sum(listed.length for listed in live) + NUMBER_BYTES * len(numbers)
        if folder.free_bytes() < free_bytes_min + takes:
            return  # Others may take less, and make room for this one.
        target = store.next_generation()
        moved: Moved = []
        yield lambda: moved.extend(write_anew(folder, live, numbers, generation, target))
        if not store.list_segment(target):
            yield lambda: _delete(folder, target)
            return
        store.take_over(moved, generation, target)
    if not store.unlist_segment(generation):
        return
    store.let_go(generation)
    yield lambda: _delete(folder, generation)


def _delete(folder: Folder, generation: int) -> None:
    """A segment goes, which is no longer listed."""
    folder.unlink(segment_name(generation))
    folder.sync_names()


def listed_in(columns: SegmentColumns) -> Iterator[tuple[Listed, int]]:
    """All payloads of a segment with their numbers, as far as it tells them."""
    for runs in columns.runs:
        wide = (array("Q", runs.numbers), array("Q", runs.offsets), array("I", runs.lengths))
        for found, number, offset, length in zip(runs.found(), *wide, strict=True):
            facts = (found.key, found.count, found.birth, found.digest)
            yield Listed(*facts, offset, length, found.sent_ms), number
    for listed in columns.stages:
        yield listed, 0
