"""Records of the order journal and of the small twin files, as values.

An install replaces the end of the log by another sequencer's. It is written as `InstallRecord`, its
entries, and takes effect at `InstalledRecord`; one that is followed by `CancelRecord` or by another
install never did. If the journal ends behind an install, the vote file says whether it took effect.
"""

import msgspec

from samcast.wire.order import AnyEntry, Configuration, Epoch, Hash, Natural, Record


class BaseRecord(Record, frozen=True, gc=False, array_like=True, tag=1):
    """First record of a fresh journal: all up to `index` is decided and lies in the snapshot."""

    index: Natural
    hash: Hash
    epoch: Epoch  # log epoch in force


class EntriesRecord(Record, frozen=True, gc=False, array_like=True, tag=2):
    """Entries appended to the log."""

    index_first: Natural
    entries: tuple[AnyEntry, ...]


class InstallRecord(Record, frozen=True, gc=False, array_like=True, tag=3):
    """The log up to `base` is kept, what follows replaces the rest."""

    epoch: Epoch
    base: Natural
    base_hash: Hash


class InstalledRecord(Record, frozen=True, gc=False, array_like=True, tag=4):
    """The install before took effect."""

    epoch: Epoch


class CancelRecord(Record, frozen=True, gc=False, array_like=True, tag=5):
    """The install before never took effect."""


class UnknownRecord(Record, frozen=True, gc=False, array_like=True, tag=6):
    """Entries from `index` on were lost to rot; ended by the next install that takes effect."""

    index: Natural


AnyRecord = (
    BaseRecord | EntriesRecord | InstallRecord | InstalledRecord | CancelRecord | UnknownRecord
)


class VoteRecord(Record, frozen=True, gc=False, array_like=True):
    """What binds a commit server across restarts, kept apart from the journal."""

    promised: Epoch
    log_epoch: Epoch
    configuration: Configuration
    log_configuration: Natural = 0  # in which the log epoch was elected


class SuperRecord(Record, frozen=True, gc=False, array_like=True):
    """Whose disk this is. `identity` is the disk's own (a copy or a restored one has another)."""

    node: Natural
    uuid: Natural
    identity: Natural
    identity_kind: Natural = 0  # by which means it was found
    layout: Natural = 0  # which files were made with it, and must be there; 0: none was


MARK_BYTES = 8  # of a digest: tells two contents under one id apart, which nobody forges here


class MarkRecord(Record, frozen=True, gc=False, array_like=True):
    """Numbers that stored batches got, kept beside them in the data segment."""

    marks: tuple[tuple[Natural, bytes, Natural, Natural, Natural, Natural], ...]
    # group, sender, incarnation, counter_first, stage, number_first
    applied: Natural
    digests: bytes = b""  # the first MARK_BYTES of each one's digest; none: of an earlier version


encode_record = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(AnyRecord).decode
decode_vote = msgspec.msgpack.Decoder(VoteRecord).decode
decode_super = msgspec.msgpack.Decoder(SuperRecord).decode
decode_mark = msgspec.msgpack.Decoder(MarkRecord).decode
