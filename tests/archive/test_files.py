"""An archive's files and index, without Spark: parts follow each other, once, and say so if not."""

from pathlib import Path

import pytest

from samcast.archive.index import Archive, open_archive
from samcast.archive.reading import record_batches
from samcast.archive.verifying import verify
from samcast.archive.writing import add_part, begin_archive, locked, new_about
from samcast.errors import CollectedError, ConfigError, DiskError
from tests.archive.build import CLUSTER, GROUP, made, staged


def read(archive: Archive, first: int, end: int, rows: int = 5) -> list[int]:
    numbers: list[int] = []
    for batch in record_batches(archive, first, end, rows):
        numbers += batch.column("number").to_pylist()
        bodies = [b"body %d" % n for n in numbers[-batch.num_rows :]]
        assert batch.column("body").to_pylist() == bodies
    return numbers


@pytest.mark.req("PIP-05")
def test_what_is_added_is_read_in_any_range_also_by_who_comes_later(tmp_path: Path) -> None:
    archive = made(tmp_path / "a")
    add_part(archive, staged(archive.folder, 1, 41, name="one"))
    add_part(archive, staged(archive.folder, 41, 60, name="two"))
    for found in (archive, open_archive(archive.folder), made(archive.folder)):
        assert (found.first, found.end) == (1, 60)
        assert read(found, 1, 60) == list(range(1, 60))
        assert read(found, 19, 43) == list(range(19, 43))
        assert read(found, 30, 31) == [30]
        assert read(found, 5, 5) == []
        with pytest.raises(CollectedError, match="holds messages 1 to 59, not 1 to 60"):
            read(found, 1, 61)
    assert verify(archive.folder, lambda done, total: None, print).files == 4


@pytest.mark.req("PIP-05")
def test_a_batch_that_spark_repeats_is_there_once(tmp_path: Path) -> None:
    archive = made(tmp_path / "a")
    assert add_part(archive, staged(archive.folder, 1, 41)) is not None
    assert add_part(archive, staged(archive.folder, 1, 41, files=3)) is None
    assert read(open_archive(archive.folder), 1, 41) == list(range(1, 41))


@pytest.mark.req("PIP-05")
def test_who_died_before_the_entry_was_made_begins_the_part_again(tmp_path: Path) -> None:
    archive = made(tmp_path / "a")
    part = add_part(archive, staged(archive.folder, 1, 41))
    assert part is not None
    archive.entry_of(part).unlink()
    again = made(archive.folder)
    assert again.end == 1
    said: list[str] = []
    verify(archive.folder, lambda done, total: None, said.append)
    assert "not in the index" in said[0]
    add_part(again, staged(archive.folder, 1, 41, files=3))
    assert read(again, 1, 41) == list(range(1, 41))
    verify(archive.folder, lambda done, total: None, said.append)
    assert len(said) == 1


@pytest.mark.req("PIP-05")
def test_two_jobs_on_one_folder_are_told(tmp_path: Path) -> None:
    one = made(tmp_path / "a")
    other = open_archive(one.folder)
    first = staged(one.folder, 1, 41, name="one")
    second = staged(one.folder, 1, 41, name="other")
    add_part(one, first)
    with pytest.raises(DiskError, match=r"index/0000000000000000001\.json is there already"):
        add_part(other, second)
    ahead = staged(one.folder, 50, 60, name="ahead")
    with pytest.raises(DiskError, match="holds messages 50 to 59, and the archive ends at 40"):
        add_part(one, ahead)
    with locked(one.folder), pytest.raises(DiskError, match="lock is held"), locked(one.folder):
        pass


@pytest.mark.req("PIP-05")
def test_what_was_altered_or_taken_away_is_named(tmp_path: Path) -> None:
    archive = made(tmp_path / "a")
    for first in (1, 41):
        add_part(archive, staged(archive.folder, first, first + 40, name=str(first)))
    (path, file), *_ = archive.files(1, 2)
    whole = path.read_bytes()

    def complaints() -> list[str]:
        found = []
        for look in (lambda: read(archive, 1, 41), lambda: verify(archive.folder, _show, print)):
            with pytest.raises(DiskError, match="messages/part=0000000000000000001") as caught:
                look()
            found.append(str(caught.value))
        return found

    path.write_bytes(whole[:-10])
    assert all("was altered" in said for said in complaints())
    path.unlink()
    assert all("is missing" in said for said in complaints())
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 0x10
    path.write_bytes(bytes(flipped))
    with pytest.raises(DiskError, match="was altered"):
        verify(archive.folder, _show, print)
    path.write_bytes(whole)
    other = [place for place, _ in archive.files(1, 41)][1]
    path.write_bytes(other.read_bytes().ljust(file.size, b"\0")[: file.size])
    with pytest.raises(DiskError):
        read(archive, 1, 41)
    path.write_bytes(whole)
    archive.entry_of(archive.parts[0]).unlink()
    with pytest.raises(DiskError, match="an entry before it is missing"):
        open_archive(archive.folder)


def _show(done: int, total: int) -> None:
    pass


@pytest.mark.req("PIP-05")
def test_folders_that_are_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="is no archive"):
        open_archive(tmp_path)
    archive = made(tmp_path / "a")
    with pytest.raises(ConfigError, match="this archive is of group 'orders' of cluster demo/1"):
        begin_archive(archive.folder, new_about("demo/2", GROUP, 1))
    with pytest.raises(ConfigError, match="not of 'others'"):
        begin_archive(archive.folder, new_about(CLUSTER, "others", 1))
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").touch()
    with pytest.raises(DiskError, match=r"thesis\.txt: an archive needs its own"):
        begin_archive(full, new_about(CLUSTER, GROUP, 1))
    assert [path.name for path in full.iterdir()] == ["thesis.txt"]
    (archive.folder / "archive.json").write_text('{"format": 9}')
    with pytest.raises(DiskError, match=r"archive\.json can't be read"):
        open_archive(archive.folder)


@pytest.mark.req("PIP-05")
def test_a_beginning_that_was_interrupted_is_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    (folder / "index").mkdir(parents=True)
    (folder / "archive.json.new").touch()
    archive = made(folder)
    add_part(archive, staged(folder, 1, 41))
    (folder / "archive.json").unlink()
    with pytest.raises(DiskError, match="has no archive"):
        made(folder)


@pytest.mark.req("PIP-05")
def test_parts_without_entries_are_not_taken_for_rubbish(tmp_path: Path) -> None:
    archive = made(tmp_path / "a")
    for first in (1, 41, 81):
        add_part(archive, staged(archive.folder, first, first + 40, name=str(first)))
    for part in archive.parts[1:]:
        archive.entry_of(part).unlink()
    with pytest.raises(DiskError, match="lacks entries: 2 parts are there without one"):
        verify(archive.folder, _show, print)


@pytest.mark.req("PIP-05")
def test_footers_that_are_damaged_are_told_of_as_files(tmp_path: Path) -> None:
    archive = made(tmp_path / "a")
    add_part(archive, staged(archive.folder, 1, 41))
    (path, _), *_ = archive.files(1, 2)
    whole = path.read_bytes()
    told = 0
    for at in range(len(whole) - 200, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            read(archive, 1, 41)
        except DiskError as error:
            assert path.name in str(error)  # noqa: PT017 - not every flip is noticed by a read
            told += 1
        with pytest.raises(DiskError, match="was altered"):
            verify(archive.folder, _show, print)
    assert told
