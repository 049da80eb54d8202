"""The batch: its bytes, its digest, its errors, its bounds, and its way to and from Arrow."""

import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import xxhash

from samcast.limits import BATCH_COLUMNS_BYTES_MAX, BATCH_MESSAGES_MAX
from samcast.wire.arrow import arrow_of, columns_from_arrow
from samcast.wire.batch import (
    BATCH_HEADER_BYTES,
    COUNTER_END_MAX,
    Batch,
    Message,
    columns_from_messages,
    decode_batch,
    encode_batch,
    make_batch,
    messages_of,
    restamp,
)
from samcast.wire.errors import WireError

GOLDEN = Path(__file__).parents[1] / "golden" / "batch-v1.bin"
MESSAGES = [
    Message(b"first"),
    Message(b"", key=b"k"),
    Message(b"third body"),
    Message(b"4"),
]
FIELDS: dict[str, Any] = {
    "group": 3,
    "sender": bytes(range(16)),
    "incarnation": 2,
    "counter_first": 1001,
    "count": 4,
    "birth": 77,
    "confirmed_below": 900,
    "seen": 80,
    "sent_ms": 1_700_000_000_000,
    "configuration": 5,
    "stage": 0,
}
IDENTITY = ("group", "sender", "incarnation", "counter_first", "count", "birth", "stage")
STAMPS = ("confirmed_below", "seen", "sent_ms", "configuration")
EMPTY_COLUMNS = bytes(16)


def batch_of(messages: list[Message], **changes: Any) -> Batch:
    fields = FIELDS | {"count": len(messages), "columns": columns_from_messages(messages)}
    return make_batch(**(fields | changes))


BATCH = batch_of(MESSAGES)
PAYLOAD = encode_batch(BATCH)


def patched(at: int, layout: str, value: int, payload: bytes = PAYLOAD) -> bytes:
    data = bytearray(payload)
    struct.pack_into("<" + layout, data, at, value)
    return bytes(data)


def at_column(at: int) -> int:
    return BATCH_HEADER_BYTES + at


def code_of(payload: bytes) -> str:
    with pytest.raises(WireError) as caught:
        decode_batch(payload)
    assert str(caught.value) == f"{caught.value.code}: {caught.value.detail}"
    assert ";" in caught.value.detail  # what is wrong; what to do
    return caught.value.code


def test_a_batch_has_the_bytes_that_the_format_says() -> None:
    identity = struct.pack("<II16sQQII", 3, 2, bytes(range(16)), 1001, 77, 4, 0)
    stamps = struct.pack("<QQQII", 900, 80, 1_700_000_000_000, 5, 0)
    bodies = struct.pack("<5i4x", 0, 5, 5, 15, 16) + b"firstthird body4"
    keys = struct.pack("<5i4x", 0, 0, 1, 1, 1) + b"k" + bytes(7)
    columns = struct.pack("<IIII", 16, 1, 0, 0b011) + bodies + keys
    assert identity + stamps + columns == PAYLOAD
    assert BATCH.columns == columns


def test_the_golden_batch_of_version_1_is_still_read_and_still_written() -> None:
    golden = GOLDEN.read_bytes()
    batch = decode_batch(golden)
    assert batch == BATCH
    assert messages_of(batch) == MESSAGES
    assert batch.digest.hex() == "d097dd117b1649ad751e15099500d7fa"
    assert encode_batch(batch) == golden


def test_every_part_of_the_columns_lies_on_8_bytes() -> None:
    for count in range(1, 10):
        columns = columns_from_messages([Message(b"abc", b"d", b"e")] * count)
        offsets = (4 * (count + 1) + 7) // 8 * 8
        blocks = sum((size + 7) // 8 * 8 for size in (3 * count, count, count))
        assert len(columns) == 16 + 3 * offsets + blocks
    assert BATCH_HEADER_BYTES % 8 == 0


@pytest.mark.parametrize(
    ("messages", "flags"),
    [
        ([Message(b"")], 0b000),
        ([Message(b"b")], 0b001),
        ([Message(b"", b"k")], 0b010),
        ([Message(b"", b"", b"h"), Message(b"")], 0b100),
        ([Message(b"b", b"k", b"h")], 0b111),
    ],
)
def test_a_column_is_present_iff_a_cell_of_it_is_not_empty(
    messages: list[Message], flags: int
) -> None:
    batch = batch_of(messages)
    assert struct.unpack_from("<I", batch.columns, 12)[0] == flags
    assert messages_of(decode_batch(encode_batch(batch))) == messages
    assert len(batch.columns) == 16 + 16 * flags.bit_count() + (8 if len(messages) == 2 else 0)


def test_a_batch_is_cut_into_its_messages_again() -> None:
    messages = [
        Message(b"b" * place, b"k" * (place % 3), b"h" * (place % 5)) for place in range(50)
    ]
    assert messages_of(batch_of(messages)) == messages


def test_the_digest_is_over_identity_and_columns_and_does_not_travel() -> None:
    assert BATCH.digest == xxhash.xxh3_128_digest(PAYLOAD[:48] + PAYLOAD[BATCH_HEADER_BYTES:])
    assert BATCH.digest not in PAYLOAD


@pytest.mark.parametrize("field", IDENTITY)
def test_another_identity_is_another_digest(field: str) -> None:
    messages = [Message(b"")] * 4  # no offsets, so that another count is no error
    other = b"x" * 16 if field == "sender" else FIELDS[field] + 1
    assert batch_of(messages, **{field: other}).digest != batch_of(messages).digest


def test_another_column_is_another_digest() -> None:
    assert batch_of([Message(b"a")]).digest != batch_of([Message(b"b")]).digest
    assert batch_of([Message(b"a")]).digest != batch_of([Message(b"", b"a")]).digest


@pytest.mark.parametrize("field", STAMPS)
def test_another_stamp_is_the_same_digest(field: str) -> None:
    assert batch_of(MESSAGES, **{field: FIELDS[field] + 1}).digest == BATCH.digest


def test_a_restamped_batch_is_the_same_batch_with_other_stamps() -> None:
    stamps = {"confirmed_below": 2**63 - 1, "seen": 0, "sent_ms": 1, "configuration": 2**32 - 1}
    again = restamp(BATCH, **stamps)
    assert again == batch_of(MESSAGES, **stamps)
    assert again.digest is BATCH.digest
    assert again.columns is BATCH.columns
    assert decode_batch(encode_batch(again)) == again


@pytest.mark.parametrize("field", STAMPS)
@pytest.mark.parametrize("stamp", [-1, 2**63])
def test_a_stamp_out_of_range_is_a_bug_of_ours(field: str, stamp: int) -> None:
    stamps = {name: FIELDS[name] for name in STAMPS} | {field: stamp}
    with pytest.raises(AssertionError):
        restamp(BATCH, **stamps)


@pytest.mark.parametrize(
    ("code", "payload"),
    [
        ("batch-truncated", b""),
        ("batch-truncated", PAYLOAD[: BATCH_HEADER_BYTES - 1]),
        ("batch-truncated", PAYLOAD[:BATCH_HEADER_BYTES]),
        ("batch-truncated", PAYLOAD[: BATCH_HEADER_BYTES + 15]),
        ("batch-truncated", PAYLOAD[:-1]),
        ("batch-truncated", patched(at_column(0), "I", 2**32 - 1)),
        ("batch-trailing", PAYLOAD + b"\0"),
        ("batch-trailing", PAYLOAD + bytes(8)),
        ("batch-reserved", patched(76, "I", 1)),
        ("batch-range", patched(32, "Q", 2**63)),
        ("batch-range", patched(48, "Q", 2**63)),
        ("batch-range", patched(56, "Q", 2**63)),
        ("batch-range", patched(64, "Q", 2**64 - 1)),
        ("batch-count", patched(40, "I", 0)),
        ("batch-count", patched(40, "I", BATCH_MESSAGES_MAX + 1)),
        ("batch-count", patched(40, "I", 2**32 - 1)),
        ("batch-counter", patched(24, "Q", 0)),
        ("batch-counter", patched(24, "Q", COUNTER_END_MAX - 4 + 1)),
        ("batch-counter", patched(24, "Q", 2**64 - 1)),
        ("batch-bytes", PAYLOAD[:BATCH_HEADER_BYTES] + bytes(BATCH_COLUMNS_BYTES_MAX + 1)),
        ("batch-flags", patched(at_column(12), "I", 0b1011)),
        ("batch-flags", patched(at_column(12), "I", 2**31 + 3)),
        ("batch-empty-column", patched(at_column(12), "I", 0b111)),
        ("batch-absent-column", patched(at_column(12), "I", 0b001)),
        ("batch-absent-column", patched(at_column(8), "I", 1)),
        ("batch-offsets", patched(at_column(16), "i", 1)),
        ("batch-offsets", patched(at_column(16), "i", -1)),
        ("batch-offsets", patched(at_column(20), "i", 6)),
        ("batch-offsets", patched(at_column(24), "i", -1)),
        ("batch-offsets", patched(at_column(28), "i", 2**31 - 1)),
        ("batch-offsets", patched(at_column(32), "i", 15)),
        ("batch-offsets", patched(at_column(32), "i", 17)),
        ("batch-padding", patched(at_column(36), "B", 1)),
        ("batch-padding", patched(at_column(39), "B", 1)),
        ("batch-padding", patched(len(PAYLOAD) - 7, "B", 1)),
        ("batch-padding", patched(len(PAYLOAD) - 1, "B", 0x80)),
    ],
)
def test_a_bad_payload_is_refused_with_its_code(code: str, payload: bytes) -> None:
    assert code_of(payload) == code


@pytest.mark.parametrize("place", [1, 4094, 4095, 4096, 4097, 4098, 8191, 8192, 8193, 8999])
def test_offsets_that_fall_are_seen_wherever_they_are(place: int) -> None:
    payload = encode_batch(batch_of([Message(b"ab")] * 9000))
    assert decode_batch(payload).count == 9000
    assert code_of(patched(at_column(16 + 4 * place), "i", 2 * place + 3, payload)) == (
        "batch-offsets"
    )


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("batch-sender", {"sender": bytes(15)}),
        ("batch-sender", {"sender": bytes(17)}),
        ("batch-range", {"group": 2**32}),
        ("batch-range", {"group": -1}),
        ("batch-range", {"incarnation": 2**32}),
        ("batch-range", {"stage": 2**32}),
        ("batch-range", {"configuration": 2**32}),
        ("batch-range", {"birth": 2**64}),
        ("batch-range", {"birth": 2**63}),
        ("batch-range", {"sent_ms": 2**63}),
        ("batch-count", {"count": 0}),
        ("batch-counter", {"counter_first": 0}),
        ("batch-counter", {"counter_first": COUNTER_END_MAX - 3}),
        ("batch-truncated", {"count": 6}),
        ("batch-trailing", {"count": 1}),
        ("batch-truncated", {"columns": b""}),
        ("batch-bytes", {"columns": bytes(BATCH_COLUMNS_BYTES_MAX + 1)}),
    ],
)
def test_a_batch_that_a_receiver_would_refuse_is_not_made(
    code: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(WireError) as caught:
        batch_of(MESSAGES, **changes)
    assert caught.value.code == code


def test_the_widest_fields_and_the_last_counters_are_carried() -> None:
    batch = batch_of(
        MESSAGES,
        group=2**32 - 1,
        incarnation=2**32 - 1,
        stage=2**32 - 1,
        configuration=2**32 - 1,
        counter_first=COUNTER_END_MAX - 4,
        birth=2**63 - 1,
        confirmed_below=2**63 - 1,
        seen=2**63 - 1,
        sent_ms=2**63 - 1,
    )
    assert decode_batch(encode_batch(batch)) == batch


def test_the_bound_of_messages_can_be_reached_and_not_passed() -> None:
    messages = [Message(b"x")] * BATCH_MESSAGES_MAX
    batch = batch_of(messages, counter_first=1)
    assert decode_batch(encode_batch(batch)) == batch
    with pytest.raises(WireError, match="batch-count"):
        columns_from_messages([*messages, Message(b"x")])
    with pytest.raises(WireError, match="batch-count"):
        columns_from_messages([])


def test_the_bound_of_columns_can_be_reached_and_not_passed() -> None:
    largest = bytes(BATCH_COLUMNS_BYTES_MAX - 16 - 8)
    batch = batch_of([Message(largest)])
    assert len(batch.columns) == BATCH_COLUMNS_BYTES_MAX
    assert decode_batch(encode_batch(batch)) == batch
    with pytest.raises(WireError, match="batch-bytes"):
        columns_from_messages([Message(largest + b"\1")])
    with pytest.raises(WireError, match="batch-bytes"):
        columns_from_messages([Message(largest), Message(b"", bytes(99) + b"\1")])
    with pytest.raises(WireError, match="batch-bytes"):
        columns_from_arrow(pyarrow.record_batch({"body": [largest + b"\1"]}))


def test_offsets_beyond_int32_are_refused_before_they_are_made() -> None:
    body = bytes(2**26)
    with pytest.raises(WireError, match="batch-bytes"):
        columns_from_messages([Message(body)] * 40)


def test_claimed_counts_and_lengths_allocate_nothing() -> None:
    header = patched(40, "I", BATCH_MESSAGES_MAX)[:BATCH_HEADER_BYTES]
    payloads = [
        header + struct.pack("<IIII", 2**32 - 1, 0, 0, 1),
        header + struct.pack("<IIII", 1, 1, 1, 7) + bytes(100),
        header + EMPTY_COLUMNS,
    ]
    tracemalloc.start()
    try:
        codes = [code_of(payload) for payload in payloads[:2]]
        decode_batch(payloads[2])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert codes == ["batch-truncated"] * 2
    assert peak < 64 * 1024


def test_a_batch_becomes_a_record_batch() -> None:
    messages = [Message(b"a", b"k", b"h"), Message(b""), Message(b"ccc", b"", b"hh")]
    record_batch = arrow_of(batch_of(messages), number_first=501)
    record_batch.validate(full=True)
    assert record_batch.schema.names == [
        *("number", "sender", "incarnation", "counter", "sent_ms", "key", "headers", "body")
    ]
    assert record_batch.to_pydict() == {
        "number": [501, 502, 503],
        "sender": [bytes(range(16))] * 3,
        "incarnation": [2] * 3,
        "counter": [1001, 1002, 1003],
        "sent_ms": [1_700_000_000_000] * 3,
        "key": [b"k", b"", b""],
        "headers": [b"h", b"", b"hh"],
        "body": [b"a", b"", b"ccc"],
    }
    kinds = {name: str(record_batch.schema.field(name).type) for name in record_batch.schema.names}
    assert kinds == {
        "number": "int64",
        "sender": "fixed_size_binary[16]",
        "incarnation": "uint32",
        "counter": "uint64",
        "sent_ms": "int64",
        "key": "binary",
        "headers": "binary",
        "body": "binary",
    }


def test_the_columns_in_arrow_are_views_of_the_batch() -> None:
    batch = batch_of([Message(b"a", b"k", b"h"), Message(b"b" * 100)])
    start = pyarrow.py_buffer(batch.columns).address
    record_batch = arrow_of(batch, 1)
    for name in ("body", "key", "headers"):
        _, offsets, block = record_batch.column(name).buffers()
        for buffer in (offsets, block):
            assert start <= buffer.address < start + len(batch.columns)
            assert buffer.address % 8 == 0


def test_a_batch_without_any_content_becomes_a_record_batch_of_empty_cells() -> None:
    record_batch = arrow_of(batch_of([Message(b"")] * 100), 1)
    record_batch.validate(full=True)
    for name in ("body", "key", "headers"):
        assert record_batch.column(name).to_pylist() == [b""] * 100


def test_all_messages_of_a_stage_have_the_counter_of_its_transaction() -> None:
    record_batch = arrow_of(batch_of(MESSAGES, stage=1), 9)
    assert record_batch.column("counter").to_pylist() == [1001] * 4
    assert record_batch.column("number").to_pylist() == [9, 10, 11, 12]


def test_the_last_counters_and_numbers_fit_arrow() -> None:
    batch = batch_of(MESSAGES, counter_first=COUNTER_END_MAX - 4)
    record_batch = arrow_of(batch, COUNTER_END_MAX - 4)
    last = [2**63 - 4, 2**63 - 3, 2**63 - 2, 2**63 - 1]
    assert record_batch.column("counter").to_pylist() == last
    assert record_batch.column("number").to_pylist() == last


@pytest.mark.parametrize("number_first", [0, -1, COUNTER_END_MAX - 3])
def test_a_number_that_cannot_be_is_a_bug_of_ours(number_first: int) -> None:
    with pytest.raises(AssertionError):
        arrow_of(BATCH, number_first)


KINDS = [pyarrow.binary(), pyarrow.large_binary(), pyarrow.string(), pyarrow.large_string()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_columns_are_made_from_arrow_as_from_messages(kind: pyarrow.DataType) -> None:
    texts = [b"one", b"", b"three", b"four", b"fifth"]
    keys = [b"k", None, b"kkk", None, b""]
    whole = pyarrow.record_batch(
        {
            "other": [1, 2, 3, 4, 5],
            "key": pyarrow.array(keys, pyarrow.binary()).cast(kind),
            "body": pyarrow.array(texts, pyarrow.binary()).cast(kind),
        }
    )
    for start in range(5):
        for count in range(1, 6 - start):
            messages = [
                Message(texts[place], keys[place] or b"") for place in range(start, start + count)
            ]
            assert columns_from_arrow(whole.slice(start, count)) == columns_from_messages(messages)


def test_what_lies_under_a_null_key_does_not_come_along() -> None:
    keys = pyarrow.Array.from_buffers(
        pyarrow.binary(),
        2,
        [
            pyarrow.py_buffer(b"\x02"),
            pyarrow.py_buffer(struct.pack("<3i", 0, 6, 7)),
            pyarrow.py_buffer(b"secretk"),
        ],
    )
    record_batch = pyarrow.record_batch({"body": [b"a", b"b"], "key": keys})
    assert columns_from_arrow(record_batch) == columns_from_messages(
        [Message(b"a"), Message(b"b", b"k")]
    )


def test_columns_without_a_block_are_absent() -> None:
    record_batch = pyarrow.record_batch(
        {
            "body": pyarrow.array([b"", b""], pyarrow.large_binary()),
            "headers": pyarrow.array([None, None], pyarrow.binary()),
        }
    )
    assert columns_from_arrow(record_batch) == EMPTY_COLUMNS


def test_a_column_of_arrow_beyond_int32_is_refused_before_it_is_read() -> None:
    offsets = pyarrow.py_buffer(struct.pack("<2q", 0, 2**31))
    block = pyarrow.py_buffer(bytes(2**31))  # never touched, so it takes no memory
    bodies = pyarrow.Array.from_buffers(pyarrow.large_binary(), 1, [None, offsets, block])
    with pytest.raises(WireError, match="batch-bytes"):
        columns_from_arrow(pyarrow.record_batch({"body": bodies}))


def test_arrow_comes_back_from_arrow() -> None:
    assert columns_from_arrow(arrow_of(BATCH, 1)) == BATCH.columns
    tail = columns_from_arrow(arrow_of(BATCH, 1).slice(2))
    assert tail == columns_from_messages(MESSAGES[2:])


@pytest.mark.parametrize(
    ("code", "names", "columns"),
    [
        ("batch-arrow-column", ["key"], [[b"k"]]),
        ("batch-arrow-column", ["body", "body"], [[b"a"], [b"b"]]),
        ("batch-arrow-column", ["body", "key", "key"], [[b"a"], [b"b"], [b"c"]]),
        ("batch-arrow-type", ["body"], [[1]]),
        ("batch-arrow-type", ["body", "headers"], [[b"a"], [[b"x"]]]),
        ("batch-arrow-null", ["body"], [[b"a", None]]),
        ("batch-count", ["body"], [pyarrow.array([], pyarrow.binary())]),
    ],
)
def test_a_bad_record_batch_is_refused_with_its_code(
    code: str, names: list[str], columns: list[Any]
) -> None:
    arrays = [pyarrow.array(column) for column in columns]
    with pytest.raises(WireError) as caught:
        columns_from_arrow(pyarrow.RecordBatch.from_arrays(arrays, names))
    assert caught.value.code == code


def run_python(*lines: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_neither_pyarrow_nor_numpy_is_imported_before_it_is_needed() -> None:
    out = run_python(
        "import sys",
        "from samcast.wire.batch import decode_batch, messages_of",
        f"messages_of(decode_batch({PAYLOAD!r}))",
        "print([name for name in ('numpy', 'pyarrow') if name in sys.modules])",
    )
    assert out.strip() == "[]"


def test_without_pyarrow_the_error_says_what_to_install() -> None:
    out = run_python(
        "import sys",
        "sys.modules['pyarrow'] = None",
        "from samcast.wire.arrow import arrow_of",
        "from samcast.wire.batch import decode_batch",
        f"batch = decode_batch({PAYLOAD!r})",
        "try: arrow_of(batch, 1)",
        "except ImportError as error: print(error)",
    )
    assert "install samcast[arrow]" in out
