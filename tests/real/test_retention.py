"""What stays and what goes, on real nodes: bounds, leases, restarts, new disks."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import samcast
from samcast.disk.data_store import DataStore
from samcast.errors import CollectedError, ConfigError
from samcast.group.listing import DataRecovery
from samcast.pipeline.options import read_options
from samcast.pipeline.reading import first_number, record_batches
from samcast.runtime.local_cluster import LocalCluster
from samcast.runtime.os_folder import OsFolder
from samcast.runtime.tidying import Tidying
from samcast.wire.order import Keep
from tests.real.striking import NODES, pause, restart
from tests.real.test_data_store import SMALL, UUID, batch, key, segments_in, start, written

WAIT_S = 20.0


def await_oldest(group: samcast.client.blocking.Group, number: int) -> None:
    """Until the messages below are gone."""
    for _ in range(int(WAIT_S / 0.1)):
        if group.oldest() == number:
            return
        pause(0.1)
    assert group.oldest() == number


def sent(group: samcast.client.blocking.Group, count: int) -> None:
    for i in range(count):
        group.send(b"%d" % i).number(30)


@pytest.mark.req("GRP-20")
def test_only_the_newest_stay_and_readers_begin_with_them(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        orders = client.group("orders")
        sent(orders, 30)
        assert orders.oldest() == 1
        orders.keep(count=10)
        await_oldest(orders, 21)
        assert [m.number for m in orders.read(count=10)] == list(range(21, 31))
        with pytest.raises(CollectedError, match=r"up to 20 are gone.*the oldest is 21"):
            next(iter(orders.read(5)))
        orders.keep()  # for ever, from now on
        sent(orders, 20)
        pause(2)
        assert orders.oldest() == 21
        with pytest.raises(ConfigError, match="count is 0; it must be a positive number"):
            orders.keep(count=0)


@pytest.mark.req("GRP-20")
def test_all_ways_of_reading_begin_with_the_oldest_in_the_middle_of_a_batch(
    cluster: LocalCluster,
) -> None:
    async def subscribed() -> int:
        async with await samcast.aio.connect(cluster.address) as client:
            async for message in (await client.group("orders")).subscribe():
                return message.number
        raise AssertionError

    with samcast.connect(cluster.address) as client:
        orders = client.group("orders")
        receipt = orders.send_many(b"%d" % i for i in range(10_000))
        assert receipt is not None
        assert receipt.number(30) == 10_000
        orders.keep(count=100)
        await_oldest(orders, 9901)
        assert [m.number for m in orders.read(count=100)] == list(range(9901, 10_001))
        assert asyncio.run(subscribed()) == 9901
        options = read_options({"group": "orders", "cluster": cluster.address})
        first = first_number(orders, options)
        rows = next(record_batches(cluster.address, "orders", first, 9950, 1000))
        assert (rows["number"][0].as_py(), rows.num_rows) == (9901, 49)
        for number in (9900, 8193):
            with pytest.raises(CollectedError, match="up to 9900 are gone"):
                next(iter(orders.read(number)))
            with pytest.raises(CollectedError, match="up to 9900 are gone"):
                next(record_batches(cluster.address, "orders", number, 9950, 1000))
    command = [sys.executable, "-m", "samcast.cli.main", "read", "orders"]
    shown = subprocess.run(
        [*command, "--cluster", cluster.address], capture_output=True, check=True
    )
    assert shown.stdout.split(b"\t", 1)[0] == b"9901"
    assert shown.stdout.count(b"\n") == 100


@pytest.mark.req("GRP-20")
def test_what_is_leased_stays(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        orders = client.group("orders")
        lease = orders.lease("archive", 5)
        sent(orders, 30)
        orders.keep(count=3)
        await_oldest(orders, 6)
        assert [m.number for m in orders.read(6, count=25)] == list(range(6, 31))
        lease.advance(12)
        await_oldest(orders, 13)
        with pytest.raises(ConfigError, match="is at 12; 11 is before that"):
            lease.advance(11)
        with pytest.raises(CollectedError, match="up to 12 are gone"):
            orders.lease("late", 3)
    with samcast.connect(cluster.address) as client:  # the name is what counts
        orders = client.group("orders")
        with orders.lease("archive", 20):
            await_oldest(orders, 21)
        await_oldest(orders, 28)


@pytest.mark.req("GRP-20", "GRP-23")
def test_it_holds_through_restarts_and_for_a_new_disk(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        orders = client.group("orders")
        sent(orders, 40)
        orders.keep(count=10)
        await_oldest(orders, 31)
        for name in NODES:
            cluster.kill(name)
            restart(cluster, name)
        empty = cluster.plan().node("n2")
        cluster.kill("n2")
        for path in sorted(empty.folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        cluster.start("n2")
        cluster.await_ready()
        sent(orders, 3)
        await_oldest(orders, 34)
    for node in cluster.plan().nodes:
        with samcast.connect(f"{node.host}:{node.port}") as client:
            numbers = [m.number for m in client.group("orders").read(count=10)]
            assert numbers == list(range(34, 44))


@pytest.mark.req("GRP-20")
def test_of_two_who_change_the_same_one_wins_and_the_other_goes_on_from_there(
    cluster: LocalCluster,
) -> None:
    with samcast.connect(cluster.address) as client:
        orders = client.group("orders")
        tried = []

        def changed(keep: Keep) -> Keep:
            tried.append(keep)
            if len(tried) == 1:  # Somebody else is faster.
                with samcast.connect(cluster.address) as other:
                    other.group("orders").keep(size=10**9)
            return Keep(7, keep.size, keep.age_ms)

        orders.change_keep(changed)
        assert tried[0] == Keep()
        assert orders.checkpoints().keep == Keep(7, 10**9)


# Segments.


def failed(error: Exception) -> None:
    pytest.fail(str(error))


async def tidied(folder: Path, gone: range) -> tuple[int, int]:
    """A life in which these are given up: segments deleted, payloads moved."""
    store = DataStore(OsFolder(folder), SMALL)
    store.recover(UUID)
    start(store, lambda token: None, failed)
    store.forget([key(i) for i in gone])
    tidying = Tidying(store, failed)
    await tidying.look()
    left = set(store.stored_keys())
    assert left.isdisjoint(key(i) for i in gone)
    store.close()
    return store.deleted, store.moved


def recovered(folder: Path) -> DataRecovery:
    async def main() -> DataRecovery:
        store = DataStore(OsFolder(folder), SMALL)
        recovery = store.recover(UUID)
        assert recovery is not None
        for found in recovery.found():
            assert store.read(found.key) is not None
        store.close()
        return recovery

    return asyncio.run(main())


@pytest.mark.req("GRP-20")
def test_segments_without_use_are_deleted(tmp_path: Path) -> None:
    asyncio.run(written(tmp_path, range(1, 60)))
    before = len(segments_in(tmp_path))
    deleted, moved = asyncio.run(tidied(tmp_path, range(1, 50)))
    assert deleted >= 3
    assert len(segments_in(tmp_path)) < before
    assert recovered(tmp_path).numbers()[key(59)] == 59
    assert key(1) not in [found.key for found in recovered(tmp_path).found()]
    assert moved <= 10


@pytest.mark.req("GRP-20")
def test_what_little_is_of_use_in_a_segment_is_moved_with_its_number(tmp_path: Path) -> None:
    asyncio.run(written(tmp_path, range(1, 60)))
    kept = {1, 14, 27, 55}
    gone = [i for i in range(1, 60) if i not in kept]

    async def main() -> None:
        store = DataStore(OsFolder(tmp_path), SMALL)
        store.recover(UUID)
        start(store, lambda token: None, failed)
        store.forget([key(i) for i in gone])
        tidying = Tidying(store, failed)
        await tidying.look()
        assert store.moved == len(kept)
        for i in kept:
            assert store.read(key(i)) is not None
        store.close()

    asyncio.run(main())
    recovery = recovered(tmp_path)
    assert {found.key for found in recovery.found()} == {key(i) for i in kept}
    assert recovery.numbers() == {key(i): i for i in kept}
    found = {b.key: (b.count, b.birth, b.digest) for b in recovery.found()}
    assert found[key(14)] == (1, 14, batch(14).digest)
