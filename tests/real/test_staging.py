"""One transaction of several processes, on real nodes: staged by some, decided by one."""

from typing import Any

import pytest

import samcast
from samcast.client import staging as staging_module
from samcast.client.blocking import Client
from samcast.client.staging import (
    Opened,
    Parts,
    Staging,
    abort,
    decide,
    decide_or_abort,
    forget,
    joined,
    open_run,
)
from samcast.errors import (
    ClientError,
    ConfigError,
    FencedError,
    OutcomeUnknownError,
    WaitTimeoutError,
)
from samcast.runtime.local_cluster import LocalCluster
from samcast.wire.batch import columns_from_cells

NAME = "job"


def staged(client: Client, opened: Opened, tx: int, task: int, *bodies: bytes) -> Parts:
    staging = Staging(client.engine, opened, tx, task)
    group = client.group("target").id
    for body in bodies:
        staging.stage(group, columns_from_cells([body, body]), 2)
    parts = staging.finish()
    staging.close()
    return parts


def bodies(client: Client) -> list[bytes]:
    group = client.group("target")
    return [message.body for message in group.read(1, count=group.head(), timeout=20)]


def settle(client: Client, opened: Opened, tx: int, *parts: Parts) -> dict[int, int]:
    return decide(client.engine, NAME, opened.incarnation, tx, joined(parts), 20)


@pytest.mark.req("PIP-03")
def test_what_several_have_staged_is_decided_at_once_and_once(cluster: LocalCluster) -> None:
    addresses = cluster.address.split(",")
    with samcast.connect(addresses[0]) as one, samcast.connect(addresses[-1]) as other:
        first = open_run(one.engine, NAME, "run 1", 1)
        assert open_run(other.engine, NAME, "run 1", 1) == first
        assert first.tx_next == 1
        parts = [staged(one, first, 5, 7, b"a", b"b"), staged(other, first, 5, 8, b"c")]
        staged(other, first, 5, 9, b"of an attempt that failed")
        assert one.group("target").head() == 0
        group = one.group("target").id
        assert settle(one, first, 5, *parts) == {group: 1}
        assert settle(other, first, 5, *parts) == {group: 1}
        assert bodies(one) == [b"a", b"a", b"b", b"b", b"c", b"c"]
        assert open_run(other.engine, NAME, "run 1", 5).tx_next == 6


@pytest.mark.req("PIP-03")
def test_a_later_run_fences_the_one_before_for_good(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as one, samcast.connect(cluster.address) as other:
        first = open_run(one.engine, NAME, "run 1", 1)
        parts = staged(one, first, 1, 1, b"in vain")
        second = open_run(other.engine, NAME, "run 2", 1)
        assert second.incarnation > first.incarnation
        with pytest.raises(FencedError, match="taken over by another run"):
            settle(one, first, 1, parts)
        with pytest.raises(FencedError, match="taken over by another run"):
            staged(one, first, 1, 2, b"in vain")
        with pytest.raises(FencedError, match="taken over by another run"):
            open_run(one.engine, NAME, "run 1", 1)
        assert settle(other, second, 1, staged(other, second, 1, 1, b"new"))
        assert bodies(other) == [b"new", b"new"]


@pytest.mark.req("PIP-03")
def test_who_comes_with_what_is_long_past_takes_nothing_over(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        first = open_run(client.engine, NAME, "run 1", 1)
        settle(client, first, 1, staged(client, first, 1, 1, b"a"))
        settle(client, first, 2, staged(client, first, 2, 1, b"b"))
        for run in ("run 2", "run 1"):
            with pytest.raises(FencedError, match=r"is at transaction 3, so 1 may not be written"):
                open_run(client.engine, NAME, run, 1)
        settle(client, first, 3, staged(client, first, 3, 1, b"c"))
        assert open_run(client.engine, NAME, "run 2", 3).tx_next == 4  # The last may be repeated.


@pytest.mark.req("PIP-03")
def test_what_is_aborted_is_gone_and_what_is_decided_is_not(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        first = open_run(client.engine, NAME, "run 1", 1)
        settle(client, first, 1, staged(client, first, 1, 1, b"stays"))
        assert not abort(client.engine, NAME, first.incarnation, 1, 20)
        parts = staged(client, first, 2, 1, b"goes")
        assert abort(client.engine, NAME, first.incarnation, 2, 20)
        with pytest.raises(ClientError):
            settle(client, first, 2, parts)
        second = open_run(client.engine, NAME, "run 1", 2)  # It goes on.
        assert second.incarnation > first.incarnation
        assert second.tx_next == 2
        settle(client, second, 2, staged(client, second, 2, 1, b"again"))
        assert bodies(client) == [b"stays", b"stays", b"again", b"again"]
        forget(client.engine, NAME, 20)


@pytest.mark.req("PIP-03")
def test_who_did_not_hear_of_a_decision_learns_whether_it_took_effect(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unheard(*asked: Any) -> None:
        if asked[3] == 1:
            decide(*asked)
        raise WaitTimeoutError("not decided in time")

    monkeypatch.setattr(staging_module, "decide", unheard)
    with samcast.connect(cluster.address) as client:
        opened = open_run(client.engine, NAME, "run 1", 1)
        about = (client.engine, NAME, opened.incarnation)
        parts = staged(client, opened, 1, 1, b"there")
        decide_or_abort(*about, 1, parts, 20)  # It was decided, so all is well.
        parts = staged(client, opened, 2, 1, b"not there")
        with pytest.raises(WaitTimeoutError, match="taken back, and nothing of it is there"):
            decide_or_abort(*about, 2, parts, 20)
        open_run(client.engine, NAME, "run 2", 2)
        with pytest.raises(OutcomeUnknownError, match="may or may not have taken effect"):
            decide_or_abort(*about, 2, parts, 20)
        assert bodies(client) == [b"there", b"there"]


@pytest.mark.req("PIP-03")
def test_nodes_may_die_between_stage_and_decision(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        first = open_run(client.engine, NAME, "run 1", 1)
        parts = staged(client, first, 1, 1, *[b"%d" % i * 1000 for i in range(50)])
        cluster.kill("n1")
        assert settle(client, first, 1, parts)
        staging = Staging(client.engine, first, 2, 3)
        group = client.group("target").id
        for i in range(20):
            staging.stage(group, columns_from_cells([b"%d" % i]), 1)
        cluster.start("n1")
        cluster.kill("n2")
        assert settle(client, first, 2, staging.finish())
        found = bodies(client)
        assert found[100:] == [b"%d" % i for i in range(20)]


def test_too_many_stages_are_refused_with_what_to_do(cluster: LocalCluster) -> None:
    with samcast.connect(cluster.address) as client:
        first = open_run(client.engine, NAME, "run 1", 1)
        ((group, refs),) = staged(client, first, 1, 1, b"a")
        with pytest.raises(ConfigError, match=r"1025 stages, and one transaction .*coalesce"):
            decide(client.engine, NAME, first.incarnation, 1, ((group, refs * 1025),), 5)
