"""States that jobs hand in: the files of a node, and whether they are what they say."""

import json
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from samcast.checkpoint.blocks import check_checkpoint, encode_list, read_list, write_checkpoint
from samcast.checkpoint.places import LIST, block_name, handed_folder, place_of
from samcast.client.adopting import Adopting
from samcast.group.table import Table
from samcast.runtime import handing
from samcast.runtime.handing import FILE_BYTES_MAX, ROOM_BYTES, Handing
from samcast.wire.handing import LIST_PART, HandIn

GROUP, NUMBER, JOB = 1, 7, 99
ABOUT = ("cluster", "orders", "latest", 1)
FACTS: dict[str, Any] = {
    "id": GROUP, "name": "orders", "head": 9, "keep": {"fold": "latest", "fold_version": 1},
}  # fmt: skip


def piece(
    part: int, at: int, data: bytes, offset: int = 0, total: int = 0, job: int = JOB
) -> HandIn:
    return HandIn(GROUP, NUMBER, job, part, at, offset, total or len(data), data)


def made(folder: Path) -> Handing:
    return Handing(folder, lambda group: group == GROUP)


def state(value: bytes = b"value") -> Table:
    made = Table()
    made.merge(NUMBER, 7, [b"a", b"b"], [value, b"other"], [3, 7])
    return made


def hand_in(node: Handing, folder: Path, change: str = "", given: Table | None = None) -> None:
    """All of it, as a job does; with a change, not quite what it should be."""
    about = ("other", *ABOUT[1:]) if change == "cluster" else ABOUT
    source = folder / "source"
    write_checkpoint(source, given or state(), about)
    block = (source / block_name(1)).read_bytes()
    if change == "altered":
        write_checkpoint(folder / "else", state(b"VALUE"), ABOUT)
        block = (folder / "else" / block_name(1)).read_bytes()
    if change != "missing":
        node.take(piece(1, 1, block[:50], 0, len(block)))
        assert node.take(piece(1, 1, block[50:], 50, len(block))).offset == len(block)
    node.take(piece(LIST_PART, 0, (source / LIST).read_bytes()))


def adopted(folder: Path, facts: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said about it."""
    said: list[dict[str, Any]] = []
    adopting = Adopting(folder, threading.Lock(), lambda group, **told: said.append(told))
    adopting.look("cluster", facts)
    for thread in threading.enumerate():
        if thread.name == "adopt":
            thread.join(30)
    (found,) = said
    return found


@pytest.mark.req("PIP-04")
def test_what_is_whole_and_right_takes_its_place(tmp_path: Path) -> None:
    node = made(tmp_path / "node")
    hand_in(node, tmp_path)
    said = adopted(tmp_path / "node", [FACTS])
    assert (said["number"], said["rows"], said["fold"]) == (NUMBER, 2, "latest")
    assert said["hash"] == state().state_hash().hex()
    place = place_of(tmp_path / "node", GROUP, NUMBER)
    assert check_checkpoint(place).rows == 2
    assert not handed_folder(tmp_path / "node", GROUP, NUMBER, JOB).exists()
    # Its last piece, said once more, has no effect.
    node.settle(GROUP, JOB, "")
    assert not node.take(piece(LIST_PART, 0, b"list")).refused
    assert not handed_folder(tmp_path / "node", GROUP, NUMBER, JOB).exists()


@pytest.mark.req("PIP-04")
@pytest.mark.parametrize(
    ("change", "facts", "said"),
    [
        ("cluster", [FACTS], "it is of other/orders/latest/1 at 7, not cluster/orders/latest/1"),
        ("missing", [FACTS], "0 blocks came, of 1"),
        ("altered", [FACTS], "a block whose rows aren't what its list says"),
        ("", [], "there is no such group"),
        ("", [{**FACTS, "keep": {"fold": "latest", "fold_version": 2}}], "not cluster/orders/lat"),
    ],
)
def test_what_is_not_what_it_says_is_refused(
    tmp_path: Path, change: str, facts: list[dict[str, Any]], said: str
) -> None:
    node = made(tmp_path / "node")
    hand_in(node, tmp_path, change)
    found = adopted(tmp_path / "node", facts)
    assert said in found["dropped"]
    assert found["job"] == JOB
    assert not place_of(tmp_path / "node", GROUP, NUMBER).exists()
    assert not handed_folder(tmp_path / "node", GROUP, NUMBER, JOB).exists()


@pytest.mark.req("PIP-04")
def test_a_server_that_came_to_another_state_keeps_its_own(tmp_path: Path) -> None:
    node = made(tmp_path / "node")
    place = place_of(tmp_path / "node", GROUP, NUMBER)
    own = write_checkpoint(place, state(b"mine"), ABOUT)
    hand_in(node, tmp_path)
    assert "has come to another state at 7" in adopted(tmp_path / "node", [FACTS])["dropped"]
    assert check_checkpoint(place) == own


@pytest.mark.req("PIP-04")
def test_pieces_may_come_twice_or_too_early(tmp_path: Path) -> None:
    node = made(tmp_path)
    assert node.take(piece(1, 1, b"later", 10, 20)).offset == 0
    assert node.take(piece(1, 1, b"begun", 0, 10)).offset == 5
    assert node.take(piece(1, 1, b"ended", 5, 10)).offset == 10
    assert node.take(piece(1, 1, b"begun", 0, 10)).offset == 10  # Nothing is cut that is whole.
    place = handed_folder(tmp_path, GROUP, NUMBER, JOB)
    assert [path.read_bytes() for path in place.iterdir()] == [b"begunended"]
    assert node.take(piece(1, 2, b"begun", 0, 10)).offset == 5
    assert node.take(piece(1, 2, b"begun", 0, 10)).offset == 5  # and goes on from there
    assert "no part of its file" in node.take(piece(1, 2, b"much more", 5, 10)).refused
    assert "no part of its file" in node.take(HandIn(GROUP, 7, JOB, 1, 3, 0, 0, b"")).refused


@pytest.mark.req("PIP-04")
def test_one_job_at_a_time_and_what_it_left_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("samcast.runtime.handing.time.monotonic", lambda: now)
    node = made(tmp_path)
    assert not node.take(piece(1, 1, b"one")).refused
    assert "another job" in node.take(piece(1, 1, b"two", job=100)).refused
    now = handing.IDLE_S + 1
    assert not node.take(piece(1, 1, b"two", job=100)).refused
    assert not handed_folder(tmp_path, GROUP, NUMBER, JOB).exists()
    now += handing.STALE_S
    node.watch()
    assert not handed_folder(tmp_path, GROUP, NUMBER, 100).exists()
    assert not node.take(piece(1, 1, b"one")).refused
    made(tmp_path)  # A node that starts anew knows of no job.
    assert list(tmp_path.glob("*/.*")) == []


@pytest.mark.req("PIP-04")
def test_what_would_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = made(tmp_path)
    assert "256 MiB" in node.take(piece(1, 1, b"x", 0, FILE_BYTES_MAX + 1)).refused
    assert "parts" in node.take(piece(10**9, 1, b"x")).refused
    stranger = HandIn(2, NUMBER, JOB, 1, 1, 0, 1, b"x")
    assert "group 2 has no fold" in node.take(stranger).refused
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=ROOM_BYTES))
    assert "are free here" in node.take(piece(1, 1, b"x")).refused

    def fails(folder: Path) -> None:
        raise OSError("no such disk")

    monkeypatch.setattr(shutil, "disk_usage", fails)
    assert "it can't be written here: no such disk" in node.take(piece(1, 1, b"x")).refused


@pytest.mark.req("PIP-04")
def test_a_list_is_the_same_after_it_was_written_and_read(tmp_path: Path) -> None:
    listed = write_checkpoint(tmp_path / "1", state(), ABOUT)
    assert read_list(encode_list(listed)) == listed
    assert encode_list(listed) == (tmp_path / "1" / LIST).read_bytes()


@pytest.mark.req("PIP-04")
def test_a_server_that_lags_looks_at_it_when_it_has_come_so_far(tmp_path: Path) -> None:
    node = made(tmp_path / "node")
    hand_in(node, tmp_path)
    said: list[dict[str, Any]] = []
    adopting = Adopting(
        tmp_path / "node", threading.Lock(), lambda group, **told: said.append(told)
    )
    adopting.look("cluster", [{**FACTS, "head": NUMBER - 1}])
    assert said == []
    assert adopted(tmp_path / "node", [FACTS])["number"] == NUMBER


@pytest.mark.req("PIP-04")
@pytest.mark.parametrize("lie", [{"size": -1}, {"size": 2**70}, {"size": 4}, {"number": -5}])
def test_a_list_of_nonsense_does_no_harm(tmp_path: Path, lie: dict[str, int]) -> None:
    node = made(tmp_path / "node")
    write_checkpoint(tmp_path / "source", state(), ABOUT)
    block = (tmp_path / "source" / block_name(1)).read_bytes()
    node.take(piece(1, 1, block))
    listed = json.loads((tmp_path / "source" / LIST).read_bytes())
    node.take(piece(LIST_PART, 0, json.dumps({**listed, **lie}).encode()))
    assert adopted(tmp_path / "node", [FACTS])["dropped"]
    assert not place_of(tmp_path / "node", GROUP, NUMBER).exists()


@pytest.mark.req("PIP-04")
def test_it_is_taken_also_if_a_process_died_over_it(tmp_path: Path) -> None:
    node = made(tmp_path / "node")
    hand_in(node, tmp_path)
    place = handed_folder(tmp_path / "node", GROUP, NUMBER, JOB)
    (part,) = place.glob("part-*")
    part.rename(place / block_name(1))
    assert adopted(tmp_path / "node", [FACTS])["number"] == NUMBER


@pytest.mark.req("PIP-04")
def test_what_is_whole_waits_until_it_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("samcast.runtime.handing.time.monotonic", lambda: now)
    node = made(tmp_path / "node")
    hand_in(node, tmp_path)
    now = handing.GIVEN_UP_S + 1
    node.watch()
    assert "another job" in node.take(piece(1, 1, b"two", job=100)).refused
    assert handed_folder(tmp_path / "node", GROUP, NUMBER, JOB).exists()
    node.settle(GROUP, JOB, "")
    assert not node.take(piece(1, 1, b"two", job=100)).refused


@pytest.mark.req("PIP-04")
def test_what_finds_no_room_leaves_none_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = made(tmp_path)
    node.take(piece(1, 1, b"one"))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=ROOM_BYTES))
    assert "are free here" in node.take(piece(1, 2, b"two")).refused
    assert not handed_folder(tmp_path, GROUP, NUMBER, JOB).exists()


@pytest.mark.req("PIP-04")
def test_a_fold_that_changes_meanwhile_makes_it_void(tmp_path: Path) -> None:
    node = made(tmp_path / "node")
    hand_in(node, tmp_path)
    said: list[dict[str, Any]] = []
    places = threading.Lock()
    adopting = Adopting(tmp_path / "node", places, lambda group, **told: said.append(told))
    with places:  # It can't take its place yet,
        adopting.look("cluster", [FACTS])
        adopting.look("cluster", [{**FACTS, "keep": {"fold": "append", "fold_version": 1}}])
    for thread in threading.enumerate():
        if thread.name == "adopt":
            thread.join(30)
    assert "not cluster/orders/append/1" in said[0]["dropped"]  # and then it has none any more.
    assert not place_of(tmp_path / "node", GROUP, NUMBER).exists()
