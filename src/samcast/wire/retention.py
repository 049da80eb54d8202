"""Control messages about what stays and what may go: checkpoints, retention, leases.

Tags go on from those of `wire.group`.
"""

from hashlib import blake2b
from typing import Annotated

from msgspec import Meta

from samcast.wire.control import Control
from samcast.wire.order import (
    Beginning,
    Checkpoint,
    Epoch,
    FoldName,
    Keep,
    LeaseName,
    Natural,
    Record,
)

LIST_DIGEST_BYTES = 32


ListDigest = Annotated[bytes, Meta(max_length=LIST_DIGEST_BYTES)]


def digest_of_list(data: bytes) -> bytes:
    """By which a list of blocks is known."""
    return blake2b(data, digest_size=LIST_DIGEST_BYTES).digest()


class Holdings(Control, frozen=True, gc=False, array_like=True, tag=32):
    """Data server -> sequencer: by size or age, messages up to these numbers needn't stay."""

    configuration: Natural
    epoch: Epoch
    uuid: Natural
    numbers: tuple[tuple[Natural, Natural, Keep], ...]  # group, number, and by which bounds


class Collected(Control, frozen=True, gc=False, array_like=True, tag=33):
    """Data server -> whoever asked for them: messages of the group up to this number are gone."""

    group: Natural
    number: Natural


class CheckpointReport(Control, frozen=True, gc=False, array_like=True, tag=34):
    """Checkpoint server -> sequencer: this is on my disk, read again and found sound."""

    configuration: Natural
    epoch: Epoch
    uuid: Natural
    group: Natural
    checkpoint: Checkpoint
    fold: FoldName
    fold_version: Natural


class CheckpointsRequest(Control, frozen=True, gc=False, array_like=True, tag=35):
    """Anyone -> commit server: what is there to begin with?"""

    group: Natural


class Checkpoints(Control, frozen=True, gc=False, array_like=True, tag=36):
    """Commit server -> anyone: the advertised checkpoints of a group, oldest first, and the number
    up to which its messages are gone; from committed state."""

    group: Natural
    collected: Natural
    keep: Keep
    checkpoints: tuple[Checkpoint, ...]
    head: Natural = 0  # this is all known up to here
    intervals: tuple[tuple[Natural, Natural], ...] = ()  # behind which number which one counts


class BlockRequest(Control, frozen=True, gc=False, array_like=True, tag=37):
    """Anyone -> checkpoint server: a piece of a block; block 0 is the list of all of them. Servers
    may have cut one state into different blocks, so a block is one of the list with this digest;
    without any, of whatever list is there."""

    group: Natural
    number: Natural
    block: Natural
    offset: Natural
    listed: ListDigest = b""


class BlockReply(Control, frozen=True, gc=False, array_like=True, tag=38):
    """Checkpoint server -> anyone: the piece; a `total` of 0 says that there is no such block."""

    group: Natural
    number: Natural
    block: Natural
    offset: Natural
    total: Natural
    data: bytes


class KeepRequest(Record, frozen=True, gc=False, array_like=True, tag=7):
    """Have a group's messages stay so long, in the place of what is `before`; None: anything."""

    group: Natural
    keep: Keep
    before: Keep | None = None


class BeginRequest(Record, frozen=True, gc=False, array_like=True, tag=9):
    """Have an empty group go on from a number."""

    group: Natural
    number: Beginning


class LeaseRequest(Record, frozen=True, gc=False, array_like=True, tag=8):
    """Have all messages above `number` stay, or (without `ttl_ms`) no longer."""

    group: Natural
    name: LeaseName
    number: Natural
    ttl_ms: Natural
    nonce: Natural
