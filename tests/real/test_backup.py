"""Backups of running clusters, and clusters made of them: the same content at the same number."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import samcast
from samcast.client.backup import CopyWriter, back_up, check, restore
from samcast.client.lease import Lease
from samcast.errors import DiskError
from samcast.runtime.local_cluster import LocalCluster
from tests.real.conftest import running
from tests.real.test_checkpoints import await_checkpoint, filled
from tests.real.test_retention import await_oldest, sent


def quiet(text: str) -> None:
    """Nobody reads it."""


@pytest.mark.req("GRP-23", "GRP-24")
def test_what_is_restored_has_the_same_content_at_the_same_number(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    with samcast.connect(cluster.address) as client:
        orders = client.group("orders")
        sent(orders, 50)
        orders.send(b"with", b"key", b"and headers").number(30)
        orders.keep(count=20)
        await_oldest(orders, 32)
        table = filled(client, 1050)
        await_checkpoint(client, 1000)
        copy = back_up(client, backup, quiet)
        filled(client, 30, 5000)  # life goes on
        numbers = {group.name: group.number for group in copy.groups}
        content = table.as_of(numbers["table/routes"]).content_hash()
        messages = [(m.number, m.key, m.headers, m.body) for m in orders.read(count=20)]
    restore(backup, tmp_path / "new", quiet)
    again = LocalCluster(tmp_path / "new")
    assert again.plan().cluster != cluster.plan().cluster
    with running(again), samcast.connect(again.address) as client:
        orders = client.group("orders")
        assert [(m.number, m.key, m.headers, m.body) for m in orders.read(count=20)] == messages
        assert orders.send(b"next").number(30) == 52
        table = client.table("routes")
        assert table.number == numbers["table/routes"]
        assert table.content_hash() == content
        table.put("key-1", "anew").number(30)
        assert table.get("key-1") == b"anew"


def test_leases_are_renewed_within_a_group_and_the_list_stands_last(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync = os.fsync

    def synced(fd: int) -> None:
        fsync(fd)
        done.append(str(Path(f"/proc/self/fd/{fd}").readlink().relative_to(tmp_path)))

    monkeypatch.setattr("samcast.client.backup.RENEW_S", 0.0)

    def noted(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def work(*arguments: object) -> None:
            done.append(name)
            call(*arguments)

        return work

    monkeypatch.setattr(CopyWriter, "add", noted("add", CopyWriter.add))
    monkeypatch.setattr(Lease, "renew", noted("renew", Lease.renew))
    monkeypatch.setattr(os, "fsync", synced)
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        for body in (b"a", b"b"):
            group.send(body).number(30)
        back_up(client, tmp_path / "new" / "made", quiet)
    assert done.index("renew") < len(done) - 1 - done[::-1].index("add")
    last = done.index("new/made/backup.json.new")
    place = f"new/made/{group.id}"
    assert {f"{place}/messages", place, "new/made", "new", "."} <= set(done[:last])


def test_a_backup_goes_nowhere_but_into_a_folder_of_its_own(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with samcast.connect(cluster.address) as client:
        sent(client.group("orders"), 3)
        (tmp_path / "used").mkdir()
        (tmp_path / "used" / "file").touch()
        with pytest.raises(DiskError, match="is not empty; a backup goes into a folder of its own"):
            back_up(client, tmp_path / "used", quiet)
        back_up(client, tmp_path / "backup", quiet)
    with pytest.raises(DiskError, match="is not empty; restore into a folder of its own"):
        restore(tmp_path / "backup", tmp_path / "used", quiet)
    assert [p.name for p in (tmp_path / "used").iterdir()] == ["file"]


@pytest.mark.parametrize("what", ["messages", "list", "cut", "none"])
def test_a_damaged_backup_is_refused(cluster: LocalCluster, tmp_path: Path, what: str) -> None:
    backup = tmp_path / "backup"
    with samcast.connect(cluster.address) as client:
        sent(client.group("orders"), 3)
        back_up(client, backup, quiet)
    messages = next(backup.glob("*/messages"))
    if what == "messages":
        data = bytearray(messages.read_bytes())
        data[100] ^= 1
        messages.write_bytes(data)
    elif what == "cut":
        messages.write_bytes(messages.read_bytes()[:64])
    elif what == "list":
        (backup / "backup.json").write_text("{}")
    else:
        (backup / "backup.json").unlink()
    with pytest.raises(DiskError, match=r"damaged|can't be read|no backup"):
        check(backup)
    with pytest.raises(DiskError):
        restore(backup, tmp_path / "new", quiet)
    assert not (tmp_path / "new").exists()
