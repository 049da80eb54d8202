"""The scrub: reads everything stored again, slowly, so that rot is found while others still have
what it took.
"""

import asyncio
from collections.abc import Callable

from samcast.disk.data_store import DataStore
from samcast.group.recovery import Place
from samcast.group.storage import BatchKey

BYTES_PER_S = 4 * 1024 * 1024
FIRST_S = 60.0  # after a start
REST_S = 3600.0  # between two rounds
PIECE_BYTES = 256 * 1024  # read at a time


class Scrub:
    """Goes over one data store again and again."""

    def __init__(
        self,
        store: DataStore,
        on_rotted: Callable[[BatchKey], None],
        bytes_per_s: int = BYTES_PER_S,
        first_s: float = FIRST_S,
        rest_s: float = REST_S,
    ) -> None:
        self._store = store
        # Used in a thread of its own. What it holds open keeps its room when it is deleted.
        self._reader = store.reader(open_max=1)
        self._on_rotted = on_rotted
        self._bytes_per_s = bytes_per_s
        self._first_s = first_s
        self._rest_s = rest_s
        self.rounds = 0
        self.payloads = 0
        self.rotten = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        await asyncio.sleep(self._first_s)
        while True:
            await self.look_at_all()
            await asyncio.sleep(self._rest_s)

    async def look_at_all(self) -> None:
        """One round."""
        piece: list[tuple[BatchKey, Place]] = []
        size = 0
        for key in self._store.stored_keys():
            place = self._store.place_of(key)
            if place is None:
                continue
            piece.append((key, place))
            size += place[2]
            if size >= PIECE_BYTES:
                await self._look(piece, size)
                piece, size = [], 0
        await self._look(piece, size)
        self._reader.close()
        self.rounds += 1

    async def _look(self, piece: list[tuple[BatchKey, Place]], size: int) -> None:
        rotten = await asyncio.to_thread(self._rotten_of, piece)
        self.payloads += len(piece)
        for key in rotten:
            # It may just have been given up, or stored anew.
            if self._store.is_stored(key) and self._store.read(key) is None:
                self.rotten += 1
                self._on_rotted(key)
        await asyncio.sleep(size / self._bytes_per_s)

    def _rotten_of(self, piece: list[tuple[BatchKey, Place]]) -> list[BatchKey]:
        return [key for key, place in piece if self._reader.read(place) is None]
