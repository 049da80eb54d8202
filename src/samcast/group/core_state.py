"""The core's state as bytes: what a snapshot is made of, read with suspicion."""

from hashlib import blake2b

import msgspec

from samcast.group.retained import RetainedState
from samcast.group.rows import GroupState, NamingState
from samcast.machine.quorum import is_sound
from samcast.wire.order import CELL, Configuration, Epoch, Hash, Place


class CoreState(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot. Typed, so that a malformed one is one clear error and never a strange state."""

    index: int
    hash: Hash
    epoch: Epoch
    truncated: int
    group_next: int
    configuration: Configuration
    groups: list[tuple[int, GroupState]]
    retained: list[tuple[int, RetainedState]] = []
    places: list[Place] = []
    settled: int = 0
    intervals: list[tuple[int, list[tuple[int, int]]]] = []
    replaced: list[tuple[int, int]] = []
    naming: list[tuple[int, NamingState]] = []


_decode = msgspec.msgpack.Decoder(CoreState).decode


def decode_state(data: bytes) -> CoreState:
    """A snapshot whose bytes were checked by their hash or checksum; an error if it is none."""
    try:
        state = _decode(data)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from None
    if not state.groups or state.groups[0][0] != CELL or not is_sound(state.configuration):
        raise msgspec.ValidationError("a core state without its cell, or of nobody")
    return state


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a snapshot; what follows is passed over."""

    index: int


_decode_place = msgspec.msgpack.Decoder(_Place).decode


def index_of(state: bytes) -> int:
    """At which index a snapshot is, without making a state of it."""
    return _decode_place(state).index


def state_hash(*pieces: bytes) -> bytes:
    """By which servers compare snapshots at the same index."""
    hasher = blake2b(digest_size=32, person=b"samcast-core")
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()
