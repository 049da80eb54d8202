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
from functools import cache
from itertools import accumulate, pairwise, repeat
from typing import TYPE_CHECKING, Any

import msgspec
from xxhash import xxh3_128

from samcast.limits import BATCH_COLUMNS_BYTES_MAX, BATCH_MESSAGES_MAX
from samcast.wire.errors import WireError

if TYPE_CHECKING:
    import pyarrow

if sys.byteorder != "little":
    raise ImportError("samcast needs a little-endian machine: offsets are used as they lie")

BATCH_HEADER_BYTES = 80
SENDER_BYTES = 16
COUNTER_END_MAX = 2**63  # the last counter, and the last number, is an int64

_IDENTITY = struct.Struct("<II16sQQII")
_STAMPS = struct.Struct("<QQQII")
_HEADER = struct.Struct("<II16sQQIIQQQII")  # both
_PREFIX = struct.Struct("<IIII")
_COLUMN_NAMES = ("body", "key", "headers")
_FLAGS_KNOWN = 0b111
_U32_END = 2**32
_U63_END = 2**63
_OFFSETS_PER_CHECK = 4096  # few enough to stay in cache, whatever count a peer claims

# What a column is made of: its offsets, the length of its block, the cells of the block in order.
_Source = tuple[bytes | memoryview, int, Sequence[bytes | memoryview]]
_ABSENT: _Source = (b"", 0, ())
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
    _check_size(len(columns))
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
    return header + batch.columns


def decode_batch(payload: bytes) -> Batch:
    """Checks a payload in full, without a look at single messages, and computes its digest."""
    if len(payload) < BATCH_HEADER_BYTES:
        raise _faulty("batch-truncated", f"{len(payload)} bytes are less than a header of 80")
    _check_size(len(payload) - BATCH_HEADER_BYTES)
    return _freeze(payload, payload[BATCH_HEADER_BYTES:])


def columns_from_messages(messages: Sequence[Message]) -> bytes:
    """Columns of these messages, for `make_batch` with their count."""
    _check_count(len(messages))
    return _assemble(
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
    _check_count(len(bodies))
    sources = [_source_of_cells(cells) if cells else _ABSENT for cells in (bodies, keys, headers)]
    return _assemble(sources)


def columns_from_arrow(record_batch: "pyarrow.RecordBatch") -> bytes:
    """Columns of a `pyarrow.RecordBatch` with `body`, and `key` and `headers` if it has them.

    They may be binary, large_binary, string or large_string, and slices. A null key or headers is
    an empty one; a null body is refused. Other columns are left out.
    """
    _check_count(record_batch.num_rows)
    return _assemble([_source_of_arrow(record_batch, name) for name in _COLUMN_NAMES])


def messages_of(batch: Batch) -> list[Message]:
    """The messages one by one, for a consumer that wants them so."""
    bodies, keys, headers = _spans(batch.columns, batch.count)[0]
    if not keys[2] and not headers[2]:
        return list(map(Message, _cells(batch, bodies)))
    return list(map(Message, _cells(batch, bodies), _cells(batch, keys), _cells(batch, headers)))


def arrow_of(batch: Batch, number_first: int) -> "pyarrow.RecordBatch":
    """A `pyarrow.RecordBatch` of the messages, the first of which has this number.

    Key, headers and body are views of `batch.columns`, which they keep alive. The sender is a plain
    fixed-size column: a dictionary would be smaller, but batches of several senders would then
    need unified dictionaries before they could be written to one file.
    """
    count = batch.count
    assert 1 <= number_first <= COUNTER_END_MAX - count, f"no number of {count}: {number_first}"
    arrow = _pyarrow()
    if batch.stage == 0:
        counters = _consecutive(arrow, batch.counter_first, count)
    else:
        counters = arrow.py_buffer(batch.counter_first.to_bytes(8, "little") * count)
    fixed = (
        _consecutive(arrow, number_first, count),
        arrow.py_buffer(batch.sender * count),
        arrow.py_buffer(batch.incarnation.to_bytes(4, "little") * count),
        counters,
        arrow.py_buffer(batch.sent_ms.to_bytes(8, "little") * count),
    )
    bodies, keys, headers = _spans(batch.columns, count)[0]
    schema = _arrow_schema()
    columns = arrow.py_buffer(batch.columns)
    size = 4 * (count + 1)
    arrays = [
        arrow.Array.from_buffers(kind, count, [None, buffer])
        for kind, buffer in zip(schema.types, fixed, strict=False)
    ]
    for offsets_at, block_at, length in (keys, headers, bodies):
        offsets = columns.slice(offsets_at, size) if length else arrow.py_buffer(bytes(size))
        buffers = [None, offsets, columns.slice(block_at, length)]
        arrays.append(arrow.Array.from_buffers(arrow.binary(), count, buffers))
    return arrow.RecordBatch.from_arrays(arrays, schema=schema)


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
    _check_columns(columns, count)
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


def _check_count(count: int) -> None:
    if not 1 <= count <= BATCH_MESSAGES_MAX:
        raise WireError(
            "batch-count",
            f"{count} messages, and a batch has 1 to {BATCH_MESSAGES_MAX}; cut it where it is made",
        )


def _check_span(counter_first: int, count: int) -> None:
    _check_count(count)
    if counter_first < 1 or counter_first + count > COUNTER_END_MAX:
        raise _faulty(
            "batch-counter",
            f"{count} counters from {counter_first} on are not within 1 to {COUNTER_END_MAX - 1}",
        )


def _check_size(length: int) -> None:
    if length > BATCH_COLUMNS_BYTES_MAX:
        raise WireError(
            "batch-bytes",
            f"{length} bytes of columns, and a batch has at most {BATCH_COLUMNS_BYTES_MAX};"
            " cut it where it is made",
        )


def _check_columns(columns: bytes, count: int) -> None:
    if len(columns) < _PREFIX.size:
        raise _faulty("batch-truncated", f"{len(columns)} bytes of columns, and a prefix has 16")
    _check_flags(columns)
    spans, end = _spans(columns, count)
    if len(columns) != end:
        raise _faulty(
            "batch-truncated" if len(columns) < end else "batch-trailing",
            f"{count} messages have {end} bytes of columns by the prefix, and {len(columns)} came",
        )
    offsets_bytes = 4 * (count + 1)
    for name, (offsets_at, block_at, length) in zip(_COLUMN_NAMES, spans, strict=True):
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


def _spans(columns: bytes, count: int) -> tuple[list[_Span], int]:
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


def _source_of_cells(cells: list[bytes]) -> _Source:
    if not any(cells):
        return _ABSENT
    offsets = list(accumulate(map(len, cells), initial=0))
    _check_size(offsets[-1])  # before they become int32
    return array("i", offsets).tobytes(), offsets[-1], cells


def _assemble(sources: Sequence[_Source]) -> bytes:
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
    _check_size(size)  # before the one copy
    parts[0] = _PREFIX.pack(*(length for _, length, _ in sources), flags)
    return b"".join(parts)


def _source_of_arrow(record_batch: "pyarrow.RecordBatch", name: str) -> _Source:
    places = record_batch.schema.get_all_field_indices(name)
    if not places and name != "body":
        return _ABSENT
    if len(places) != 1:
        raise WireError(
            "batch-arrow-column",
            f"{len(places)} columns are called {name!r} among {record_batch.schema.names};"
            " give exactly one",
        )
    arrow = _pyarrow()
    cells = record_batch.column(places[0])
    is_long = cells.type in (arrow.large_binary(), arrow.large_string())
    if not is_long and cells.type not in (arrow.binary(), arrow.string()):
        raise WireError(
            "batch-arrow-type",
            f"column {name!r} is {cells.type}; cast it to binary, large_binary, string or"
            " large_string",
        )
    if cells.null_count:
        if name == "body":
            raise WireError(
                "batch-arrow-null",
                f"{cells.null_count} of {len(cells)} bodies are null; fill or filter them",
            )
        cells = cells.fill_null(arrow.scalar(b"", arrow.binary()).cast(cells.type))
    _, offsets_buffer, block = cells.buffers()
    offsets = arrow.Array.from_buffers(
        arrow.int64() if is_long else arrow.int32(),
        len(cells) + 1,
        [None, offsets_buffer],
        offset=cells.offset,
    )
    first, end = offsets[0].as_py(), offsets[len(cells)].as_py()
    length = end - first
    if not length:
        return _ABSENT
    _check_size(length)
    if first != 0 or is_long:
        # Typed, since Arrow is slow to guess the type of a Python integer.
        base = arrow.scalar(first, offsets.type)
        offsets = arrow.compute.subtract(offsets, base).cast(arrow.int32())
    view = memoryview(offsets.buffers()[1])[4 * offsets.offset :][: 4 * len(offsets)]
    return view, length, (memoryview(block)[first:end],)


def _consecutive(arrow: Any, first: int, count: int) -> Any:
    """A buffer of int64 that count up; they are uint64 as well."""
    if first + count == COUNTER_END_MAX:
        return arrow.py_buffer(array("q", range(first, first + count)))  # no end for arange
    return arrow.arange(first, first + count).buffers()[1]


@cache
def _arrow_schema() -> Any:
    arrow = _pyarrow()
    return arrow.schema(
        [
            ("number", arrow.int64()),
            ("sender", arrow.binary(SENDER_BYTES)),
            ("incarnation", arrow.uint32()),
            ("counter", arrow.uint64()),
            ("sent_ms", arrow.int64()),
            ("key", arrow.binary()),
            ("headers", arrow.binary()),
            ("body", arrow.binary()),
        ]
    )


@cache
def _pyarrow() -> Any:
    """Imported when it is first needed: a node must start fast, and may do without it."""
    try:
        import pyarrow
        import pyarrow.compute
    except ModuleNotFoundError as error:
        raise ImportError("pyarrow is missing; install samcast[arrow]") from error
    return pyarrow
