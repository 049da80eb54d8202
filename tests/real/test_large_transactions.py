"""Transactions that are too large are refused before anything of them is sent, and whoever waits
for one hears what is true. That large ones take effect: `test_size_faults.py`."""

import signal
import threading

import pytest

import samcast
from samcast.client import transaction as transactions
from samcast.errors import ConfigError, OutcomeUnknownError, WaitTimeoutError
from samcast.runtime.local_cluster import LocalCluster

MIB = 1024 * 1024
TIMEOUT_S = 60.0


def test_what_is_too_large_is_refused_by_its_limit_before_anything_is_sent(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "TRANSACTION_BYTES_MAX", MIB)
    monkeypatch.setattr(transactions, "STAGES_MAX", 3)
    with samcast.connect(cluster.address) as client:
        one, other = client.group("one"), client.group("other")
        large = client.transaction()
        large.send(one, bytes(MIB))
        with pytest.raises(ConfigError, match=rf"at most {MIB} bytes"):
            large.send(one, b"x")
        many = client.transaction()
        for group in (one, other, one):
            many.send(group, b"x")
        with pytest.raises(ConfigError, match=r"at most 3 stages"):
            many.send(other, b"x")
        assert (one.head(), other.head()) == (0, 0)
        assert many.commit(TIMEOUT_S) == {one.id: 1, other.id: 1}  # What was taken is whole.
        assert large.commit(TIMEOUT_S) == {one.id: 3}


def test_who_waits_hears_when_it_takes_too_long_and_that_a_closed_client_knows_nothing(
    cluster: LocalCluster,
) -> None:
    errors: list[Exception] = []
    client = samcast.connect(cluster.address)
    group = client.group("stopped")
    tx = client.transaction(timeout=0.3)
    for process in cluster.processes():
        cluster.kill(process.plan.name, signal.SIGSTOP)
    with pytest.raises(WaitTimeoutError, match="may still take effect"), tx:
        tx.send(group, b"x")

    def wait() -> None:
        try:
            tx.commit()
        except OutcomeUnknownError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    client.engine.close()
    waiting.join(TIMEOUT_S)
    assert not waiting.is_alive()
    assert "may or may not take effect" in str(errors[0])
