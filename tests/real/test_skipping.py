"""Tables of real clusters whose readers are so far behind that a checkpoint takes them further."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec import structs

import samcast
from samcast.client.blocking import Client
from samcast.client.joining import fetch_table
from samcast.client.outbox import Receipt
from samcast.client.table import ReplicatedTable
from samcast.errors import CheckpointAbsentError, CollectedError, OutcomeUnknownError
from samcast.runtime.local_cluster import LocalCluster
from tests.real.striking import pause

LARGE = bytes(600_000)  # a stream's window has room for less than twenty of them


def held(client: Client) -> threading.Event:
    """Hold the only reader of a client after what it takes next; set it to let it go on."""
    (inbox,) = client.engine._inboxes.values()
    take, go_on = inbox.take, threading.Event()

    def held_take(timeout_s: float | None) -> Any:
        go_on.wait(60)
        return take(timeout_s)

    inbox.take = held_take  # type: ignore[method-assign]
    return go_on


def await_confirmed(table: ReplicatedTable, before: Receipt | None) -> None:
    """Until the table has sent something more, and it has its number."""
    for _ in range(1000):
        written = table._written
        if written is not before and written is not None and written.is_confirmed:
            return
        pause(0.01)


def until_gone(address: str, table: ReplicatedTable, number: int) -> None:
    """Write until two checkpoints have let a message go, and the node of all our clients knows."""
    with samcast.connect(address) as client:
        group = client.group("table/locks")
        for i in range(300):
            table.put("key", str(i)).number(30)
            if group.oldest() > number:
                try:
                    next(iter(group.read(number, timeout=5)))
                except CollectedError:
                    return
            pause(0.01)


@pytest.mark.req("GRP-24")
def test_a_table_that_skips_its_own_write_does_not_say_that_it_is_done(
    cluster: LocalCluster,
) -> None:
    with samcast.connect(cluster.address) as one, samcast.connect(cluster.address) as other:
        table = one.table("locks", checkpoint_every=20)
        rival = other.table("locks")
        table.sync()  # Its reader is there.
        go_on = held(one)
        rival.put("taken", "by the held reader").number(30)
        table.wait_for(rival.sync() - 1)
        rival.compare_and_set("lock", None, "the rival's")
        for _ in range(24):
            rival.put("filling", LARGE)
        rival.sync()
        with ThreadPoolExecutor(1) as pool:
            before = table._written
            done = pool.submit(table.compare_and_set, "lock", None, "ours")
            await_confirmed(table, before)
            number = rival.sync()
            until_gone(cluster.address, rival, number)
            go_on.set()
            with pytest.raises(OutcomeUnknownError, match="past message"):
                done.result(30)
        assert table.get("lock", fresh=True) == b"the rival's"
        assert table.compare_and_set("lock", None, "ours") == 0
        # A checkpoint that nobody has is not waited for: all servers say that they have none.
        group = other.group("table/locks")
        newest = group.checkpoints().checkpoints[-1]
        with pytest.raises(CheckpointAbsentError, match="no server has checkpoint 7 just now"):
            fetch_table(other.engine, group.id, structs.replace(newest, number=7))
