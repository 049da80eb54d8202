"""What roles ask of their disk, and what a disk tells them after a start."""

from array import array
from collections.abc import Sequence

import msgspec

from samcast.group.order_log import OrderLog
from samcast.machine.ports import Effect, Event, Store
from samcast.wire.batch import Batch
from samcast.wire.group import RunKey
from samcast.wire.order import EPOCH_NONE, HASH_NONE, Epoch
from samcast.wire.records import (
    AnyRecord,
    BaseRecord,
    CancelRecord,
    EntriesRecord,
    InstalledRecord,
    InstallRecord,
    UnknownRecord,
    VoteRecord,
)
from samcast.wire.stages import StageKey

BatchKey = tuple[int, bytes, int, int, int]  # group, sender, incarnation, counter, stage
SenderKey = tuple[int, bytes, int]  # its first three: whose runs have rising counters


class StoreOrder(Store, frozen=True, gc=False):
    """Append one group of records to the order journal."""

    records: tuple[bytes, ...]


class RewriteOrder(Store, frozen=True, gc=False):
    """Start a fresh order journal with these records; the old one goes when they are durable."""

    records: tuple[bytes, ...]


class StoreVote(Store, frozen=True, gc=False):
    """Replace the vote file."""

    record: bytes


class StoreSnapshot(Store, frozen=True, gc=False):
    """Write a core snapshot beside the older ones; once it is durable, only `kept` stay."""

    index: int
    state: bytes
    kept: tuple[int, ...]


class StoreBatch(Store, frozen=True, gc=False):
    """Append a payload to the data segments."""

    key: BatchKey
    batch: Batch


class StoreMarks(Store, frozen=True, gc=False):
    """Append a record of numbers to the data segments."""

    record: bytes


class DropBatch(Effect, frozen=True, gc=False):
    """A payload may go: it can never be numbered."""

    key: BatchKey


class DropCollected(Effect, frozen=True, gc=False):
    """Numbered payloads may go: a committed entry says so."""

    keys: tuple[BatchKey, ...]


class SendStored(Effect, frozen=True, gc=False):
    """Read these payloads, verify them, and send them as a `Repair` with their numbers."""

    to: int
    batches: tuple[tuple[int, BatchKey], ...]
    is_one: bool = False  # not more than fits one answer: who asked will ask again
    is_urgent: bool = False  # a copy that numbering waits for: before what was asked for earlier


class RunSlice:
    """Runs of a group that follow each other by number, in columns."""

    __slots__ = ("counters", "group", "senders", "stages", "who")

    def __init__(
        self,
        group: int,
        senders: list[tuple[bytes, int]],
        who: "array[int]",
        counters: "array[int]",
        stages: "array[int]",
    ) -> None:
        self.group = group
        self.senders = senders  # and their incarnations
        self.who = who  # which of them
        self.counters = counters
        self.stages = stages

    def __len__(self) -> int:
        return len(self.who)

    def __getitem__(self, places: slice) -> "RunSlice":
        columns = (self.who[places], self.counters[places], self.stages[places])
        return RunSlice(self.group, self.senders, *columns)

    def keys(self) -> list[BatchKey]:
        """Each for itself."""
        group, senders = self.group, self.senders
        columns = zip(self.who, self.counters, self.stages, strict=True)
        return [(group, *senders[who], counter, stage) for who, counter, stage in columns]


class SendRows(Effect, frozen=True, gc=False):
    """Send these stored runs, which are short and follow each other, as one answer."""

    to: int
    number_first: int
    runs: RunSlice
    are_single: bool = False  # runs of one message: as they lie on the disk, if that can be


class Rotted(Event, frozen=True, gc=False):
    """A payload failed its check when it was read."""

    key: BatchKey


class Filled(Event, frozen=True, gc=False):
    """There is no room for new payloads; votes go on from reserved room."""


class Freed(Event, frozen=True, gc=False):
    """There is room again."""


class OrderRecovery(msgspec.Struct, frozen=True):
    """What the disk of a commit server gave back."""

    uuid: int
    vote: VoteRecord | None = None  # None: nothing was ever promised here
    records: Sequence[AnyRecord] = ()
    is_rotten: bool = False
    snapshots: Sequence[bytes] = ()  # core states that passed their check


class Replayed(msgspec.Struct):
    """The log that a journal's records give."""

    log: OrderLog
    unknown_from: int = 0
    has_open_install: bool = False  # an install at the very end that never took effect
    is_installed_unsaid: bool = False  # one that did, but the journal doesn't say so yet


def replay(  # noqa: C901 - one branch per kind of record, and no state beside
    records: Sequence[AnyRecord], log_epoch: Epoch, is_rotten: bool
) -> Replayed:
    """Rebuild the log. Where rot may have hidden something, all it could touch is unknown."""
    log, epoch, unknown = OrderLog(0, HASH_NONE), EPOCH_NONE, 0
    pending: tuple[InstallRecord, list[EntriesRecord]] | None = None
    for record in records:
        if type(record) is BaseRecord:
            log, epoch = OrderLog(record.index, record.hash), record.epoch
        elif type(record) is UnknownRecord:
            unknown = record.index
        elif type(record) is EntriesRecord:
            if pending is not None:
                pending[1].append(record)
            else:
                _append(log, record)
        elif type(record) is InstallRecord:
            pending = (record, [])
        elif type(record) is CancelRecord:
            pending = None
        elif type(record) is InstalledRecord and pending is not None:
            log, epoch, unknown = _install(log, *pending), record.epoch, 0
            pending = None
    replayed = Replayed(log)
    if pending is not None and pending[0].epoch == log_epoch:
        replayed.log, epoch, unknown = _install(log, *pending), log_epoch, 0
        replayed.is_installed_unsaid = True
    elif pending is not None:
        replayed.has_open_install = True
    if epoch != log_epoch:
        unknown = replayed.log.base + 1
    elif is_rotten and not unknown:
        unknown = replayed.log.length + 1
    if unknown:
        replayed.log.cut(max(replayed.log.base, unknown - 1))
    replayed.unknown_from = unknown
    return replayed


def _append(log: OrderLog, record: EntriesRecord) -> None:
    assert record.index_first == log.length + 1  # written by us, checked by the scan
    log.extend(record.entries)


def _install(log: OrderLog, install: InstallRecord, parts: list[EntriesRecord]) -> OrderLog:
    if log.hash_at(install.base) == install.base_hash:
        log.cut(install.base)
    else:
        log = OrderLog(install.base, install.base_hash)
    for part in parts:
        _append(log, part)
    return log


def run_key(key: BatchKey) -> RunKey:
    """The key of a run that isn't a stage."""
    return key[:4]


def stage_key(key: BatchKey) -> StageKey:
    """The same key, named as a stage's."""
    return key
