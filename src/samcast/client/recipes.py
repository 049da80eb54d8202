"""Small things that people build on a replicated table: counters, locks with fencing numbers."""

import secrets
import threading
import time

from samcast.client.table import ReplicatedTable, Text
from samcast.errors import ClientError, ConfigError, OutcomeUnknownError, WaitTimeoutError

LOOK_S = 0.5  # a holder that died says nothing: look now and then whether its time is over


class Counter:
    """A number that many processes add to, each addition counted once."""

    def __init__(self, table: ReplicatedTable, key: Text) -> None:
        self._table = table
        self._key = key

    def value(self, *, fresh: bool = False) -> int:
        """What it stands at, as this process knows it, or just now."""
        return _number(self._table.get(self._key, fresh=fresh))

    def add(self, amount: int = 1) -> int:
        """Add to it; what it stands at then. After an `OutcomeUnknownError` it may have been added
        or not."""
        if not isinstance(amount, int):
            raise ConfigError(f"a counter adds whole numbers, not {amount!r}")
        while True:
            before = self._table.get(self._key)
            after = _number(before) + amount
            if self._table.compare_and_set(self._key, before, str(after)):
                return after


class Lock:
    """At most one process holds it at any number of the table.

    Clocks can't promise more: a holder that stops for longer than `ttl` goes on believing. So give
    its **fencing number** to whatever the lock protects, and have that refuse lower ones.
    """

    def __init__(self, table: ReplicatedTable, key: Text, *, ttl: float = 30.0) -> None:
        if not isinstance(ttl, int | float) or not ttl >= 2 * LOOK_S:
            raise ConfigError(f"ttl is {ttl!r} s; a lock needs at least {2 * LOOK_S} to be renewed")
        self._table = table
        self._key = key
        self._ttl = ttl
        self._mine = secrets.token_hex(8).encode()
        self._is_over = threading.Event()
        self._renewing: threading.Thread | None = None
        self.number = 0  # the fencing number, while we hold it as far as we know

    def acquire(self, timeout: float | None = None) -> int:
        """Wait until it is ours; the fencing number, which is higher than every one before."""
        limit = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._table.watch(self._key) as watch:  # Begun anew: it may have lost changes.
                number = self._take(None)
                if number:
                    self.number = number
                    self._begin_renewing()
                    return number
                if limit is not None and time.monotonic() > limit:
                    raise WaitTimeoutError(f"{self._key!r} is held by another one still")
                watch.wait(LOOK_S)

    def release(self) -> None:
        """Give it back; it is no error if it was lost before."""
        self._is_over.set()
        if self._renewing is not None:
            self._renewing.join()
            self._renewing = None
        self.number = 0
        while True:
            try:
                self._table.compare_and_set(self._key, self._mine, None)
                return
            except OutcomeUnknownError:
                if not self._number_of_ours():
                    return

    def _take(self, expected: bytes | None) -> int:
        """The number by which it is ours, 0 if it is not."""
        try:
            return self._table.compare_and_set(self._key, expected, self._mine, ttl=self._ttl)
        except OutcomeUnknownError:  # But what we hold shows, for the value is ours alone.
            return self._number_of_ours()

    def _number_of_ours(self) -> int:
        row = self._table.row(self._key)
        return row.number if row is not None and row.value == self._mine else 0

    def _begin_renewing(self) -> None:
        self._is_over.clear()
        self._renewing = threading.Thread(target=self._renew, name="lock", daemon=True)
        self._renewing.start()

    def _renew(self) -> None:
        while not self._is_over.wait(self._ttl / 3):
            number = 0
            try:
                number = self._take(self._mine)
            except ClientError:  # Nobody could be asked in time, or the client is closed.
                pass
            finally:
                if not number:
                    self.number = 0  # It was lost: somebody else may hold it.
            if not number:
                return

    def __enter__(self) -> int:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def _number(value: bytes | None) -> int:
    try:
        return int(value or b"0")
    except ValueError:
        raise ConfigError(f"{value!r} is no number; this key is used for something else") from None
