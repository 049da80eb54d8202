"""Much at once: what is larger than a link takes comes through all the same. `./dev faults` plays
it with a gigabyte."""

import samcast
from samcast.runtime.connection import WAITING_BYTES_MAX
from samcast.runtime.local_cluster import LocalCluster
from tests.real.striking import SECONDS

MIB = 1024 * 1024
TIMEOUT_S = 120.0
MESSAGES = 500 if SECONDS >= 20 else 60


def test_75_a_transaction_above_what_a_link_takes_is_decided_and_read(
    cluster: LocalCluster,
) -> None:
    marks = [at.to_bytes(4, "big") for at in range(MESSAGES)]
    assert MESSAGES * 2 * MIB > WAITING_BYTES_MAX
    with samcast.connect(cluster.address) as client:
        group = client.group("large")
        transaction = client.transaction()
        for mark in marks:
            transaction.send(group, mark * (MIB // 2))
        assert transaction.commit(TIMEOUT_S) == {group.id: 1}
        found = group.read(1, count=MESSAGES, timeout=TIMEOUT_S)
        assert [(m.body[:4], len(m.body)) for m in found] == [(mark, 2 * MIB) for mark in marks]
