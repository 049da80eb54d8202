"""Which files a node's disk has, made all at once and looked for at every start.

A disk is laid out before it is used: every folder and file that a node may ever rely on is made and
synced, the superblock last. So where there is a superblock, all the rest was there, and what isn't
there was lost. That is never taken for "nothing was there yet": a server that forgets what it has
promised or stored breaks promises of the whole cluster (SAFETY CE-4). What is missing may come back
(a mount that failed, a file that was moved), so the node stops and says so. What can't be read, or
is somebody else's copy, won't: such a disk counts as lost, and its node begins with a new one.
"""

import msgspec

from samcast.disk.data_segments import LIST
from samcast.disk.data_store import begin_data
from samcast.disk.folder import NEW, Folder, create_anew, missing_text, read_synced
from samcast.disk.order_store import SEGMENT_BYTES, VOTE, begin_order
from samcast.errors import DiskError
from samcast.group.recovery import read_super
from samcast.wire.records import SuperRecord, encode_record
from samcast.wire.twin import decode_twin, encode_twin

LAYOUT = 1
SUPER = "super"
GIVEN_UP = "super.lost"  # of a disk that is being set aside
ORDER, DATA, CHECKPOINTS = "order", "data", "checkpoints"
PARTS = ((ORDER, VOTE), (DATA, LIST), (CHECKPOINTS, ""))
IDENTITY_INODE_AND_DEVICE = 1  # the kind that a device's number is part of


class Opened(msgspec.Struct, frozen=True):
    """What a start makes of a disk: its superblock, or why it counts as lost."""

    record: SuperRecord | None
    why: str = ""

    @property
    def is_laid_out(self) -> bool:
        """Whether its files were all made with it."""
        return self.record is not None and self.record.layout > 0


def missing(folder: Folder, name: str) -> DiskError:
    """For who starts a node on a disk that lacks something."""
    return DiskError(missing_text(f"{folder.path}/{name}"))


def lay_out(
    folder: Folder, node: int, uuid: int, order_segment_bytes: int = SEGMENT_BYTES
) -> SuperRecord:
    """Make a disk, all of it durable; the superblock comes last and says that all the rest is
    there."""
    handle = create_anew(folder, SUPER + NEW)
    folder.sync_names()  # first: where parts are found without it, the superblock was lost
    try:
        make_parts(folder)
        begin_order(folder.folder(ORDER), order_segment_bytes)
        begin_data(folder.folder(DATA))
        identity = folder.identity(SUPER + NEW)
        record = SuperRecord(node, uuid, identity.value, identity.kind, LAYOUT)
        folder.write(handle, 0, [encode_twin(1, encode_record(record))])
        folder.sync(handle)
    finally:
        folder.close(handle)
    folder.rename(SUPER + NEW, SUPER)
    folder.sync_names()
    return record


def open_disk(folder: Folder, node: int) -> Opened:
    """Whose disk this is, and whether all of it is there; what was read is synced."""
    names = [name for name in folder.names() if not name.startswith("lost-")]
    if SUPER not in names:
        return _without_super(folder, names)
    record = read_super(_read_super(folder))
    if record is None:
        return Opened(None, "its superblock can't be read")
    if record.layout > LAYOUT:
        raise DiskError(f"{folder.path} is of a later version of Samcast; start it with that one")
    if record.node != node:
        raise DiskError(
            f"{folder.path} belongs to node {record.node}, and this is node {node}; correct the"
            " folder in the configuration"
        )
    if not _is_original(folder, record):
        return Opened(None, "it is a copy, or was restored from one")
    if record.layout:
        _check_parts(folder, names)
    else:
        _check_old_parts(folder, names)
    folder.sync_names()
    return Opened(record)


def _read_super(folder: Folder) -> bytes:
    handle = folder.open(SUPER)
    try:
        return read_synced(folder, handle)
    finally:
        folder.close(handle)


def _without_super(folder: Folder, names: list[str]) -> Opened:
    if SUPER + NEW in names or GIVEN_UP in names:
        return Opened(None, "it was never finished, or had been given up")
    if any(name in names for name, _ in PARTS):
        raise missing(folder, SUPER)
    return Opened(None, "it is empty")


def _check_parts(folder: Folder, names: list[str]) -> None:
    for part, inside in PARTS:
        if part not in names:
            raise missing(folder, part)
        if inside and inside not in folder.folder(part).names():
            raise missing(folder.folder(part), inside)


def _check_old_parts(folder: Folder, names: list[str]) -> None:
    """A disk of an earlier version, which made its files when its node first started."""
    made = [name for name in (ORDER, DATA) if name in names]
    if not any(folder.folder(name).names() for name in made):
        return  # It was never started, or no further than this.
    for part, inside in ((ORDER, VOTE), (DATA, "")):
        if part not in names or (inside and inside not in folder.folder(part).names()):
            raise missing(folder.folder(part), inside)


def _is_original(folder: Folder, record: SuperRecord) -> bool:
    found = folder.identity(SUPER, record.identity_kind or IDENTITY_INODE_AND_DEVICE)
    if found.kind != (record.identity_kind or IDENTITY_INODE_AND_DEVICE):
        raise DiskError(_doubtful(folder, "this file system doesn't tell files from their copies"))
    if found.value == record.identity:
        return True
    is_same_file = found.kind == IDENTITY_INODE_AND_DEVICE and (
        record.identity >> 20 == (found.inode << 20) % 2**62 >> 20
    )
    if is_same_file:
        raise DiskError(_doubtful(folder, "its device has another number than before"))
    return False


def _doubtful(folder: Folder, why: str) -> str:
    return (
        f"{folder.path} may be this node's disk or a copy of it: {why}. If nothing was copied or"
        " restored, `samcast disk trust` says so; otherwise `samcast disk renew` begins with a new"
        " disk, which the cluster must let in"
    )


def trust_disk(folder: Folder, node: int) -> SuperRecord:
    """An operator says that this is the node's own disk, whatever identifies it now."""
    record = read_super(_read_super(folder)) if SUPER in folder.names() else None
    if record is None or record.node != node:
        raise DiskError(f"{folder.path}/{SUPER} is not the superblock of node {node}")
    return settle_disk(folder, record, layout=record.layout)


def make_parts(folder: Folder) -> None:
    """The folders that a disk of an earlier version may lack."""
    for name, _ in PARTS:
        folder.make_folder(name)
    folder.sync_names()


def settle_disk(folder: Folder, record: SuperRecord, layout: int = LAYOUT) -> SuperRecord:
    """From now on this is the node's disk, laid out, by what identifies it best: written in place,
    since another file would have another identity."""
    identity = folder.identity(SUPER)
    settled = SuperRecord(record.node, record.uuid, identity.value, identity.kind, layout)
    twin = decode_twin(_read_super(folder))
    if settled != record or not twin.is_whole:
        handle = folder.open(SUPER)
        try:  # Each time under a number of its own: two records under one would both be void.
            folder.write(handle, 0, [encode_twin(twin.sequence + 1, encode_record(settled))])
            folder.sync(handle)
        finally:
            folder.close(handle)
    return settled
