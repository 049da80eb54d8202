"""What a start makes of the bytes on a disk: pure, so that the simulator runs the real thing."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from samcast.group.storage import BatchKey, DataRecovery, FoundBatch, OrderRecovery
from samcast.wire.batch import decode_batch
from samcast.wire.errors import WireError
from samcast.wire.journal import JournalWriter, Verdict, scan_journal
from samcast.wire.records import (
    SuperRecord,
    VoteRecord,
    decode_mark,
    decode_record,
    decode_super,
    decode_vote,
)
from samcast.wire.segment import SegmentScan, read_record, record_bytes, scan_segment
from samcast.wire.twin import TwinState, decode_twin

KIND_BATCH = 1
KIND_MARKS = 2
KIND_SNAPSHOT = 3

Place = tuple[int, int, int]  # generation of the segment, offset, bytes of the whole record


class VoteFound(msgspec.Struct, frozen=True):
    """What the vote file says. Not readable means that the disk counts as lost."""

    vote: VoteRecord | None
    sequence: int
    is_readable: bool
    is_whole: bool  # if not, it must be written anew before anybody acts on it


def read_super(data: bytes) -> SuperRecord | None:
    """Whose disk this is, or None if that can't be told."""
    twin = decode_twin(data)
    return decode_super(twin.record) if twin.state is TwinState.FOUND else None


def read_vote(data: bytes) -> VoteFound:
    """The vote, if there ever was one."""
    twin = decode_twin(data)
    if twin.state is not TwinState.FOUND:
        return VoteFound(None, 0, twin.state is TwinState.EMPTY, True)
    return VoteFound(decode_vote(twin.record), twin.sequence, True, twin.is_whole)


def read_snapshots(files: Iterable[bytes]) -> list[bytes]:
    """Core states that pass their check; the others are as good as not there."""
    found = [read_record(data, generation=1, offset=0) for data in files]
    return [record[1] for record in found if record is not None]


def recover_order(
    uuid: int,
    vote: VoteRecord | None,
    segments: Mapping[int, bytes],
    segment_bytes: int,
    snapshots: Sequence[bytes],
) -> tuple[OrderRecovery, JournalWriter, Verdict]:
    """The journal's records, a writer that goes on behind them, and in which state it was."""
    scan = scan_journal(segments, segment_bytes=segment_bytes)
    writer = JournalWriter(segment_bytes=segment_bytes, state=scan.state)
    writer.note_synced(writer.sequence)
    records = [decode_record(record) for record in scan.records]
    is_rotten = scan.verdict is Verdict.ROT
    return OrderRecovery(uuid, vote, records, is_rotten, snapshots), writer, scan.verdict


class Listed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A payload in a data segment."""

    key: BatchKey
    count: int
    birth: int
    digest: bytes
    offset: int
    length: int  # of the whole record


class Listing(msgspec.Struct, array_like=True):
    """What a data segment holds, as its footer says or as a scan finds."""

    batches: list[Listed] = []
    marks: list[tuple[BatchKey, int]] = []


def list_segment(generation: int, image: bytes) -> tuple[Listing, SegmentScan]:
    """Look at every record of a segment."""
    scan = scan_segment(image, generation)
    listing = Listing()
    for found in scan.found:
        body = image[found.body_offset : found.body_offset + found.length]
        if found.kind == KIND_MARKS:
            listing.marks += [(mark[:5], mark[5]) for mark in decode_mark(body).marks]
            continue
        try:
            batch = decode_batch(body)
        except WireError:
            continue
        key = (batch.group, batch.sender, batch.incarnation, batch.counter_first, batch.stage)
        length = record_bytes(found.length)
        listing.batches.append(
            Listed(key, batch.count, batch.birth, batch.digest, found.offset, length)
        )
    return listing, scan


class DataScan:
    """Gathers what the data segments hold, one segment after the other, oldest first."""

    def __init__(self, uuid: int, on_place: Callable[[BatchKey, Place], None]) -> None:
        self._uuid = uuid
        self._on_place = on_place  # told where each payload is
        self._batches: dict[BatchKey, FoundBatch] = {}
        self._marks: list[tuple[BatchKey, int]] = []

    def add(self, generation: int, listing: Listing) -> None:
        """One segment."""
        self._marks += listing.marks
        for listed in listing.batches:
            key = listed.key
            self._batches[key] = FoundBatch(key, listed.count, listed.birth, listed.digest)
            self._on_place(key, (generation, listed.offset, listed.length))

    def recovery(self) -> DataRecovery:
        """All of it."""
        return DataRecovery(self._uuid, list(self._batches.values()), self._marks)
