"""Room for new payloads: segments of which little is of use any more are written anew, without the
rest, and deleted.

What a segment tells of payloads elsewhere, their numbers, goes along. A new segment is whole and
durable before the old one goes, so a crash at any point leaves each payload at least once.
"""

import asyncio
from collections.abc import Callable

from samcast.disk.data_segments import FULL
from samcast.disk.data_store import DataStore
from samcast.disk.tidying import tidy

LOOK_S = 0.5
SHARE = 0.25  # of a segment's payloads; with more of them it isn't worth the writing
ROOM_RESERVED_BYTES = 16 * 1024 * 1024  # left for votes and the order, whatever is moved


class Tidying:
    """Of one data store."""

    def __init__(self, store: DataStore, on_failed: Callable[[OSError], None]) -> None:
        self._store = store
        self._on_failed = on_failed

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """One round."""
        spent = self._store.spent_segments(SHARE)
        for generation in sorted(spent, key=self._store.is_spent, reverse=True):
            try:
                await self._tidy(generation)
            except OSError as error:
                if error.errno not in FULL:
                    self._on_failed(error)
                return  # Nowhere to move anything to; later, perhaps.

    async def _tidy(self, generation: int) -> None:
        for step in tidy(self._store, generation, ROOM_RESERVED_BYTES):
            if step is None:
                await asyncio.sleep(0)
            else:
                await asyncio.to_thread(step)
