"""Batches that a data server can't place yet, since its fold may be behind: in memory, for a while.

Losing one costs its sender a repeat, so there are bounds for each client and for all, and a time.
"""

from collections import OrderedDict, deque

from samcast.group.settings import GroupSettings
from samcast.group.storage import BatchKey
from samcast.machine.ports import NEVER_MS, NodeId
from samcast.wire.batch import Batch


class Waiting:
    """One batch, and who brought it when."""

    __slots__ = ("batch", "client", "since_ms")

    def __init__(self, batch: Batch, client: NodeId, since_ms: int) -> None:
        self.batch = batch
        self.client = client
        self.since_ms = since_ms


class WaitingRoom:
    """The waiting batches of one data server."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._waiting: OrderedDict[BatchKey, Waiting] = OrderedDict()
        self._ages: deque[tuple[int, BatchKey]] = deque()  # as they came
        self._bytes = 0
        self._clients: dict[NodeId, tuple[int, int]] = {}  # batches, bytes

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, key: BatchKey, batch: Batch, client: NodeId, now_ms: int) -> None:
        """Keep a batch, if there is room; a client's first one needs no share."""
        if key in self._waiting:
            return
        settings, size = self._settings, len(batch.columns)
        count, taken = self._clients.get(client, (0, 0))
        is_over = count >= settings.share(settings.waiting_runs_max)
        is_over = is_over or taken + size > settings.share(settings.waiting_bytes_max)
        is_full = len(self._waiting) >= settings.waiting_runs_max
        if (count and is_over) or is_full or self._bytes + size > settings.waiting_bytes_max:
            return
        self._waiting[key] = Waiting(batch, client, now_ms)
        self._ages.append((now_ms, key))
        self._bytes += size
        self._clients[client] = (count + 1, taken + size)

    def first(self) -> Waiting:
        """The one that was looked at longest ago; it must be taken or put back."""
        return next(iter(self._waiting.values()))

    def put_back(self, key: BatchKey) -> None:
        """It waits on, behind the others."""
        self._waiting.move_to_end(key)

    def take(self, key: BatchKey) -> Waiting | None:
        """It waits no more."""
        waiting = self._waiting.pop(key, None)
        if waiting is None:
            return None
        size = len(waiting.batch.columns)
        self._bytes -= size
        count, taken = self._clients[waiting.client]
        if count > 1:
            self._clients[waiting.client] = (count - 1, taken - size)
        else:
            del self._clients[waiting.client]
        return waiting

    def take_old(self, since_ms: int) -> list[tuple[BatchKey, Waiting]]:
        """Those who came at this time or before."""
        found: list[tuple[BatchKey, Waiting]] = []
        while self._ages and self._ages[0][0] <= since_ms:
            came_ms, key = self._ages.popleft()
            waiting = self._waiting.get(key)
            if waiting is not None and waiting.since_ms == came_ms:
                self.take(key)
                found.append((key, waiting))
        return found

    def oldest_ms(self) -> int:
        """When the oldest came; those that have left in the meantime are passed over."""
        while self._ages:
            came_ms, key = self._ages[0]
            waiting = self._waiting.get(key)
            if waiting is not None and waiting.since_ms == came_ms:
                return came_ms
            self._ages.popleft()
        return NEVER_MS
