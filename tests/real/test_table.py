"""Replicated tables on real clusters: equal in every process, through kills."""

import threading

import pytest

import samcast
from samcast.client.leading import sequencer_of
from samcast.errors import ConfigError, NotConnectedError, WaitTimeoutError
from samcast.runtime.local_cluster import LocalCluster
from tests.real.striking import pause, restart


@pytest.mark.req("GRP-24")
def test_what_one_process_writes_all_read(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as one, samcast.connect(cluster.address) as other:
        routes = one.table("routes")
        assert one.table("routes") is routes
        number = routes.put("10.0.0.0/8", "eth0").number(30)
        assert routes.get("10.0.0.0/8", at_least=number) == b"eth0"
        elsewhere = other.table("routes")
        assert elsewhere.get("10.0.0.0/8", fresh=True) == b"eth0"
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
        row = past.get(b"10.0.0.0/8")
        assert row is not None
        assert row.value == b"eth0"


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

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
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
