"""A lease that is kept, by hand: its holder hears if it was lost."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from samcast.client.lease import Lease
from samcast.errors import CollectedError, WaitTimeoutError
from samcast.wire.group import Outcome, OutcomeKind

WAIT_S = 30.0
TTL_MS = 60


class Cluster:
    """Answers as the order would; from some time on with something else."""

    def __init__(self) -> None:
        self.kind = OutcomeKind.DONE
        self.is_silent = False
        self.asked = threading.Semaphore(0)

    def propose(self, request: object) -> object:
        return request

    def call(self, request: object, timeout: float) -> Outcome:
        self.asked.release()
        if self.is_silent:
            raise WaitTimeoutError("no answer")
        return Outcome(1, self.kind, 7)  # if refused: messages up to there are gone

    def await_renewals(self) -> None:
        for _ in range(3):
            assert self.asked.acquire(timeout=WAIT_S)


def keep(cluster: Cluster, work: Callable[[Lease], None]) -> None:
    engine: Any = cluster
    with Lease(engine, 1, "mine", 5, TTL_MS).kept() as lease:
        work(lease)


def lose(cluster: Cluster) -> None:
    """The next renewal is refused, and there are no more."""
    cluster.await_renewals()
    cluster.kind = OutcomeKind.REFUSED
    for thread in threading.enumerate():
        if thread.name == "lease":
            thread.join(WAIT_S)


def test_a_lease_that_was_lost_is_told_at_the_end_of_the_block() -> None:
    cluster = Cluster()
    with pytest.raises(CollectedError, match="no lease 'mine'"):
        keep(cluster, lambda lease: lose(cluster))


def test_an_error_of_the_block_goes_on_with_a_note_of_the_loss() -> None:
    cluster = Cluster()

    def work(lease: Lease) -> None:
        lose(cluster)
        raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        keep(cluster, work)
    assert "the lease 'mine' was lost, too" in raised.value.__notes__[0]


def test_a_lease_that_nobody_could_renew_in_time_is_asked_for_once_more() -> None:
    cluster = Cluster()

    def work(lease: Lease) -> None:
        cluster.is_silent = True
        cluster.await_renewals()
        lease._renewed_at -= TTL_MS / 1000

    with pytest.raises(WaitTimeoutError):
        keep(cluster, work)
