"""Folders that aren't whole, disks under other numbers, allocation that is refused: real nodes.
Numbers in names are the rows of the fault catalogue."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import samcast
from samcast.disk.layout import PARTS, SUPER, open_disk, trust_disk
from samcast.errors import DiskError
from samcast.group.settings import GroupSettings
from samcast.runtime import os_folder
from samcast.runtime.local_cluster import LocalCluster, log_end
from samcast.runtime.os_folder import (
    IDENTITY_HANDLE,
    IDENTITY_INODE_AND_BIRTH,
    OsFolder,
)
from tests.real.bad_disk import launcher
from tests.real.conftest import MULTICAST, running
from tests.real.striking import NODES, judged, pause, restart


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path / "cluster")
    made.make(3, multicast=MULTICAST, settings=GroupSettings(rejoin_silence_ms=1000))
    with running(made):
        yield made


def samcast_says(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "samcast.cli.main", *arguments],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def confirmed(cluster: LocalCluster, bodies: list[bytes]) -> list[int]:
    with samcast.connect(cluster.address) as client:
        return [client.group("g").send(body).number(20) for body in bodies]


def read(cluster: LocalCluster, count: int) -> list[bytes]:
    with samcast.connect(cluster.address) as client:
        return [message.body for message in client.group("g").read(1, count=count, timeout=20)]


def parts_of(folder: Path) -> list[Path]:
    """Every file and folder that a start relies on, but for what it can do without."""
    found = [folder / SUPER]
    for part, inside in PARTS:
        found += [folder / part, *([folder / part / inside] if inside else [])]
    return [*found, *sorted((folder / "data").glob("segment-*"))[:1]]


@pytest.mark.req("GRP-27")
def test_67_a_node_that_lacks_a_part_of_its_disk_says_so_and_starts_when_it_is_back(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    confirmed(cluster, [b"1", b"2"])
    cluster.kill("n3", signal.SIGTERM)
    folder, config = cluster.plan().node("n3").folder, str(cluster.plan().path)
    aside = tmp_path / "aside"
    for part in parts_of(folder):
        part.rename(aside)
        before = sorted(folder.rglob("*"))
        code, said = samcast_says("node", "--config", config, "--name", "n3")
        assert code == 1
        assert f"{part} is missing" in said
        assert "samcast disk renew" in said
        assert sorted(folder.rglob("*")) == before  # Nothing was made in its place.
        assert samcast_says("disk", "show", "n3", "--config", config)[0] == 1
        aside.rename(part)
    assert samcast_says("disk", "show", "n3", "--config", config)[0] == 0
    restart(cluster, "n3")
    judged(cluster, lambda: None)


@pytest.mark.req("GRP-27")
def test_67_a_server_without_its_order_does_not_vote(cluster: LocalCluster) -> None:
    """SAFETY CE-4: what n1 and n2 have confirmed is not lost when n2 forgets it."""
    cluster.kill("n3", signal.SIGTERM)
    numbers = confirmed(cluster, [b"paid 1", b"paid 2"])
    for name in ("n1", "n2"):
        cluster.kill(name, signal.SIGTERM)
    lost = cluster.plan().node("n2").folder / "order"
    shutil.rmtree(lost)
    for name in ("n2", "n3"):
        cluster.start(name)
    while "is missing" not in log_end(cluster.plan().node("n2"), 20):
        pause(0.05)
    cluster.start("n1")
    cluster.await_ready("n1")
    assert read(cluster, 2) == [b"paid 1", b"paid 2"]
    config = str(cluster.plan().path)
    assert samcast_says("disk", "renew", "n2", "--yes", "--config", config)[0] == 0
    restart(cluster, "n2")
    assert confirmed(cluster, [b"paid 3"]) == [numbers[-1] + 1]


def test_67_a_journal_whose_segment_is_gone_is_repaired_and_not_believed(
    cluster: LocalCluster,
) -> None:
    def strike() -> None:
        cluster.kill("n2")
        segments = sorted((cluster.plan().node("n2").folder / "order").glob("segment-*"))
        segments[0].unlink()
        restart(cluster, "n2")

    judged(cluster, strike)


def test_71_no_room_for_another_segment_and_two_restarts(tmp_path: Path) -> None:
    """All disks fill at once: votes go on, and so does everything when there is room."""
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.make(3, multicast=MULTICAST)
    faults = tmp_path / "faults"
    faults.write_text("{}")
    for name in NODES:
        cluster.launchers[name] = launcher(faults)
    with running(cluster):
        numbers = confirmed(cluster, [b"1"])
        faults.write_text('{"no_room": true}')
        for _ in range(2):
            for name in NODES:
                cluster.kill(name)
            for name in NODES:
                cluster.start(name)
            cluster.await_ready()
        assert read(cluster, 1) == [b"1"]
        faults.write_text("{}")
        assert confirmed(cluster, [b"2"]) == [numbers[-1] + 1]


def test_72_a_disk_is_known_by_what_a_copy_has_not(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.make(1)
    folder = cluster.plan().node("n1").folder
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert open_disk(OsFolder(folder), 1).record is not None
    assert open_disk(OsFolder(copy), 1).record is None
    for kind in (IDENTITY_HANDLE, IDENTITY_INODE_AND_BIRTH):
        here, there = OsFolder(folder).identity(SUPER, kind), OsFolder(copy).identity(SUPER, kind)
        assert here.kind == kind  # This system has both.
        assert here.value != there.value
        assert OsFolder(folder).identity(SUPER, kind) == here


def test_72_a_disk_under_another_number_asks_and_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system has nothing better to tell a disk by."""
    monkeypatch.setattr(os_folder, "_handle_of", lambda path: b"")
    monkeypatch.setattr(os_folder, "_birth_of", lambda path: b"")
    cluster = LocalCluster(tmp_path / "cluster")
    cluster.make(1)
    folder = OsFolder(cluster.plan().node("n1").folder)
    assert open_disk(folder, 1).record is not None
    stat = Path.stat

    class Moved:
        """The same file of a device with another number."""

        def __init__(self, path: Path) -> None:
            self.st_ino, self.st_dev = stat(path).st_ino, stat(path).st_dev + 1

    monkeypatch.setattr(Path, "stat", lambda path, **how: Moved(path))
    with pytest.raises(DiskError, match=r"another number than before.*samcast disk trust"):
        open_disk(folder, 1)
    trust_disk(folder, 1)
    assert open_disk(folder, 1).record is not None
