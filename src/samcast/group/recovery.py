"""What a start makes of the bytes on a disk: pure, so that the simulator runs the real thing."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from samcast.group.listing import (
    DataRecovery,
    FoundBatch,
    Listed,
    Listing,
    SegmentColumns,
    StoredRuns,
)
from samcast.group.storage import BatchKey, OrderRecovery
from samcast.wire.batch import BATCH_HEADER_BYTES, identify, sent_ms_of
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


def read_vote(data: bytes, *, may_be_empty: bool) -> VoteFound:
    """The vote, if there ever was one. A disk says so itself that there was none, by a record
    without content; only those of earlier versions have nothing at all there."""
    twin = decode_twin(data)
    if twin.state is not TwinState.FOUND:
        return VoteFound(None, 0, may_be_empty and twin.state is TwinState.EMPTY, True)
    vote = decode_vote(twin.record) if twin.record else None
    return VoteFound(vote, twin.sequence, True, twin.is_whole)


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
    *,
    is_laid_out: bool,
) -> tuple[OrderRecovery, JournalWriter, Verdict]:
    """The journal's records, a writer that goes on behind them, and in which state it was. All
    files were synced before they were read: what is acted on must not vanish with the power."""
    scan = scan_journal(segments, segment_bytes=segment_bytes, is_laid_out=is_laid_out)
    writer = JournalWriter(segment_bytes=segment_bytes, state=scan.state)
    writer.note_synced(writer.sequence)
    records = [decode_record(record) for record in scan.records]
    is_rotten = scan.verdict is Verdict.ROT
    return OrderRecovery(uuid, vote, records, is_rotten, snapshots), writer, scan.verdict


def list_segment(generation: int, image: bytes) -> tuple[Listing, SegmentScan]:
    """Look at every record of a segment."""
    scan = scan_segment(image, generation)
    listing = Listing()
    for found in scan.found:
        body = image[found.body_offset : found.body_offset + found.length]
        if found.kind == KIND_MARKS:
            listing.add_marks(decode_mark(body))
        elif found.length >= BATCH_HEADER_BYTES:
            length = record_bytes(found.length)
            place = (found.offset, length)
            listing.batches.append(Listed(*identify(body), *place, sent_ms_of(body)))
    return listing, scan


class DataScan:
    """Gathers what the data segments hold, one segment after the other, oldest first."""

    def __init__(self, uuid: int) -> None:
        self._uuid = uuid
        self._runs: list[StoredRuns] = []
        self._stages: dict[BatchKey, FoundBatch] = {}
        self._marks: list[tuple[BatchKey, int]] = []
        self._marked: dict[BatchKey, bytes] = {}

    def add(self, columns: SegmentColumns) -> None:
        """One segment."""
        self._marks += columns.marks
        for (
            key,
            _,
        ) in columns.marks:  # The later mark of a key counts, whether it tells this or not.
            self._marked.pop(key, None)
        self._marked |= columns.marked()
        self._runs += columns.runs
        for listed in columns.stages:
            self._stages[listed.key] = listed.found()

    def recovery(self) -> DataRecovery:
        """All of it."""
        stages = list(self._stages.values())
        return DataRecovery(self._uuid, self._runs, stages, self._marks, self._marked)
