"""Data segments: a record is found whole or it is missing, and nothing else passes for one."""

from pathlib import Path

import pytest

from samcast.limits import SEGMENT_ALIGN_BYTES, SEGMENT_BODY_BYTES_MAX
from samcast.wire.segment import (
    FOOTER_TAIL_BYTES,
    KIND_FOOTER,
    Found,
    encode_footer,
    encode_record,
    footer_offset,
    read_footer,
    read_record,
    record_bytes,
    scan_segment,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "segment-v1.bin"
GENERATION = 9
SIZES = [0, 1, 40, 41, 64, 1000, 5, 300]
BODIES = [bytes([65 + index]) * size for index, size in enumerate(SIZES)]


def segment(bodies: list[bytes], generation: int = GENERATION) -> bytes:
    data = b""
    for kind, body in enumerate(bodies):
        data += encode_record(kind, body, generation=generation, offset=len(data))
    return data


def found_in(data: bytes, generation: int = GENERATION) -> list[tuple[int, bytes]]:
    found = scan_segment(data, generation).found
    return [(f.kind, data[f.body_offset : f.body_offset + f.length]) for f in found]


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :]


DATA = segment(BODIES)
RECORDS = list(enumerate(BODIES))
OFFSETS = [found.offset for found in scan_segment(DATA, GENERATION).found]


def test_records_are_aligned_and_found_in_order() -> None:
    scan = scan_segment(DATA + bytes(1000), GENERATION)
    assert found_in(DATA + bytes(1000)) == RECORDS
    assert all(found.offset % SEGMENT_ALIGN_BYTES == 0 for found in scan.found)
    assert scan.found[1] == Found(1, 64, 1, 88)
    assert (scan.damaged, scan.end, scan.is_sealed) == ([], len(DATA), False)


def test_an_unwritten_segment_holds_nothing() -> None:
    for data in (b"", bytes(64), bytes(100_000)):
        scan = scan_segment(data, GENERATION)
        assert (scan.found, scan.damaged, scan.end) == ([], [], 0)


def test_a_record_is_read_and_verified_alone() -> None:
    for (kind, body), offset in zip(RECORDS, OFFSETS, strict=True):
        data = DATA[offset : offset + record_bytes(len(body))]
        assert read_record(data, generation=GENERATION, offset=offset) == (kind, body)
        assert read_record(data, generation=GENERATION + 1, offset=offset) is None
        assert read_record(data, generation=GENERATION, offset=offset + 64) is None
        assert read_record(data[: 23 + len(body)], generation=GENERATION, offset=offset) is None


def test_a_flip_costs_at_most_the_record_it_hits() -> None:
    for place in range(len(DATA)):
        data = flipped(DATA, place)
        hit = max(offset for offset in OFFSETS if offset <= place)
        index = OFFSETS.index(hit)
        others = [record for record in RECORDS if record[0] != index]
        found = found_in(data)
        is_padding = place >= hit + 24 + len(BODIES[index])
        assert found == (RECORDS if is_padding else others)
        if not is_padding:
            damaged = scan_segment(data, GENERATION).damaged
            assert any(start <= place < end for start, end in damaged)


def test_every_prefix_gives_the_records_that_are_whole() -> None:
    for length in range(len(DATA)):
        ends = [offset + 24 + len(body) for offset, body in zip(OFFSETS, BODIES, strict=True)]
        whole = sum(end <= length for end in ends)
        assert found_in(DATA[:length] + bytes(len(DATA) - length)) == RECORDS[:whole]
        assert found_in(DATA[:length]) == RECORDS[:whole]


def test_a_record_within_a_body_is_not_taken_for_one() -> None:
    """Neither while the record around it is sound, nor when its header or its body is damaged."""
    inner = segment([b"inner", b"more"])
    data = segment([b"first", b"x" * 40 + inner + DATA, b"last"])
    assert [kind for kind, _ in found_in(data)] == [0, 1, 2]
    for place in (64, 64 + 8, 64 + 24, 64 + 100):
        assert [kind for kind, _ in found_in(flipped(data, place))] == [0, 2]


def test_a_former_life_is_neither_found_nor_damage() -> None:
    old = segment([b"old" * 100] * 20, generation=GENERATION - 1)
    assert scan_segment(old, GENERATION).found == []
    assert scan_segment(old, GENERATION).damaged == []
    new = segment([b"new", b"newer" * 50])
    data = new + old[len(new) :]
    scan = scan_segment(data, GENERATION)
    assert [found.kind for found in scan.found] == [0, 1]
    assert scan.end == len(new)


def test_a_record_behind_lost_sectors_that_show_a_former_life_is_found() -> None:
    old = segment([b"old" * 1000], generation=GENERATION - 1)
    new = segment([b"a" * 500, b"b" * 500, b"c"])
    data = old[:512] + new[512:] + old[len(new) :]
    assert found_in(data) == [(1, b"b" * 500), (2, b"c")]


def test_a_scan_tells_where_to_go_on() -> None:
    torn = DATA[:-100] + bytes(500)
    end = scan_segment(torn, GENERATION).end
    assert end == OFFSETS[-1]
    more = encode_record(7, b"more", generation=GENERATION, offset=end)
    assert found_in(torn[:end] + more + torn[end + len(more) :]) == [*RECORDS[:-1], (7, b"more")]


@pytest.mark.parametrize(
    ("kind", "generation", "offset"),
    [(-1, 1, 0), (KIND_FOOTER, 1, 0), (0, 0, 0), (0, 2**32, 0), (0, 1, 63), (0, 1, -64)],
)
def test_a_record_out_of_bounds_is_refused(kind: int, generation: int, offset: int) -> None:
    with pytest.raises(ValueError, match="not"):
        encode_record(kind, b"", generation=generation, offset=offset)


def test_a_body_above_the_limit_is_refused() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return SEGMENT_BODY_BYTES_MAX + 1

    with pytest.raises(ValueError, match="fit a record"):
        encode_record(0, Huge(), generation=1, offset=0)


# Footers.

ENTRIES = [b"run 1", b"", b"run 2" * 100]
FOOTER = encode_footer(ENTRIES, generation=GENERATION, offset=len(DATA))
SEALED = DATA + FOOTER


def test_a_footer_tells_the_entries_from_the_end_of_the_file() -> None:
    assert read_footer(SEALED, generation=GENERATION) == ENTRIES
    assert footer_offset(SEALED[-FOOTER_TAIL_BYTES:]) == len(DATA)
    assert read_footer(FOOTER, generation=GENERATION, offset=len(DATA)) == ENTRIES


def test_a_file_that_ends_otherwise_names_no_footer() -> None:
    for tail in (b"", bytes(FOOTER_TAIL_BYTES), b"x" * 64, DATA, SEALED[:-1]):
        assert footer_offset(tail) is None


def test_a_footer_without_entries_is_not_a_missing_footer() -> None:
    empty = encode_footer([], generation=GENERATION, offset=0)
    assert read_footer(empty, generation=GENERATION) == []
    assert read_footer(b"", generation=GENERATION) is None


def test_a_sealed_segment_is_found_sealed_by_a_scan() -> None:
    scan = scan_segment(SEALED, GENERATION)
    assert found_in(SEALED) == RECORDS
    assert (scan.is_sealed, scan.end, scan.damaged) == (True, len(SEALED), [])


def test_a_bad_footer_means_scan_and_never_empty() -> None:
    for place in range(len(DATA), len(SEALED)):
        data = flipped(SEALED, place)
        assert read_footer(data, generation=GENERATION) is None
        assert found_in(data) == RECORDS
        assert not scan_segment(data, GENERATION).is_sealed


def test_a_file_cut_within_its_footer_has_none() -> None:
    for length in range(len(DATA) - 64, len(SEALED)):
        assert read_footer(SEALED[:length], generation=GENERATION) is None


def test_a_footer_of_another_life_or_place_does_not_count() -> None:
    assert read_footer(SEALED, generation=GENERATION + 1) is None
    assert read_footer(bytes(64) + SEALED, generation=GENERATION) is None
    assert read_footer(SEALED[64:], generation=GENERATION) is None
    assert read_footer(SEALED + bytes(64), generation=GENERATION) is None
    assert read_footer(SEALED + SEALED[-64:], generation=GENERATION) is None


def test_old_bytes_still_decode() -> None:
    data = GOLDEN.read_bytes()
    assert data == SEALED
    assert found_in(data) == RECORDS
    assert read_footer(data, generation=GENERATION) == ENTRIES
