"""A lease: messages that somebody still needs stay, however the group is bounded."""

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from samcast.client.engine import Engine
from samcast.errors import (
    ClientError,
    CollectedError,
    ConfigError,
    NotConnectedError,
    RefusedError,
    TooManyLeasesError,
    WaitTimeoutError,
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
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 1 <= value * times <= BOUND_MAX:
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


def check_number(number: object) -> int:
    """A message's number that a user gives; 0: before all of them."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= BOUND_MAX:
        raise ConfigError(f"a message's number is an int from 0 on, not {number!r}")
    return number


class Lease:
    """Held under a name; a context manager that gives it back at its end."""

    def __init__(self, engine: Engine, group: int, name: str, number: int, ttl_ms: int) -> None:
        self._engine = engine
        self._group = group
        self.name = name
        self.number = number
        self._ttl_ms = ttl_ms
        self._renewed_at = 0.0
        self._order(check_number(number), ttl_ms)

    def _order(self, number: int, ttl_ms: int) -> None:
        order_lease(self._engine, self._group, self.name, number, ttl_ms)
        self.number = number
        self._renewed_at = time.monotonic()

    def advance(self, number: int) -> None:
        """All up to a number is done with; this also renews the lease."""
        if check_number(number) < self.number:
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
        """Renewed for as long as the block lasts, and given back at its end, however it ends. If
        it was lost meanwhile, the end of the block says so: messages may have gone unseen."""
        over = threading.Event()
        lost: list[Exception] = []
        renewing = threading.Thread(target=self._keep, args=(over, lost), name="lease", daemon=True)
        renewing.start()
        try:
            yield self
            over.set()
            renewing.join()
            self._see_whether_kept(lost)
        except BaseException as error:
            for why in lost:
                if why is not error:
                    error.add_note(f"the lease {self.name!r} was lost, too: {why}")
            raise
        finally:
            over.set()
            renewing.join()
            with suppress(ClientError):  # It lapses by itself, too.
                self.release()

    def _keep(self, over: threading.Event, lost: list[Exception]) -> None:
        while not over.wait(self._ttl_ms / 1000 / RENEWALS):
            try:
                self.renew()
            except (WaitTimeoutError, NotConnectedError):  # The next time, perhaps.
                continue
            except Exception as error:  # noqa: BLE001 - told at the end of the block
                lost.append(error)
                return

    def _see_whether_kept(self, lost: list[Exception]) -> None:
        for error in lost:
            raise error
        if time.monotonic() - self._renewed_at > self._ttl_ms / 1000:
            self.renew()  # Nobody could be asked for so long: is all of it still there?

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
