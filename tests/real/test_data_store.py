"""Data segments as files: sealed, scanned, torn, rotten, and looked over by the scrub."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from samcast.disk import data_segments
from samcast.disk.data_segments import OPEN_MAX, footer_of, segment_name
from samcast.disk.data_store import DataStore
from samcast.group.listing import DataRecovery, SegmentColumns
from samcast.group.run_map import ByNumber
from samcast.group.storage import BatchKey, StoreBatch, StoreMarks
from samcast.runtime.folder import write_durably
from samcast.runtime.os_folder import OsFolder
from samcast.runtime.scrub import Scrub
from samcast.runtime.sync_thread import SyncThread
from samcast.wire.batch import Batch, columns_from_cells, encode_batch, make_batch
from samcast.wire.records import MarkRecord, encode_record

UUID = 7
SMALL = 4096


def batch(counter: int) -> Batch:
    return make_batch(
        group=1, sender=bytes(16), incarnation=1, counter_first=counter, count=1, birth=counter,
        confirmed_below=1, seen=0, sent_ms=0, configuration=1, stage=0,
        columns=columns_from_cells([b"%d" % counter * 100]),
    )  # fmt: skip


def key(counter: int) -> BatchKey:
    return (1, bytes(16), 1, counter, 0)


def store_of(counter: int) -> StoreBatch:
    made = batch(counter)
    return StoreBatch(counter, key(counter), made)


def segments_in(folder: Path) -> list[tuple[int, Path]]:
    return [(n, folder / segment_name(n)) for n in data_segments.segments_in(OsFolder(folder))]


def start(
    store: DataStore, on_synced: Callable[[int], None], on_failed: Callable[[Exception], None]
) -> None:
    loop = asyncio.get_running_loop()
    store.start(lambda done: SyncThread(loop, "data", done, on_failed), on_synced, loop.call_later)


async def written(folder: Path, counters: range, *, is_clean: bool = True) -> None:
    """A life that stores these, and marks each with its number."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    last = counters[-1] + 1

    def on_synced(token: int) -> None:
        if token >= last and not done.done():
            done.set_result(None)

    store = DataStore(OsFolder(folder), SMALL)
    store.recover(UUID)
    start(store, on_synced, done.set_exception)
    for counter in counters:
        store.store(store_of(counter))
    marks = tuple((*key(counter), counter) for counter in counters)
    store.store(StoreMarks(last, encode_record(MarkRecord(marks, last))))
    await done
    if is_clean:
        store.close()


async def found(folder: Path) -> tuple[DataStore, DataRecovery]:
    store = DataStore(OsFolder(folder), SMALL)
    recovery = store.recover(UUID)
    assert recovery is not None
    return store, recovery


def run(folder: Path, check: Callable[[DataStore, DataRecovery], None]) -> None:
    async def main() -> None:
        store, recovery = await found(folder)
        check(store, recovery)
        store.close()

    asyncio.run(main())


def holds(count: int) -> Callable[[DataStore, DataRecovery], None]:
    def check(store: DataStore, recovery: DataRecovery) -> None:
        found = list(recovery.found())
        assert [b.key for b in found] == [key(i) for i in range(1, count + 1)]
        assert [(b.count, b.birth) for b in found] == [(1, i) for i in range(1, count + 1)]
        assert recovery.numbers() == {key(i): i for i in range(1, count + 1)}
        for i in range(1, count + 1):
            assert store.read(key(i)) == encode_batch(batch(i))

    return check


def test_everything_is_there_after_a_clean_end_and_after_a_crash(tmp_path: Path) -> None:
    asyncio.run(written(tmp_path, range(1, 40)))
    run(tmp_path, holds(39))
    asyncio.run(written(tmp_path, range(40, 60), is_clean=False))
    run(tmp_path, holds(59))  # by a scan, which seals
    run(tmp_path, holds(59))
    assert len(segments_in(tmp_path)) > 3


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_sealed_segment_is_not_scanned(tmp_path: Path, is_clean: bool) -> None:
    asyncio.run(written(tmp_path, range(1, 6), is_clean=is_clean))
    run(tmp_path, lambda store, recovery: None)
    path = segments_in(tmp_path)[0][1]
    data = bytearray(path.read_bytes())
    data[100] ^= 1  # A scan would find the first payload damaged, and leave it out.
    path.write_bytes(data)

    def check(store: DataStore, recovery: DataRecovery) -> None:
        assert len(list(recovery.found())) == 5
        assert store.read(key(1)) is None
        assert store.read(key(2)) is not None

    run(tmp_path, check)


def test_a_torn_end_is_kept_and_what_is_before_it_found(tmp_path: Path) -> None:
    asyncio.run(written(tmp_path, range(1, 6), is_clean=False))
    path = [p for _, p in segments_in(tmp_path) if p.stat().st_size][-1]
    with path.open("ab") as file:
        file.write(b"SCD1 a record that never came to its end")
    run(tmp_path, holds(5))
    assert b"never came to its end" in path.read_bytes()
    run(tmp_path, holds(5))


def test_a_footer_that_is_damaged_means_scan(tmp_path: Path) -> None:
    asyncio.run(written(tmp_path, range(1, 6)))
    path = [p for _, p in segments_in(tmp_path) if p.stat().st_size][-1]
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)
    run(tmp_path, holds(5))


def test_a_footer_whose_columns_do_not_fit_together_means_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crooked(columns: SegmentColumns, generation: int, end: int) -> bytes:
        columns.runs[0].offsets = columns.runs[0].offsets[8:]
        return footer_of(columns, generation, end)

    monkeypatch.setattr(data_segments, "footer_of", crooked)
    asyncio.run(written(tmp_path, range(1, 6)))
    monkeypatch.undo()
    run(tmp_path, holds(5))


def test_few_files_are_open_however_many_segments_there_are(tmp_path: Path) -> None:
    asyncio.run(written(tmp_path, range(1, 1000)))
    assert len(segments_in(tmp_path)) > OPEN_MAX + 20

    def check(store: DataStore, recovery: DataRecovery) -> None:
        holds(999)(store, recovery)
        inside = [link for link in open_files() if link.startswith(str(tmp_path))]
        assert OPEN_MAX <= len(inside) <= OPEN_MAX + 1

    run(tmp_path, check)
    assert not [link for link in open_files() if link.startswith(str(tmp_path))]


def open_files() -> list[str]:
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found.append(str(fd.readlink()))
    return found


@pytest.mark.req("PIP-01")
def test_many_are_read_as_each_of_them_is(tmp_path: Path) -> None:
    asyncio.run(written(tmp_path, range(1, 60)))
    path = segments_in(tmp_path)[0][1]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    some = [key(at) for at in (40, 2, 1, 59, 3, 2)]

    def check(store: DataStore, recovery: DataRecovery) -> None:
        wanted = [encode_batch(batch(at)) for at in (40, 2, 59, 3, 2)]
        assert store.read_many([*some[3:], key(77), *some], 10**6) == wanted[2:]
        assert store.read_many(some[3:], 10) == wanted[2:3]
        assert store.read_many([key(77)], 10**6) == [None]  # never there
        many = store.read_many(some, 10**6)
        assert many[2] is None  # rotten
        assert [m for m in many if m is not None] == wanted

    run(tmp_path, check)


def _failed(error: Exception) -> None:
    raise error


@pytest.mark.req("PIP-01")
def test_many_are_read_as_they_lie(tmp_path: Path) -> None:
    async def main() -> None:
        store = DataStore(OsFolder(tmp_path))
        store.recover(UUID)
        synced = asyncio.Event()
        start(store, lambda token: synced.set(), _failed)
        numbers = ByNumber(1)
        for at in range(1, 101):
            store.store(store_of(at))
            numbers.put(at, 1, 0, key(at))
        runs = numbers.slice(0, 100)
        assert store.read_stretch(runs, 10**6) is None  # not there yet
        while store.place_of(key(100)) is None:
            synced.clear()
            await synced.wait()
        assert store.read_stretch(runs, 1000) is None  # too much
        read = store.read_stretch(runs, 10**6)
        assert read is not None
        found, data = read
        path = segments_in(tmp_path)[0][1]
        assert data == path.read_bytes()[found.first : found.end]
        assert [encode_batch(batch(at)) in data for at in range(1, 101)] == [True] * 100
        store.close()

    asyncio.run(main())


def test_the_scrub_finds_rot_and_reads_all_else(tmp_path: Path) -> None:
    asyncio.run(written(tmp_path, range(1, 6)))
    path = segments_in(tmp_path)[0][1]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)

    async def main() -> None:
        store, _ = await found(tmp_path)
        rotten: list[BatchKey] = []
        scrub = Scrub(store, rotten.append, bytes_per_s=10**9)
        await scrub.look_at_all()
        await scrub.look_at_all()
        assert (rotten, scrub.payloads, scrub.rounds) == ([key(1)], 9, 2)
        store.close()

    asyncio.run(main())


def test_a_file_is_put_in_place_whole_though_writes_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:3]))
    write_durably(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"
