"""Messages that came one by one, read as columns from where they lie on a real node's disk."""

from collections.abc import Iterator
from typing import Any

import pytest

import samcast
from samcast.client import ranges
from samcast.group.row_reader import RowsCame
from samcast.pipeline import reading
from samcast.runtime.cluster_file import NodePlan
from samcast.runtime.local_cluster import LocalCluster
from tests.pipeline.test_auditing import flip

SENDERS = 5
EACH = 80
ROWS = SENDERS * EACH


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[RowsCame]:
    """What servers have brought."""
    came: list[RowsCame] = []
    read_range = ranges.read_range

    def noting(*asked: Any) -> Iterator[RowsCame]:
        for part in read_range(*asked):
            came.append(part)
            yield part

    monkeypatch.setattr(reading, "read_range", noting)
    return came


Row = tuple[int, bytes, bytes]  # number, body, key


def send_singly(cluster: LocalCluster, first: int = 0) -> None:
    """Each sender waits for its last message; some have keys."""
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        senders = [group.sender(f"sender-{at}") for at in range(SENDERS)]
        for turn in range(EACH):
            sent = [
                sender.send(b"message %08d" % (first + turn * SENDERS + at), key=b"k" * (at % 3))
                for at, sender in enumerate(senders)
            ]
            for receipt in sent:
                receipt.number(30)


def delivered(cluster: LocalCluster, count: int) -> list[Row]:
    """What a member reads."""
    with samcast.connect(cluster.address) as client:
        found = client.group("orders").read(1, count=count, timeout=30)
        return [(m.number, m.body, m.key) for m in found]


def read_from(node: NodePlan, count: int) -> list[Row]:
    """The same in columns, from one node first."""
    found: list[Row] = []
    for rows in reading.record_batches(f"{node.host}:{node.port}", "orders", 1, count + 1, 64):
        columns = (rows.column(name).to_pylist() for name in ("number", "body", "key"))
        found += zip(*columns, strict=True)
    return found


def as_they_lay(parts: list[RowsCame]) -> int:
    """How many came as stored."""
    return sum(part.stretch[1].num_rows for part in parts if part.stretch is not None)


@pytest.mark.req("PIP-01")
def test_they_are_read_as_they_lie_and_around_what_has_rotted(
    cluster: LocalCluster, parts: list[RowsCame]
) -> None:
    send_singly(cluster)
    wanted = delivered(cluster, ROWS)
    node = cluster.plan().present[1]
    assert read_from(node, ROWS) == wanted
    assert as_they_lay(parts) > ROWS / 2

    parts.clear()
    flip(node.folder, b"message %08d" % (ROWS // 2))
    assert read_from(node, ROWS) == wanted
    assert any(part.rows is not None for part in parts)


@pytest.mark.req("PIP-01")
def test_a_node_that_missed_some_gives_them_in_order(
    cluster: LocalCluster, parts: list[RowsCame]
) -> None:
    """What it missed lies behind what came after it on its disk."""
    send_singly(cluster)
    node = cluster.plan().present[1]
    cluster.kill(node.name)
    send_singly(cluster, ROWS)
    cluster.start(node.name)
    cluster.await_ready(node.name)
    send_singly(cluster, 2 * ROWS)
    wanted = delivered(cluster, 3 * ROWS)
    for _ in range(3):  # While it repairs, and then.
        assert read_from(node, 3 * ROWS) == wanted
    assert as_they_lay(parts)
    assert cluster.pid_of(node)
