"""The unsafe rules that mutants put back: what a start believes of its disk, and in which order
things get there.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from samcast.disk import data_segments, folder, layout, order_store, tidying
from samcast.disk.data_store import DataStore
from samcast.disk.order_store import NO_VOTE, VOTE, OrderStore
from samcast.group.listing import columns_of
from samcast.group.recovery import KIND_BATCH
from samcast.group.storage import OrderRecovery
from samcast.sim.mutant import Mutant, replace
from samcast.wire import journal
from samcast.wire.segment import record_parts


def missing_is_fresh() -> None:
    """A disk whose vote isn't there has never promised anything."""
    replace(layout, "_check_parts", lambda folder, names: None)
    before = OrderStore.recover

    def recover(self: Any, uuid: int, *, is_laid_out: bool) -> OrderRecovery | None:
        if VOTE not in self._folder.names():
            folder.put_durably(self._folder, VOTE, NO_VOTE)
        return before(self, uuid, is_laid_out=False)

    replace(OrderStore, "recover", recover)


def missing_segment_is_none() -> None:
    """A journal ends where its files do."""
    replace(journal._Reader, "_has_next", lambda self, walk: True)


def missing_payloads_are_none() -> None:
    """Data segments are those that are there."""
    replace(DataStore, "has_all", lambda self: True)


def _read_without(drop: bool, sync: bool) -> None:
    def read(where: Any, handle: int) -> bytes:
        if sync:
            where.sync(handle)
        if drop:
            where.drop_cached(handle)
        return folder.read_whole(where, handle)

    for module in (order_store, data_segments, layout):
        replace(module, "read_synced", read)


def unsynced_is_believed() -> None:
    """A start acts on what the system shows it, be it on the disk or not."""
    _read_without(drop=False, sync=False)


def failed_sync_is_believed() -> None:
    """A start syncs what it reads, and reads what memory has kept of a sync that failed."""
    _read_without(drop=False, sync=True)


def footer_beside_payloads() -> None:
    """A footer is written in one go with the last payloads that it lists."""
    before = DataStore._seal

    def seal(self: Any, token: int) -> Any:
        sealed = before(self, token)
        columns = columns_of(sealed.listing)
        footer = data_segments.footer_of(columns, sealed.generation, sealed.end)
        self._lazy.append((sealed.handle, sealed.end, footer))
        return sealed

    replace(DataStore, "_seal", seal)
    replace(DataStore, "_write_footer", lambda self, sealed: None)


def segment_under_its_own_name() -> None:
    """A segment of the order has its name before it has its room; a start uses what is there."""

    def allocate(where: Any, name: str, size: int) -> int:
        handle: int = where.create(name)
        where.allocate(handle, size)
        where.sync(handle)
        where.sync_names()
        return handle

    replace(order_store, "allocate_durably", allocate)
    replace(OrderStore, "_complete", lambda self, handle: None)


def other_number_other_disk() -> None:
    """A disk that is found under another number counts as somebody else's."""

    def is_original(where: Any, record: Any) -> bool:
        found = where.identity(layout.SUPER, layout.IDENTITY_INODE_AND_DEVICE)
        value = (found.inode << 20 ^ where._platter.device) % 2**62 or 1
        return bool(value == record.identity or where._platter.device == 1)

    replace(layout, "_is_original", is_original)


def moved_without_sync() -> None:
    """What is written anew isn't synced before what it was made from goes."""

    def write_anew(where: Any, live: Any, numbers: Any, source: int, target: int) -> Any:
        reader = data_segments.SegmentReader(where, open_max=1)
        handle = where.create(data_segments.segment_name(target))
        moved, at = [], 0
        for listed in live:
            body = reader.read((source, listed.offset, listed.length))
            if body is None:
                continue
            parts = record_parts(KIND_BATCH, (body,), generation=target, offset=at)
            where.write(handle, at, parts)
            size = sum(map(len, parts))
            again = structs.replace(listed, offset=at, length=size)
            moved.append((again, listed.offset))
            at += size
        where.sync_names()
        where.close(handle)
        return moved

    replace(tidying, "write_anew", write_anew)


DISK_MUTANTS: Sequence[Mutant] = (
    Mutant("CE-4-missing-is-fresh", "CE-4", missing_is_fresh),
    Mutant("missing-segment-is-none", "CE-4", missing_segment_is_none),
    Mutant("missing-payloads-are-none", "SAFETY 2.6", missing_payloads_are_none),
    Mutant("unsynced-is-believed", "SAFETY 2.3", unsynced_is_believed),
    Mutant("failed-sync-is-believed", "SAFETY 2.3", failed_sync_is_believed),
    Mutant("footer-beside-payloads", "SAFETY 2.3", footer_beside_payloads),
    Mutant("segment-under-its-own-name", "FAULTS 71", segment_under_its_own_name),
    Mutant("other-number-other-disk", "FAULTS 72", other_number_other_disk),
    Mutant("moved-without-sync", "SAFETY 2.3", moved_without_sync),
)
