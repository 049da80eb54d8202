"""A checkpoint leaves room to those who need it more."""

import shutil
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, cast

import pytest

from samcast.checkpoint.blocks import check_checkpoint
from samcast.checkpoint.places import place_of
from samcast.client import fold_worker
from samcast.client.fold_worker import ROOM_BYTES, Folding


@pytest.mark.req("GRP-15")
@pytest.mark.parametrize("free", [0, ROOM_BYTES - 1, 2 * ROOM_BYTES])
def test_without_room_none_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(fold_worker, "say", lambda group, **facts: said.append(facts))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    keep = {"fold": "latest", "fold_version": 1, "interval": 10, "by_jobs": False}
    folding = Folding(
        cast(Any, None), tmp_path, Lock(), "c", {"id": 1, "name": "orders", "keep": keep}
    )
    folding._table.merge(7, 1, [b"key"], [b"value"], [7])
    folding._write()
    place = place_of(tmp_path, 1, 7)
    if free > ROOM_BYTES:
        assert check_checkpoint(place).rows == 1
        assert said[0]["number"] == 7
    else:
        assert not place.exists()
        assert "no room for checkpoint 7" in said[0]["dropped"]


@pytest.mark.req("GRP-15")
def test_who_is_done_with_a_group_stays_so(tmp_path: Path) -> None:
    def facts(fold: str, by_jobs: bool = False) -> dict[str, Any]:
        keep = {"fold": fold, "fold_version": 1, "interval": 10, "by_jobs": by_jobs}
        return {"id": 1, "name": "orders", "keep": keep}

    folding = Folding(cast(Any, None), tmp_path, Lock(), "c", facts("latest"))
    assert folding.see(facts("latest"))
    assert not folding.see(facts("latest", by_jobs=True))
    assert folding.see(facts("latest"))
    assert folding._is_over  # Its thread has ended: another one begins.
    Folding(cast(Any, None), tmp_path, Lock(), "c", facts("not-installed", by_jobs=True))
