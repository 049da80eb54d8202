"""Names on real nodes: what clients leave behind, and what users must take away themselves."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from samcast.cli.main import main
from samcast.client import naming
from samcast.client.blocking import Client, Group, connect
from samcast.client.naming import names_in_use, remove_name
from samcast.client.transaction import Transactions
from samcast.errors import RefusedError, TooManyNamesError
from samcast.group.settings import GroupSettings
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.order import CELL
from tests.real.conftest import running

NAMED_MAX = 3


@pytest.fixture
def tight(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster with room for very few names."""
    made = LocalCluster(tmp_path / "cluster")
    made.make(3, GroupSettings(named_max=NAMED_MAX))
    with running(made):
        yield made


def sent_by_a_script(cluster: LocalCluster, body: str) -> None:
    """As if killed after it: nobody closes anything."""
    client = connect(cluster.address)
    try:
        with client.transaction() as tx:
            tx.send(client.group("orders"), body)
    finally:
        client.engine.close()


def bodies(client: Client) -> list[str]:
    return [m.body.decode() for m in client.group("orders").read(1, timeout=0.5)]


def test_74_scripts_that_end_without_closing_leave_room_for_others(tight: LocalCluster) -> None:
    for at in range(3 * NAMED_MAX):
        sent_by_a_script(tight, f"script {at}")
    with connect(tight.address) as client:
        with client.transaction() as tx:
            tx.send(client.group("orders"), "one more")
        wanted = [*(f"script {at}" for at in range(3 * NAMED_MAX)), "one more"]
        assert bodies(client) == wanted


def test_names_are_bounded_listed_and_removed(
    tight: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with connect(tight.address) as client:
        orders = client.group("orders")
        for at in range(NAMED_MAX):
            owner = client.transactions(f"worker-{at}")
            with owner.begin() as tx:
                tx.send(orders, f"worker {at}")
        orders.sender("till").send("till 1").number()
        with pytest.raises(TooManyNamesError, match=rf"{NAMED_MAX} names.*samcast name remove"):
            client.transactions("one too many")
        with client.transaction() as tx:
            tx.send(orders, "without a name")
        found = names_in_use(client)
        kinds = [(one.name, one.kind, one.group, one.done) for one in found if one.name[0] in "tw"]
        workers = [(f"worker-{at}", "transactions", "", 1) for at in range(NAMED_MAX)]
        assert kinds == [*workers, ("till", "sender", "orders", 1)]
        assert [one.kind for one in found].count("anonymous") == 1

        samcast("name", "list", "--cluster", tight.address)
        said = capsys.readouterr().out
        assert "worker-1\ttransactions\tcluster\t1 done" in said
        assert "and 1 without a name" in said
        samcast("name", "remove", "worker-1", "--yes", "--cluster", tight.address)
        with pytest.raises(SystemExit):
            samcast("name", "remove", "nobody", "--yes", "--cluster", tight.address)
        capsys.readouterr()
        samcast("name", "list", "--json", "--cluster", tight.address)
        listed = json.loads(capsys.readouterr().out)
        assert [one["name"] for one in listed] == ["worker-0", "worker-2", "till"]
        assert client.transactions("one too many").done_before == 0


def test_a_name_that_was_removed_begins_anew_and_its_last_user_hears_of_it(
    tight: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(tight.address) as client, connect(tight.address) as other:
        orders = client.group("orders")
        former = client.transactions("worker")
        with former.begin() as tx:
            tx.send(orders, "before")
        remove_name(other, "worker")
        with pytest.raises(RefusedError, match=r"removed.*nothing of this took effect"):
            tell(former, orders)
        assert other.transactions("worker").done_before == 0
        assert client.transactions("worker").done_before == 0
        assert bodies(client) == ["before"]

        listed = naming._of_scope(other, CELL)
        with client.transactions("worker").begin() as tx:
            tx.send(orders, "by the next")
        monkeypatch.setattr(naming, "_of_scope", lambda *_: listed)
        with pytest.raises(RefusedError, match="opened again just now"):
            remove_name(other, "worker")
        assert client.transactions("worker").done_before == 1


def tell(owner: Transactions, group: Group) -> None:
    with owner.begin() as tx:
        tx.send(group, "after")


def samcast(*arguments: str) -> None:
    """The command, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["samcast", *arguments])
        try:
            main()
        except SystemExit as stop:
            if stop.code:
                raise
