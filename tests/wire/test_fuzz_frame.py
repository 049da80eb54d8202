"""No bytes crash the frame decoders, make them hold more than their bound, or are misread."""

import struct
import tracemalloc
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from samcast.limits import FRAME_BYTES_MAX
from samcast.wire.errors import WireError
from samcast.wire.frame import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FrameDecoder,
    decode_frame,
    encode_frame,
)

Frames = list[tuple[int, bytes]]

quick = settings(max_examples=150, deadline=None)
kinds = st.integers(0, 255)
payloads = st.binary(max_size=200)
frames_of_a_stream = st.lists(st.tuples(kinds, payloads), max_size=8)
cuts = st.lists(st.integers(0, 2000), max_size=30)
headers = st.builds(
    lambda magic, version, kind, flags, length, check: struct.pack(
        "<4sBBHII", magic, version, kind, flags, length, check
    ),
    st.sampled_from([FRAME_MAGIC, FRAME_MAGIC, FRAME_MAGIC, b"HTTP"]),
    st.sampled_from([1, 1, 1, 0, 2, 255]),
    kinds,
    st.sampled_from([0, 0, 0, 1, 0xFFFF]),
    st.one_of(st.integers(0, 300), st.integers(0, FRAME_BYTES_MAX), st.integers(0, 2**32 - 1)),
    st.integers(0, 2**32 - 1),
)
noise = st.one_of(
    st.binary(max_size=400),
    st.builds(lambda head, rest: head + rest, headers, st.binary(max_size=300)),
)


def pieces(stream: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


def drain(decoder: FrameDecoder, chunks: list[bytes]) -> tuple[Frames, str | None]:
    """All frames, and the code of the error that ended them."""
    frames: Frames = []
    for chunk in [*chunks, b""]:
        try:
            frames += decoder.feed(chunk)
        except WireError as error:
            return frames, error.code
    return frames, None


@quick
@given(kinds, payloads)
def test_any_frame_comes_back(kind: int, payload: bytes) -> None:
    assert decode_frame(encode_frame(kind, payload)) == (kind, payload)


@quick
@given(frames_of_a_stream, cuts)
def test_any_cutting_of_a_stream_gives_the_same_frames(frames: Frames, places: list[int]) -> None:
    stream = b"".join(encode_frame(kind, payload) for kind, payload in frames)
    assert drain(FrameDecoder(), pieces(stream, places)) == (frames, None)


@quick
@given(frames_of_a_stream, noise, cuts)
def test_any_cutting_of_a_broken_stream_gives_the_same_frames_and_error(
    frames: Frames, tail: bytes, places: list[int]
) -> None:
    stream = b"".join(encode_frame(kind, payload) for kind, payload in frames) + tail
    whole = drain(FrameDecoder(1000), [stream])
    assert whole[0][: len(frames)] == frames
    assert drain(FrameDecoder(1000), pieces(stream, places)) == whole
    assert drain(FrameDecoder(1000), [bytes([byte]) for byte in stream]) == whole


@quick
@given(noise)
@example(b"")
@example(encode_frame(1, b"x"))
def test_arbitrary_bytes_are_refused_or_are_a_frame(data: bytes) -> None:
    with suppress(WireError):
        kind, payload = decode_frame(data)
        assert encode_frame(kind, payload) == data


@settings(max_examples=25, deadline=None)
@given(kinds, st.binary(max_size=48), st.integers(1, 255))
@example(7, b"", 1)
def test_every_changed_byte_of_a_frame_is_noticed(kind: int, payload: bytes, change: int) -> None:
    frame = encode_frame(kind, payload)
    for at in range(len(frame)):
        for mask in (change, 1, 0x80):
            mutant = bytearray(frame)
            mutant[at] ^= mask
            with pytest.raises(WireError):
                decode_frame(bytes(mutant))
            assert drain(FrameDecoder(), [bytes(mutant)])[0] == []


@settings(max_examples=25, deadline=None)
@given(kinds, st.binary(max_size=48))
def test_every_truncation_of_a_frame_is_noticed(kind: int, payload: bytes) -> None:
    frame = encode_frame(kind, payload)
    for end in range(len(frame)):
        with pytest.raises(WireError, match="frame-truncated"):
            decode_frame(frame[:end])
        assert drain(FrameDecoder(), [frame[:end]]) == ([], None)


@quick
@given(st.lists(noise | st.builds(encode_frame, kinds, payloads), max_size=8), cuts)
def test_a_decoder_never_holds_more_than_a_header_and_one_payload(
    parts: list[bytes], places: list[int]
) -> None:
    bytes_max = 150
    decoder = FrameDecoder(bytes_max)
    for chunk in pieces(b"".join(parts), places):
        try:
            decoder.feed(chunk)
        except WireError:
            assert decoder.buffered == 0
            break
        assert decoder.buffered < FRAME_HEADER_BYTES + bytes_max


@settings(max_examples=50, deadline=None)
@given(headers, st.binary(max_size=300))
def test_no_header_makes_a_decoder_allocate_what_it_claims(head: bytes, rest: bytes) -> None:
    tracemalloc.start()
    try:
        drain(FrameDecoder(), [head, rest])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024
