"""The batch: a frozen run of messages of one sender, or a stage of a transaction, in columns.

Nobody re-batches: identity and columns are fixed at the first transmission, and the digest is over
just these. Four stamps may change when it is sent again. The digest does not travel: who needs it
computes it from what came.

    offset  size  field
         0     4  group            }
         4     4  incarnation      }
         8    16  sender           }
        24     8  counter_first    } identity: under the digest
        32     8  birth            }
        40     4  count            }
        44     4  stage            }
        48     8  confirmed_below  ]
        56     8  seen             ]
        64     8  sent_ms          ] stamps: of this transmission
        72     4  configuration    ]
        76     4  reserved, 0
        80        columns          under the digest

Columns are 3 block lengths (u32: bodies, keys, headers) and a word of flags (bit i: column i is
present); then, for each column that is present, count + 1 offsets (int32: 0, monotone, the block
length) and the block, each part padded with zeros to 8 bytes. A column is present iff one of its
cells is not empty. So one content has one encoding, all parts are found without a look at a
message, and Arrow takes them as they lie.

Integers are little-endian. The u64 fields stay below 2**63 all the same: Arrow, Spark and our own
control messages hold them as signed.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise, repeat

import msgspec
from xxhash import xxh3_128

from samcast.limits import BATCH_COLUMNS_BYTES_MAX, BATCH_MESSAGES_MAX
from samcast.wire.errors import WireError

if sys.byteorder != "little":
    raise ImportError("samcast needs a little-endian machine: offsets are used as they lie")

BATCH_HEADER_BYTES = 80
SENDER_BYTES = 16
COUNTER_END_MAX = 2**63  # the last counter, and the last number, is an int64

_IDENTITY = struct.Struct("<II16sQQII")
_STAMPS = struct.Struct("<QQQII")
_HEADER = struct.Struct("<II16sQQIIQQQII")  # both
_PREFIX = struct.Struct("<IIII")
COLUMN_NAMES = ("body", "key", "headers")
_FLAGS_KNOWN = 0b111
_U32_END = 2**32
_U63_END = 2**63
_OFFSETS_PER_CHECK = 4096  # few enough to stay in cache, whatever count a peer claims

# What a column is made of: its offsets, the length of its block, the cells of the block in order.
Source = tuple[bytes | memoryview, int, Sequence[bytes | memoryview]]
ABSENT: Source = (b"", 0, ())
Key = tuple[int, bytes, int, int, int]  # group, sender, incarnation, counter_first, stage
# Where a column lies: start of its offsets, start of its block, length of its block (0: absent).
_Span = tuple[int, int, int]


class Message(msgspec.Struct, frozen=True, gc=False):
    """What a user sends and gets."""

    body: bytes
    key: bytes = b""
    headers: bytes = b""  # opaque here


class Batch(msgspec.Struct, frozen=True, gc=False):
    """Sender -> data servers: a frozen run (stage 0), or the n-th stage of a transaction.

    Made by `make_batch`, `decode_batch` and `restamp` only: they check it and know its digest.
    """

    group: int  # u32
    sender: bytes  # exactly SENDER_BYTES
    incarnation: int  # u32
    counter_first: int  # u64, >= 1; for a stage: its transaction
    count: int  # u32, >= 1
    birth: int  # u64
    confirmed_below: int  # u64; this and the next three are stamps, outside the digest
    seen: int  # u64
    sent_ms: int  # u64
    configuration: int  # u32
    stage: int  # u32; 0: a run, n >= 1: the n-th stage of transaction counter_first
    columns: bytes
    digest: bytes  # XXH3-128 over identity and columns


def make_batch(
    *,
    group: int,
    sender: bytes,
    incarnation: int,
    counter_first: int,
    count: int,
    birth: int,
    confirmed_below: int,
    seen: int,
    sent_ms: int,
    configuration: int,
    columns: bytes,
    stage: int = 0,
) -> Batch:
    """Freezes a batch: checks it as a receiver will, and computes its digest."""
    if len(sender) != SENDER_BYTES:
        raise WireError(
            "batch-sender", f"a sender's id has {SENDER_BYTES} bytes, not {len(sender)}; pad none"
        )
    identity = (group, incarnation, sender, counter_first, birth, count, stage)
    stamps = (confirmed_below, seen, sent_ms, configuration)
    header = _pack_header(*identity, *stamps, 0)
    check_size(len(columns))
    return _freeze(header, columns)


def restamp(
    batch: Batch, *, confirmed_below: int, seen: int, sent_ms: int, configuration: int
) -> Batch:
    """The same batch for another transmission: its digest and columns are the very same objects."""
    assert 0 <= confirmed_below < _U63_END
    assert 0 <= seen < _U63_END
    assert 0 <= sent_ms < _U63_END
    assert 0 <= configuration < _U32_END
    return msgspec.structs.replace(
        batch,
        confirmed_below=confirmed_below,
        seen=seen,
        sent_ms=sent_ms,
        configuration=configuration,
    )


def encode_batch(batch: Batch) -> bytes:
    """The payload of a frame that carries the batch."""
    return b"".join(batch_parts(batch))


def batch_parts(batch: Batch) -> tuple[bytes, bytes]:
    """The same in two parts, for those who can do without a copy of the second one."""
    header = _pack_header(
        batch.group,
        batch.incarnation,
        batch.sender,
        batch.counter_first,
        batch.birth,
        batch.count,
        batch.stage,
        batch.confirmed_below,
        batch.seen,
        batch.sent_ms,
        batch.configuration,
        0,
    )
    return header, batch.columns


def decode_batch(payload: bytes, at: int = 0) -> Batch:
    """Checks what a payload has from a place on in full, without a look at single messages, and
    computes its digest."""
    columns_at = at + BATCH_HEADER_BYTES
    if len(payload) < columns_at:
        raise _faulty("batch-truncated", f"{len(payload) - at} bytes are less than a header of 80")
    check_size(len(payload) - columns_at)
    return _freeze(payload[at:columns_at], payload[columns_at:])


def identify(payload: bytes) -> tuple[Key, int, int, bytes]:
    """Key, count, birth and digest of a payload that was checked when it came, and is the same."""
    group, incarnation, sender, counter_first, birth, count, stage = _IDENTITY.unpack_from(payload)
    digest = xxh3_128(memoryview(payload)[: _IDENTITY.size])
    digest.update(memoryview(payload)[BATCH_HEADER_BYTES:])
    return (group, sender, incarnation, counter_first, stage), count, birth, digest.digest()


def sent_ms_of(payload: bytes) -> int:
    """When such a payload was sent."""
    sent_ms: int = _STAMPS.unpack_from(payload, _IDENTITY.size)[2]
    return sent_ms


def columns_from_messages(messages: Sequence[Message]) -> bytes:
    """Columns of these messages, for `make_batch` with their count."""
    check_count(len(messages))
    return assemble(
        (
            _source_of_cells([message.body for message in messages]),
            _source_of_cells([message.key for message in messages]),
            _source_of_cells([message.headers for message in messages]),
        )
    )


def columns_from_cells(
    bodies: list[bytes], keys: list[bytes] | None = None, headers: list[bytes] | None = None
) -> bytes:
    """The same from one list per column, of equal lengths."""
    check_count(len(bodies))
    sources = [_source_of_cells(cells) if cells else ABSENT for cells in (bodies, keys, headers)]
    return assemble(sources)


def messages_of(batch: Batch) -> list[Message]:
    """The messages one by one, for a consumer that wants them so."""
    return list(map(Message, *cells_of(batch)))


def cells_of(batch: Batch) -> tuple[Iterable[bytes], ...]:
    """Bodies, keys and headers; only bodies where no message has anything else."""
    bodies, keys, headers = spans_of(batch.columns, batch.count)[0]
    if not keys[2] and not headers[2]:
        return (_cells(batch, bodies),)
    return _cells(batch, bodies), _cells(batch, keys), _cells(batch, headers)


def _pack_header(*fields: int | bytes) -> bytes:
    try:
        return _HEADER.pack(*fields)
    except struct.error as error:
        raise WireError(
            "batch-range", f"a field of {fields} does not fit {_HEADER.format!r}: {error}; mend it"
        ) from error


def _freeze(header: bytes, columns: bytes) -> Batch:
    """The batch with the header that these bytes start with: checked, and with its digest."""
    group, incarnation, sender, counter_first, birth, count, stage = _IDENTITY.unpack_from(header)
    confirmed_below, seen, sent_ms, configuration, reserved = _STAMPS.unpack_from(
        header, _IDENTITY.size
    )
    if reserved != 0:
        raise _faulty("batch-reserved", f"the word at byte 76 is {reserved:#x}, not 0")
    if (birth | confirmed_below | seen | sent_ms) >= _U63_END:
        raise _faulty(
            "batch-range",
            f"one of birth {birth}, confirmed_below {confirmed_below}, seen {seen} and sent_ms"
            f" {sent_ms} is not below {_U63_END}",
        )
    _check_span(counter_first, count)
    check_columns(columns, count)
    digest = xxh3_128(memoryview(header)[: _IDENTITY.size])
    digest.update(columns)
    return Batch(
        group,
        sender,
        incarnation,
        counter_first,
        count,
        birth,
        confirmed_below,
        seen,
        sent_ms,
        configuration,
        stage,
        columns,
        digest.digest(),
    )


def _faulty(code: str, detail: str) -> WireError:
    return WireError(code, f"{detail}; drop the batch, its sender is newer or faulty")


def check_count(count: int) -> None:
    if not 1 <= count <= BATCH_MESSAGES_MAX:
        raise WireError(
            "batch-count",
            f"{count} messages, and a batch has 1 to {BATCH_MESSAGES_MAX}; cut it where it is made",
        )


def _check_span(counter_first: int, count: int) -> None:
    check_count(count)
    if counter_first < 1 or counter_first + count > COUNTER_END_MAX:
        raise _faulty(
            "batch-counter",
            f"{count} counters from {counter_first} on are not within 1 to {COUNTER_END_MAX - 1}",
        )


def check_size(length: int) -> None:
    if length > BATCH_COLUMNS_BYTES_MAX:
        raise WireError(
            "batch-bytes",
            f"{length} bytes of columns, and a batch has at most {BATCH_COLUMNS_BYTES_MAX};"
            " cut it where it is made",
        )


def check_columns(columns: bytes, count: int) -> None:
    """As a receiver does."""
    if len(columns) < _PREFIX.size:
        raise _faulty("batch-truncated", f"{len(columns)} bytes of columns, and a prefix has 16")
    _check_flags(columns)
    spans, end = spans_of(columns, count)
    if len(columns) != end:
        raise _faulty(
            "batch-truncated" if len(columns) < end else "batch-trailing",
            f"{count} messages have {end} bytes of columns by the prefix, and {len(columns)} came",
        )
    offsets_bytes = 4 * (count + 1)
    for name, (offsets_at, block_at, length) in zip(COLUMN_NAMES, spans, strict=True):
        if not length:
            continue
        offsets_end = offsets_at + offsets_bytes
        offsets = memoryview(columns)[offsets_at:offsets_end].cast("i")
        if offsets[0] != 0 or offsets[count] != length or not _is_monotone(offsets):
            raise _faulty(
                "batch-offsets",
                f"offsets of {name} at byte {offsets_at} of the columns don't climb from 0 to"
                f" {length}",
            )
        block_end = block_at + length
        padding = columns[offsets_end:block_at] + columns[block_end : _padded(block_end)]
        if padding.strip(b"\0"):
            raise _faulty(
                "batch-padding",
                f"{name} at byte {offsets_at} of the columns is padded with other bytes than 0",
            )


def _check_flags(columns: bytes) -> None:
    bodies, keys, headers, flags = _PREFIX.unpack_from(columns)
    present = (bodies > 0) | (keys > 0) << 1 | (headers > 0) << 2
    if flags == present:
        return
    if flags & ~_FLAGS_KNOWN:
        code = "batch-flags"
    else:
        code = "batch-empty-column" if flags & ~present else "batch-absent-column"
    raise _faulty(
        code, f"flags {flags:#b} at byte 12 of the columns, and {present:#b} have a length above 0"
    )


def _is_monotone(offsets: memoryview) -> bool:
    for first in range(0, len(offsets), _OFFSETS_PER_CHECK):
        # Each piece ends with the first offset of the next one.
        piece = offsets[first : first + _OFFSETS_PER_CHECK + 1].tolist()
        if piece != sorted(piece):
            return False
    return True


def _padded(length: int) -> int:
    return (length + 7) & ~7


def spans_of(columns: bytes, count: int) -> tuple[list[_Span], int]:
    """Where the columns lie, and where they end, from the prefix alone."""
    spans: list[_Span] = []
    at = _PREFIX.size
    offsets_bytes = _padded(4 * (count + 1))
    for length in _PREFIX.unpack_from(columns)[:-1]:
        if not length:
            spans.append((0, 0, 0))
            continue
        spans.append((at, at + offsets_bytes, length))
        at += offsets_bytes + _padded(length)
    return spans, at


def _cells(batch: Batch, span: _Span) -> Iterable[bytes]:
    offsets_at, block_at, length = span
    if not length:
        return repeat(b"", batch.count)
    offsets_end = offsets_at + 4 * (batch.count + 1)
    offsets = memoryview(batch.columns)[offsets_at:offsets_end].cast("i").tolist()
    block = batch.columns[block_at : block_at + length]
    return [block[start:end] for start, end in pairwise(offsets)]


def _source_of_cells(cells: list[bytes]) -> Source:
    if not any(cells):
        return ABSENT
    offsets = list(accumulate(map(len, cells), initial=0))
    check_size(offsets[-1])  # before they become int32
    return array("i", offsets).tobytes(), offsets[-1], cells


def assemble(sources: Sequence[Source]) -> bytes:
    parts: list[bytes | memoryview] = [b""]
    flags = 0
    size = _PREFIX.size
    for place, (offsets, length, cells) in enumerate(sources):
        if not length:
            continue
        flags |= 1 << place
        padding = (bytes(-len(offsets) % 8), bytes(-length % 8))
        parts += (offsets, padding[0], *cells, padding[1])
        size += _padded(len(offsets)) + _padded(length)
    check_size(size)  # before the one copy
    parts[0] = _PREFIX.pack(*(length for _, length, _ in sources), flags)
    return b"".join(parts)
