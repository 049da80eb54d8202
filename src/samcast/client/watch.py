"""A watch: what becomes of a table's keys, told to who waits for it, with a bound."""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from samcast.errors import ClientError
from samcast.group.table import Changed

if TYPE_CHECKING:
    from samcast.client.table import ReplicatedTable

WATCHED_MAX = 100_000  # changes that a watcher may be behind


class Watch:
    """Changes as they take effect, in their order, from when it was begun."""

    def __init__(self, table: "ReplicatedTable", key: bytes | None) -> None:
        self._table = table
        self._key = key
        self._changes: deque[Changed] = deque()
        self._has_lost = False
        table._add_watch(self)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """No more of it."""
        self._table._remove_watch(self)

    def lose(self) -> None:
        """Called by the table, under its lock: it has skipped changes."""
        self._has_lost = True

    def add(self, changed: list[Changed]) -> None:
        """Called by the table, under its lock."""
        if self._has_lost:
            return
        self._changes.extend(c for c in changed if self._key is None or c.key == self._key)
        if len(self._changes) > WATCHED_MAX:
            self._has_lost = True

    @property
    def is_ready(self) -> bool:
        """Whether there is something to take, or to say."""
        return bool(self._changes) or self._has_lost

    def take(self) -> Changed:
        """Called by the table, under its lock."""
        if not self._changes:
            raise ClientError(
                "this watch, or its table, was too far behind and has lost changes; look at the"
                " table, and watch again"
            )
        return self._changes.popleft()

    def wait(self, timeout: float | None = None) -> None:
        """Until there is something to take or to say, or the time is over."""
        self._table._wait_for_any(self, timeout)

    def next(self, timeout: float | None = None) -> Changed | None:
        """The next change; None if there is none in time."""
        return self._table._next_of(self, timeout)

    def __iter__(self) -> Iterator[Changed]:
        while True:
            changed = self.next()
            assert changed is not None
            yield changed
