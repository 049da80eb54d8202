"""What one receiver hears from all senders: the life that each is in, its frames, what to ask for.

A life is told on a connection, never by a datagram: nothing of another one counts.
"""

from collections.abc import Iterator

import msgspec

from samcast.machine.ports import Chance, NodeId
from samcast.multicast.reassembly import Reassembly
from samcast.wire.datagram import Lacking, Newest, Parity, Piece, Source
from samcast.wire.errors import WireError

TELL_BYTES = 128 * 1024


class Asking(msgspec.Struct, frozen=True, gc=False):
    """A question for one life of a node."""

    node: NodeId
    life: int
    ranges: tuple[Lacking, ...]


class Hearing:
    """The senders of one cluster, as one receiver hears them."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._lives: dict[NodeId, int] = {}
        self._heard: dict[NodeId, Reassembly] = {}
        self._untold: dict[NodeId, int] = {}  # bytes of whole frames since we last told
        self._told: dict[NodeId, int] = {}  # up to which frame
        self._given_up_before = 0  # in lives that are over

    def expect(self, node: NodeId, life: int) -> bool:
        """A node has told which life it is in; whether that is news."""
        if self._lives.get(node) == life:
            return False
        before = self._heard.get(node)
        self._given_up_before += before.given_up if before is not None else 0
        self._lives[node] = life
        self._told.pop(node, None)
        self._heard[node] = Reassembly(self._chance)
        return True

    @property
    def lives(self) -> dict[NodeId, int]:
        """Which life each node is in, as far as it has told."""
        return self._lives

    def check(self, source: Source) -> None:
        """Whether that is the life that the node has told."""
        if self._lives.get(source.node) != source.life:
            raise WireError("datagram-life", f"node {source.node} has told us of another life")

    def take(self, message: Piece | Parity | Newest, now_ms: int) -> bytes | None:
        """Something came: the frame, if that makes one whole."""
        source = message.source
        self.check(source)
        heard = self._heard[source.node]
        if isinstance(message, Newest):
            heard.announce(message.sequence, now_ms)
            return None
        frame = heard.take(message, now_ms)
        if frame is not None:
            self._untold[source.node] = self._untold.get(source.node, 0) + len(frame)
        return frame

    def to_tell(self, node: NodeId) -> tuple[int, int] | None:
        """The life of a node and how far it was heard, if it is time to tell it."""
        heard = self._heard[node].heard
        if self._untold.get(node, 0) < TELL_BYTES or heard <= self._told.get(node, 0):
            return None
        self._untold[node] = 0
        self._told[node] = heard
        return self._lives[node], heard

    @property
    def is_lacking(self) -> bool:
        """Whether there is anything to ask for, now or later."""
        return any(heard.is_lacking for heard in self._heard.values())

    def questions(self, now_ms: int) -> Iterator[Asking]:
        """What to ask now, and whom."""
        for node, heard in self._heard.items():
            if heard.due_ms() <= now_ms:
                ranges = heard.questions(now_ms)
                if ranges:
                    yield Asking(node, self._lives[node], tuple(ranges))

    @property
    def given_up(self) -> int:
        """Frames that nobody could bring us; roles ask for what they need of them."""
        return self._given_up_before + sum(heard.given_up for heard in self._heard.values())
