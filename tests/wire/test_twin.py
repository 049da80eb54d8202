"""Records kept twice: which copy counts, and when neither does."""

from pathlib import Path

import pytest

from samcast.limits import SECTOR_BYTES, TWIN_RECORD_BYTES_MAX
from samcast.wire.twin import TWIN_BYTES, TwinScan, TwinState, decode_twin, encode_twin

GOLDEN = Path(__file__).parents[1] / "golden" / "twin-v1.bin"
OLD = encode_twin(4, b"old")
NEW = encode_twin(5, b"new")
ZEROS = bytes(SECTOR_BYTES)


def test_a_twin_is_two_equal_sectors() -> None:
    assert len(NEW) == TWIN_BYTES == 1024
    assert NEW[:512] == NEW[512:]


@pytest.mark.parametrize("record", [b"", b"x", b"x" * TWIN_RECORD_BYTES_MAX])
def test_a_record_comes_back_with_its_sequence(record: bytes) -> None:
    assert decode_twin(encode_twin(7, record)) == TwinScan(TwinState.FOUND, 7, record)


@pytest.mark.parametrize("data", [b"", b"\0", ZEROS, ZEROS * 2])
def test_nothing_but_zeros_is_empty(data: bytes) -> None:
    assert decode_twin(data).state is TwinState.EMPTY


@pytest.mark.parametrize("data", [NEW[:512] + OLD[512:], OLD[:512] + NEW[512:]])
def test_a_write_torn_between_the_sectors_gives_the_newer_record(data: bytes) -> None:
    assert decode_twin(data) == TwinScan(TwinState.FOUND, 5, b"new", is_whole=False)


@pytest.mark.parametrize("data", [NEW[:512] + ZEROS, ZEROS + NEW[512:], NEW[:512]])
def test_a_first_write_torn_between_the_sectors_gives_its_record(data: bytes) -> None:
    assert decode_twin(data) == TwinScan(TwinState.FOUND, 5, b"new", is_whole=False)


def test_a_flip_anywhere_leaves_the_other_copy() -> None:
    for place in range(TWIN_BYTES):
        data = bytearray(NEW)
        data[place] ^= 1 << place % 8
        assert decode_twin(bytes(data)) == TwinScan(TwinState.FOUND, 5, b"new", is_whole=False)


def test_flips_in_both_copies_are_lost_and_never_empty() -> None:
    for place in range(0, SECTOR_BYTES, 5):
        data = bytearray(NEW)
        data[place] ^= 1
        data[1023 - place] ^= 1
        assert decode_twin(bytes(data)) == TwinScan(TwinState.LOST)


def test_one_rotten_copy_beside_zeros_is_lost() -> None:
    assert decode_twin(b"\1" + bytes(1023)) == TwinScan(TwinState.LOST)


def test_a_copy_cut_short_is_not_read() -> None:
    assert decode_twin(NEW[:511]) == TwinScan(TwinState.LOST)


def test_two_records_under_one_sequence_are_lost() -> None:
    other = encode_twin(5, b"other")
    assert decode_twin(NEW[:512] + other[512:]) == TwinScan(TwinState.LOST)


@pytest.mark.parametrize("sequence", [0, -1, 2**63])
def test_a_sequence_out_of_bounds_is_refused(sequence: int) -> None:
    with pytest.raises(ValueError, match="sequence"):
        encode_twin(sequence, b"")


def test_a_record_above_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="480"):
        encode_twin(1, bytes(TWIN_RECORD_BYTES_MAX + 1))


def test_old_bytes_still_decode() -> None:
    data = GOLDEN.read_bytes()
    assert decode_twin(data) == TwinScan(TwinState.FOUND, 2**40 + 3, b"\0vote\xff")
    assert encode_twin(2**40 + 3, b"\0vote\xff") == data
