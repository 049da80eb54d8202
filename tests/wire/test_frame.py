"""The frame: its bytes, its errors, its bounds, and the decoder of streams."""

import gc
import struct
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from samcast.limits import FRAME_BYTES_MAX
from samcast.wire.errors import WireError
from samcast.wire.frame import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FrameDecoder,
    decode_frame,
    encode_frame,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "frame-v1.bin"
FRAME = encode_frame(7, b"payload")


def crc32c_by_hand(data: bytes) -> int:
    check = 0xFFFFFFFF
    for byte in data:
        check ^= byte
        for _ in range(8):
            check = check >> 1 ^ (0x82F63B78 if check & 1 else 0)
    return check ^ 0xFFFFFFFF


def header(magic: bytes = FRAME_MAGIC, version: int = 1, flags: int = 0, length: int = 0) -> bytes:
    """A header with a good check, whatever else is wrong with it."""
    checked = struct.pack("<4sBBHI", magic, version, 7, flags, length)
    return checked + crc32c_by_hand(checked).to_bytes(4, "little")


def patched(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


BAD_HEADERS = [
    ("frame-magic", header(magic=b"SAMD")),
    ("frame-version", header(version=2)),
    ("frame-version", header(version=0)),
    ("frame-flags", header(flags=1)),
    ("frame-flags", header(flags=0x8000)),
    ("frame-length", header(length=FRAME_BYTES_MAX + 1)),
    ("frame-length", header(length=2**32 - 1)),
]
BAD_FRAMES = [
    *BAD_HEADERS,
    ("frame-truncated", b""),
    ("frame-truncated", FRAME[:15]),
    ("frame-truncated", FRAME[:-1]),
    ("frame-trailing", FRAME + b"\0"),
    ("frame-trailing", FRAME + FRAME),
    ("frame-crc", patched(FRAME, 5, 8)),
    ("frame-crc", patched(FRAME, 12, FRAME[12] ^ 1)),
    ("frame-crc", patched(FRAME, 20, FRAME[20] ^ 1)),
]


def test_a_frame_has_the_bytes_that_the_format_says() -> None:
    assert crc32c_by_hand(b"123456789") == 0xE3069283
    checked = b"SAMC" + b"\x01" + b"\x07" + b"\0\0" + b"\x07\0\0\0"
    check = crc32c_by_hand(checked + b"payload").to_bytes(4, "little")
    assert encode_frame(7, b"payload") == checked + check + b"payload"


def test_the_golden_frame_of_version_1_is_still_read_and_still_written() -> None:
    golden = GOLDEN.read_bytes()
    assert decode_frame(golden) == (7, b"golden payload")
    assert FrameDecoder().feed(golden) == [(7, b"golden payload")]
    assert encode_frame(7, b"golden payload") == golden


@pytest.mark.parametrize("kind", [0, 255])
@pytest.mark.parametrize("payload", [b"", b"x", bytes(70_000)], ids=len)
def test_a_frame_comes_back_with_its_kind_and_payload(kind: int, payload: bytes) -> None:
    assert decode_frame(encode_frame(kind, payload)) == (kind, payload)


@pytest.mark.parametrize(("code", "data"), BAD_FRAMES)
def test_a_bad_datagram_is_refused_with_its_code(code: str, data: bytes) -> None:
    with pytest.raises(WireError) as caught:
        decode_frame(data)
    assert caught.value.code == code
    assert str(caught.value) == f"{code}: {caught.value.detail}"
    assert ";" in caught.value.detail  # what is wrong; what to do


def test_the_bound_of_a_payload_can_be_reached_and_not_passed() -> None:
    frame = encode_frame(1, bytes(100))
    assert decode_frame(frame, bytes_max=100) == (1, bytes(100))
    assert FrameDecoder(bytes_max=100).feed(frame) == [(1, bytes(100))]
    with pytest.raises(WireError, match="frame-length"):
        decode_frame(frame, bytes_max=99)
    with pytest.raises(WireError, match="frame-length"):
        FrameDecoder(bytes_max=99).feed(frame)


def test_the_largest_payload_is_framed_and_a_larger_one_is_not() -> None:
    largest = bytes(FRAME_BYTES_MAX)
    assert decode_frame(encode_frame(1, largest)) == (1, largest)
    with pytest.raises(WireError, match="frame-length"):
        encode_frame(1, largest + b"\0")


@pytest.mark.parametrize("kind", [-1, 256])
def test_a_kind_that_is_no_byte_is_a_bug_of_ours(kind: int) -> None:
    with pytest.raises(AssertionError):
        encode_frame(kind, b"")


def test_a_stream_is_cut_into_its_frames() -> None:
    stream = encode_frame(1, b"one") + encode_frame(2, b"") + encode_frame(3, b"three")
    frames = [(1, b"one"), (2, b""), (3, b"three")]
    assert FrameDecoder().feed(stream) == frames
    decoder = FrameDecoder()
    assert [frame for byte in stream for frame in decoder.feed(bytes([byte]))] == frames
    assert decoder.buffered == 0
    assert decoder.failure is None


def test_an_empty_frame_comes_out_with_the_last_byte_of_its_header() -> None:
    decoder = FrameDecoder()
    frame = encode_frame(9, b"")
    assert decoder.feed(frame[:15]) == []
    assert decoder.feed(frame[15:]) == [(9, b"")]


def test_nothing_fed_is_nothing_gained() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(b"") == []
    assert decoder.feed(FRAME[:20]) == []
    assert decoder.feed(b"") == []
    assert decoder.feed(FRAME[20:]) == [(7, b"payload")]


@pytest.mark.parametrize(("code", "head"), BAD_HEADERS)
def test_a_stream_is_refused_as_soon_as_its_header_is_there(code: str, head: bytes) -> None:
    decoder = FrameDecoder()
    assert decoder.feed(head[:15]) == []
    with pytest.raises(WireError) as caught:
        decoder.feed(head[15:])
    assert caught.value.code == code
    assert decoder.buffered == 0


def test_a_stream_with_a_changed_payload_is_refused() -> None:
    decoder = FrameDecoder()
    with pytest.raises(WireError, match="frame-crc"):
        decoder.feed(patched(FRAME, 20, FRAME[20] ^ 1))


def test_after_an_error_a_decoder_raises_it_again_and_takes_nothing() -> None:
    decoder = FrameDecoder()
    with pytest.raises(WireError) as first:
        decoder.feed(header(version=2))
    for data in (FRAME, b"", FRAME):
        with pytest.raises(WireError) as again:
            decoder.feed(data)
        assert (again.value.code, again.value.detail) == (first.value.code, first.value.detail)
        assert decoder.buffered == 0


def test_frames_before_an_error_come_out_and_the_error_comes_next() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(FRAME + FRAME + header(magic=b"HTTP") + FRAME) == [(7, b"payload")] * 2
    assert decoder.failure is not None
    assert decoder.failure.code == "frame-magic"
    assert f"at byte {2 * len(FRAME)};" in decoder.failure.detail
    with pytest.raises(WireError, match="frame-magic"):
        decoder.feed(b"")


def test_payloads_are_copies_of_their_own() -> None:
    chunk = bytearray(FRAME + FRAME[:20])
    decoder = FrameDecoder()
    frames = decoder.feed(memoryview(chunk))
    chunk[:] = bytes(len(chunk))
    frames += decoder.feed(FRAME[20:])
    assert frames == [(7, b"payload")] * 2
    assert [type(payload) for _, payload in frames] == [bytes, bytes]


def test_a_memoryview_of_wider_items_is_read_as_bytes() -> None:
    frame = encode_frame(1, bytes(range(16)))
    assert FrameDecoder().feed(memoryview(frame).cast("I")) == [(1, bytes(range(16)))]


@pytest.mark.parametrize("tail", [FRAME[:20], header(magic=b"HTTP")], ids=["part", "error"])
def test_a_decoder_holds_no_view_of_what_it_was_fed(tail: bytes) -> None:
    decoder = FrameDecoder()
    chunk = bytearray(tail)
    with suppress(WireError):
        decoder.feed(memoryview(chunk))
    gc.collect()
    chunk.clear()  # a BufferError if anybody looks at it still


def test_a_decoder_holds_at_most_a_header_and_one_payload() -> None:
    decoder = FrameDecoder(bytes_max=1000)
    frame = encode_frame(1, bytes(1000))
    stream = frame * 5
    for start in range(0, len(stream), 7):
        decoder.feed(stream[start : start + 7])
        assert decoder.buffered == min(start + 7, len(stream)) % len(frame)
        assert decoder.buffered < FRAME_HEADER_BYTES + 1000


def test_a_claimed_length_allocates_nothing() -> None:
    head = struct.pack("<4sBBHII", FRAME_MAGIC, 1, 1, 0, FRAME_BYTES_MAX, 0)
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        assert decoder.feed(head + b"only a little of it") == []
        with pytest.raises(WireError, match="frame-truncated"):
            decode_frame(head + b"only a little of it")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def test_a_payload_in_pieces_is_copied_once() -> None:
    length = 8 * 1024 * 1024
    frame = encode_frame(1, bytes(length))
    pieces = [memoryview(frame)[at : at + 65_536] for at in range(0, len(frame), 65_536)]
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        frames = [frame for piece in pieces for frame in decoder.feed(piece)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert frames == [(1, bytes(length))]
    assert peak < 1.2 * length  # the payload and the room that it grew in; a second copy makes 2


def test_a_large_frame_in_tiny_pieces_costs_linear_time() -> None:
    frame = encode_frame(1, bytes(2 * 1024 * 1024))
    decoder = FrameDecoder()
    start_s = time.process_time()
    for at in range(0, len(frame), 32):
        decoder.feed(frame[at : at + 32])
    assert decoder.buffered == 0
    assert time.process_time() - start_s < 5  # 0.1 s; copied anew with each piece it is 60 GB
