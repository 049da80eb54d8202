"""Multicast between nodes: frames that one transmission brings to all others.

Two sockets: one hears the group, one speaks, asks for what is lacking and is asked. What comes from
anybody but the nodes of our file, from their own addresses, is dropped and counted, and never
answered. Clients that listen ask on their connections, and are answered there.
"""

import asyncio
import hashlib
import secrets
import socket
import time
from collections.abc import Callable

from samcast.errors import ConfigError
from samcast.machine.ports import NodeId
from samcast.multicast.hearing import Hearing
from samcast.multicast.recent import Recent
from samcast.runtime.chance import SystemChance
from samcast.runtime.cluster_file import ClusterPlan, NodePlan, host_and_port
from samcast.runtime.group_socket import Place, Speaker, joined, received
from samcast.wire.datagram import (
    DATAGRAM_HEADER_BYTES,
    Envelope,
    Question,
    Source,
    decode_datagram,
)
from samcast.wire.errors import WireError

IP_HEADERS_BYTES = 28
# Larger ones go by connections, which have their own flow control.
FRAME_BYTES_MAX = 4 * 1024 * 1024
TICK_S = 0.002
QUIET_MS = (10, 40)  # after our last frame: then we say that it was the last, each time once

OnFrame = Callable[[NodeId, bytes], None]


def datagrams_of(plan: ClusterPlan, node: NodePlan) -> "Datagrams | None":
    """As the cluster file says."""
    return Datagrams(plan, node) if plan.multicast else None


class Datagrams:
    """One node's end of the group."""

    def __init__(self, plan: ClusterPlan, node: NodePlan) -> None:
        self.group = host_and_port(plan.multicast)
        self._host = node.host
        self._places = {n.id: (n.host, n.port) for n in plan.nodes if n.id != node.id}
        name = f"{plan.cluster} {plan.digest()}".encode()
        self.cluster = int.from_bytes(hashlib.sha256(name).digest()[:8], "little") >> 1
        self._own = node.listens_on
        self.life = 1 + secrets.randbelow(2**62)
        self._envelope = Envelope(self.cluster, Source(node.id, self.life))
        size = plan.datagram_bytes - IP_HEADERS_BYTES - DATAGRAM_HEADER_BYTES
        self._recent = Recent(self._envelope, size, parity_percent=plan.parity_percent)
        self._hearing = Hearing(SystemChance())
        self._on_frame: OnFrame = lambda node, frame: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ear: socket.socket | None = None
        self._speaker: Speaker | None = None
        self._sent_ms = 0
        self._tells = len(QUIET_MS)  # how often we have said which frame was the last
        self._tick_timer: asyncio.TimerHandle | None = None
        self.on_new_life: Callable[[], None] = lambda: None
        self.received = 0
        self.asked = 0  # questions of ours
        self.answered = 0  # questions of others
        self.repeated = 0  # pieces, for others' questions
        self._dropped: dict[str, int] = {}  # by code

    # life

    def start(self, on_frame: OnFrame) -> None:
        """Join the group."""
        self._on_frame = on_frame
        self._loop = asyncio.get_running_loop()
        try:
            self._ear = joined(self.group, self._host)
            self._speaker = Speaker(self._own, self._host)
        except OSError as error:
            raise ConfigError(
                f"can't use multicast group {self.group[0]}:{self.group[1]} on {self._host}:"
                f" {error.strerror}; does this network have it? Leave `multicast` out otherwise"
            ) from error
        for end in (self._ear, self._speaker.end):
            self._loop.add_reader(end, self._drain, end)

    def stop(self) -> None:
        """Leave it."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        for end in (self._ear, self._speaker.end if self._speaker is not None else None):
            if end is not None:
                if self._loop is not None:
                    self._loop.remove_reader(end)
                end.close()
        self._ear = self._speaker = None

    # what goes out

    def send(self, frame: tuple[bytes | memoryview, ...]) -> bool:
        """To all others, unless it is too large for that."""
        if self._speaker is None or sum(map(len, frame)) > FRAME_BYTES_MAX:
            return False
        self._speaker.put(self._recent.send(b"".join(frame)), self.group)
        self._sent_ms, self._tells = self._now_ms(), 0
        self._plan_tick()
        return True

    # what comes in

    def _drain(self, end: socket.socket) -> None:
        for data, place in received(end):
            self.received += 1
            try:
                self._take(data, place)
            except WireError as error:
                self._dropped[error.code] = self._dropped.get(error.code, 0) + 1

    def _take(self, data: bytes, place: Place) -> None:
        message = decode_datagram(data, self.cluster)
        node = message.source.node
        if self._places.get(node) != place:
            if node != self._envelope.source.node:  # Our own come back to us.
                raise WireError("datagram-source", f"node {node} isn't at {place[0]}")
            return
        if isinstance(message, Question):
            if self._speaker is not None:
                self._speaker.put(self._answer(node, message), place)
            return
        frame = self._hearing.take(message, self._now_ms())
        if frame is not None:
            self._on_frame(node, frame)
        if self._hearing.is_lacking:
            self._plan_tick()

    def answer_client(self, client: NodeId, data: bytes) -> list[bytes]:
        """What a client that listens is to be sent again, on its connection."""
        message = decode_datagram(data, self.cluster)
        if not isinstance(message, Question):
            raise WireError("datagram-client", "clients that listen ask, and say nothing else")
        return self._answer(client, message)

    def _answer(self, asker: NodeId, question: Question) -> list[bytes]:
        """What goes to all is sent here; the rest is for the one who asked."""
        if question.life != self.life or self._speaker is None:
            return []
        again = self._recent.answer(asker, question.ranges, self._now_ms())
        self.answered += 1
        self.repeated += len(again.to_one) + len(again.to_all)
        self._speaker.put(again.to_all, self.group)
        return again.to_one

    def expect(self, node: NodeId, life: int) -> None:
        """A node has told, on a connection, which life it is in; nothing of another one counts."""
        if self._hearing.expect(node, life):
            self.on_new_life()

    @property
    def lives(self) -> tuple[tuple[NodeId, int], ...]:
        """Of all nodes that we know of, ours included."""
        known = {**self._hearing.lives, self._envelope.source.node: self.life}
        return tuple(known.items())

    def _now_ms(self) -> int:
        return int(time.monotonic() * 1000)

    # now and then

    def _plan_tick(self) -> None:
        if self._tick_timer is None and self._loop is not None:
            self._tick_timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        """Ask for what is lacking; say which frame was the last, for those who lack just that."""
        self._tick_timer = None
        if self._speaker is None:
            return
        now_ms = self._now_ms()
        for asking in self._hearing.questions(now_ms):
            self.asked += 1
            question = self._envelope.question(asking.life, asking.ranges)
            self._speaker.put([question], self._places[asking.node])
        if self._tells < len(QUIET_MS) and now_ms - self._sent_ms >= QUIET_MS[self._tells]:
            self._tells += 1
            self._speaker.put([self._envelope.newest(self._recent.sequence)], self.group)
        if self._tells < len(QUIET_MS) or self._hearing.is_lacking:
            self._plan_tick()

    # for people

    def counts(self) -> dict[str, int]:
        """What there was so far."""
        speaker = self._speaker
        return {
            "sent": speaker.sent if speaker is not None else 0,
            "sent_bytes": speaker.sent_bytes if speaker is not None else 0,
            "received": self.received,
            "asked": self.asked,
            "answered": self.answered,
            "repeated": self.repeated,
            "given_up": self._hearing.given_up,
        }

    @property
    def dropped(self) -> dict[str, int]:
        """By code, what made no sense or had no room."""
        unsent = self._speaker.unsent if self._speaker is not None else 0
        return {**self._dropped, **({"datagram-unsent": unsent} if unsent else {})}
