"""Payloads that a member keeps until it can deliver them: those that the order names already, and
spare ones that it may name soon. Spare ones go, the oldest first, when there are too many runs or
bytes. Those that are named stay: a member knows only so many names, and one of them is the next.
"""

from collections import OrderedDict

from samcast.group.storage import BatchKey
from samcast.wire.batch import Batch


class KeptPayloads:
    """By their keys."""

    def __init__(self, runs_max: int, bytes_max: int) -> None:
        self._runs_max = runs_max
        self._bytes_max = bytes_max
        self._batches: dict[BatchKey, Batch] = {}
        self._wanted: dict[BatchKey, None] = {}  # named by the order
        self._spare: OrderedDict[BatchKey, None] = OrderedDict()  # here, and not named yet
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def __contains__(self, key: BatchKey) -> bool:
        return key in self._batches

    def get(self, key: BatchKey) -> Batch | None:
        """What is here."""
        return self._batches.get(key)

    def want(self, key: BatchKey) -> None:
        """The order names it."""
        self._wanted[key] = None
        self._spare.pop(key, None)

    def unwant(self, key: BatchKey) -> None:
        """It was delivered, or the order's entry was put off for lack of room."""
        self._wanted.pop(key, None)
        if key in self._batches:
            self._spare[key] = None
            self._make_room(0)

    def keep(self, key: BatchKey, batch: Batch) -> None:
        """Keep it if there is room, or can be made; whatever isn't kept can be asked for."""
        self.pop(key)
        size = len(batch.columns)
        self._make_room(size)
        if self._is_full(size) and key not in self._wanted:
            return
        self._batches[key] = batch
        self.bytes += size
        if key not in self._wanted:
            self._spare[key] = None

    def _make_room(self, size: int) -> None:
        while self._is_full(size) and self._spare:
            self.pop(next(iter(self._spare)))

    def _is_full(self, more: int) -> bool:
        """Whether another one of this size would be too much; of none, whether this is."""
        runs = len(self._batches) + bool(more)
        return runs > self._runs_max or self.bytes + more > self._bytes_max

    def pop(self, key: BatchKey) -> None:
        """Not needed any more."""
        batch = self._batches.pop(key, None)
        if batch is not None:
            self.bytes -= len(batch.columns)
            self._spare.pop(key, None)
