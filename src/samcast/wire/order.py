"""Entries of the cell's log, and the small values they are made of.

An entry is one position (index) of the log: a run of messages, a decision, or a control entry. Tags
are never used again and new fields go to the end with a default, so old journals stay readable.
"""

from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta

# Ranges and lengths are part of the types: the decoder turns nonsense away before a role sees it.
Natural = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**63 - 1)]
# So far below what a number can be that a group never gets to its end.
Beginning = Annotated[int, Meta(ge=1, le=2**62)]
GroupName = Annotated[str, Meta(min_length=1, max_length=255)]
FoldName = Annotated[str, Meta(max_length=255)]  # "": none
LeaseName = Annotated[str, Meta(min_length=1, max_length=255)]
PlaceName = Annotated[str, Meta(min_length=1, max_length=255)]
Label = Annotated[str, Meta(max_length=255)]  # a name as its user wrote it; "": not told
SenderId = Annotated[bytes, Meta(min_length=16, max_length=16)]
Digest = Annotated[bytes, Meta(min_length=16, max_length=32)]
Hash = Annotated[bytes, Meta(min_length=32, max_length=32)]
Epoch = tuple[Natural, Natural, Natural]  # (round, sequencer's node, boot nonce); see `same_rank`
EPOCH_NONE: Epoch = (0, 0, 0)
HASH_NONE = bytes(32)  # chain hash of the empty log
INCARNATION_MAX = 2**32 - 2  # a batch carries it in 32 bits, and there must be a next one
FOREVER = 2**63 - 1  # newest messages that are kept, where all of them are
CELL = 0  # scope of senders that belong to the cell and not to one group

ROLE_COMMIT = 1
ROLE_DATA = 2
ROLE_CHECKPOINT = 4


class Record(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What all values of this module share: frozen, positional on the wire."""


class Server(Record, frozen=True, gc=False, array_like=True):
    """A member of the configuration: a node together with the disk that it must have."""

    node: Natural
    uuid: Natural
    roles: Natural


class Configuration(Record, frozen=True, gc=False, array_like=True):
    """Who serves, and how many of them must agree (quorums are checked where it is made)."""

    number: Natural
    servers: tuple[Server, ...]
    k_commit: Natural
    e_commit: Natural
    k_data: Natural
    k_checkpoint: Natural = 0  # 0: no checkpoint is ever advertised
    node_last: Natural = 0  # the highest id that was ever used; none is used again


class Place(Record, frozen=True, gc=False, array_like=True):
    """Where a server is found, and what people call it. Not part of a configuration, which must
    fit a vote."""

    node: Natural
    name: PlaceName
    host: PlaceName
    port: Annotated[int, Meta(ge=1, le=65535)]


class Keep(Record, frozen=True, gc=False, array_like=True):
    """How long a group's messages stay. Each bound is 0 for none; with none of them and without a
    fold they stay for ever. With a fold and no bound, what is in two checkpoints may go: there,
    for ever is a bound, too, of as many as there can be. What a fold has not taken up yet stays
    whatever the bounds say.

    A field more would be in the bytes, and so in the chain hashes, of entries that are on disks."""

    count: Natural = 0  # newest messages; FOREVER: all of them
    size: Natural = 0  # bytes of the newest
    age_ms: Natural = 0
    fold: FoldName = ""  # by name, of installed code
    fold_version: Natural = 0
    interval: Natural = 0  # messages between two checkpoints
    by_jobs: bool = False  # Servers don't fold: jobs do, and hand in what they come to.

    @property
    def has_bounds(self) -> bool:
        """Whether messages stay by their count, size or age."""
        return bool(self.count or self.size or self.age_ms)

    @property
    def lets_go(self) -> bool:
        """Whether messages go at all."""
        if self.has_bounds:
            return bool(self.count != FOREVER or self.size or self.age_ms)
        return bool(self.fold)


class Checkpoint(Record, frozen=True, gc=False, array_like=True):
    """The state that a fold has come to at a number."""

    number: Positive
    rows: Natural
    size: Natural  # bytes of its content
    hash: Hash  # of its content, whatever file or engine holds it


class StageRef(Record, frozen=True, gc=False, array_like=True):
    """One stage as a decision names it."""

    stage: Natural
    count: Natural
    digest: Digest


class Part(Record, frozen=True, gc=False, array_like=True):
    """A decision's share in one group: the staged messages take numbers from `number_first` on."""

    group: Natural
    number_first: Natural
    stages: tuple[StageRef, ...]


class Entry(Record, frozen=True, gc=False, array_like=True):
    """One position of the log."""


class RunEntry(Entry, frozen=True, gc=False, array_like=True, tag=1):
    """A run of one sender takes `count` numbers of its group from `number_first` on."""

    group: Natural
    sender: SenderId
    incarnation: Natural
    counter_first: Natural
    count: Natural
    number_first: Natural
    digest: Digest
    birth: Natural
    confirmed_below: Natural


class EpochEntry(Entry, frozen=True, gc=False, array_like=True, tag=2):
    """First entry of every epoch; what was adopted is committed only together with it."""

    epoch: Epoch


OPEN_TAG = 3


class OpenEntry(Entry, frozen=True, gc=False, array_like=True, tag=OPEN_TAG):
    """A process takes over the name `sender`; lower incarnations are fenced from here on."""

    scope: Natural
    sender: SenderId
    incarnation: Natural
    after: Natural  # the incarnation it must follow, or 0 for any
    birth: Natural
    nonce: Natural
    label: Label = ""
    is_anonymous: bool = False  # Nobody uses the name again: its row may be evicted.


class DecisionEntry(Entry, frozen=True, gc=False, array_like=True, tag=4):
    """Transaction `tx` of `owner` takes effect: its stages get numbers, all at once."""

    owner: SenderId
    incarnation: Natural
    tx: Natural
    parts: tuple[Part, ...]


class AbortEntry(Entry, frozen=True, gc=False, array_like=True, tag=5):
    """Ends the owner's incarnation unless the decision of `tx` came first."""

    owner: SenderId
    incarnation: Natural
    tx: Natural


class GroupEntry(Entry, frozen=True, gc=False, array_like=True, tag=6):
    """A group is made; from here on it has numbers."""

    group: Natural
    name: GroupName
    lifetime: Positive
    senders_max: Positive


class GroupRemovedEntry(Entry, frozen=True, gc=False, array_like=True, tag=7):
    """A group takes no more messages; its name is free again."""

    group: Natural


REMOVED_TAG = 8


class SenderRemovedEntry(Entry, frozen=True, gc=False, array_like=True, tag=REMOVED_TAG):
    """A name is given up; a tombstone stays for as long as late runs could pass the floors."""

    scope: Natural
    sender: SenderId
    below: Natural = 0  # Whoever opened it with a higher incarnation keeps it; 0: nobody does.


class ConfigEntry(Entry, frozen=True, gc=False, array_like=True, tag=9):
    """Stop-sign: nothing is decided behind it before a new epoch is elected in `configuration`."""

    configuration: Configuration
    places: tuple[Place, ...] = ()  # of servers that are new in it


class TruncateEntry(Entry, frozen=True, gc=False, array_like=True, tag=10):
    """Enough servers hold the core snapshot at `index`: entries up to it may go."""

    index: Natural
    hash: Hash


class CheckpointEntry(Entry, frozen=True, gc=False, array_like=True, tag=11):
    """Enough checkpoint servers hold this very state: others may build on it."""

    group: Natural
    checkpoint: Checkpoint


class CollectEntry(Entry, frozen=True, gc=False, array_like=True, tag=12):
    """The messages of a group up to a number may go."""

    group: Natural
    number: Natural


class KeepEntry(Entry, frozen=True, gc=False, array_like=True, tag=13):
    """How long a group's messages stay from here on, if they stay as in `before` until now; None:
    whatever it was."""

    group: Natural
    keep: Keep
    before: Keep | None = None


class LeaseEntry(Entry, frozen=True, gc=False, array_like=True, tag=14):
    """Somebody has a use for all messages above `number`; they stay until it says otherwise, or
    falls silent for `ttl_ms`. No `ttl_ms`: the lease is given back."""

    group: Natural
    name: LeaseName
    number: Natural
    ttl_ms: Natural
    nonce: Natural


class LeaseLapsedEntry(Entry, frozen=True, gc=False, array_like=True, tag=15):
    """A lease has not been renewed in time, as last given with `nonce`."""

    group: Natural
    name: LeaseName
    nonce: Natural


class BeginEntry(Entry, frozen=True, gc=False, array_like=True, tag=16):
    """A group that nobody has sent to goes on from a number, as one that is restored does."""

    group: Natural
    number: Beginning


AnyEntry = (
    RunEntry
    | EpochEntry
    | OpenEntry
    | DecisionEntry
    | AbortEntry
    | GroupEntry
    | GroupRemovedEntry
    | SenderRemovedEntry
    | ConfigEntry
    | TruncateEntry
    | CheckpointEntry
    | CollectEntry
    | KeepEntry
    | LeaseEntry
    | LeaseLapsedEntry
    | BeginEntry
)

encode_entry = msgspec.msgpack.Encoder().encode
decode_entry = msgspec.msgpack.Decoder(AnyEntry).decode


def same_rank(one: Epoch, other: Epoch) -> bool:
    """Same round and node: of two such epochs with different nonces the later one is refused."""
    return one[:2] == other[:2]


def rivals(other: Epoch, epoch: Epoch) -> bool:
    """Whether a promise to the other one means that this one can't be followed."""
    return other > epoch or (same_rank(other, epoch) and other != epoch)


def chain_hash(before: bytes, entry: Entry) -> bytes:
    """Binds an entry to everything before it, so equal hashes mean equal logs."""
    return chain_link(before, chained_bytes(entry))


def chained_bytes(entry: Entry) -> bytes:
    """An entry as it goes into the chain."""
    if type(entry) is OpenEntry and not entry.label and not entry.is_anonymous:
        # As it was written before it had these fields: a log of that time keeps its hashes.
        e = entry
        old = (OPEN_TAG, e.scope, e.sender, e.incarnation, e.after, e.birth, e.nonce)
        return encode_entry(old)
    if type(entry) is SenderRemovedEntry and not entry.below:
        return encode_entry((REMOVED_TAG, entry.scope, entry.sender))
    return encode_entry(entry)


def chain_link(before: bytes, encoded: bytes) -> bytes:
    """The same, of an entry's bytes."""
    return blake2b(encoded, key=before, digest_size=32).digest()


def is_named(sender: bytes) -> bool:
    """Named senders are told from unnamed ones by their id alone, so a late run can't pretend."""
    return sender[0] & 1 == 1


def named_sender(name: str) -> bytes:
    """The 16-byte id of a sender that keeps its place across restarts."""
    digest = blake2b(name.encode(), digest_size=16, person=b"samcast-name").digest()
    return bytes([digest[0] | 1]) + digest[1:]


def unnamed_sender(random_bytes: bytes) -> bytes:
    """The 16-byte id of a sender that lives as long as its process."""
    assert len(random_bytes) == 16
    return bytes([random_bytes[0] & 0xFE]) + random_bytes[1:]
