"""What clients that don't read may hold of a node's memory, all of them together (ADR 36).

Each has its share of one bound. Who waits for more than that gets no large answer until it has
read, and asks again; small ones, which confirm what it sent, still come. A bound on each would be
none: there are thousands. Where the sum grows beyond the bound all the same, those that have read
nothing for the longest time are parted with. Whoever reads again connects and asks again.
"""

from samcast.runtime.connection import WAITING_BYTES_MAX, Connection

READERS_BYTES_MAX = 256 * 1024 * 1024  # a small part of what a node has, and some full answers
SMALL_BYTES = 64 * 1024  # confirmations and the like
LOOK_BYTES = 16 * 1024 * 1024  # sent to those who wait, before the sum is taken again


class Readers:
    """The clients of one node that have something to read."""

    def __init__(self, bytes_max: int = READERS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._waiting: dict[Connection, tuple[int, int]] = {}  # bytes, and the look they came by
        self._looks = 0
        self._since_look = 0
        self.parted = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def share(self) -> int:
        """Bytes that each may have waiting for it."""
        return min(WAITING_BYTES_MAX, self._bytes_max // max(1, len(self._waiting)))

    def add(self, reader: Connection) -> None:
        """This one doesn't read as fast as it is sent to."""
        self._waiting[reader] = (reader.held, self._looks)

    def remove(self, reader: Connection) -> None:
        """This one has read all of it, or is gone."""
        self._waiting.pop(reader, None)

    def has_room(self, waiting: int, size: int) -> bool:
        """Whether a frame may be added to so much; who has nothing gets something, however large
        it is: it may be a single message."""
        if size > SMALL_BYTES and waiting and waiting + size > self.share:
            return False
        self._since_look += size
        if self._since_look >= LOOK_BYTES:
            self._look()
        return True

    def _look(self) -> None:
        self._looks += 1
        self._since_look = 0
        total = 0
        for reader, (before, look) in self._waiting.items():
            now = reader.held
            total += now
            self._waiting[reader] = (now, self._looks if now < before else look)
        if total <= self._bytes_max:
            return
        stalest = sorted(self._waiting, key=lambda r: (self._waiting[r][1], -self._waiting[r][0]))
        for reader in stalest:
            total -= self._waiting.pop(reader)[0]
            self.parted += 1
            reader.abort()
            if total <= self._bytes_max * 3 // 4:
                return
