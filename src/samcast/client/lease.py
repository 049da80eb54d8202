"""A lease: messages that somebody still needs stay, however the group is bounded."""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from samcast.client.engine import Engine
from samcast.errors import (
    ClientError,
    CollectedError,
    ConfigError,
    RefusedError,
    TooManyLeasesError,
)
from samcast.wire.group import OutcomeKind
from samcast.wire.retention import LeaseRequest

LEASE_S = 86_400.0
WAIT_S = 30.0
BOUND_MAX = 2**62
RENEWALS = 6  # before a lease that is kept would lapse


def bound(value: float | None, what: str, times: int = 1) -> int:
    """A bound that a user gives, as the order knows it; None is 0, for none."""
    if value is None:
        return 0
    if not isinstance(value, int | float) or not 1 <= value * times <= BOUND_MAX:
        raise ConfigError(f"{what} is {value!r}; it must be a positive number, or be left out")
    return int(value * times)


def order_lease(engine: Engine, group: int, name: str, number: int, ttl_ms: int) -> None:
    """Have a lease given, renewed or moved; without a time, taken back, whoever has it."""
    nonce = 1 + secrets.randbelow(2**62)
    request = LeaseRequest(group, name, number, ttl_ms, nonce)
    outcome = engine.call(engine.propose(request), WAIT_S)
    if outcome.kind is OutcomeKind.DONE:
        return
    if number < outcome.value:
        raise CollectedError(
            f"no lease {name!r} from {number} on: messages up to {outcome.value} are gone"
        )
    if outcome.head:
        raise TooManyLeasesError(
            f"no lease {name!r}: the group has {outcome.head} already, and that is the most."
            " `samcast lease list GROUP` shows them, `samcast lease remove GROUP NAME` takes one"
            " away, and one that nobody renews lapses by itself"
        )
    raise RefusedError(f"no lease {name!r}: the group is no more")


class Lease:
    """Held under a name; a context manager that gives it back at its end."""

    def __init__(self, engine: Engine, group: int, name: str, number: int, ttl_ms: int) -> None:
        self._engine = engine
        self._group = group
        self.name = name
        self.number = number
        self._ttl_ms = ttl_ms
        self._order(number, ttl_ms)

    def _order(self, number: int, ttl_ms: int) -> None:
        order_lease(self._engine, self._group, self.name, number, ttl_ms)
        self.number = number

    def advance(self, number: int) -> None:
        """All up to a number is done with; this also renews the lease."""
        if number < self.number:
            raise ConfigError(f"lease {self.name!r} is at {self.number}; {number} is before that")
        self._order(number, self._ttl_ms)

    def renew(self) -> None:
        """Still there."""
        self._order(self.number, self._ttl_ms)

    def release(self) -> None:
        """No longer needed."""
        self._order(self.number, 0)

    @contextmanager
    def kept(self) -> Iterator["Lease"]:
        """Renewed for as long as the block lasts, and given back at its end, however it ends."""
        over = threading.Event()
        renewing = threading.Thread(target=self._keep, args=(over,), daemon=True)
        renewing.start()
        try:
            yield self
        finally:
            over.set()
            renewing.join()
            with suppress(ClientError, TimeoutError):  # It lapses by itself, too.
                self.release()

    def _keep(self, over: threading.Event) -> None:
        while not over.wait(self._ttl_ms / 1000 / RENEWALS):
            with suppress(ClientError, TimeoutError):  # The next time, perhaps.
                self.renew()

    def __enter__(self) -> "Lease":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.release()
