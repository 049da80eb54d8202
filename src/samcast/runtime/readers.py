"""What clients that don't keep up may hold of a node's memory, all of them together (ADR 36).

A bound on each would be none: there are thousands. So a large answer isn't begun while what all
hold is at the bound. It waits its turn, in the order in which they were first refused. Who has its
share waiting already, or anything once half of the bound is used, gets no large answer until it has
read. Small ones, which confirm what it sent, still come. Nobody who reads is parted with: only who
has taken nothing for seconds while others wait for the room. It connects and asks again.
"""

import time
from collections.abc import Callable

from samcast.runtime.connection import WAITING_BYTES_MAX, Connection

READERS_BYTES_MAX = 256 * 1024 * 1024  # a small part of what a node has, and some full answers
SMALL_BYTES = 64 * 1024  # confirmations and the like
STALLED_S = 5.0  # taking nothing: longer than networks repair a loss, and others can wait for it
TURN_S = 3.0  # that room is kept for who was refused: it asks again each second at least
LOOK_S = 0.01  # between two looks at what all hold
LOOK_EACH_S = 0.0001  # and for each of them, so that looking is a small part of the work
LOOK_COUNTS_S = 1.0  # at most, between two looks: a node that stands still doesn't blame others


class _Holding:
    """What one holds, and for how long it has taken nothing of it."""

    __slots__ = ("idle_s", "size", "taken")

    def __init__(self, size: int, taken: int) -> None:
        self.size = size
        self.taken = taken
        self.idle_s = -LOOK_COUNTS_S  # The next look may count time before this.


class Readers:
    """The clients of one node that have something to read."""

    def __init__(
        self,
        bytes_max: int = READERS_BYTES_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bytes_max = bytes_max
        self._clock = clock
        self._holding: dict[Connection, _Holding] = {}  # a large answer, or more than leaves
        self._total = 0  # of these, as of the last look and with what was sent since
        self._slow: set[Connection] = set()  # those that don't keep up
        self._turns: dict[Connection, tuple[float, int]] = {}  # until when, and for how much
        self._looked = clock()
        self._look_from = self._looked
        self.parted = 0

    def __len__(self) -> int:
        return len(self._slow)

    @property
    def share(self) -> int:
        """Bytes that each may have waiting for it."""
        return min(WAITING_BYTES_MAX, self._bytes_max // max(1, len(self._slow)))

    def add(self, reader: Connection) -> None:
        """This one doesn't read as fast as it is sent to."""
        self._slow.add(reader)
        self._hold(reader, reader.held)

    def remove(self, reader: Connection) -> None:
        """This one has read all of it."""
        self._slow.discard(reader)
        holding = self._holding.pop(reader, None)
        if holding is not None:
            self._total -= holding.size

    def leave(self, reader: Connection) -> None:
        """This one is gone."""
        self.remove(reader)
        self._turns.pop(reader, None)

    def _hold(self, reader: Connection, size: int) -> None:
        before = self._holding.get(reader)
        self._total += size - (before.size if before is not None else 0)
        self._holding[reader] = _Holding(size, reader.taken)

    def has_room(self, reader: Connection, waiting: int, size: int) -> bool:
        """Whether a frame may be added to so much."""
        holding = self._holding.get(reader)
        if size > SMALL_BYTES:
            if waiting > SMALL_BYTES and waiting + size > self.share:
                return False
            if not self.may_begin(reader, size):
                return False
            self._turns.pop(reader, None)
            holding = self._holding.get(reader)  # A look may have found that it has read all.
            if holding is None or waiting <= SMALL_BYTES:
                self._hold(reader, waiting + size)
                return True
        if holding is None:
            return True
        if self._total >= self._bytes_max:
            self._look(self._clock())
            if self._total >= self._bytes_max * 3 // 2 and waiting > self.share:
                return False  # Small ones are many: they are repeated, as all that is dropped.
            holding = self._holding.get(reader)
        if holding is not None:
            holding.size += size
            self._total += size
        return True

    def may_begin(self, reader: Connection, size: int) -> bool:
        """Whether a large answer may be sent to this one now. Otherwise it has a turn: of the room
        that comes, those who were refused before get theirs first, and it gets its own next."""
        now = self._clock()
        if self._total >= self._bytes_max // 2:
            self._look(now)
            if self._total >= self._bytes_max // 2 and reader.under_way > SMALL_BYTES:
                return False  # It has something to read: the rest is for those who have nothing.
        room = self._bytes_max - self._total
        late = []
        for other, (until, wanted) in self._turns.items():
            if other is reader or room <= 0:
                break
            if until <= now:
                late.append(other)
            else:
                room -= wanted
        for other in late:
            del self._turns[other]
        if room <= 0:
            self._turns[reader] = (now + TURN_S, size)  # It keeps its place.
        return room > 0

    def _look(self, now: float) -> None:
        """See what all hold now, and part with those that have stopped if that is too much."""
        if now < self._look_from:
            return
        passed = min(now - self._looked, LOOK_COUNTS_S)
        self._looked = now
        self._look_from = now + LOOK_S + LOOK_EACH_S * len(self._holding)
        for reader, holding in list(self._holding.items()):
            size, taken = reader.held, reader.taken
            if not size:
                self.remove(reader)
                continue
            self._total += size - holding.size
            holding.size = size
            holding.idle_s = holding.idle_s + passed if taken == holding.taken else 0.0
            holding.taken = taken
        if self._total >= self._bytes_max:
            self._part()

    def _part(self) -> None:
        """With those that have stopped for longest, until there is some room."""
        idle = {reader: holding.idle_s for reader, holding in self._holding.items()}
        for reader in sorted(idle, key=idle.__getitem__, reverse=True):
            if idle[reader] < STALLED_S or self._total <= self._bytes_max * 3 // 4:
                return
            self.leave(reader)
            self.parted += 1
            reader.abort()
