"""What operators and starting nodes are told of a disk that isn't whole, has no room, or can't be
used: one line each, with what to do."""

import asyncio
import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from samcast.cli.main import app
from samcast.disk import data_store
from samcast.disk.folder import NEW
from samcast.disk.layout import GIVEN_UP, SUPER, open_disk
from samcast.errors import ConfigError, DiskError
from samcast.runtime import node as node_module
from samcast.runtime.cluster_file import ClusterPlan
from samcast.runtime.disks import Disks
from samcast.runtime.folder import format_folder, lock_folder, set_aside
from samcast.runtime.local_cluster import LocalCluster
from samcast.runtime.node import Node
from samcast.runtime.os_folder import OsFolder
from samcast.runtime.tidying import Tidying
from samcast.wire.records import SuperRecord, encode_record
from samcast.wire.twin import encode_twin


@pytest.fixture
def plan(tmp_path: Path) -> ClusterPlan:
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.make(1)
    return cluster.plan()


def folder_of(plan: ClusterPlan) -> Path:
    return plan.node("n1").folder


def disks_of(plan: ClusterPlan) -> Disks:
    return Disks(plan.node("n1"), lambda event, text, **facts: None, plan.path)


def says(plan: ClusterPlan, *arguments: str) -> tuple[int, str]:
    """What a command of `samcast disk` makes of it; a bug comes through as it is."""
    done = CliRunner().invoke(app, ["disk", *arguments, "n1", "--config", str(plan.path)])
    if done.exception is not None and not isinstance(done.exception, SystemExit | DiskError):
        raise done.exception
    return done.exit_code, done.output + str(done.exception or "")


def make_old(folder: Path) -> None:
    """A disk as earlier versions made it, which has no list."""
    (folder / SUPER).unlink()
    (folder / "data" / "list").unlink()
    (folder / SUPER).touch()
    status = (folder / SUPER).stat()
    identity = (status.st_ino << 20 ^ status.st_dev) % 2**62 or 1
    record = SuperRecord(1, 7, identity)
    (folder / SUPER).write_bytes(encode_twin(1, encode_record(record)))


def refuse(number: int) -> Callable[..., None]:
    def allocate(fd: int, offset: int, size: int) -> None:
        raise OSError(number, os.strerror(number))

    return allocate


# samcast disk show, trust


def test_show_tells_a_vote_that_cannot_be_read(plan: ClusterPlan) -> None:
    assert says(plan, "show")[0] == 0
    os.truncate(folder_of(plan) / "order" / "vote", 0)
    code, said = says(plan, "show")
    assert code == 1
    assert "vote" in said


@pytest.mark.parametrize("is_gone", [False, True])
def test_show_tells_an_order_that_has_rotted_or_lacks_a_segment(
    plan: ClusterPlan, is_gone: bool
) -> None:
    segment = folder_of(plan) / "order" / "segment-0000000001"
    if is_gone:
        segment.unlink()
    else:
        segment.write_bytes(b"\xff" * 8192 + segment.read_bytes()[8192:])
    code, said = says(plan, "show")
    assert code == 1
    assert "rotten" in said


def test_show_looks_at_a_disk_of_an_earlier_version(plan: ClusterPlan) -> None:
    make_old(folder_of(plan))
    assert says(plan, "show")[0] == 0


def test_show_makes_nothing_on_a_disk_of_an_earlier_version_that_never_started(
    plan: ClusterPlan,
) -> None:
    folder = folder_of(plan)
    make_old(folder)
    set_aside_parts = folder.parent / "aside"
    set_aside_parts.mkdir()
    for part in ("order", "data", "checkpoints"):
        (folder / part).rename(set_aside_parts / part)
    before = sorted(os.listdir(folder))
    assert says(plan, "show")[0] == 0
    assert sorted({*os.listdir(folder)} - {"lock"}) == [name for name in before if name != "lock"]


def test_trust_without_a_superblock_is_an_error_of_one_line(plan: ClusterPlan) -> None:
    (folder_of(plan) / SUPER).unlink()
    code, said = says(plan, "trust", "--yes")
    assert code == 1
    assert "super is missing" in said
    assert f"samcast disk renew n1 --config {plan.path}" in said


# nodes that can't start


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.ENOSPC, "free some"), (errno.EROFS, "mounted for writing")]
)
def test_a_disk_that_refuses_to_be_laid_out_is_an_error_of_one_line(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", refuse(number))
    folder = folder_of(plan)
    with pytest.raises(DiskError, match=f"{folder}.*{os.strerror(number)}.*{advice}"):
        format_folder(folder.parent / f"{folder.name}-new", 1)
    set_aside(folder)
    with pytest.raises(DiskError, match=f"{folder}.*{os.strerror(number)}.*{advice}"):
        disks_of(plan).open()


def test_a_link_to_nowhere_is_an_error_of_one_line_and_the_disk_is_let_go(
    plan: ClusterPlan,
) -> None:
    order = folder_of(plan) / "order"
    order.rename(order.with_name("moved"))
    order.symlink_to("nowhere")
    disks = disks_of(plan)
    with pytest.raises(DiskError, match=f"{order} can't be used"):
        disks.open()
    os.close(lock_folder(folder_of(plan)))
    assert says(plan, "show")[0] == 1


def test_a_start_that_fails_lets_go_of_the_disk(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_list(*listed: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    async def start() -> None:
        disks = disks_of(plan)
        disks.open()
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(data_store, "write_list", write_list)
        with pytest.raises(DiskError, match="Read-only"):
            disks.start(loop, lambda token: None, lambda token: None, print)
        disks.close()

    asyncio.run(start())
    os.close(lock_folder(folder_of(plan)))


def test_a_node_that_lacks_a_part_names_the_command_to_type(plan: ClusterPlan) -> None:
    (folder_of(plan) / "order" / "vote").unlink()
    with pytest.raises(DiskError, match=f"`samcast disk renew n1 --config {plan.path}`"):
        disks_of(plan).open()


# disks that are set aside, or half made


def interrupt_rename(patch: pytest.MonkeyPatch, after: int) -> None:
    rename, left = Path.rename, [after]

    def renamed(path: Path, target: Path) -> Path:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return rename(path, target)

    patch.setattr(Path, "rename", renamed)


@pytest.mark.parametrize("first", range(1, 5))
def test_setting_aside_may_be_interrupted_again_and_again(plan: ClusterPlan, first: int) -> None:
    """Whatever the file system lists first, the superblock says until the end what the rest is."""
    folder, listing = folder_of(plan), Path.iterdir
    for after in (first, 1):
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(Path, "iterdir", lambda path: iter(sorted(listing(path))[::-1]))
            interrupt_rename(patch, after)
            set_aside(folder)
        assert open_disk(OsFolder(folder), 1).record is None
    set_aside(folder)
    assert not [name for name in os.listdir(folder) if not name.startswith(("lock", "lost-"))]
    assert len(list(folder.glob("lost-*/vote")) + list(folder.glob("lost-*/order/vote"))) == 1


def test_a_disk_that_was_never_finished_is_made_again_in_its_place(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is started again and again while there is no room."""
    folder = folder_of(plan)
    set_aside(folder)
    before = sorted(folder.glob("lost-*"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse(errno.ENOSPC))
        for _ in range(3):
            with pytest.raises(DiskError, match="no room"):
                disks_of(plan).open()
    disks = disks_of(plan)
    disks.open()
    disks.close()
    assert sorted(folder.glob("lost-*")) == before


@pytest.mark.parametrize("used", ["vote", "payloads", "given up", "something else"])
def test_nothing_that_was_ever_used_is_deleted(plan: ClusterPlan, used: str) -> None:
    folder = folder_of(plan)
    (folder / SUPER).rename(folder / (GIVEN_UP if used == "given up" else SUPER + NEW))
    if used == "vote":
        (folder / "order" / "vote").write_bytes(encode_twin(2, b"promised"))
    elif used == "payloads":
        (folder / "data" / "segment-0000000001").write_bytes(b"payload")
    elif used == "something else":
        (folder / "notes").write_text("mine")
    held = sorted(path.name for path in folder.rglob("*") if path.name != "lock")
    aside = set_aside(folder)
    assert aside is not None
    kept = sorted(path.name for path in aside.rglob("*"))
    assert kept == sorted(SUPER if name == GIVEN_UP else name for name in held)


# nodes that stop


def test_a_node_that_stops_keeps_its_disk_until_the_last_step_of_tidying_has_ended(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(plan, "n1")
    let_go, was_let_go = threading.Event(), []
    close = Disks.close

    def closed(disks: Disks) -> None:
        close(disks)
        let_go.set()

    async def tidy(tidying: Tidying) -> None:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def step() -> None:
            loop.call_soon_threadsafe(begun.set)
            was_let_go.append(let_go.wait(0.5))

        ended = asyncio.create_task(asyncio.to_thread(step))
        await begun.wait()
        node._stopped.set()
        await ended

    monkeypatch.setattr(Disks, "close", closed)
    monkeypatch.setattr(Tidying, "run", tidy)
    monkeypatch.setattr(node_module, "settle", lambda: None)
    assert asyncio.run(node.run()) == 0
    assert was_let_go == [False]


def test_a_node_that_cannot_listen_lets_go_of_its_disk(
    plan: ClusterPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "settle", lambda: None)
    with socket.create_server(plan.node("n1").listens_on):
        node = Node(plan, "n1")
        with pytest.raises(ConfigError):
            asyncio.run(node.run())
    os.close(lock_folder(folder_of(plan)))
