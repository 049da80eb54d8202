"""The disk of one server: the stores that ship, on a platter that forgets, rots, fills and fails.

The order and the data are two devices that sync apart, as they do in a node. A wiped or restored
disk has other files, and so another identity.
"""

from collections.abc import Callable, Sequence

from samcast.disk.data_segments import PREFIX
from samcast.disk.data_store import DataStore, Timer
from samcast.disk.folder import Chunk, Handle, Hook
from samcast.disk.layout import DATA, ORDER, lay_out, make_parts, open_disk, settle_disk
from samcast.disk.order_store import SEGMENT, VOTE, OrderStore
from samcast.disk.tidying import tidy
from samcast.group.listing import DataRecovery
from samcast.group.settings import GroupSettings
from samcast.group.storage import BatchKey, OrderRecovery, StoreBatch, StoreMarks
from samcast.limits import SECTOR_BYTES
from samcast.machine.ports import Store
from samcast.sim.chance import SeededChance
from samcast.sim.platter import File, Platter, SimFolder
from samcast.wire.journal import Verdict
from samcast.wire.order import Checkpoint

DATA_SEGMENT_BYTES = 6 * 1024
SPENT_SHARE = 0.25
Later = Callable[[float, Callable[[], None]], Timer]
Copy = tuple[SimFolder, Platter]


class Device:
    """Writes of one kind, in order: what a node's thread does."""

    def __init__(self, folder: SimFolder, platter: Platter) -> None:
        self._folder = folder
        self._platter = platter
        self._jobs: list[tuple[int, Sequence[Chunk], Hook | None]] = []
        self._touched: dict[Handle, None] = {}
        self._token = 0
        self._on_synced: Callable[[int], None] = lambda token: None
        self.is_syncing = False
        self.slow = 1  # how many times longer a sync takes
        self.role_at = 0  # whose stores these are

    def begin(self, on_synced: Callable[[int], None]) -> "Device":
        """A life begins."""
        self._on_synced = on_synced
        self.end()
        return self

    def end(self) -> None:
        """A life ends; what wasn't written yet never will be."""
        self._jobs.clear()
        self._touched.clear()
        self.is_syncing = False

    def put(self, token: int, chunks: Sequence[Chunk], before: Hook | None = None) -> None:
        """Have this written."""
        self._jobs.append((token, chunks, before))

    def close(self) -> bool:
        """Nodes of the simulator are never closed gently."""
        return True

    @property
    def is_waiting(self) -> bool:
        """Something was put and isn't being written."""
        return bool(self._jobs)

    def begin_sync(self) -> None:
        """All that was put is written; it will be durable when this ends."""
        self.is_syncing = True
        jobs, self._jobs = self._jobs, []
        self._token = max((token for token, _, _ in jobs), default=0)
        for _, chunks, before in jobs:
            if before is not None:
                before()
            for handle, offset, data in chunks:
                self._folder.write(handle, offset, [data])
                self._touched[handle] = None

    def end_sync(self) -> int:
        """It is; the highest token of it."""
        touched, self._touched = self._touched, {}
        self.is_syncing = False
        for handle in touched:
            self._folder.sync(handle)
        token = self._token
        if token:
            self._on_synced(token)
        return token

    def write_some(self, chance: SeededChance) -> None:
        """The process ends while it is writing."""
        chunks = [chunk for _, some, _ in self._jobs for chunk in some]
        for handle, offset, data in chunks[: chance.between(0, len(chunks))]:
            self._platter.file(handle).write(offset, data)

    def sectors_waiting(self) -> int:
        """How much would be lost now."""
        written = sum(self._platter.file(handle).sectors_waiting() for handle in self._touched)
        put = [data for _, chunks, _ in self._jobs for _, _, data in chunks]
        return written + sum(-(-len(data) // SECTOR_BYTES) for data in put)


class Disk:
    """All that a server keeps."""

    def __init__(
        self, node: int, chance: SeededChance, settings: GroupSettings, segment_bytes: int
    ) -> None:
        self._node = node
        self._chance = chance
        self._settings = settings
        self._segment_bytes = segment_bytes
        self.uuid = 0
        self.sync_us = 150
        self.keep_next: float | None = None  # share of waiting sectors that the next crash keeps
        self.checkpoints: dict[int, dict[int, Checkpoint]] = {}  # by group and number
        self.is_data_damaged = False  # by the last loss of power
        self._is_dead = True
        self._has_handles = chance.happens(0.7)
        self._slow = (1, 1)
        self._insert(Platter(chance))

    def _insert(self, platter: Platter) -> None:
        """Another disk, or other files on it."""
        platter.has_handles = self._has_handles
        self.platter = platter
        self._open_stores()

    def _open_stores(self) -> None:
        order, data = self.platter.root.folder(ORDER), self.platter.root.folder(DATA)
        self._order = OrderStore(order, self._segment_bytes)
        self._data = DataStore(data, DATA_SEGMENT_BYTES)
        self.order, self.data = Device(order, self.platter), Device(data, self.platter)
        self.order.slow, self.data.slow = self._slow

    # storing

    def start(self, later: Later) -> None:
        """A life begins, after `recover`."""
        self._order.start(self.order.begin, lambda token: None)
        self._data.start(self.data.begin, lambda token: None, later)
        found = open_disk(self.platter.root, self._node)
        assert found.record is not None
        settle_disk(self.platter.root, found.record)

    def store(self, effect: Store) -> Device:
        """Take a store effect; it waits for the device's next sync."""
        if type(effect) is StoreBatch or type(effect) is StoreMarks:
            self._data.store(effect)
            return self.data
        self._order.store(effect)
        return self.order

    def look(self) -> None:
        """What a node does every now and then."""
        self._order.look_ahead()
        self._data.look()
        for generation in self._data.spent_segments(SPENT_SHARE):
            for step in tidy(self._data, generation, 0):
                if step is not None:
                    step()

    @property
    def payloads(self) -> DataStore:
        """For those who read and tidy."""
        return self._data

    def read(self, key: BatchKey) -> bytes | None:
        """A payload as stored, verified; None if it is gone or rotten."""
        return self._data.read(key)

    def forget(self, key: BatchKey) -> None:
        """A payload was given up."""
        self._data.forget([key])

    # what happens to disks

    @property
    def is_failing(self) -> bool:
        """The next sync fails."""
        return self.platter.fails_next

    @is_failing.setter
    def is_failing(self, is_failing: bool) -> None:
        self.platter.fails_next = is_failing

    def slow_down(self, times: int, *, order: bool = True, data: bool = True) -> None:
        """Syncs take so many times longer; 1 is the usual."""
        self._slow = times if order else 1, times if data else 1
        self.order.slow, self.data.slow = self._slow

    def crash(self, has_power: bool | None = None) -> bool:
        """The process ends, alone or with its machine (None: mostly so); True if a write was torn
        by that."""
        if self._is_dead:
            return False
        self._is_dead = True
        keep, self.keep_next = self.keep_next, None
        if has_power is None:
            has_power = keep is None and self._chance.happens(0.4)
        if has_power:
            for device in (self.order, self.data):
                device.write_some(self._chance)
        self.order.end()
        self.data.end()
        self.platter.end_process()
        return False if has_power else self.lose_power(keep)

    def lose_power(self, keep: float | None = None) -> bool:
        """What isn't on the platter is gone, but for what reached it by chance."""
        if keep is None:
            keep = self._chance.pick((0.0, 0.0, 0.5, 0.9, 1.0))
        self.is_data_damaged = self.platter.lose_power(keep)
        return self.is_data_damaged

    @property
    def is_being_written(self) -> bool:
        """Something would be lost by a crash now."""
        return any(device.is_syncing or device.is_waiting for device in (self.order, self.data))

    def wipe(self) -> None:
        """Everything is gone; another disk is in its place."""
        self._insert(Platter(self._chance))
        self.checkpoints = {}

    def copy(self) -> Copy:
        """A backup of what is durable."""
        platter = Platter(self._chance)
        platter.root = self.platter.root.copy(platter)
        return platter.root, platter

    def restore(self, copy: Copy) -> None:
        """An old backup is put in the place of the disk: other files, so another identity."""
        self._insert(copy[1])
        self.checkpoints = {}

    def change_device(self) -> None:
        """The same disk is found under another number."""
        self.platter.device += 1

    def take_part(self) -> Callable[[], None] | None:
        """A folder or a file is missing; how to put it back. None: there is nothing to take."""
        root = self.platter.root
        parts = [(root, name) for name in root.names()]
        for folder in (root.folder(ORDER), root.folder(DATA)):
            parts += [(folder, name) for name in folder.names() if "snapshot" not in name]
        if not parts:
            return None
        folder, name = self._chance.pick(parts)
        platter = self.platter
        file = folder.file(name)
        if file is not None and file.durable and self._chance.happens(0.3):
            return self._cut(file)
        part = folder.take(name)

        def put_back() -> None:
            if self.platter is platter and name not in folder.names():
                folder.put_back(name, part)

        return put_back

    def _cut(self, file: File) -> Callable[[], None]:
        """A file has lost its end, or all of it."""
        whole = bytes(file.durable)
        left = self._chance.pick((0, len(whole) // 2 // SECTOR_BYTES * SECTOR_BYTES))
        file.pending.clear()
        file.durable[:] = whole[:left]
        file.cached[:] = whole[:left]

        def put_back() -> None:
            file.durable[:] = whole
            file.cached[:] = whole

        return put_back

    def rot(self, where: str) -> bool:
        """Flip bits of something durable; False if there is nothing to flip."""
        root = self.platter.root
        if where == "vote":
            return self._flip(root.folder(ORDER).file(VOTE), (0, 2 * SECTOR_BYTES))
        if where == "data":
            folder = root.folder(DATA)
            places = [p for k in self._data.stored_keys() if (p := self._data.place_of(k))]
            if not places:
                return False
            generation, offset, length = self._chance.pick(places)
            return self._flip(folder.file(f"{PREFIX}{generation:010d}"), (offset, offset + length))
        return self._rot_journal(where)

    def _rot_journal(self, where: str) -> bool:
        folder = self.platter.root.folder(ORDER)
        spans: list[tuple[File, int]] = []
        for number in self._order.segments_live:
            file = folder.file(f"{SEGMENT}{number:010d}")
            for at in range(0, len(file.durable) if file else 0, SECTOR_BYTES):
                assert file is not None
                if any(file.durable[at : at + SECTOR_BYTES]):
                    spans.append((file, at))
        if not spans:
            return False
        third = max(1, len(spans) // 3)
        chosen = {"head": spans[:third], "middle": spans[third : 2 * third] or spans}
        file, at = self._chance.pick(chosen.get(where, spans[-third:]))
        return self._flip(file, (at, at + SECTOR_BYTES))

    def _flip(self, file: File | None, span: tuple[int, int]) -> bool:
        if file is None or span[0] >= min(span[1], len(file.durable)):
            return False
        for _ in range(self._chance.between(1, 8)):
            at = self._chance.between(span[0], min(span[1], len(file.durable)) - 1)
            file.durable[at] ^= 1 << self._chance.below(8)
        file.pending.clear()
        file.forget()
        return True

    # starting

    def recover(self) -> tuple[OrderRecovery, DataRecovery, bool]:
        """What a start finds; True at the end if the disk had to be begun anew."""
        self._is_dead = False
        root = self.platter.root
        opened = open_disk(root, self._node)
        if opened.record is not None:
            self.uuid = opened.record.uuid
            make_parts(root)
            self._open_stores()
            order = self._order.recover(self.uuid, is_laid_out=opened.is_laid_out)
            data = self._data.recover(self.uuid) if order is not None else None
            if order is not None and data is not None:
                return order, data, False
        self._format()
        order = self._order.recover(self.uuid, is_laid_out=True)
        data = self._data.recover(self.uuid)
        assert order is not None
        assert data is not None
        return order, data, True

    def _format(self) -> None:
        self.wipe()
        self.uuid = 1 + self._chance.below(2**62)
        lay_out(self.platter.root, self._node, self.uuid, self._segment_bytes)
        self._open_stores()

    @property
    def last_verdict(self) -> Verdict:
        """In which state the journal was at the last start."""
        return self._order.last_verdict
