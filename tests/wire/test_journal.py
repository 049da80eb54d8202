"""The order journal: what survives a crash, what is cut, and what is never mistaken for either."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from samcast.limits import JOURNAL_TAIL_DOUBT_SECTORS, SECTOR_BYTES
from samcast.wire.journal import JournalWriter, Verdict, Write, scan_journal
from tests.wire.journals import FIRST_ROOM, choices, edges, recycled, sectors_in_flight, synced
from tests.wire.test_fuzz_journal import (
    SEGMENT_BYTES,
    Disk,
    assert_cut_cleanly,
    assert_exact_or_rot,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "journal-v1.bin"


# Writing and reading back.


def test_a_journal_without_files_is_clean_and_empty() -> None:
    assert scan_journal({}, segment_bytes=SEGMENT_BYTES).records == []
    assert scan_journal({}, segment_bytes=SEGMENT_BYTES).verdict is Verdict.CLEAN


def test_a_journal_of_zeros_is_clean_and_empty() -> None:
    scan = scan_journal({3: bytes(SEGMENT_BYTES), 7: b""}, segment_bytes=SEGMENT_BYTES)
    assert (scan.records, scan.verdict) == ([], Verdict.CLEAN)


def test_records_come_back_in_order_whatever_their_sizes() -> None:
    disk = Disk(64 * SECTOR_BYTES)
    for size in (0, 1, FIRST_ROOM - 4, FIRST_ROOM - 3, 504, 2000, disk.writer.record_bytes_max):
        disk.append(b"a" * size, b"", b"b")
    disk.append()
    disk.sync()
    scan = assert_cut_cleanly(disk)
    assert scan.verdict is Verdict.CLEAN
    assert len(scan.records) == 21


def test_a_writer_goes_on_in_place_after_a_clean_scan() -> None:
    disk = synced(10, 10)
    disk.recover()
    (write,) = disk.append(b"third")
    assert (write.segment, write.offset) == (1, 2 * SECTOR_BYTES)
    disk.sync()
    assert assert_cut_cleanly(disk).verdict is Verdict.CLEAN


def test_groups_fill_whole_sectors_and_never_span_segments() -> None:
    disk = Disk()
    for size in (400, 500, 3000, 1, 3900):
        disk.append(b"x" * size)
    for write in disk.pending:
        assert len(write.data) % SECTOR_BYTES == 0
        assert write.offset + len(write.data) <= SEGMENT_BYTES
    assert [write.segment for write in disk.pending] == [1, 1, 2, 2, 3]


def test_an_append_that_no_segment_holds_becomes_several_groups() -> None:
    disk = Disk()
    assert len(disk.append(*[b"x" * 1000] * 10)) == 4
    disk.sync()
    assert assert_cut_cleanly(disk).records == [b"x" * 1000] * 10


def test_the_largest_record_fits_and_a_larger_one_is_refused_without_a_trace() -> None:
    disk = Disk()
    largest = disk.writer.record_bytes_max
    assert largest == 8 * 504 - 76 - 4
    disk.append(b"x" * largest)
    with pytest.raises(ValueError, match="fit a group"):
        disk.writer.append([b"small", b"x" * (largest + 1)])
    with pytest.raises(ValueError, match="fit a group"):
        disk.writer.start_fresh([b"x" * (largest + 1)])
    assert disk.writer.sequence == 1
    disk.sync()
    assert assert_cut_cleanly(disk).verdict is Verdict.CLEAN


@pytest.mark.parametrize("size", [0, -512, 100, 513, 2**40])
def test_a_segment_size_that_is_no_multiple_of_a_sector_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="sector"):
        JournalWriter(segment_bytes=size)
    with pytest.raises(ValueError, match="sector"):
        scan_journal({}, segment_bytes=size)


@pytest.mark.parametrize("number", [0, -1, 2**31])
def test_a_segment_id_out_of_bounds_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="segment ids"):
        scan_journal({number: b""}, segment_bytes=SEGMENT_BYTES)


def test_nothing_can_be_noted_as_synced_that_was_not_written() -> None:
    with pytest.raises(ValueError, match="the last one is 1"):
        synced(10).writer.note_synced(2)


def test_old_bytes_still_decode() -> None:
    """Two segments, zeros left off behind their last sector; the second is a fresh chain's."""
    disk = Disk()
    disk.append(b"one", b"", b"two" * 200)
    disk.sync()
    disk.fresh(b"base")
    disk.append(b"three")
    disk.sync()
    data = b"".join(bytes(disk.files[number]) for number in (1, 2))
    assert data == GOLDEN.read_bytes()
    assert disk.scan().records == [b"base", b"three"]


# Tears.


@pytest.mark.parametrize("make", [synced, recycled])
@pytest.mark.parametrize("size", [100, 900, 1900])
def test_a_last_group_with_any_sectors_missing_is_torn_and_cut(
    make: Callable[..., Disk], size: int
) -> None:
    disk = make(10, 600)
    disk.append(b"z" * size)
    for keep in choices(sectors_in_flight(disk)):
        torn = disk.copy()
        torn.pending = disk.pending
        torn.crash(keep)
        assert_cut_cleanly(torn)


@pytest.mark.parametrize("make", [synced, recycled])
@pytest.mark.parametrize("sizes", [(10, 600, 20), (900, 3000, 10), (10, 3900, 3900), (10, 10, 10)])
def test_of_several_groups_in_flight_those_before_the_first_torn_one_stay(
    make: Callable[..., Disk], sizes: tuple[int, ...]
) -> None:
    disk = make(10, 2500)
    for size in sizes:
        disk.append(b"z" * size)
    sectors = sectors_in_flight(disk)
    ways = list(choices(min(sectors, 9)))
    for keep in ways if sectors <= 9 else (itertools.cycle(w) for w in edges(sectors)):
        torn = disk.copy()
        torn.pending = disk.pending
        torn.crash(keep if callable(keep) else keep.__next__)
        assert_cut_cleanly(torn)


def test_a_complete_group_behind_a_torn_one_is_cut_with_it() -> None:
    disk = synced(10)
    disk.append(b"lost")
    disk.append(b"complete")
    disk.crash(iter([False, True]).__next__)
    scan = disk.scan()
    assert (scan.records, scan.verdict) == ([b"\1" * 10], Verdict.TORN)


def test_every_prefix_of_a_write_is_cut_or_complete() -> None:
    disk = synced(10, 10)
    (write,) = disk.append(b"z" * 1500)
    for length in range(0, len(write.data) + 1, 7):
        torn = disk.copy()
        torn.put(Write(write.segment, write.offset, write.data[: length // 512 * 512]))
        assert_cut_cleanly(torn)


@pytest.mark.parametrize("kept", range(4))
def test_a_crash_while_switching_segments_is_torn_not_rot(kept: int) -> None:
    disk = synced(10, 3000)
    disk.append(b"z" * 1000)
    assert disk.pending[0].segment == 2
    disk.crash(iter(place < kept for place in range(3)).__next__)
    scan = assert_cut_cleanly(disk)
    assert scan.verdict is (Verdict.CLEAN if kept in (0, 3) else Verdict.TORN)


def test_the_first_group_of_all_may_be_torn() -> None:
    for keep in choices(3):
        disk = Disk()
        disk.append(b"z" * 1000)
        disk.crash(keep)
        assert_cut_cleanly(disk)
        disk.recover()
        disk.append(b"again")
        disk.sync()
        assert assert_cut_cleanly(disk).verdict is Verdict.CLEAN


def test_remains_of_cut_groups_are_never_mistaken_for_later_ones() -> None:
    """Tear, recover, write on, tear again, each in every way."""
    for first, second in itertools.product(range(32), range(16)):
        disk = synced(10)
        for text in (b"a", b"b"):
            disk.append(text * 600)
        disk.append(b"c")
        disk.crash(map("1".__eq__, f"{first:05b}").__next__)
        disk.recover(is_noted=bool(first % 2))
        assert_cut_cleanly(disk)
        for text in (b"d", b"e"):
            disk.append(text * 600)
        disk.crash(map("1".__eq__, f"{second:04b}").__next__)
        assert_cut_cleanly(disk)
        disk.recover()
        disk.append(b"f")
        disk.sync()
        assert assert_cut_cleanly(disk).records[-1] == b"f"


# Rot.


@pytest.mark.parametrize("make", [synced, recycled])
def test_a_flip_anywhere_in_synced_groups_is_rot_at_or_before_it(make: Callable[..., Disk]) -> None:
    disk = make(10, 1500, 10, 2500, 600)
    groups = disk.chains[-1].groups
    before: list[bytes] = []
    for group in groups:
        write = group.write
        for place in range(0, len(write.data), 2):
            damaged = disk.copy()
            damaged.files[write.segment][write.offset + place] ^= 1 << place // 2 % 8
            scan = damaged.scan()
            assert scan.verdict is Verdict.ROT
            assert scan.records == before[: len(scan.records)]
        before += group.records


@pytest.mark.parametrize("bit", range(8))
def test_every_bit_of_the_last_header_matters(bit: int) -> None:
    """A length or a tag that rots must not make a synced group look torn."""
    disk = synced(10, 10)
    for place in range(512, 512 + 84):
        damaged = disk.copy()
        damaged.files[1][place] ^= 1 << bit
        assert assert_exact_or_rot(disk, damaged) is Verdict.ROT


@pytest.mark.parametrize("make", [synced, recycled])
def test_a_sector_of_garbage_among_synced_groups_is_rot(make: Callable[..., Disk]) -> None:
    disk = make(10, 1500, 10, 2500, 600)
    garbage = bytes(range(256)) * 2
    for group in disk.chains[-1].groups:
        for start in range(0, len(group.write.data), SECTOR_BYTES):
            damaged = disk.copy()
            damaged.put(Write(group.write.segment, group.write.offset + start, garbage))
            assert assert_exact_or_rot(disk, damaged) is Verdict.ROT


@pytest.mark.parametrize("make", [synced, recycled])
def test_a_forgotten_sector_before_the_last_synced_group_is_rot(make: Callable[..., Disk]) -> None:
    """Even if all of the group looks old, since a later one says that it was synced."""
    empty = make()
    disk = make(10, 1500, 10, 2500, 600)
    for group in disk.chains[-1].groups[:-1]:
        number, offset, size = group.write.segment, group.write.offset, len(group.write.data)
        old = empty.files.get(number, bytearray(SEGMENT_BYTES))[offset : offset + size]
        for start in [*range(0, size, SECTOR_BYTES), None]:
            damaged = disk.copy()
            part = slice(0, size) if start is None else slice(start, start + SECTOR_BYTES)
            damaged.put(Write(number, offset + part.start, bytes(old[part])))
            is_changed = damaged.files != disk.files
            assert assert_exact_or_rot(disk, damaged) is (
                Verdict.ROT if is_changed else Verdict.CLEAN
            )


def test_a_mark_protects_the_last_group_from_being_forgotten() -> None:
    disk = synced(10, 10)
    disk.files[1][512:1024] = bytes(512)
    assert disk.scan().verdict is Verdict.CLEAN  # Nobody can know; the mark is there for this.
    disk = synced(10, 10)
    disk.append()
    disk.sync()
    disk.files[1][512:1024] = bytes(512)
    assert disk.scan().verdict is Verdict.ROT


def test_a_sector_written_to_another_place_is_rot_or_does_no_harm() -> None:
    disk = synced(10, 1500, 10, 2500, 600)
    places = [(n, start) for n in disk.files for start in range(0, SEGMENT_BYTES, SECTOR_BYTES)]
    for (source, start), (target, place) in itertools.permutations(places, 2):
        damaged = disk.copy()
        sector = bytes(disk.files[source][start : start + SECTOR_BYTES])
        damaged.put(Write(target, place, sector))
        is_last = disk.chains[-1].groups[-1].write.segment == target
        if any(sector) or not is_last:
            assert_exact_or_rot(disk, damaged)


def test_rot_in_the_padding_of_a_group_is_rot() -> None:
    disk = synced(10, 10)
    disk.files[1][1023] ^= 1
    assert disk.scan().verdict is Verdict.ROT


def test_rot_behind_a_torn_group_counts_only_where_writes_may_have_come() -> None:
    disk = synced(10, segment_bytes=64 * SECTOR_BYTES)
    disk.append(b"z" * 1000)
    disk.crash(iter([True, False, True]).__next__)
    for sector in range(1, 64):
        damaged = disk.copy()
        damaged.files[1][sector * SECTOR_BYTES + 5] ^= 1
        is_near = sector < 1 + JOURNAL_TAIL_DOUBT_SECTORS
        assert damaged.scan().verdict is (Verdict.ROT if is_near else Verdict.TORN)


def test_a_flaw_in_unwritten_space_counts_only_near_the_tail() -> None:
    disk = synced(10, segment_bytes=64 * SECTOR_BYTES)
    for sector in range(1, 64):
        for place in (3, 300):
            damaged = disk.copy()
            damaged.files[1][sector * SECTOR_BYTES + place] ^= 1
            is_near = sector < 1 + JOURNAL_TAIL_DOUBT_SECTORS
            assert damaged.scan().verdict is (Verdict.ROT if is_near else Verdict.CLEAN)
            assert damaged.scan().records == disk.expected()


def test_rot_within_what_is_in_flight_counts_however_far_it_is() -> None:
    disk = synced(10, segment_bytes=64 * SECTOR_BYTES)
    disk.append(b"z" * 10_000)
    disk.append(b"z" * 10_000)
    for kept in (
        (0, 1, 2),
        (3, 20, 39),
    ):  # Its header says how long the first one is, or later ones.
        torn = disk.copy()
        torn.pending = disk.pending
        torn.crash(iter([place in kept for place in range(40)]).__next__)
        assert torn.scan().verdict is Verdict.TORN
        torn.files[1][16 * SECTOR_BYTES] ^= 1
        assert torn.scan().verdict is Verdict.ROT


def test_after_a_harmless_flaw_the_writer_leaves_the_segment() -> None:
    disk = synced(10, segment_bytes=64 * SECTOR_BYTES)
    disk.files[1][40 * SECTOR_BYTES] ^= 1
    disk.recover()
    assert disk.append(b"on")[0].segment == 2
    disk.sync()
    assert assert_cut_cleanly(disk).verdict is Verdict.CLEAN


def test_a_rotten_start_of_the_segment_that_comes_next_is_rot() -> None:
    disk = synced(10, 3000, 10)
    for place in range(SECTOR_BYTES):
        damaged = disk.copy()
        damaged.files[2][place] ^= 128
        scan = damaged.scan()
        assert scan.verdict is Verdict.ROT
        assert len(scan.records) == 2


@pytest.mark.parametrize("number", [1, 2])
def test_a_missing_file_in_the_chain_is_rot(number: int) -> None:
    disk = synced(3000, 3000, 3000, 10)
    del disk.files[number]
    scan = disk.scan()
    assert scan.verdict is Verdict.ROT
    assert len(scan.records) == number - 1


def test_two_files_with_their_names_exchanged_are_rot() -> None:
    disk = synced(3000, 3000, 10)
    disk.files[1], disk.files[2] = disk.files[2], disk.files[1]
    scan = disk.scan()
    assert (scan.records, scan.verdict) == ([], Verdict.ROT)


def test_a_file_that_has_lost_its_end_is_rot_unless_that_was_far_from_the_tail() -> None:
    disk = synced(10, 600, 10, segment_bytes=32 * SECTOR_BYTES)
    for length in range(1, 32 * SECTOR_BYTES, 37):
        damaged = disk.copy()
        del damaged.files[1][length:]
        is_far = length >= (4 + JOURNAL_TAIL_DOUBT_SECTORS) * SECTOR_BYTES
        verdict = assert_exact_or_rot(disk, damaged)
        assert verdict is (Verdict.CLEAN if is_far else Verdict.ROT)


def test_an_unwritten_file_that_is_too_short_does_no_harm() -> None:
    disk = synced(10)
    disk.files[2] = bytearray(700)
    assert assert_cut_cleanly(disk).verdict is Verdict.CLEAN
