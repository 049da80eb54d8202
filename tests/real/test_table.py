"""Replicated tables on real clusters: equal in every process, through kills."""

import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import samcast
from samcast.client.leading import sequencer_of
from samcast.client.recipes import Counter, Lock
from samcast.errors import ConfigError, NotConnectedError, WaitTimeoutError
from samcast.runtime.local_cluster import LocalCluster
from tests.real.striking import pause, restart

ROOT = Path(__file__).resolve().parents[2]


def in_threads(work: Callable[[], None]) -> None:
    """Three at once; what fails in one of them fails here."""
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work) for _ in range(3)]:
            done.result()


@pytest.mark.req("GRP-24")
def test_what_one_process_writes_all_read(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as one, samcast.connect(cluster.address) as other:
        routes = one.table("routes")
        assert one.table("routes") is routes
        number = routes.put("10.0.0.0/8", "eth0").number(30)
        assert routes.get("10.0.0.0/8") == b"eth0"  # what was confirmed to us is here
        assert routes["10.0.0.0/8"] == b"eth0"
        assert "10.0.0.0/8" in routes
        assert "10.0.0.0/9" not in routes
        assert list(routes) == [b"10.0.0.0/8"]
        elsewhere = other.table("routes")
        assert elsewhere.get("10.0.0.0/8", at_least=number) == b"eth0"
        elsewhere.delete(b"10.0.0.0/8")
        elsewhere.put("10.1.0.0/16", b"eth1")
        elsewhere.put("192.168.0.0/16", b"eth2")
        elsewhere.sync()
        routes.sync()
        assert routes.get("10.0.0.0/8", b"none") == b"none"
        assert routes.items() == [(b"10.1.0.0/16", b"eth1"), (b"192.168.0.0/16", b"eth2")]
        assert routes.items("10.2", "2") == [(b"192.168.0.0/16", b"eth2")]
        elsewhere.wait_for(routes.number)
        assert elsewhere.content_hash() == routes.content_hash()
        past = routes.as_of(number)
        assert past.get("10.0.0.0/8") == b"eth0"
        assert past.items() == [(b"10.0.0.0/8", b"eth0")]
        assert (past.number, len(past), past.get("elsewhere")) == (number, 1, None)
        with pytest.raises(KeyError):
            routes["10.0.0.0/8"]


def test_who_opens_a_table_finds_what_it_holds(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        table = client.table("full")
        for i in range(20_000):
            table.put(f"k{i}", str(i))
        table.sync()
    with samcast.connect(cluster.address) as client:
        found = client.table("full")
        assert len(found) == 20_000
        assert found.get("k19999") == b"19999"
    with pytest.raises(NotConnectedError):
        found.get("k1")


def test_conditional_writes_of_many_take_effect_one_by_one(cluster: LocalCluster) -> None:
    wins: list[int] = []

    def count() -> None:
        with samcast.connect(cluster.address) as client:
            table = client.table("counters")
            done = 0
            while done < 15:
                before = table.get("c", fresh=True)
                after = b"%d" % (int(before or 0) + 1)
                number = table.compare_and_set("c", before, after)
                if number:
                    wins.append(number)
                    done += 1

    in_threads(count)
    with samcast.connect(cluster.address) as client:
        assert client.table("counters").get("c", fresh=True) == b"45"
    assert len(set(wins)) == 45


def test_a_batch_takes_effect_as_a_whole_or_not_at_all(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        table = client.table("accounts")
        with table.batch() as first:
            first.put("a", "10")
            first.put("b", "0")
        assert first.number
        row = table.row("a")
        assert row is not None
        with table.batch() as moved:
            moved.check("a", row.number)
            moved.put("a", "5")
            moved.put("b", "5")
        assert moved.number
        with table.batch() as stale:
            stale.check("a", row.number)
            stale.put("a", "0")
            stale.delete("b")
        assert stale.number == 0
        assert table.items() == [(b"a", b"5"), (b"b", b"5")]


def test_a_watch_sees_each_change_once_in_order(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        table = client.table("watched")
        table.put("before", "1").number(30)
        table.sync()
        with table.watch() as all_keys, table.watch("b") as only:
            for i in range(50):
                table.put("a" if i % 2 else "b", str(i))
            table.delete("b").number(30)
            seen = [all_keys.next(30) for _ in range(51)]
            values = [change.value for change in seen if change is not None]
            assert values == [*(b"%d" % i for i in range(50)), None]
            few = [only.next(30) for _ in range(26)]
            assert {change.key for change in few if change is not None} == {b"b"}
            assert only.next(0.1) is None


@pytest.mark.req("GRP-24")
def test_tables_stay_equal_while_nodes_are_killed(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as one, samcast.connect(cluster.address) as other:
        mine, theirs = one.table("state"), other.table("state")
        for turn in range(3):
            for i in range(500):
                mine.put(f"k{i % 100}", f"{turn} {i}")
                theirs.put(f"k{i % 70}", f"other {turn} {i}", ttl=0.05)
            victim = sequencer_of(cluster)
            cluster.kill(victim)
            pause(0.2)
            restart(cluster, victim)
        mine.sync()
        number = theirs.sync()
        mine.wait_for(number)
        assert mine.number == theirs.number
        assert mine.content_hash() == theirs.content_hash()
        assert mine.as_of(number).content_hash() == mine.content_hash()


def test_mistakes_are_named(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        table = client.table("t")
        with pytest.raises(TypeError, match="bytes or str, not int"):
            table.put(7, "x")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="a key of 5000 bytes"):
            table.put(bytes(5000), "x")
        with pytest.raises(ConfigError, match="ttl is 0 s"):
            table.put("k", "x", ttl=0)
        with pytest.raises(ConfigError, match="a table's name has"):
            client.table("")
        with pytest.raises(ConfigError, match="has no message 99"):
            table.as_of(99)
        with pytest.raises(WaitTimeoutError, match="is at 0 after 0 s, not at 5"):
            table.wait_for(5, 0.1)
        # Whatever else is sent to its group has no effect.
        client.group("table/t").send(b"nonsense").number(30)
        table.put("k", "v").number(30)
        assert table.get("k", fresh=True) == b"v"
    with pytest.raises(NotConnectedError):
        table.wait_for(10**9, 5)


def test_a_counter_counts_each_addition_once(cluster: LocalCluster) -> None:
    def count() -> None:
        with samcast.connect(cluster.address) as client:
            counter = Counter(client.table("numbers"), "n")
            for _ in range(10):
                counter.add(2)

    in_threads(count)
    with samcast.connect(cluster.address) as client:
        table = client.table("numbers")
        assert Counter(table, "n").value(fresh=True) == 60
        table.put("word", "seven").number(30)
        with pytest.raises(ConfigError, match="is no number"):
            Counter(table, "word").value(fresh=True)


def test_a_lock_is_held_by_one_and_its_numbers_rise(cluster: LocalCluster) -> None:
    fences: list[int] = []
    inside: list[int] = []

    def work() -> None:
        with samcast.connect(cluster.address) as client:
            for _ in range(4):
                with Lock(client.table("locks"), "l") as number:
                    inside.append(number)
                    assert len(inside) == 1
                    fences.append(number)
                    inside.clear()

    in_threads(work)
    assert len(fences) == 12
    assert fences == sorted(set(fences))


def test_the_lock_of_a_holder_that_died_is_free_when_its_time_is_over(
    cluster: LocalCluster,
) -> None:
    with samcast.connect(cluster.address) as client:
        table = client.table("locks")
        table.put("l", "somebody who died", ttl=1.0).number(30)
        lock = Lock(table, "l", ttl=2.0)
        with pytest.raises(WaitTimeoutError, match="is held by another one"):
            lock.acquire(0.1)
        number = lock.acquire(30)
        assert number == lock.number
        pause(3)  # It is renewed.
        assert table.get("l", fresh=True) is not None
        assert lock.number == number
        table.delete("l").number(30)
        for _ in range(100):
            if not lock.number:
                break
            pause(0.05)
        assert lock.number == 0  # It has noticed that it was lost.
        lock.release()


def test_a_lock_that_can_not_be_renewed_is_not_believed_in(cluster: LocalCluster) -> None:
    client = samcast.connect(cluster.address)
    lock = Lock(client.table("locks"), "l", ttl=1.0)
    assert lock.acquire(30)
    client.close()
    for _ in range(200):
        if not lock.number:
            break
        pause(0.05)
    assert lock.number == 0


def test_the_longest_prefix_leads(cluster: LocalCluster) -> None:
    spec = importlib.util.spec_from_file_location("routes", ROOT / "examples" / "routes.py")
    assert spec is not None
    assert spec.loader is not None
    routes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(routes)
    with samcast.connect(cluster.address) as client:
        table = client.table("routes")
        for prefix, port in (("10.0.0.0/8", "eth0"), ("10.1.0.0/16", "eth1"), ("::/0", "eth6")):
            table.put(routes.key_of(prefix), port)
        table.sync()
        assert routes.lookup(table, "10.1.2.3") == ("10.1.0.0/16", "eth1")
        assert routes.lookup(table, "10.2.2.3") == ("10.0.0.0/8", "eth0")
        assert routes.lookup(table, "11.0.0.1") is None
        assert routes.lookup(table, "fe80::1") == ("::/0", "eth6")
