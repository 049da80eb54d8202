"""Frames put together from datagrams, and what to ask for: one receiver's view of one sender.

Whatever is lacking is asked for after a pause that is drawn at random and doubles, so that many
receivers who lack the same don't all ask: whoever hears the repair first needs no question. What
isn't had after some questions is given up here; the roles above ask others for what they need.

Everything is bounded by bytes that really came and by numbers of frames, the oldest going first.
"""

from collections import OrderedDict

from samcast.machine.ports import NEVER_MS, Chance
from samcast.multicast.parity import CAN_MAKE_UP, made_up
from samcast.wire.datagram import BLOCK_PIECES, RANGES_MAX, Lacking, Parity, Piece

JUMP_MAX = 2**24  # frames between two datagrams that come; minutes of the fastest sender
JUMPS_BELIEVED = 8  # so many in a row, and it was we who were away


class Gathering:
    """A frame of which something is lacking."""

    __slots__ = (
        "asked", "chance_ms", "count", "due_ms", "held", "parity", "pieces", "size", "size_last",
        "wait_ms",
    )  # fmt: skip

    def __init__(self, now_ms: int, wait_ms: int, chance_ms: int) -> None:
        self.count = 0  # 0: nothing of it has come
        self.size = 0
        self.size_last = 0  # known only from parity
        self.pieces: dict[int, bytes] = {}
        self.parity: dict[tuple[int, int], bytes] = {}  # by block, and which one of it
        self.held = 0  # bytes
        self.asked = 0  # times
        self.wait_ms = wait_ms
        self.chance_ms = chance_ms
        self.due_ms = now_ms + wait_ms + chance_ms

    def add(self, piece: Piece | Parity) -> int:
        """How many bytes are here now that weren't before, those that it makes up for included."""
        if isinstance(piece, Piece):
            block = piece.index // BLOCK_PIECES
            if piece.index in self.pieces:
                return 0
            self.pieces[piece.index] = piece.data
        else:
            block = piece.block
            if not CAN_MAKE_UP or (block, piece.index) in self.parity:
                return 0
            self.parity[block, piece.index] = piece.data
            self.size_last = piece.size_last
        added = len(piece.data) + (self._make_up(block) if self.parity else 0)
        self.held += added
        return added

    def _make_up(self, block: int) -> int:
        places = range(BLOCK_PIECES * block, min(self.count, BLOCK_PIECES * (block + 1)))
        lacking = [index for index in places if index not in self.pieces]
        parity = {index: data for (of, index), data in self.parity.items() if of == block}
        if not lacking or len(parity) < len(lacking):
            return 0
        here = {
            index - places.start: self.pieces[index] for index in places if index in self.pieces
        }
        for at, data in made_up(len(places), self.size, here, parity).items():
            index = places.start + at
            self.pieces[index] = data[: self.size_last] if index == self.count - 1 else data
        return sum(len(self.pieces[index]) for index in lacking)

    def lacking(self, sequence: int) -> list[Lacking]:
        """The ranges of its pieces that aren't here."""
        if not self.count:
            return [Lacking(sequence, 0, 0)]
        ranges: list[Lacking] = []
        first = -1
        for index in range(self.count + 1):
            is_here = index == self.count or index in self.pieces
            if not is_here and first < 0:
                first = index
            elif is_here and first >= 0:
                ranges.append(Lacking(sequence, first, index - first))
                first = -1
        return ranges


class Bounds:
    """How much of one sender's frames is kept, and how patiently it is asked for."""

    def __init__(
        self,
        bytes_max: int = 32 * 1024 * 1024,
        frames_max: int = 1024,
        wait_ms: int = 4,
        wait_max_ms: int = 100,
        asked_max: int = 6,
    ) -> None:
        self.bytes_max = bytes_max  # of frames that aren't whole
        self.frames_max = frames_max
        self.wait_ms = wait_ms  # before a first question, plus as much by chance
        self.wait_max_ms = wait_max_ms
        self.asked_max = asked_max  # in vain; then a frame is given up


class Reassembly:
    """What came from one life of a node."""

    def __init__(self, chance: Chance, bounds: Bounds | None = None) -> None:
        self._chance = chance
        self._bounds = bounds or Bounds()
        self._next = 0  # the first sequence that nothing is known of; 0: nothing came yet
        self._gathering: OrderedDict[int, Gathering] = OrderedDict()  # by rising sequence
        self._held = 0
        self.given_up = 0  # frames
        self.implausible = 0  # datagrams that nobody can have sent
        self._in_a_row = 0

    def take(self, piece: Piece | Parity, now_ms: int) -> bytes | None:
        """Something of a frame came: the frame, if that makes it whole."""
        if not self._next:
            self._next = piece.sequence  # What came before we listened is not ours to ask for.
        if not self.announce(piece.sequence, now_ms):
            return None
        found = self._gathering.get(piece.sequence)
        if found is None:
            return None  # Whole already, given up, or from before we listened.
        if not found.count:
            found.count, found.size = piece.count, piece.size
        added = found.add(piece) if (piece.count, piece.size) == (found.count, found.size) else 0
        if not added:
            return None
        if found.asked:  # Asking helps.
            found.asked, found.wait_ms = 0, self._bounds.wait_ms
        found.due_ms = now_ms + found.wait_ms + found.chance_ms  # More of it may be on its way.
        self._held += added
        if len(found.pieces) == found.count:
            del self._gathering[piece.sequence]
            self._held -= found.held
            return b"".join(found.pieces[index] for index in range(found.count))
        self._keep_within_bounds()
        return None

    def announce(self, sequence: int, now_ms: int) -> bool:
        """The sender has sent everything up to this frame: what didn't come is lacking. False if
        that can't be so; but where it goes on like this, we have missed much."""
        if not self._next:
            self._next = sequence + 1
            return True
        if sequence >= self._next + JUMP_MAX:
            self.implausible += 1
            self._in_a_row += 1
            if self._in_a_row < JUMPS_BELIEVED:
                return False
            self.given_up += len(self._gathering)
            self._gathering.clear()
            self._held, self._next = 0, sequence
        self._in_a_row = 0
        first = max(self._next, sequence + 1 - self._bounds.frames_max)
        self.given_up += max(0, first - self._next) if sequence >= self._next else 0
        for lacking in range(first, sequence + 1):
            wait_ms = self._bounds.wait_ms
            self._gathering[lacking] = Gathering(now_ms, wait_ms, self._chance.below(wait_ms + 1))
        self._next = max(self._next, sequence + 1)
        self._keep_within_bounds()
        return True

    def _due(self, now_ms: int, wait_ms: int) -> int:
        return now_ms + wait_ms + self._chance.below(wait_ms + 1)

    def _keep_within_bounds(self) -> None:
        bounds = self._bounds
        while len(self._gathering) > bounds.frames_max or self._held > bounds.bytes_max:
            self._give_up(next(iter(self._gathering)))

    def _give_up(self, sequence: int) -> None:
        self._held -= self._gathering.pop(sequence).held
        self.given_up += 1

    @property
    def heard(self) -> int:
        """All up to this frame is here, or given up."""
        return next(iter(self._gathering), self._next) - 1

    @property
    def is_lacking(self) -> bool:
        """Whether there is anything to ask for, now or later."""
        return bool(self._gathering)

    def due_ms(self) -> int:
        """When there is something to ask."""
        return min((found.due_ms for found in self._gathering.values()), default=NEVER_MS)

    def questions(self, now_ms: int) -> list[Lacking]:
        """What to ask for now, at most what fits one question."""
        ranges: list[Lacking] = []
        for sequence, found in list(self._gathering.items()):
            if found.due_ms > now_ms:
                continue
            if found.asked >= self._bounds.asked_max:
                self._give_up(sequence)
                continue
            lacking = found.lacking(sequence)
            if ranges and len(ranges) + len(lacking) > RANGES_MAX:
                break
            ranges += lacking[: RANGES_MAX - len(ranges)]
            found.asked += 1
            found.wait_ms = min(2 * found.wait_ms, self._bounds.wait_max_ms)
            found.due_ms = self._due(now_ms, found.wait_ms)
        return ranges

    @property
    def held(self) -> int:
        """Bytes of frames that aren't whole."""
        return self._held
