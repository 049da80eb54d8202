"""A client's ear: it hears the multicast group as nodes do, so that members of any number cost the
servers nothing.

It says nothing there. What it lacks it asks for on its connection, and what is sent again for it
alone comes there, too; so nobody who isn't connected can have anything sent anywhere.
"""

import asyncio
import socket
import time
from collections.abc import Callable

from samcast.errors import ConfigError
from samcast.machine.ports import Channel, NodeId
from samcast.multicast.hearing import Hearing
from samcast.runtime.chance import SystemChance
from samcast.runtime.group_socket import Place, joined, received
from samcast.wire.batch import Batch
from samcast.wire.codec import decode_payload
from samcast.wire.datagram import Envelope, Question, Source, decode_datagram
from samcast.wire.errors import WireError
from samcast.wire.frame import decode_frame
from samcast.wire.group import Control
from samcast.wire.session import (
    CHANNEL_BASE,
    ROUTE_BYTES,
    MulticastPlace,
    Peer,
    decode_route,
    node_of,
)

TICK_S = 0.002
SILENCE_S = 0.5  # heartbeats come ten times as often
NOBODY = 0  # nodes know who asks by the connection
MEMBERS_CHANNELS = (CHANNEL_BASE + Channel.GLOBAL, CHANNEL_BASE + Channel.PAYLOAD)

Ask = Callable[[NodeId, bytes], None]
OnMessage = Callable[[NodeId, Control | Batch], None]


class Listener:
    """What one client hears; used in its loop only."""

    def __init__(self, ask: Ask, on_message: OnMessage) -> None:
        self._ask = ask
        self._on_message = on_message
        self._told = MulticastPlace("")
        self._places: dict[NodeId, Place] = {}
        self._host = ""
        self._hearing = Hearing(SystemChance())
        self._envelope = Envelope(0, Source(NOBODY, NOBODY))
        self._ear: socket.socket | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self.asked = 0
        self.received = 0
        self.dropped: dict[str, int] = {}  # by code

    def tune(self, told: MulticastPlace, peers: tuple[Peer, ...], host: str) -> None:
        """Our node has told where the group is and which lives count; `host` is our own address on
        the network that we share with it."""
        if not told.group:
            raise ConfigError(
                "this cluster has no multicast: its file has no key `multicast`; connect without it"
            )
        self._places = {peer.node: (peer.host, peer.port) for peer in peers}
        before = (self._told.group, self._told.port, self._told.cluster, self._host)
        if (told.group, told.port, told.cluster, host) != before:
            self._join((told.group, told.port), host)
            self._envelope = Envelope(told.cluster, Source(NOBODY, NOBODY))
            self._host = host
        self._told = told
        for node, life in told.lives:
            self._hearing.expect(node, life)

    def _join(self, group: Place, host: str) -> None:
        self._leave()
        try:
            self._ear = joined(group, host)
        except OSError as error:
            raise ConfigError(
                f"can't hear multicast group {group[0]}:{group[1]} from {host}: {error.strerror};"
                " connect without `multicast` where the network doesn't have it"
            ) from error
        asyncio.get_running_loop().add_reader(self._ear, self._drain, self._ear)

    def _leave(self) -> None:
        if self._ear is not None:
            asyncio.get_running_loop().remove_reader(self._ear)
            self._ear.close()
            self._ear = None

    def stop(self) -> None:
        """No more of it."""
        self._leave()
        if self._tick_timer is not None:
            self._tick_timer.cancel()

    @property
    def is_hearing(self) -> bool:
        """Whether anything of our cluster came lately."""
        return time.monotonic() - self._heard_at < SILENCE_S

    # what comes in

    def _drain(self, end: socket.socket) -> None:
        for data, place in received(end):
            self._judge(data, place)

    def take_answer(self, data: bytes) -> None:
        """A piece that was sent again for us, on a connection."""
        self._judge(data, None)

    def _judge(self, data: bytes, place: Place | None) -> None:
        self.received += 1
        try:
            self._take(data, place)
        except WireError as error:
            self.dropped[error.code] = self.dropped.get(error.code, 0) + 1

    def _take(self, data: bytes, place: Place | None) -> None:
        message = decode_datagram(data, self._told.cluster)
        node = message.source.node
        if place is not None and self._places.get(node) != place:
            raise WireError("datagram-source", f"node {node} isn't at {place[0]}")
        if isinstance(message, Question):
            return
        frame = self._hearing.take(message, int(time.monotonic() * 1000))
        self._heard_at = time.monotonic()
        if frame is not None:
            self._open(node, frame)
        if self._hearing.is_lacking:
            self._plan_tick()

    def _open(self, node: NodeId, frame: bytes) -> None:
        """Payloads, and what is told to everybody, are for members; the rest is of the servers."""
        kind, payload = decode_frame(frame)
        source, target = decode_route(payload)
        if node_of(source) != node:
            raise WireError("route-source", f"node {node} speaks for {source}")
        if target in MEMBERS_CHANNELS:
            self._on_message(source, decode_payload(kind, payload, ROUTE_BYTES))

    # now and then

    def _plan_tick(self) -> None:
        if self._tick_timer is None:
            self._tick_timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._tick_timer = None
        for asking in self._hearing.questions(int(time.monotonic() * 1000)):
            self.asked += 1
            self._ask(asking.node, self._envelope.question(asking.life, asking.ranges))
        if self._hearing.is_lacking:
            self._plan_tick()
