"""Messages that came one by one, read as columns from where they lie on a real node's disk."""

from collections.abc import Iterator
from typing import Any

import pytest

import samcast
from samcast.client import ranges
from samcast.group.row_reader import RowsCame
from samcast.pipeline import reading
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


def sent_singly(cluster: LocalCluster) -> list[tuple[int, bytes, bytes]]:
    """Each sender waits for its last message; some have keys. What a member then reads."""
    with samcast.connect(cluster.address) as client:
        group = client.group("orders")
        senders = [group.sender(f"sender-{at}") for at in range(SENDERS)]
        for turn in range(EACH):
            sent = [
                sender.send(b"message %08d" % (turn * SENDERS + at), key=b"k" * (at % 3))
                for at, sender in enumerate(senders)
            ]
            for receipt in sent:
                receipt.number(30)
        return [(m.number, m.body, m.key) for m in group.read(1, count=ROWS, timeout=30)]


@pytest.mark.req("PIP-01")
def test_they_are_read_as_they_lie_and_around_what_has_rotted(
    cluster: LocalCluster, parts: list[RowsCame]
) -> None:
    wanted = sent_singly(cluster)
    node = cluster.plan().present[1]

    def look() -> list[tuple[int, bytes, bytes]]:
        parts.clear()
        found = []
        for rows in reading.record_batches(f"{node.host}:{node.port}", "orders", 1, ROWS + 1, 64):
            columns = (rows.column(name).to_pylist() for name in ("number", "body", "key"))
            found += list(zip(*columns, strict=True))
        return found

    assert look() == wanted
    assert sum(part.stretch[1].num_rows for part in parts if part.stretch is not None) > ROWS / 2

    flip(node.folder, b"message %08d" % (ROWS // 2))
    assert look() == wanted
    assert any(part.rows is not None for part in parts)
