"""Archives as Delta tables: the log follows the index, through interruptions and neglect."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from samcast.archive import delta
from samcast.archive.index import MESSAGES, Archive, open_archive
from samcast.archive.verifying import verify
from samcast.archive.writing import add_part
from samcast.errors import ConfigError, DiskError
from tests.archive.build import made, staged

HAS_DELTA = importlib.util.find_spec("deltalake") is not None
pytestmark = pytest.mark.skipif(not HAS_DELTA, reason="needs deltalake")


def numbers(archive: Archive) -> list[int]:
    """As somebody reads them who knows of Delta only."""
    import deltalake

    table = deltalake.DeltaTable(archive.folder / MESSAGES)
    found: list[int] = table.to_pyarrow_dataset().to_table(["number"])["number"].to_pylist()
    return sorted(found)


def check(archive: Archive) -> None:
    verify(archive.folder, lambda done, of: None, lambda text: None)


@pytest.mark.req("PIP-05")
def test_each_message_is_there_once_whatever_was_left_undone(tmp_path: Path) -> None:
    archive = made(tmp_path / "a")
    add_part(archive, staged(archive.folder, 1, 30))
    delta.follow(archive)
    assert numbers(archive) == list(range(1, 30))
    delta.follow(archive)  # There is nothing left to do.
    shutil.rmtree(archive.folder / MESSAGES / delta.LOG)
    (archive.folder / MESSAGES / delta.LOG).mkdir()  # as of a job that was killed at once
    check(archive)
    delta.follow(archive)
    assert numbers(archive) == list(range(1, 30))
    add_part(archive, staged(archive.folder, 30, 50))  # and the job dies before it says so
    add_part(archive, staged(archive.folder, 50, 60))
    assert numbers(archive) == list(range(1, 30))
    check(archive)
    again = open_archive(archive.folder)
    delta.follow(again)
    assert numbers(again) == list(range(1, 60))
    check(again)


@pytest.mark.req("PIP-05")
def test_a_log_that_is_not_of_these_files_is_told_of(tmp_path: Path) -> None:
    import deltalake

    archive = made(tmp_path / "a")
    add_part(archive, staged(archive.folder, 1, 30))
    delta.follow(archive)
    deltalake.DeltaTable(archive.folder / MESSAGES).delete("number < 5")
    with pytest.raises(DiskError, match=r"_delta_log .*part.* other than the archive's index"):
        check(archive)
    shutil.rmtree(archive.folder / MESSAGES / delta.LOG)
    delta.follow(archive)  # It is made anew.
    assert numbers(archive) == list(range(1, 30))
    for path in (archive.folder / MESSAGES / delta.LOG).glob("*.json"):
        path.write_text("no log")
    with pytest.raises(DiskError, match="_delta_log can't be read"):
        check(archive)


@pytest.mark.req("PIP-05")
def test_what_is_missing_for_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = made(tmp_path / "a")
    add_part(archive, staged(archive.folder, 1, 30))
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ConfigError, match="pip install"):
        delta.follow(archive)
