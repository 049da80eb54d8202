"""The end of a client, as those who wait for one of its roles hear of it."""

import queue
from typing import Any

import msgspec

from samcast.errors import ClientError


class Ended(msgspec.Struct, frozen=True):
    """Client -> whoever takes a role's effects: there are no more of them, and why."""

    error: ClientError


class Arrivals:
    """What a role says, for one thread that waits for it."""

    def __init__(self) -> None:
        self._came: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put = self._came.put

    def get(self, timeout: float) -> Any:
        """The next one; `queue.Empty` if none came in time, an error once none can come."""
        found = self._came.get(timeout=timeout)
        if isinstance(found, Ended):
            self._came.put(found)  # for whoever asks again
            raise found.error
        return found
