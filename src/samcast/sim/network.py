"""The network: carries encoded frames, and loses, repeats, delays, cuts and flips them.

A frame is encoded once and decoded once per distinct bytes; a flip makes other bytes. Frames whose
sender crashed still arrive; frames held back for long belong to epochs that are long over. A link
that has more under way than its bound drops what comes, as a real connection does.
"""

from collections.abc import Callable, Iterable

from samcast.sim.chance import SeededChance
from samcast.wire.batch import Batch
from samcast.wire.codec import Message, decode, encode
from samcast.wire.control import Control
from samcast.wire.errors import WireError

HELD_MAX = 400  # frames kept for a much later time


class Packet:
    """A frame in flight, with its decoded form once somebody needed it."""

    __slots__ = ("data", "is_bad", "message")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.message: Message | None = None
        self.is_bad = False

    def open(self) -> Message | None:
        """The message, through the real decoder; None if the frame is bad."""
        if self.message is None and not self.is_bad:
            try:
                self.message = decode(self.data)
            except WireError:
                self.is_bad = True
        return self.message


class Network:
    """All links of a world."""

    def __init__(
        self,
        chance: SeededChance,
        at: Callable[..., None],
        arrive: Callable[[int, int, Message], None],
    ) -> None:
        self._chance = chance
        self._at = at
        self.arrive = arrive  # others may listen in
        self.loss = 0.0
        self.duplication = 0.0
        self.flips = 0.0
        self.delay_us = 300
        self.jitter_us = 500
        self.late = 0.0  # share of frames that arrive very late
        self.late_us = 50_000
        self.hold = 0.0  # share of frames that are also kept for much later
        self._held: list[tuple[int, int, Packet]] = []
        self._cut: dict[tuple[int, int], int] = {}  # directed links that are cut, how often
        self._clogged: dict[int, list[tuple[int, int, Packet]]] = {}
        self.link_bytes_max = 0  # under way on one link; 0: no bound
        self.on_full: Callable[[], None] = lambda: None
        self._under_way: dict[tuple[int, int], int] = {}
        self._full: dict[tuple[int, int], None] = {}  # links that drop until they are empty
        self.counts = {"sent": 0, "lost": 0, "flipped": 0, "repeated": 0, "refused": 0}

    # faults

    def cut(self, sources: Iterable[int], targets: Iterable[int]) -> list[tuple[int, int]]:
        """Cut every link from one set to another, one way; returns what to mend."""
        links = [(s, t) for s in sources for t in targets if s != t]
        for link in links:
            self._cut[link] = self._cut.get(link, 0) + 1
        return links

    def mend(self, links: Iterable[tuple[int, int]]) -> None:
        """Undo a cut."""
        for link in links:
            left = self._cut.get(link, 0) - 1
            if left > 0:
                self._cut[link] = left
            else:
                self._cut.pop(link, None)

    def clog(self, node: int) -> None:
        """Hold everything to a node until it is unclogged."""
        self._clogged.setdefault(node, [])

    def unclog(self, node: int) -> None:
        """Let it all arrive, in random order."""
        for source, target, packet in self._clogged.pop(node, []):
            self._at(self._chance.below(20_000), self._deliver, source, target, packet)

    def release_held(self) -> int:
        """Packets of long ago arrive now."""
        held, self._held = self._held, []
        for source, target, packet in held:
            self._at(self._chance.below(50_000), self._deliver, source, target, packet)
        return len(held)

    def heal(self) -> None:
        """A good network from now on; what was held stays lost."""
        self.loss = self.duplication = self.flips = self.late = self.hold = 0.0
        self._cut.clear()
        self._held.clear()
        for node in list(self._clogged):
            self.unclog(node)

    # traffic

    def send(self, source: int, targets: Iterable[int], message: Control | Batch) -> None:
        """One transmission to one or several nodes."""
        packet = Packet(encode(message))
        for target in targets:
            self._send_one(source, target, packet)

    def _send_one(self, source: int, target: int, packet: Packet) -> None:
        chance = self._chance
        self.counts["sent"] += 1
        if self.hold and chance.happens(self.hold) and len(self._held) < HELD_MAX:
            self._held.append((source, target, packet))
        if (source, target) in self._cut or (self.loss and chance.happens(self.loss)):
            self.counts["lost"] += 1
            return
        if self.link_bytes_max and not self._has_room(source, target):
            self.counts["lost"] += 1
            return
        if self.flips and chance.happens(self.flips):
            packet = self._flip(packet)
        copies = 1
        if self.duplication and chance.happens(self.duplication):
            copies += chance.between(1, 3)
            self.counts["repeated"] += 1
        for _ in range(copies):
            delay = self.delay_us + int(chance.unit() * self.jitter_us)
            if self.late and chance.happens(self.late):
                delay += int(chance.unit() * self.late_us)
            self._at(delay, self._deliver, source, target, packet)
            if self.link_bytes_max:
                under_way = self._under_way.get((source, target), 0)
                self._under_way[source, target] = under_way + len(packet.data)
                self._at(delay, self._leave, source, target, len(packet.data))

    def _has_room(self, source: int, target: int) -> bool:
        """As a connection has it: an empty one takes anything."""
        if self._under_way.get((source, target), 0) <= self.link_bytes_max:
            return True
        if (source, target) not in self._full:
            self._full[source, target] = None
            self.on_full()
        return False

    def _leave(self, source: int, target: int, size: int) -> None:
        left = self._under_way[source, target] - size
        self._under_way[source, target] = left
        if not left:
            del self._under_way[source, target]
            self._full.pop((source, target), None)

    def _flip(self, packet: Packet) -> Packet:
        self.counts["flipped"] += 1
        data = bytearray(packet.data)
        for _ in range(self._chance.between(1, 3)):
            data[self._chance.below(len(data))] ^= 1 << self._chance.below(8)
        return Packet(bytes(data))

    def _deliver(self, source: int, target: int, packet: Packet) -> None:
        clogged = self._clogged.get(target)
        if clogged is not None:
            clogged.append((source, target, packet))
            return
        if (source, target) in self._cut:
            return
        message = packet.open()
        if message is None:
            self.counts["refused"] += 1
            return
        self.arrive(source, target, message)
