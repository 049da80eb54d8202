"""The datagram: its bytes, its errors, and what it refuses before anything is kept."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from samcast.limits import FRAME_BYTES_MAX
from samcast.wire.datagram import (
    DATAGRAM_HEADER_BYTES,
    PIECES_MAX,
    RANGES_MAX,
    Envelope,
    Lacking,
    Parity,
    Piece,
    Question,
    Source,
    decode_datagram,
)
from samcast.wire.errors import WireError

CLUSTER = 0x1234_5678_9ABC_DEF0
US = Source(3, 77)
ENVELOPE = Envelope(CLUSTER, US)
ONE = ENVELOPE.cut(5, b"hello", 100)[0]


def raw(
    magic: bytes = b"SAMG", version: int = 1, kind: int = 0, cluster: int = CLUSTER,
    sequence: int = 5, index: int = 0, count: int = 1, size: int = 100, reserved: int = 0,
    body: bytes = b"hello",
) -> bytes:  # fmt: skip
    """A datagram with a good check, whatever else is wrong with it; by the table of the format."""
    header = struct.pack("<4sBBHQQQHHHH", magic, version, kind, 3, cluster, 77, sequence, index,
                         count, size, reserved)  # fmt: skip
    return header + struct.pack("<I", crc32c(header + body)) + body


def asking(*ranges: tuple[int, int, int, int], life: int = 9) -> bytes:
    body = struct.pack("<Q", life) + b"".join(struct.pack("<QHHI", *r) for r in ranges)
    return raw(kind=1, sequence=0, count=0, size=0, body=body)


def test_the_bytes_are_as_the_table_says() -> None:
    assert raw() == ONE
    assert len(ONE) == DATAGRAM_HEADER_BYTES + 5
    assert asking((4, 1, 2, 0)) == ENVELOPE.question(9, (Lacking(4, 1, 2),))


@given(st.binary(min_size=1, max_size=300), st.integers(1, 64))
def test_a_frame_comes_in_pieces_that_make_it_up(frame: bytes, size: int) -> None:
    found = [decode_datagram(d, CLUSTER) for d in ENVELOPE.cut(8, frame, size)]
    pieces = [piece for piece in found if isinstance(piece, Piece)]
    assert b"".join(piece.data for piece in pieces) == frame
    assert [piece.index for piece in pieces] == list(range(len(found)))
    assert {(p.source, p.sequence, p.count, p.size) for p in pieces} == {(US, 8, len(found), size)}


def test_a_question_names_whom_it_asks_and_for_what() -> None:
    ranges = (Lacking(4, 1, 2), Lacking(9, 0, 0))
    assert decode_datagram(ENVELOPE.question(55, ranges), CLUSTER) == Question(US, 55, ranges)


def test_parity_names_its_block_and_what_is_needed_to_use_it() -> None:
    data = ENVELOPE.parity(5, (2, 3), 130, (5, 4), b"12345")
    assert data == raw(kind=3, index=131, count=130, size=5, reserved=4, body=b"12345")
    assert decode_datagram(data, CLUSTER) == Parity(US, 5, 2, 3, 130, 5, 4, b"12345")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "datagram-truncated"),
        (ONE[: DATAGRAM_HEADER_BYTES - 1], "datagram-truncated"),
        (ONE[:-1], "datagram-check"),
        (ONE + b"x", "datagram-check"),
        (raw(magic=b"SAMC"), "datagram-magic"),
        (raw(version=2), "datagram-version"),
        (raw(reserved=1), "datagram-version"),
        (raw(cluster=CLUSTER + 1), "datagram-cluster"),
        (raw(kind=2), "datagram-kind"),
        (raw(kind=4), "datagram-kind"),
        (raw(kind=3, size=5, reserved=0), "datagram-range"),  # the last piece has some bytes
        (raw(kind=3, size=5, reserved=6), "datagram-range"),  # and not more than the others
        (raw(kind=3, size=6, reserved=6), "datagram-range"),  # parity is of full size
        (raw(kind=3, size=5, reserved=5, index=64), "datagram-range"),  # of a block that isn't
        (raw(kind=3, size=5, reserved=5, sequence=0), "datagram-range"),
        (
            raw(kind=3, count=PIECES_MAX, size=60_000, reserved=1, body=b"x" * 60_000),
            "datagram-length",
        ),
        (raw(sequence=0), "datagram-range"),
        (raw(sequence=2**63), "datagram-range"),
        (raw(index=1), "datagram-range"),
        (raw(count=0), "datagram-range"),
        (raw(count=2), "datagram-range"),  # not the last, and not of full size
        (raw(size=4), "datagram-range"),
        (raw(body=b""), "datagram-range"),
        (raw(count=PIECES_MAX, size=60_000, body=b"x" * 60_000), "datagram-length"),
        (raw(kind=1, body=b"1234567"), "datagram-question"),
        (raw(kind=1, body=b"x" * 8), "datagram-question"),
        (raw(kind=1, body=b"x" * 25), "datagram-question"),
        (asking((0, 0, 1, 0)), "datagram-question"),
        (asking((1, PIECES_MAX, 1, 0)), "datagram-question"),
        (asking((1, 0, 1, 1)), "datagram-question"),
        (asking(*[(1, 0, 1, 0)] * (RANGES_MAX + 1)), "datagram-question"),
    ],
)
def test_what_makes_no_sense_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(WireError) as refused:
        decode_datagram(data, CLUSTER)
    assert refused.value.code == code


@given(st.binary(max_size=120), st.integers(0, 48), st.integers(1, 255))
def test_a_damaged_datagram_is_never_taken(body: bytes, at: int, flip: int) -> None:
    data = bytearray(ENVELOPE.cut(5, body + b"!", 200)[0])
    data[at % len(data)] ^= flip
    with pytest.raises(WireError):
        decode_datagram(bytes(data), CLUSTER)


def test_a_frame_of_too_many_pieces_is_not_cut() -> None:
    with pytest.raises(WireError, match="datagram-pieces"):
        ENVELOPE.cut(1, bytes(PIECES_MAX + 1), 1)
    assert FRAME_BYTES_MAX // 1356 < PIECES_MAX  # what a usual network needs
