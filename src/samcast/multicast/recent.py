"""What a sender sent lately, to send pieces of it again to whoever asks.

The first who asks for a piece gets it alone. When somebody else asks for the same soon after, it
was lost for many, and is sent once more to all; then not again for a while, whoever asks.
"""

from collections import OrderedDict

import msgspec

from samcast.limits import NODE_MAX
from samcast.multicast.parity import parity_of
from samcast.wire.datagram import Envelope, Lacking

HELD_BYTES_MAX = 32 * 1024 * 1024
FRAMES_MAX = 8192
SOON_MS = 20
AGAIN_PIECES_MAX = 2048  # of one question
ASKED_MAX = 65536  # pieces of which we remember who asked


class Again(msgspec.Struct):
    """Datagrams to send once more: to the one who asked, and to all."""

    to_one: list[bytes]
    to_all: list[bytes]


class Recent:
    """The frames that one life of a node sent lately."""

    def __init__(
        self,
        envelope: Envelope,
        size: int,
        held_max: int = HELD_BYTES_MAX,
        parity_percent: int = 0,
    ) -> None:
        self._parity_percent = parity_percent
        self._envelope = envelope
        self._size = size
        self._held_max = held_max
        self._held = 0
        self._frames: OrderedDict[int, bytes] = OrderedDict()
        self._asked: OrderedDict[tuple[int, int], tuple[int, int, bool]] = OrderedDict()
        self.sequence = 0  # of the newest

    def send(self, frame: bytes) -> list[bytes]:
        """The datagrams of a new frame."""
        datagrams = self._envelope.cut(self.sequence + 1, frame, self._size)
        if self._parity_percent:
            count = len(datagrams)
            sizes = self._size, len(frame) - (count - 1) * self._size
            for place, data in parity_of(frame, self._size, self._parity_percent):
                datagrams.append(
                    self._envelope.parity(self.sequence + 1, place, count, sizes, data)
                )
        self.sequence += 1
        self._frames[self.sequence] = frame
        self._held += len(frame)
        while len(self._frames) > 1 and (
            self._held > self._held_max or len(self._frames) > FRAMES_MAX
        ):
            self._held -= len(self._frames.popitem(last=False)[1])
        return datagrams

    def answer(
        self, asker: int, ranges: tuple[Lacking, ...], now_ms: int, unsent: tuple[int, int] = (0, 0)
    ) -> Again:
        """What of the asked pieces to send again, and to whom; bounded, whatever is asked. Of the
        frame `unsent[0]` the last `unsent[1]` datagrams have not left yet."""
        again = Again([], [])
        self._forget(now_ms)
        left = AGAIN_PIECES_MAX
        for lacking in ranges:
            frame = self._frames.get(lacking.sequence)
            if frame is None:
                continue
            count = max(1, -(-len(frame) // self._size))
            first, end = lacking.first, lacking.first + lacking.count
            if not lacking.count:
                first, end = 0, count
            if lacking.sequence == unsent[0]:  # What has not left can't be lacking.
                end = min(end, count - unsent[1])
            for index in range(first, min(end, count)):
                if not left:
                    return again
                left -= 1
                self._answer_one(asker, (lacking.sequence, index), frame, count, now_ms, again)
        return again

    def _answer_one(
        self, asker: int, place: tuple[int, int], frame: bytes, count: int, now_ms: int,
        again: Again,
    ) -> None:  # fmt: skip
        before = self._asked.get(place)
        if before is None:
            self._asked[place] = (now_ms, asker, False)
            target = again.to_one
        elif before[1] == asker and not before[2]:
            if asker > NODE_MAX:
                return  # Connections lose nothing.
            target = again.to_one  # It was lost again.
        elif not before[2]:
            self._asked[place] = (before[0], asker, True)
            target = again.to_all
        else:
            return
        target.append(self._envelope.piece(place[0], frame, self._size, place[1], count))

    def _forget(self, now_ms: int) -> None:
        while self._asked:
            place, (at_ms, _, _) = next(iter(self._asked.items()))
            if now_ms - at_ms < SOON_MS and len(self._asked) <= ASKED_MAX:
                return
            del self._asked[place]
