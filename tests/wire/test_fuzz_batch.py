"""No bytes crash the batch decoder, make it allocate more than came, or are misread."""

import struct
import tracemalloc
from typing import Any

import pyarrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from samcast.wire.arrow import arrow_of, columns_from_arrow
from samcast.wire.batch import (
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
from samcast.wire.frame import decode_frame, encode_frame

STAMPS_AT = range(48, 76)

quick = settings(max_examples=150, deadline=None)
u32 = st.integers(0, 2**32 - 1)
u63 = st.integers(0, 2**63 - 1)
cells = st.one_of(st.just(b""), st.binary(max_size=20))
messages_lists = st.lists(st.builds(Message, cells, cells, cells), min_size=1, max_size=12)
stamps = st.fixed_dictionaries(
    {"confirmed_below": u63, "seen": u63, "sent_ms": u63, "configuration": u32}
)
identities = st.fixed_dictionaries(
    {
        "group": u32,
        "sender": st.binary(min_size=16, max_size=16),
        "incarnation": u32,
        "counter_first": st.integers(1, 2**63 - 12),
        "birth": u63,
        "stage": st.one_of(st.just(0), u32),
    }
)


def freeze(messages: list[Message], fields: dict[str, Any], marks: dict[str, Any]) -> Batch:
    columns = columns_from_messages(messages)
    return make_batch(**fields, **marks, count=len(messages), columns=columns)


batches = st.builds(freeze, messages_lists, identities, stamps)
small_batches = st.builds(
    freeze,
    st.lists(st.builds(Message, cells, cells), min_size=1, max_size=4),
    identities,
    stamps,
)


@st.composite
def near_misses(draw: st.DrawFn) -> bytes:
    """A good header with columns that may be anything, or nearly right."""
    count = draw(st.integers(1, 6))
    header = struct.pack("<II16sQQIIQQQII", 1, 1, bytes(16), 1, 0, count, 0, 0, 0, 0, 0, 0)
    lengths = draw(st.lists(st.integers(0, 9), min_size=3, max_size=3))
    flags = sum(1 << place for place, length in enumerate(lengths) if length)
    flags = draw(st.one_of(st.just(flags), st.integers(0, 8)))
    columns = struct.pack("<IIII", *lengths, flags)
    for length in filter(None, lengths):
        steps = st.one_of(st.integers(0, length), st.integers(-1, 10))
        middle = draw(st.lists(steps, min_size=count - 1, max_size=count - 1))
        if draw(st.booleans()):
            middle.sort()
        columns += struct.pack(f"<{count + 1}i", 0, *middle, length)
        columns += bytes(-len(columns) % 8)
        columns += draw(st.binary(min_size=length, max_size=length))
        columns += bytes(-len(columns) % 8)
    return header + columns + draw(st.sampled_from([b"", b"", b"", bytes(8), b"\1"]))


@quick
@given(batches)
def test_any_batch_comes_back(batch: Batch) -> None:
    again = decode_batch(encode_batch(batch))
    assert again == batch
    assert columns_from_messages(messages_of(again)) == batch.columns


@quick
@given(messages_lists, identities, stamps)
def test_any_messages_come_back(
    messages: list[Message], fields: dict[str, Any], marks: dict[str, Any]
) -> None:
    assert messages_of(decode_batch(encode_batch(freeze(messages, fields, marks)))) == messages


@quick
@given(batches, stamps)
def test_any_restamped_batch_is_the_same_but_for_its_stamps(
    batch: Batch, marks: dict[str, Any]
) -> None:
    again = restamp(batch, **marks)
    payload, before = encode_batch(again), encode_batch(batch)
    assert payload[: STAMPS_AT.start] == before[: STAMPS_AT.start]
    assert payload[STAMPS_AT.stop :] == before[STAMPS_AT.stop :]
    assert decode_batch(payload) == again
    assert again.digest == batch.digest


@quick
@given(st.one_of(st.binary(max_size=300), near_misses()))
@example(b"")
def test_arbitrary_bytes_are_refused_or_are_the_one_encoding_of_a_batch(payload: bytes) -> None:
    try:
        batch = decode_batch(payload)
    except WireError:
        return
    assert encode_batch(batch) == payload
    messages = messages_of(batch)
    assert len(messages) == batch.count
    assert columns_from_messages(messages) == batch.columns


@settings(max_examples=25, deadline=None)
@given(small_batches, st.integers(1, 255))
def test_every_changed_byte_is_refused_or_seen_in_digest_or_stamps(
    batch: Batch, change: int
) -> None:
    payload = encode_batch(batch)
    for at in range(len(payload)):
        for mask in (change, 1, 0x80):
            mutant = bytearray(payload)
            mutant[at] ^= mask
            data = bytes(mutant)
            try:
                other = decode_batch(data)
            except WireError:
                continue
            assert encode_batch(other) == data
            if at in STAMPS_AT:
                assert other.digest == batch.digest
                assert other.columns == batch.columns
            else:
                assert other.digest != batch.digest


@settings(max_examples=15, deadline=None)
@given(small_batches, st.integers(1, 255))
def test_every_changed_byte_of_a_framed_batch_is_refused(batch: Batch, change: int) -> None:
    frame = encode_frame(2, encode_batch(batch))
    for at in range(len(frame)):
        mutant = bytearray(frame)
        mutant[at] ^= change
        with pytest.raises(WireError, match="frame-" if at < 16 else "frame-crc"):
            decode_frame(bytes(mutant))


@settings(max_examples=25, deadline=None)
@given(small_batches)
def test_every_truncation_of_a_batch_is_refused(batch: Batch) -> None:
    payload = encode_batch(batch)
    for end in range(len(payload)):
        with pytest.raises(WireError, match="batch-truncated"):
            decode_batch(payload[:end])


@settings(max_examples=60, deadline=None)
@given(st.lists(u32, min_size=3, max_size=3), st.integers(0, 7), st.integers(1, 1_000_000))
def test_no_claim_makes_the_decoder_allocate_it(lengths: list[int], flags: int, count: int) -> None:
    header = struct.pack("<II16sQQIIQQQII", 1, 1, bytes(16), 1, 0, count, 0, 0, 0, 0, 0, 0)
    payload = header + struct.pack("<IIII", *lengths, flags) + bytes(64)
    tracemalloc.start()
    try:
        decode_batch(payload)
    except WireError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 64 * 1024


@settings(max_examples=60, deadline=None)
@given(batches, st.integers(1, 2**62))
def test_any_batch_is_the_same_in_arrow(batch: Batch, number_first: int) -> None:
    record_batch = arrow_of(batch, number_first)
    record_batch.validate(full=True)
    rows = record_batch.to_pylist()
    assert [Message(row["body"], row["key"], row["headers"]) for row in rows] == messages_of(batch)
    assert [row["number"] - number_first for row in rows] == list(range(batch.count))
    step = 1 if batch.stage == 0 else 0
    assert [row["counter"] - batch.counter_first for row in rows] == [
        step * place for place in range(batch.count)
    ]
    assert columns_from_arrow(record_batch) == batch.columns


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.text(max_size=5), st.none() | st.text(max_size=5)), min_size=1, max_size=12
    ),
    st.data(),
)
def test_any_slice_of_any_kind_of_arrow_column_is_taken_as_it_reads(
    rows: list[tuple[str, str | None]], data: st.DataObject
) -> None:
    kind = data.draw(
        st.sampled_from(
            [pyarrow.binary(), pyarrow.large_binary(), pyarrow.string(), pyarrow.large_string()]
        )
    )
    record_batch = pyarrow.record_batch(
        {
            "body": pyarrow.array([body for body, _ in rows], pyarrow.string()).cast(kind),
            "key": pyarrow.array([key for _, key in rows], pyarrow.string()).cast(kind),
        }
    )
    start = data.draw(st.integers(0, len(rows) - 1))
    count = data.draw(st.integers(1, len(rows) - start))
    messages = [
        Message(body.encode(), (key or "").encode()) for body, key in rows[start : start + count]
    ]
    columns = columns_from_arrow(record_batch.slice(start, count))
    assert columns == columns_from_messages(messages)
