"""The disk of one server: files of bytes in the real formats, read by the real recovery scans.

Writes wait until a sync makes them durable. A crash keeps any subset of the waiting sectors. Rot
flips bits of what is durable. A wiped or restored disk has another identity, as a copy of a
folder has. The order and the data are two devices that sync apart, as they do in a node.
"""

from samcast.group.listing import DataRecovery, columns_of
from samcast.group.recovery import (
    KIND_BATCH,
    KIND_MARKS,
    KIND_SNAPSHOT,
    DataScan,
    Place,
    list_segment,
    read_snapshots,
    read_super,
    read_vote,
    recover_order,
)
from samcast.group.settings import GroupSettings
from samcast.group.storage import (
    BatchKey,
    OrderRecovery,
    RewriteOrder,
    StoreBatch,
    StoreMarks,
    StoreOrder,
    StoreSnapshot,
    StoreVote,
)
from samcast.limits import SECTOR_BYTES
from samcast.machine.ports import Store
from samcast.sim.chance import SeededChance
from samcast.wire.batch import encode_batch
from samcast.wire.journal import JournalWriter, Verdict
from samcast.wire.order import Checkpoint
from samcast.wire.records import SuperRecord, VoteRecord, encode_record
from samcast.wire.segment import encode_record as encode_data
from samcast.wire.segment import read_record as read_data
from samcast.wire.twin import encode_twin

File = tuple[str, int]
VOTE: File = ("vote", 0)
SUPER: File = ("super", 0)


class Device:
    """Files that are synced together."""

    def __init__(self) -> None:
        self.files: dict[File, bytearray] = {}
        self.waiting: list[tuple[int, File, int, bytes]] = []
        self.is_syncing = False
        self.slow = 1  # how many times longer a sync takes
        self._syncing = 0

    def write(self, token: int, file: File, offset: int, data: bytes) -> None:
        """Not durable yet."""
        self.waiting.append((token, file, offset, data))

    def begin_sync(self) -> None:
        """What waits now will be durable when this ends."""
        self.is_syncing = True
        self._syncing = len(self.waiting)

    def end_sync(self) -> int:
        """All that waited at the beginning is durable; the highest token of it."""
        done, self.waiting = self.waiting[: self._syncing], self.waiting[self._syncing :]
        self.is_syncing = False
        for _, file, offset, data in done:
            self.put(file, offset, data)
        return max((token for token, _, _, _ in done), default=0)

    def put(self, file: File, offset: int, data: bytes) -> None:
        """Make bytes durable."""
        content = self.files.setdefault(file, bytearray())
        end = offset + len(data)
        if len(content) < end:
            content.extend(bytes(end - len(content)))
        content[offset:end] = data

    def sectors_waiting(self) -> int:
        """How much would be lost now."""
        return sum(-(-len(data) // SECTOR_BYTES) for _, _, _, data in self.waiting)

    def crash(self, chance: SeededChance, keep: float) -> bool:
        """Of what waits any sectors may have reached the disk; True if it was torn."""
        kept = lost = 0
        for _, file, offset, data in self.waiting:
            for at in range(0, len(data), SECTOR_BYTES):
                if chance.happens(keep):
                    self.put(file, offset + at, data[at : at + SECTOR_BYTES])
                    kept += 1
                else:
                    lost += 1
        self.waiting.clear()
        self.is_syncing = False
        return bool(kept and lost)


class Disk:
    """All that a server keeps."""

    def __init__(
        self, node: int, chance: SeededChance, settings: GroupSettings, segment_bytes: int
    ) -> None:
        self._node = node
        self._chance = chance
        self._settings = settings
        self._segment_bytes = segment_bytes
        self.order = Device()
        self.data = Device()
        self.uuid = 0
        self.identity = 1 + chance.below(2**62)
        self.sync_us = 150
        self.is_failing = False  # the next sync fails
        self.keep_next: float | None = None  # share of waiting sectors that the next crash keeps
        self._vote_sequence = 0
        self._boot = 0
        self._data_at = 0
        self._places: dict[BatchKey, Place] = {}
        self._unsynced: dict[BatchKey, bytes] = {}
        self._writer = JournalWriter(segment_bytes=segment_bytes)
        self._group_of: list[tuple[int, int]] = []  # token, journal sequence
        self._kept: list[tuple[int, tuple[int, ...]]] = []  # token, snapshots that stay then
        self.last_verdict = Verdict.CLEAN
        self.checkpoints: dict[int, dict[int, Checkpoint]] = {}  # by group and number
        self.is_data_damaged = False

    # storing

    def store(self, effect: Store) -> Device:
        """Take a store effect; it waits for the device's next sync."""
        if type(effect) is StoreOrder or type(effect) is RewriteOrder:
            write = self._writer.append if type(effect) is StoreOrder else self._writer.start_fresh
            for w in write(effect.records):
                self._allocate(w.segment)
                self.order.write(effect.token, ("segment", w.segment), w.offset, w.data)
            self._group_of.append((effect.token, self._writer.sequence))
        elif type(effect) is StoreVote:
            self._vote_sequence += 1
            self.order.write(effect.token, VOTE, 0, encode_twin(self._vote_sequence, effect.record))
        elif type(effect) is StoreSnapshot:
            record = encode_data(KIND_SNAPSHOT, effect.state, generation=1, offset=0)
            self._kept.append((effect.token, effect.kept))
            self.order.write(effect.token, ("snapshot", effect.index), 0, record)
        else:
            self._store_data(effect)
            return self.data
        return self.order

    def _allocate(self, segment: int) -> None:
        """New segment files are made whole and durable before they are written to."""
        if ("segment", segment) not in self.order.files:
            self.order.put(("segment", segment), self._segment_bytes - 1, b"\0")

    def _store_data(self, effect: Store) -> None:
        if type(effect) is StoreBatch:
            body, kind = encode_batch(effect.batch), KIND_BATCH
            self._unsynced[effect.key] = body
        else:
            assert type(effect) is StoreMarks
            body, kind = effect.record, KIND_MARKS
        record = encode_data(kind, body, generation=self._boot, offset=self._data_at)
        if type(effect) is StoreBatch:
            self._places[effect.key] = (self._boot, self._data_at, len(record))
        self.data.write(effect.token, ("data", self._boot), self._data_at, record)
        self._data_at += len(record)

    def synced(self, device: Device) -> int:
        """A sync has ended."""
        token = device.end_sync()
        if device is self.data:
            if not device.waiting:
                self._unsynced.clear()
            return token
        while self._group_of and self._group_of[0][0] <= token:
            self._writer.note_synced(self._group_of.pop(0)[1])
        while self._kept and self._kept[0][0] <= token:
            _, kept = self._kept.pop(0)
            for file in [f for f in device.files if f[0] == "snapshot" and f[1] not in kept]:
                del device.files[file]
        return token

    def read(self, key: BatchKey) -> bytes | None:
        """A payload as stored, verified; None if it is gone or rotten."""
        unsynced = self._unsynced.get(key)
        if unsynced is not None:
            return unsynced
        place = self._places.get(key)
        if place is None:
            return None
        boot, offset, length = place
        content = self.data.files.get(("data", boot))
        if content is None:
            return None
        image = bytes(content[offset : offset + length])
        found = read_data(image, generation=boot, offset=offset)
        if found is None:
            del self._places[key]
            return None
        return found[1]

    def forget(self, key: BatchKey) -> None:
        """A payload was given up."""
        self._places.pop(key, None)

    # what happens to disks

    def slow_down(self, times: int, *, order: bool = True, data: bool = True) -> None:
        """Syncs take so many times longer; 1 is the usual."""
        self.order.slow = times if order else 1
        self.data.slow = times if data else 1

    def crash(self) -> bool:
        """Un-synced writes are lost, wholly or by sectors."""
        keep = self.keep_next
        if keep is None:
            keep = self._chance.pick((0.0, 0.0, 0.5, 0.9, 1.0))
        self.keep_next = None
        torn = self.order.crash(self._chance, keep)
        torn = self.data.crash(self._chance, keep) or torn
        self._unsynced.clear()
        return torn

    @property
    def is_being_written(self) -> bool:
        """Something would be lost by a crash now."""
        return bool(self.order.waiting or self.data.waiting)

    def wipe(self) -> None:
        """Everything is gone; another disk is in its place."""
        self.order = Device()
        self.data = Device()
        self.identity = 1 + self._chance.below(2**62)
        self.checkpoints = {}

    def copy(self) -> dict[str, dict[File, bytearray]]:
        """A backup of what is durable."""
        return {
            "order": {f: bytearray(c) for f, c in self.order.files.items()},
            "data": {f: bytearray(c) for f, c in self.data.files.items()},
        }

    def restore(self, copy: dict[str, dict[File, bytearray]]) -> None:
        """An old backup is put in the place of the disk: other files, so another identity."""
        self.wipe()
        self.order.files = copy["order"]
        self.data.files = copy["data"]

    def rot(self, where: str) -> bool:
        """Flip bits of something durable; False if there is nothing to flip."""
        if where == "vote":
            return self._flip(self.order.files.get(VOTE), (0, 2 * SECTOR_BYTES))
        if where == "data":
            places = [p for p in self._places.values() if ("data", p[0]) in self.data.files]
            if not places:
                return False
            boot, offset, length = self._chance.pick(places)
            content = self.data.files[("data", boot)]
            return self._flip(content, (offset, min(offset + length, len(content))))
        return self._rot_journal(where)

    def _rot_journal(self, where: str) -> bool:
        live = [s for s in self._writer.segments_live if ("segment", s) in self.order.files]
        spans: list[tuple[bytearray, int]] = []
        for segment in live:
            content = self.order.files[("segment", segment)]
            for at in range(0, len(content), SECTOR_BYTES):
                if any(content[at : at + SECTOR_BYTES]):
                    spans.append((content, at))
        if not spans:
            return False
        third = max(1, len(spans) // 3)
        chosen = {"head": spans[:third], "middle": spans[third : 2 * third] or spans}
        content, at = self._chance.pick(chosen.get(where, spans[-third:]))
        return self._flip(content, (at, at + SECTOR_BYTES))

    def _flip(self, content: bytearray | None, span: tuple[int, int]) -> bool:
        if not content or span[0] >= min(span[1], len(content)):
            return False
        for _ in range(self._chance.between(1, 8)):
            at = self._chance.between(span[0], min(span[1], len(content)) - 1)
            content[at] ^= 1 << self._chance.below(8)
        return True

    # starting

    def recover(self) -> tuple[OrderRecovery, DataRecovery, bool]:
        """What a start finds; True at the end if the disk had to be formatted anew."""
        self._boot += 1
        self._data_at = 0
        self._group_of.clear()
        self._kept.clear()
        self._places.clear()
        is_new = not self._check_super()
        vote: VoteRecord | None = None
        if not is_new:
            vote, is_readable = self._read_vote()
            is_new = not is_readable  # What binds us is gone: the disk counts as lost.
        if is_new:
            self._format()
        return self._recover_order(vote), self._recover_data(), is_new

    def _check_super(self) -> bool:
        """Whether this is our disk and not a copy, a restored one, or none."""
        record = read_super(bytes(self.order.files.get(SUPER, b"")))
        if record is None:
            return False
        self.uuid = record.uuid
        return record.node == self._node and record.identity == self.identity

    def _read_vote(self) -> tuple[VoteRecord | None, bool]:
        """The vote, if there ever was one, and whether it can be read."""
        found = read_vote(bytes(self.order.files.get(VOTE, b"")))
        self._vote_sequence = max(self._vote_sequence, found.sequence)
        if found.vote is not None and not found.is_whole:
            # One copy stands alone: make it two before acting on it.
            self.order.put(VOTE, 0, encode_twin(found.sequence, encode_record(found.vote)))
        return found.vote, found.is_readable

    def _format(self) -> None:
        identity = self.identity
        self.wipe()
        self.identity = identity
        self.uuid = 1 + self._chance.below(2**62)
        record = SuperRecord(self._node, self.uuid, identity)
        self.order.put(SUPER, 0, encode_twin(1, encode_record(record)))

    def _recover_order(self, vote: VoteRecord | None) -> OrderRecovery:
        files = sorted(self.order.files.items())
        segments = {number: bytes(data) for (kind, number), data in files if kind == "segment"}
        snapshots = read_snapshots(bytes(data) for (kind, _), data in files if kind == "snapshot")
        recovery, self._writer, self.last_verdict = recover_order(
            self.uuid, vote, segments, self._segment_bytes, snapshots
        )
        return recovery

    def _recover_data(self) -> DataRecovery:
        scan = DataScan(self.uuid)
        self.is_data_damaged = False
        for (kind, boot), content in sorted(self.data.files.items()):
            if kind == "data":
                listing, segment = list_segment(boot, bytes(content))
                scan.add(columns_of(listing))
                for listed in listing.batches:
                    self._places[listed.key] = (boot, listed.offset, listed.length)
                self.is_data_damaged = self.is_data_damaged or bool(segment.damaged)
        return scan.recovery()
