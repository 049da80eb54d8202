"""Disks that lost something, had no room, or failed at their end: what a start makes of them."""

import errno
from collections.abc import Sequence

import pytest

from samcast.disk.data_segments import segment_name
from samcast.disk.folder import Handle
from samcast.disk.layout import DATA, ORDER, SUPER, open_disk, settle_disk, trust_disk
from samcast.errors import DiskError
from samcast.group.storage import RewriteOrder, StoreBatch, StoreOrder
from samcast.wire.journal import Verdict
from samcast.wire.order import EpochEntry
from samcast.wire.records import EntriesRecord, encode_record
from tests.disk.test_steps import Life, batch, begun, key


def filled(segments: int) -> Life:
    """A journal that has come to its n-th segment."""
    life = begun()
    for at in range(1, 12 * segments + 1):
        entry = encode_record(EntriesRecord(at, (EpochEntry((1, 1, 1)),)))
        pad = encode_record(EntriesRecord(at + 1, ()))
        life._do(StoreOrder(life._next(), (entry, *[pad] * 40)), life._entries(at))
    return life


@pytest.mark.req("GRP-27")
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("left", [0, 4096])
def test_a_segment_of_the_order_that_is_short_is_rot(number: int, left: int) -> None:
    life = filled(2)
    life.die(0.0)
    file = life.disk.platter.root.folder(ORDER).file(f"segment-{number:010d}")
    assert file is not None
    file.durable[:] = file.cached[:] = bytes(left)
    order, _, _ = life.disk.recover()
    assert order.is_rotten
    assert life.disk.last_verdict is Verdict.ROT


@pytest.mark.req("GRP-27")
@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_of_the_order_that_is_missing_is_rot(number: int) -> None:
    life = filled(2)
    life.die(0.0)
    life.disk.platter.root.folder(ORDER).take(f"segment-{number:010d}")
    order, _, _ = life.disk.recover()
    assert order.is_rotten


def test_a_data_segment_that_has_become_empty_is_told() -> None:
    life = begun()
    life.work()
    life.die(0.0)
    folder = life.disk.platter.root.folder(DATA)
    name = next(n for n in folder.names() if n.startswith("segment-"))
    file = folder.file(name)
    assert file is not None
    assert file.durable
    file.durable.clear()
    file.cached.clear()
    with pytest.raises(DiskError, match=f"{name} is missing"):
        life.disk.recover()


def test_files_that_somebody_else_put_there_are_left_alone() -> None:
    life = begun()
    life.work()
    life.die(0.0)
    root = life.disk.platter.root
    for folder in (root.folder(ORDER), root.folder(DATA)):
        for name in ("segment-0000000001.bak", "snapshot-0001 (copy)", "notes"):
            folder.close(folder.create(name))
            folder.sync_names()
    life.start()
    life.work()
    assert "notes" in root.folder(ORDER).names()


def test_a_full_disk_starts_takes_nothing_and_goes_on_when_there_is_room() -> None:
    life = begun()
    life.work()
    life.disk.platter.is_full = True
    for _ in range(3):
        life.die(0.0)
        life.start()
    life.disk.store(StoreBatch(life._next(), key(900), batch(900)))
    life._sync()
    assert life.disk.read(key(900)) is None
    life.disk.platter.is_full = False
    life.disk.look()
    life._sync()
    assert life.disk.read(key(900)) is not None


def test_room_that_was_short_is_not_short_for_ever() -> None:
    life = begun()
    life._sync()
    order = life.disk._order
    life.disk.platter.is_full = True
    entry = encode_record(EntriesRecord(1, (EpochEntry((1, 1, 1)),)))
    life.disk.store(RewriteOrder(life._next(), (entry,)))
    life._sync()
    order.look_ahead()
    assert order.is_short
    life.disk.platter.is_full = False
    for _ in range(3):
        order.look_ahead()
        life._sync()
    assert not order.is_short


def test_a_superblock_is_never_written_twice_under_one_number() -> None:
    """Torn between its two copies, either is the disk's."""
    for seed in range(40):
        life = Life(seed)
        life.disk.recover()
        platter, root = life.disk.platter, life.disk.platter.root
        for device in (2, 3):
            platter.has_handles, platter.device = False, device
            trust_disk(root, 1)
        record = open_disk(root, 1).record
        assert record is not None
        platter.device = 4
        handle = root.open(SUPER)
        before = bytes(platter.file(handle).durable)
        trust_disk(root, 1)
        file = platter.file(handle)
        file.durable[:512] = before[:512]  # The power went between the two sectors.
        file.cached[:512] = before[:512]
        found = open_disk(root, 1).record
        assert found is not None
        assert found.uuid == record.uuid
        settle_disk(root, found)
        assert bytes(file.durable[:512]) == bytes(file.durable[512:])


def test_no_footer_says_synced_after_a_sync_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    life = begun()
    life._do(StoreBatch(life._next(), key(1), batch(1)), life._batch(1))
    store = life.disk.payloads
    monkeypatch.setattr(life.disk.data, "close", lambda: False)
    written: list[int] = []

    def write(handle: Handle, offset: int, parts: Sequence[bytes]) -> None:
        written.append(offset)
        raise OSError(errno.EIO, "no more")

    monkeypatch.setattr(store.folder, "write", write)
    store.close()
    assert written == []
    assert segment_name(1) in store.folder.names()
