"""A node's disk, its process dead at every single step of a start, of writing, sealing and tidying,
with the power lost or kept: what was told to be durable is there, and every start succeeds.

The steps are those of the stores that ship; only the platter is simulated.
"""

import os
from collections.abc import Callable

import pytest

from samcast.disk.layout import ORDER, SUPER, lay_out, open_disk
from samcast.group.settings import GroupSettings
from samcast.group.storage import (
    BatchKey,
    RewriteOrder,
    StoreBatch,
    StoreMarks,
    StoreOrder,
    StoreSnapshot,
    StoreVote,
)
from samcast.machine.ports import Store
from samcast.sim.chance import SeededChance
from samcast.sim.disk import Device, Disk
from samcast.sim.platter import DiedError, Platter
from samcast.sim.world import Planned
from samcast.wire.batch import Batch, columns_from_cells, make_batch
from samcast.wire.order import EPOCH_NONE, HASH_NONE, Configuration, EpochEntry, Server
from samcast.wire.records import (
    BaseRecord,
    EntriesRecord,
    MarkRecord,
    VoteRecord,
    encode_record,
)

SEGMENT_BYTES = 8 * 1024
ROUNDS = 24
STRIDE = int(os.environ.get("SAMCAST_STEPS_STRIDE", "3"))  # of the many steps of writing; 1: all
KEEPS = (None, 0.0, 0.5)  # the power stays, takes all that wasn't synced, or some of it


def batch(counter: int) -> Batch:
    return make_batch(
        group=1, sender=bytes(16), incarnation=1, counter_first=counter, count=1, birth=0,
        confirmed_below=1, seen=0, sent_ms=0, configuration=1, stage=0,
        columns=columns_from_cells([b"%d" % counter * 300]),
    )  # fmt: skip


def key(counter: int) -> BatchKey:
    return (1, bytes(16), 1, counter, 0)


def vote(round_: int) -> VoteRecord:
    servers = (Server(1, 1, 7),)
    return VoteRecord((round_, 1, 1), EPOCH_NONE, Configuration(1, servers, 1, 1, 1))


class Life:
    """What one disk has confirmed, over all its lives."""

    def __init__(self, seed: int) -> None:
        self.disk = Disk(1, SeededChance(seed), GroupSettings(), SEGMENT_BYTES)
        self.entries = 0  # confirmed
        self.written = 0  # handed over
        self.voted = 0
        self.batches: dict[int, None] = {}
        self.dropped: dict[int, None] = {}
        self.token = 0

    def start(self) -> None:
        """Everything that was confirmed is there."""
        order, data, is_new = self.disk.recover()
        assert not is_new
        assert not order.is_rotten
        assert (order.vote.promised[0] if order.vote else 0) >= self.voted
        first = 0
        found = 0
        for record in order.records:
            if isinstance(record, BaseRecord):
                first = found = record.index
            elif isinstance(record, EntriesRecord):
                found = record.index_first + len(record.entries) - 1
        assert found >= self.entries, (first, found)
        self.entries = self.written = found
        held = {batch.key for batch in data.found()}
        for counter in self.batches:
            assert counter in self.dropped or key(counter) in held
        self.disk.start(lambda seconds, call: Planned(call))
        for counter in self.batches:
            assert counter in self.dropped or self.disk.read(key(counter)) is not None

    def work(self) -> None:
        """Rounds of all that a node writes."""
        for at in range(ROUNDS):
            self._do(self._vote(), lambda: setattr(self, "voted", self.voted + 1))
            last = self.written + 1
            entry = EpochEntry((1, 1, 1))
            self.written = last
            record = encode_record(EntriesRecord(last, (entry,)))
            pad = encode_record(EntriesRecord(last + 1, ()))  # fills segments
            self._do(StoreOrder(self._next(), (record, *[pad] * 40)), self._entries(last))
            counter = len(self.batches) + len(self.dropped) + 1
            store = StoreBatch(self._next(), key(counter), batch(counter))
            self._do(store, self._batch(counter))
            marks = encode_record(MarkRecord(((*key(counter), counter),), counter))
            self._do(StoreMarks(self._next(), marks), lambda: None)
            if at % 5 == 4:
                state = StoreSnapshot(self._next(), last, b"state", (last,))
                self._do(state, lambda: None)
                base = encode_record(BaseRecord(last, HASH_NONE, EPOCH_NONE))
                self._do(RewriteOrder(self._next(), (base,)), lambda: None)
            if at % 3 == 2:
                gone = [c for c in list(self.batches)[:-2] if c % 6]  # Some stay, and are moved.
                self.dropped |= dict.fromkeys(gone)
                for counter in gone:
                    self.disk.forget(key(counter))
                self.disk.look()
                self._sync()

    def _vote(self) -> Store:
        return StoreVote(self._next(), encode_record(vote(self.voted + 1)))

    def _entries(self, last: int) -> Callable[[], None]:
        return lambda: setattr(self, "entries", last)

    def _batch(self, counter: int) -> Callable[[], None]:
        return lambda: self.batches.update({counter: None})

    def _next(self) -> int:
        self.token += 1
        return self.token

    def _do(self, effect: Store, confirm: Callable[[], None]) -> None:
        self.disk.store(effect)
        self._sync()
        confirm()

    def _sync(self) -> None:
        while any(device.is_waiting for device in self._devices()):
            for device in self._devices():
                if device.is_waiting:
                    device.begin_sync()
                    device.end_sync()

    def _devices(self) -> tuple[Device, Device]:
        return self.disk.order, self.disk.data

    @property
    def is_order_over_segments(self) -> bool:
        return len(self.disk.platter.root.folder(ORDER).names()) > 4

    def die(self, keep: float | None) -> None:
        self.disk.keep_next = keep
        self.disk.crash(has_power=keep is None)


def begun(step: int = -1) -> Life:
    """A disk that is in use, and a process that will die at a step."""
    life = Life(max(0, step))
    life.disk.recover()
    life.disk.crash(has_power=True)
    life.start()
    life.disk.platter.steps_left = step
    return life


def left_behind() -> Life:
    """A disk that was in use, with something written that wasn't synced."""
    life = begun()
    life.work()
    life.disk.store(StoreBatch(life.token + 1, key(99), batch(99)))
    life.disk.data.begin_sync()
    life.die(None)
    return life


def steps_of(life: Life, work: Callable[[], None]) -> int:
    """How many steps this takes when nobody dies."""
    before = life.disk.platter.steps
    work()
    return life.disk.platter.steps - before


@pytest.mark.parametrize("keep", KEEPS)
def test_a_process_may_die_at_every_step_of_its_work(keep: float | None) -> None:
    life = begun()
    count = steps_of(life, life.work)
    assert count > 200
    assert life.disk.payloads.deleted
    assert life.disk.payloads.moved
    assert life.is_order_over_segments
    for step in range(0, count, STRIDE):
        life = begun(step)
        with pytest.raises(DiedError):
            life.work()
        life.die(keep)
        life.start()
        life.work()
        life.die(0.0)
        life.start()


@pytest.mark.parametrize("keep", KEEPS)
def test_a_process_may_die_at_every_step_of_a_start_and_of_the_next(keep: float | None) -> None:
    life = left_behind()
    count = steps_of(life, life.start)
    assert count > 10
    for step in range(count):
        life = left_behind()
        for again in (step, step // 2):
            life.disk.platter.steps_left = again
            with pytest.raises(DiedError):
                life.start()
            life.die(keep)
        life.start()
        life.die(0.0)
        life.start()


def test_a_disk_that_was_never_finished_is_begun_anew() -> None:
    def lay() -> None:
        lay_out(platter.root, 1, 7, SEGMENT_BYTES)

    platter = Platter(SeededChance(1))
    lay()
    count = platter.steps
    assert open_disk(platter.root, 1).record is not None
    for step in range(count):
        platter = Platter(SeededChance(step))
        platter.steps_left = step
        with pytest.raises(DiedError):
            lay()
        platter.lose_power(0.5)
        if SUPER not in platter.root.names():
            assert open_disk(platter.root, 1).record is None
