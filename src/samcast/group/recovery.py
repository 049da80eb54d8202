"""What a start makes of the bytes on a disk: pure, so that the simulator runs the real thing."""

from collections.abc import Iterable, Mapping, Sequence

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
from samcast.wire.segment import read_record, record_bytes, scan_segment
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


class DataScan:
    """Gathers what the data segments hold, one segment after the other, oldest first."""

    def __init__(self, uuid: int) -> None:
        self._uuid = uuid
        self._batches: dict[BatchKey, FoundBatch] = {}
        self._marks: list[tuple[BatchKey, int]] = []
        self.places: dict[BatchKey, Place] = {}
        self.is_damaged = False

    def add(self, generation: int, image: bytes) -> int:
        """One segment; where its last sound record ends."""
        scan = scan_segment(image, generation)
        self.is_damaged = self.is_damaged or bool(scan.damaged)
        for found in scan.found:
            body = image[found.body_offset : found.body_offset + found.length]
            if found.kind == KIND_MARKS:
                self._marks += [(mark[:5], mark[5]) for mark in decode_mark(body).marks]
                continue
            try:
                batch = decode_batch(body)
            except WireError:
                continue
            key = (batch.group, batch.sender, batch.incarnation, batch.counter_first, batch.stage)
            self._batches[key] = FoundBatch(key, batch.count, batch.birth, batch.digest)
            self.places[key] = (generation, found.offset, record_bytes(found.length))
        return scan.end

    def recovery(self) -> DataRecovery:
        """All of it."""
        return DataRecovery(self._uuid, list(self._batches.values()), self._marks)
