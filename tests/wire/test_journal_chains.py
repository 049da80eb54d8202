"""The order journal begun anew: fresh chains, what they replace, and the way back after rot."""

import pytest

from samcast.limits import SECTOR_BYTES
from samcast.wire.journal import Verdict, Write
from tests.wire.journals import choices, edges, sectors_in_flight, synced
from tests.wire.test_fuzz_journal import (
    SEGMENT_BYTES,
    Disk,
    assert_cut_cleanly,
)

# Fresh chains.


def small() -> Disk:
    """A journal of three segments, the last with a group in flight."""
    disk = synced(10, 3900)
    disk.append(b"in flight")
    return disk


def test_a_fresh_chain_replaces_all_before_it() -> None:
    disk = small()
    disk.fresh(b"base", b"entry")
    disk.append(b"after")
    disk.sync()
    scan = disk.scan()
    assert (scan.records, scan.verdict) == ([b"base", b"entry", b"after"], Verdict.CLEAN)


def test_a_fresh_chain_crashed_anywhere_counts_whole_or_not_at_all() -> None:
    disk = small()
    disk.fresh(*[b"base" * 200] * 9)
    disk.append(b"after")
    sectors = sectors_in_flight(disk)
    old = [b"\1" * 10, b"\2" * 3900]
    for kept in edges(sectors):
        torn = disk.copy()
        torn.pending = disk.pending
        torn.crash(iter(kept).__next__)
        records = assert_cut_cleanly(torn).records
        assert records[:2] == old or records[:9] == [b"base" * 200] * 9
        torn.recover()
        torn.append(b"next")
        torn.sync()
        scan = torn.scan()
        assert (scan.records, scan.verdict) == ([*records, b"next"], Verdict.CLEAN)


def test_fresh_chains_one_upon_the_other_in_flight_fall_back_one_by_one() -> None:
    disk = synced(10)
    disk.fresh(b"second")
    disk.append(b"more")
    disk.fresh(b"third")
    disk.fresh(b"fourth" * 100)
    for keep in choices(sectors_in_flight(disk)):
        torn = disk.copy()
        torn.pending = disk.pending
        torn.crash(keep)
        assert_cut_cleanly(torn)


def test_rot_before_a_closed_fresh_chain_is_ignored() -> None:
    disk = small()
    disk.fresh(b"base")
    disk.sync()
    for number in (1, 2, 3):
        disk.files[number][:] = b"\xa5" * SEGMENT_BYTES
    scan = disk.scan()
    assert (scan.records, scan.verdict) == ([b"base"], Verdict.CLEAN)


def test_rot_in_a_synced_fresh_chain_never_brings_back_the_one_before() -> None:
    disk = small()
    disk.fresh(b"base", b"entry" * 200)
    disk.sync()
    for group in disk.chains[-1].groups:
        for place in range(len(group.write.data)):
            damaged = disk.copy()
            damaged.files[group.write.segment][group.write.offset + place] ^= 1 << place % 8
            scan = damaged.scan()
            assert scan.verdict is Verdict.ROT
            assert scan.records == [b"base", b"entry" * 200][: len(scan.records)]


def test_a_fresh_chain_that_lost_a_sector_after_a_later_sync_is_rot() -> None:
    disk = small()
    disk.fresh(b"base")
    disk.sync()
    disk.append(b"after")
    for write in (group.write for group in disk.chains[-1].groups[:2]):
        disk.sync()
        damaged = disk.copy()
        damaged.put(Write(write.segment, write.offset, bytes(SECTOR_BYTES)))
        assert damaged.scan().verdict is Verdict.ROT


def test_a_broken_fresh_chain_with_nothing_left_before_it_is_rot() -> None:
    disk = synced(10)
    disk.fresh(b"base")
    disk.sync()
    disk.files[2][512:1024] = bytes(512)
    assert disk.scan().records == [b"\1" * 10]
    del disk.files[1]
    scan = disk.scan()
    assert (scan.records, scan.verdict) == ([b"base"], Verdict.ROT)


def segments(disk: Disk) -> tuple[list[int], list[int]]:
    return list(disk.writer.segments_live), list(disk.writer.segments_free)


def test_a_broken_fresh_chain_never_falls_back_beyond_the_one_before() -> None:
    disk = synced(10)
    disk.fresh(b"second")
    disk.sync()
    disk.fresh(b"third")
    disk.crash(iter([True, False]).__next__)
    assert disk.scan().records == [b"second"]
    del disk.files[2]
    assert disk.scan().verdict is Verdict.ROT


def test_remains_of_a_chain_given_up_do_not_matter_even_if_they_rot() -> None:
    disk = synced(10)
    disk.fresh(b"a" * 3900, b"b" * 3900)
    disk.crash(iter([*[True] * 16, False]).__next__)
    disk.recover()
    disk.fresh(b"c" * 3900, b"d" * 3900)
    disk.crash(iter([*[False] * 16, True]).__next__)
    disk.files[3][SECTOR_BYTES] ^= 1
    assert assert_cut_cleanly(disk).verdict is Verdict.TORN


def test_a_chain_that_was_synced_in_part_and_given_up_may_be_overwritten() -> None:
    disk = Disk()
    disk.fresh(b"a" * 900, b"b" * 3900)
    disk.sync(sequence=1)
    disk.append(b"c")
    disk.crash(iter([*[False] * 8, False, True]).__next__)
    disk.recover()
    disk.append(b"d" * 900)
    disk.crash(iter([False, True, True]).__next__)
    assert assert_cut_cleanly(disk).verdict is Verdict.TORN


def test_old_segments_are_free_only_when_the_fresh_chain_is_synced() -> None:
    disk = small()
    assert segments(disk) == ([1, 2, 3], [4])
    disk.fresh(b"base")
    disk.writer.note_synced(disk.writer.sequence - 1)
    assert segments(disk) == ([1, 2, 3, 4], [5])
    disk.sync()
    assert segments(disk) == ([4], [5, 1, 2, 3])
    for _ in range(4):
        disk.append(b"x" * 3900)
    assert segments(disk) == ([4, 5, 1, 2, 3], [6])


def test_a_scan_frees_old_segments_only_when_told_of_a_sync() -> None:
    disk = small()
    disk.fresh(b"base")
    disk.crash(lambda: True)
    disk.recover(is_noted=False)
    assert segments(disk) == ([1, 2, 3, 4], [5])
    disk.writer.note_synced(disk.writer.sequence)
    assert segments(disk) == ([4], [5, 1, 2, 3])


def test_a_scan_tells_how_far_the_journal_was_known_to_be_synced() -> None:
    disk = synced(10, 10, 10)
    disk.recover(is_noted=False)
    assert (disk.writer.sequence, disk.writer.synced) == (3, 2)


def test_the_former_life_of_a_recycled_segment_never_comes_back() -> None:
    disk = Disk()
    for life in range(6):
        disk.fresh(b"life %d" % life)
        disk.sync()
        for number in range(12):
            disk.append(b"life %d, %d" % (life, number) * 40)
            for keep in choices(min(2, sectors_in_flight(disk))):
                torn = disk.copy()
                torn.pending = disk.pending
                torn.crash(keep)
                assert_cut_cleanly(torn)
            disk.sync()
    assert len(disk.files) < 12
    assert all(record.startswith(b"life 5") for record in disk.scan().records)


# After rot.


def rotten() -> Disk:
    disk = synced(10, 3900, 10)
    disk.files[2][700] ^= 1
    return disk


def test_after_rot_only_a_fresh_start_may_write() -> None:
    disk = rotten()
    disk.recover()
    with pytest.raises(ValueError, match="rotten"):
        disk.writer.append([b"more"])
    disk.writer.note_synced(disk.writer.sequence)
    assert segments(disk) == ([1, 2, 3], [4])
    assert disk.writer.sequence == 3


def test_a_crash_in_the_fresh_start_after_rot_is_rot_until_it_is_closed() -> None:
    disk = rotten()
    before = disk.scan()
    disk.recover()
    disk.fresh(b"mended" * 100)
    sectors = sectors_in_flight(disk)
    for keep in choices(sectors):
        torn = disk.copy()
        torn.pending = disk.pending
        torn.crash(keep)
        scan = torn.scan()
        if torn.survivors()[0] == len(torn.chains) - 1:
            assert (scan.records, scan.verdict) == ([b"mended" * 100], Verdict.CLEAN)
        else:
            assert (scan.records, scan.verdict) == (before.records, Verdict.ROT)


def test_a_journal_rotten_beyond_its_first_header_can_be_mended_too() -> None:
    disk = synced(10)
    disk.files[1][:512] = b"\xa5" * 512
    assert disk.recover().verdict is Verdict.ROT
    disk.fresh(b"mended")
    disk.crash(iter([True, False]).__next__)
    assert disk.recover().verdict is Verdict.ROT
    disk.fresh(b"mended")
    disk.sync()
    scan = disk.scan()
    assert (scan.records, scan.verdict) == ([b"mended"], Verdict.CLEAN)


def test_spoilt_segments_are_never_recycled_and_may_be_deleted() -> None:
    disk = rotten()
    disk.files[2][SECTOR_BYTES] ^= 1
    disk.recover()
    disk.fresh(b"mended")
    disk.sync()
    assert segments(disk) == ([4], [5, 1, 3])
    del disk.files[2]
    for _ in range(3):
        disk.append(b"x" * 3900)
        disk.sync()
    assert assert_cut_cleanly(disk).verdict is Verdict.CLEAN


def test_rot_in_a_journal_begun_twice_is_rot_wherever_it_began() -> None:
    """The first attempt was torn, in a segment with a flaw, so the second began in another."""
    disk = Disk(64 * SECTOR_BYTES)
    disk.append(b"torn")
    disk.append(b"cut")
    disk.crash(iter([False, True]).__next__)
    disk.files[1][50 * SECTOR_BYTES] ^= 1
    disk.recover()
    disk.append(b"acknowledged")
    disk.sync()
    assert assert_cut_cleanly(disk).records == [b"acknowledged"]
    disk.files[2][0] ^= 1
    assert disk.scan().verdict is Verdict.ROT


def test_a_sound_group_with_senseless_records_is_rot() -> None:
    for payload, count in ((b"\5\0\0\0abc", 1), (b"\1\0\0\0a", 2), (b"\1\0", 1)):
        disk = synced(10)
        disk.put(disk.writer._write(payload, count))
        assert disk.scan().verdict is Verdict.ROT
