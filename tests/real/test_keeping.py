"""Checkpoints and deletion are two settings, on real nodes and by the commands that set them."""

import json
import time

import pytest
from typer.testing import CliRunner

import samcast
from samcast.cli.main import app
from samcast.client.blocking import Group
from samcast.client.keeping import bounded, folded, newly_going, unfolded
from samcast.errors import SamcastError, TooManyLeasesError
from samcast.group.retained import LEASES_MAX
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.group import OutcomeKind
from samcast.wire.order import FOREVER, Keep
from samcast.wire.retention import LeaseRequest
from tests.real.striking import pause
from tests.real.test_retention import await_oldest

WAIT_S = 40.0


def run(cluster: LocalCluster, *arguments: str) -> tuple[int, str]:
    """A command in this process, without a terminal: whether it failed, and what it said."""
    done = CliRunner().invoke(app, [*arguments, "--dir", str(cluster.folder)])
    assert done.exception is None or isinstance(done.exception, SamcastError), done
    return done.exit_code, done.output + str(done.exception or "")


def await_checkpoint(group: Group, newest: int) -> list[int]:
    """Until one at this number, or behind it, is advertised."""
    limit = time.monotonic() + WAIT_S
    numbers: list[int] = []
    while not numbers or numbers[-1] < newest:
        assert time.monotonic() < limit, numbers
        pause(0.1)
        numbers = [found.number for found in group.checkpoints().checkpoints]
    return numbers


def sent(group: Group, count: int) -> None:
    group.send_many([b"%d" % i for i in range(count)])
    group.flush(30)


@pytest.mark.req("GRP-16", "GRP-20")
def test_a_fold_makes_checkpoints_and_lets_nothing_go_until_that_is_said(
    cluster: LocalCluster,
) -> None:
    with samcast.connect(cluster.address) as client:
        orders = client.group("orders")
        assert run(cluster, "group", "fold", "orders", "latest", "--every", "50")[0] == 0
        sent(orders, 60)
        await_checkpoint(orders, 50)  # or servers would leave one out
        sent(orders, 60)
        older, newer = await_checkpoint(orders, 100)
        pause(1.5)  # longer than it takes until what may go goes
        assert orders.oldest() == 1
        _, shown = run(cluster, "group", "keep", "orders")
        assert "orders keeps all messages, and checkpoints (latest): 1 to 120" in shown
        failed, told = run(cluster, "group", "keep", "orders", "--checkpointed")
        assert failed
        assert "up to 120 of the messages that are there would go for good" in told
        assert orders.oldest() == 1
        _, told = run(cluster, "group", "keep", "orders", "--checkpointed", "--yes")
        assert "keeps what is not in two checkpoints (latest)" in told
        await_oldest(orders, older + 1)
        assert run(cluster, "group", "keep", "orders", "--forever")[0] == 0
        sent(orders, 100)
        await_checkpoint(orders, newer + 50)
        pause(1.5)
        assert orders.oldest() == older + 1
        failed, told = run(cluster, "group", "fold", "orders", "--off")
        assert failed
        assert f"messages 1 to {older} of orders are gone and only in its checkpoints" in told
        assert run(cluster, "group", "fold", "orders", "--off", "--yes")[0] == 0
        assert orders.checkpoints().keep == Keep()


@pytest.mark.req("GRP-20")
def test_mistakes_of_what_stays_change_nothing(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        orders = client.group("orders")
        sent(orders, 20)
        for said, told in (
            (("fold", "orders", "nosuch"), "no fold 'nosuch' is installed here"),
            (("fold", "orders"), "name a fold"),
            (("fold", "orders", "latest", "--off"), "name a fold"),
            (("keep", "orders", "--count", "5"), " 15 of the messages that are there would go"),
            (("keep", "orders", "--checkpointed"), "there are no checkpoints of this group"),
            (("keep", "orders", "--forever", "--checkpointed"), "contradict each other"),
        ):
            failed, text = run(cluster, "group", *said)
            assert (failed, told in text) == (1, True), text
        assert orders.checkpoints().keep == Keep()
        assert run(cluster, "group", "keep", "orders", "--count", "30")[0] == 0
        assert run(cluster, "group", "fold", "orders", "nosuch", "--force")[0] == 0
        assert orders.checkpoints().keep.fold == "nosuch"


@pytest.mark.req("GRP-20")
def test_leases_are_listed_named_where_they_hold_messages_and_removed(
    cluster: LocalCluster,
) -> None:
    with samcast.connect(cluster.address) as client:
        orders = client.group("orders")
        sent(orders, 30)
        orders.lease("archive", 12)
        orders.lease("other", 20, ttl=7200)
        orders.keep(count=5)
        await_oldest(orders, 13)
        found = json.loads(run(cluster, "lease", "list", "--json")[1])
        assert [(f["group"], f["name"], f["number"], f["ttl_s"]) for f in found] == [
            ("orders", "archive", 12, 86400.0), ("orders", "other", 20, 7200.0),
        ]  # fmt: skip
        assert 0 < found[1]["left_s"] <= 7200
        assert "orders\tother\t20\t20" in run(cluster, "lease", "list", "orders")[1]
        _, shown = run(cluster, "group", "keep", "orders")
        assert "kept from 13 on by lease archive until 20" in shown
        assert "orders: kept from 13 on by lease archive until 20" in run(cluster, "status")[1]
        failed, told = run(cluster, "lease", "remove", "orders", "archive")
        assert failed
        assert "lease archive keeps messages 13 on of orders for whoever took it" in told
        assert run(cluster, "lease", "remove", "orders", "archive", "--yes")[0] == 0
        await_oldest(orders, 21)
        failed, told = run(cluster, "lease", "remove", "orders", "archive", "--yes")
        assert failed
        assert "group 'orders' has no lease 'archive'" in told


@pytest.mark.req("GRP-20")
def test_too_many_leases_is_an_error_of_its_own(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        orders = client.group("orders")
        sent(orders, 5)
        asked = [
            client.engine.start(
                client.engine.propose(LeaseRequest(orders.id, f"reader-{i}", 0, 10**6, 1 + i))
            )
            for i in range(LEASES_MAX)
        ]
        for one in asked:
            assert one.result(WAIT_S).kind is OutcomeKind.DONE
        with pytest.raises(TooManyLeasesError, match=r"has 1000 already.*samcast lease remove"):
            orders.lease("one more")
        orders.lease("reader-7", 3).release()
        orders.lease("one more")


FOLDED = Keep(fold="latest", fold_version=1)
FOREVER_FOLDED = Keep(FOREVER, fold="latest", fold_version=1)


@pytest.mark.parametrize(
    ("before", "after", "going"),
    [
        (Keep(), Keep(count=5), 15),
        (Keep(), Keep(count=50), 0),
        (Keep(count=7), Keep(count=5), 15),
        (Keep(count=5), Keep(count=7), 0),
        (Keep(), Keep(size=9), 20),  # at most
        (Keep(size=9), Keep(size=5), 20),
        (FOREVER_FOLDED, FOLDED, 20),
        (FOLDED, FOREVER_FOLDED, 0),
        (FOLDED, Keep(5, fold="latest", fold_version=1), 0),  # less goes than until now
        (Keep(5, fold="latest", fold_version=1), FOLDED, 20),
    ],
)
def test_what_newly_goes_is_known_before(before: Keep, after: Keep, going: int) -> None:
    assert newly_going(before, after, 0, 20) == going


def test_a_fold_changes_nothing_about_what_stays() -> None:
    said = ("latest", 1, 0, False)
    assert folded(Keep(), *said) == FOREVER_FOLDED
    assert folded(FOLDED, *said) == FOLDED  # as it was set before there was a choice
    assert folded(Keep(count=5), *said) == Keep(5, fold="latest", fold_version=1)
    assert unfolded(FOREVER_FOLDED) == unfolded(FOLDED) == Keep()
    assert bounded(FOLDED, 0, 0, 0, False) == FOREVER_FOLDED
    assert bounded(FOREVER_FOLDED, 0, 0, 0, True) == FOLDED
