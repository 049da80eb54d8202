"""Changes of a replicated table, as they travel in the bodies of a group's messages.

Written once and read by every version to come: fields are only ever added at the end. What can't be
read is not a change, has no effect, and has none at every member.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from samcast.limits import BATCH_COLUMNS_BYTES_MAX
from samcast.wire.errors import WireError
from samcast.wire.order import Natural, Record

KEY_BYTES_MAX = 4096
WRITES_MAX = 100_000  # of one change

Key = Annotated[bytes, Meta(max_length=KEY_BYTES_MAX)]
Value = Annotated[bytes, Meta(max_length=BATCH_COLUMNS_BYTES_MAX)]


class Put(Record, frozen=True, gc=False, array_like=True, tag=1):
    """The key has this value from now on, or, with `ttl_ms`, for so long by the table's clock."""

    key: Key
    value: Value
    ttl_ms: Natural = 0


class Delete(Record, frozen=True, gc=False, array_like=True, tag=2):
    """There is no such key any more."""

    key: Key


class Check(Record, frozen=True, gc=False, array_like=True):
    """The key was last changed by this number; 0: there is none."""

    key: Key
    number: Natural


class Change(Record, frozen=True, gc=False, array_like=True):
    """All of its writes take effect if all of its checks hold, or none does."""

    writes: Annotated[tuple[Put | Delete, ...], Meta(max_length=WRITES_MAX)]
    checks: Annotated[tuple[Check, ...], Meta(max_length=WRITES_MAX)] = ()
    clock_ms: Natural = 0  # what time it is for who sends it; the table's clock never goes back


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Change).decode


def encode_change(change: Change) -> bytes:
    """The body of a message."""
    return _encode(change)


def decode_change(body: bytes) -> Change:
    """The change, or a `WireError`."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError("table-malformed", f"not a change of a table: {error}") from None
