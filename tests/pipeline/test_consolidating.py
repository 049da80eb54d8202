"""Consolidation: the same state from servers, from one process, and from Spark; handed in, and
begun with by whoever comes next."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

import samcast
from samcast.client.blocking import Client, Group
from samcast.errors import ConfigError, FoldError
from samcast.group.table import Table
from samcast.pipeline.consolidating import LOCAL, SPARK, Consolidated, consolidate
from samcast.pipeline.consolidation import Wanted, states_by_server
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.order import Checkpoint, Keep
from samcast.wire.table import Change, Check, Delete, Put, encode_change
from tests.checkpoint.installing import install
from tests.pipeline.conftest import HAS_SPARK
from tests.real.conftest import running
from tests.real.striking import pause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 60.0
pytestmark = pytest.mark.skipif(not HAS_SPARK, reason="needs PySpark and Java")


def quietly(what: str, done: int, of: int) -> None:
    """Nobody looks."""


def await_held(client: Client, group: Group, number: int) -> Checkpoint:
    """Until the state at a number is advertised."""
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        found = [one for one in group.checkpoints().checkpoints if one.number == number]
        if found:
            return found[0]
        pause(0.1)
    raise AssertionError(f"no checkpoint {number}: {group.checkpoints()}")


def changes(chance: random.Random, count: int) -> list[bytes]:
    """Changes of a table of all kinds: some with conditions, some that end, some that are none."""
    shadow = Table()  # so that some conditions hold
    bodies: list[bytes] = []
    for number in range(1, count + 1):
        keys = [b"key-%d" % chance.randrange(40) for _ in range(chance.randrange(1, 4))]
        writes = tuple(
            Delete(key) if chance.random() < 0.2 else
            Put(key, b"value-%d" % number, chance.choice([0, 0, 5, 50]))
            for key in keys
        )  # fmt: skip
        checks: tuple[Check, ...] = ()
        if chance.random() < 0.3:
            row = shadow.get(keys[0])
            seen = row.number if row is not None else 0
            checks = (Check(keys[0], seen if chance.random() < 0.7 else number // 2),)
        body = encode_change(Change(writes, checks, chance.randrange(number, number + 20)))
        bodies.append(b"no change" if chance.random() < 0.05 else body)
        shadow.apply(number, bodies[-1])
    return bodies


def both(
    spark: "SparkSession", cluster: LocalCluster, name: str, wanted: Wanted
) -> tuple[Consolidated, Consolidated]:
    local = consolidate(cluster.address, name, wanted, quietly, LOCAL)
    return local, consolidate(cluster.address, name, wanted, quietly, SPARK, spark=spark)


@pytest.mark.req("PIP-04")
def test_servers_one_process_and_spark_come_to_the_same_state_of_a_table(
    spark: "SparkSession", cluster: LocalCluster
) -> None:
    bodies = changes(random.Random(7), 3000)
    expected = Table()
    for number, body in enumerate(bodies, 1):
        expected.apply(number, body)
    with samcast.connect(cluster.address) as client:
        group = client.group("table/routes")
        group.lease("test")  # so that there is something to begin with
        group.set_keep(Keep(fold="table", fold_version=1, interval=1500))
        group.send_many(bodies[:1500])
        group.flush()
        await_held(client, group, 1500)
        group.send_many(bodies[1500:])
        group.flush()
        theirs = await_held(client, group, 3000)
        assert theirs.hash == expected.state_hash()
        runs = [both(spark, cluster, "table/routes", Wanted(at, False)) for at in (1500, 3000)]
        for made in (*runs[0], *runs[1]):  # from nothing, and from a checkpoint
            assert not made.differ
            assert made.same
            assert made.messages == 1500
            assert 0 < made.bad < 150
        assert {made.hash for made in runs[1]} == {theirs.hash.hex()}
        assert {made.rows for made in runs[1]} == {len(expected)}


def held_everywhere(client: Client, group: Group, number: int) -> list[str]:
    """The hashes of the state at a number, once all servers have it."""
    limit = time.monotonic() + WAIT_S
    while time.monotonic() < limit:
        held = [states.checkpoints for states in states_by_server(client, group).values()]
        if all(states and states[-1].number == number for states in held):
            return [states[-1].hash.hex() for states in held]
        pause(0.2)
    raise AssertionError(f"not all servers have the state at {number}")


def folded_by_jobs(group: Group) -> None:
    group.set_keep(Keep(fold="latest", fold_version=1, interval=1000, by_jobs=True))


@pytest.mark.req("PIP-04", "GRP-16", "GRP-17")
def test_what_jobs_hand_in_is_advertised_collected_by_and_begun_with(
    spark: "SparkSession", cluster: LocalCluster
) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        folded_by_jobs(group)
        chance = random.Random(3)
        state: dict[bytes, bytes] = {}
        hashes: list[str] = []
        for at, engine in enumerate((SPARK, LOCAL, SPARK)):
            for i in range(2000):
                key = b"key-%d" % chance.randrange(900)
                state[key] = b"value-%d-%d" % (at, i)
                group.send(state[key], key)
            group.flush()
            made = consolidate(cluster.address, "orders", Wanted(), quietly, engine, spark=spark)
            head = 2000 * (at + 1)
            assert (made.number, made.rows, made.messages) == (head, len(state), 2000)
            assert len(made.handed_to) == 2  # as many as must have it
            assert made.same == sorted(made.handed_to)
            await_held(client, group, head)
            again = consolidate(cluster.address, "orders", Wanted(head, False), quietly, LOCAL)
            assert again.hash == made.hash
            hashes.append(made.hash)
        limit = time.monotonic() + WAIT_S
        while group.oldest() <= 2000 and time.monotonic() < limit:
            pause(0.1)
        assert group.oldest() > 2000  # What is in two checkpoints needn't stay.
        assert held_everywhere(client, group, 6000) == hashes[-1:] * 3  # Others copy it.
    for name in ("n1", "n2", "n3"):
        cluster.kill(name)
    for name in ("n1", "n2", "n3"):
        cluster.start(name)
    cluster.await_ready()
    with samcast.connect(cluster.address) as client:  # It is there for the next one to begin with.
        client.group("orders").send(b"one more", b"key-0").number(30)
        made = consolidate(cluster.address, "orders", Wanted(), quietly, LOCAL)
        assert (made.number, made.rows, made.messages) == (6001, len(state), 1)


@pytest.mark.req("PIP-04")
def test_what_a_fold_cant_take_is_kept_aside_or_ends_the_job(
    spark: "SparkSession", cluster: LocalCluster, tmp_path: Path
) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("table/routes")
        group.set_keep(Keep(fold="table", fold_version=1, by_jobs=True))
        good = encode_change(Change((Put(b"key", b"value"),)))
        group.send_many([good, b"bad", good, b"worse"])
        group.flush()
        for engine in (LOCAL, SPARK):
            aside = tmp_path / f"{engine}.parquet"
            wanted = Wanted(4, False, aside=aside)
            made = consolidate(
                cluster.address, "table/routes", wanted, quietly, engine, spark=spark
            )
            assert (made.rows, made.bad, made.bad_first) == (1, 2, 2)
            kept = pq.read_table(aside).to_pylist()
            assert [(row["number"], row["body"]) for row in kept] == [(2, b"bad"), (4, b"worse")]
            stopped = Wanted(4, False, stops_at_bad=True)
            with pytest.raises(FoldError, match="message 2 is nothing that fold 'table' can take"):
                consolidate(cluster.address, "table/routes", stopped, quietly, engine, spark=spark)


@pytest.mark.req("PIP-04", "PIP-08")
def test_a_fold_of_a_user_is_written_once_for_servers_a_process_and_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch)
    made = LocalCluster(tmp_path / "cluster")
    made.make(3)
    with running(made), samcast.connect(made.address) as client:
        run("group", "fold", "amounts", "totals", "--every", "2000", "--cluster", made.address)
        group = client.group("amounts")
        for i in range(2000):
            group.send(b"%d" % i if i % 100 else b"none", b"key-%d" % (i % 300))
        group.flush()
        theirs = await_held(client, group, 2000)
        aside = tmp_path / "aside.parquet"
        for engine in ("local", "spark"):
            said = run("pipeline", "consolidate", "amounts", "--engine", engine, "--json",
                       "--master", "local[2]", "--cluster", made.address,
                       "--aside", str(aside))  # fmt: skip
            found = json.loads(said)
            assert found["hash"] == theirs.hash.hex()
            assert (found["same"], found["differ"]) == (["n1", "n2", "n3"], [])
            assert (found["bad"], found["bad_first"]) == (20, 1)
            kept = pq.read_table(aside)["number"].to_pylist()
            assert kept == [i + 1 for i in range(0, 2000, 100)]
        told = run("pipeline", "consolidate", "amounts", "--compare", "--cluster", made.address)
        assert "'amounts' at 2000: 297 rows" in told
        assert "held by n1, n2, n3, advertised" in told
        stopped = run("pipeline", "consolidate", "amounts", "--bad", "stop",
                      "--cluster", made.address, is_well=False)  # fmt: skip
        assert "message 1 is nothing that fold 'totals' can take" in stopped
        assert "Traceback" not in stopped


def run(*arguments: str, is_well: bool = True) -> str:
    """The command, as a user has it."""
    command = [sys.executable, "-m", "samcast.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode == 0) == is_well, done.stderr
    return done.stdout if is_well else done.stderr


@pytest.mark.req("PIP-04")
def test_what_makes_no_sense_is_told(cluster: LocalCluster) -> None:
    def refused(name: str, wanted: Wanted, engine: str = LOCAL) -> str:
        with pytest.raises(ConfigError) as caught:
            consolidate(cluster.address, name, wanted, quietly, engine)
        return str(caught.value)

    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        group.send(b"one").number(30)
        assert "has no fold" in refused("orders", Wanted())
        assert "there is no engine 'flink'" in refused("orders", Wanted(), "flink")
        folded_by_jobs(group)
        assert "there is no 7 yet" in refused("orders", Wanted(7))
        folded_by_jobs(client.group("empty"))
        assert "has no messages yet" in refused("empty", Wanted())


@pytest.mark.req("PIP-04")
def test_states_of_a_fold_that_a_group_had_before_are_void(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        folded_by_jobs(group)
        group.send_many([b"one", b"two", b"three"])
        group.flush()
        before = consolidate(cluster.address, "orders", Wanted(), quietly)
        group.change_keep(lambda keep: replace(keep, fold="append"))
        made = consolidate(cluster.address, "orders", Wanted(), quietly)
        assert (before.rows, made.rows, made.engine) == (1, 3, LOCAL)
        assert len(made.handed_to) == 2
        assert made.same == made.handed_to
        await_held(client, group, 3)
