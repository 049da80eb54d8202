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
from samcast.wire.control import Control
from samcast.wire.datagram import Envelope, Heard, Question, Source, cluster_of, decode_datagram
from samcast.wire.errors import WireError
from samcast.wire.frame import decode_frame
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


class Lane:
    """One group that is heard."""

    def __init__(self, cluster: int, ear: socket.socket) -> None:
        self.cluster = cluster
        self.ear = ear
        self.hearing = Hearing(SystemChance())
        self.envelope = Envelope(cluster, Source(NOBODY, NOBODY))


class Listener:
    """What one client hears; used in its loop only."""

    def __init__(self, ask: Ask, on_message: OnMessage) -> None:
        self._ask = ask
        self._on_message = on_message
        self._lanes: dict[int, Lane] = {}  # by cluster, as datagrams say it
        self._places: dict[NodeId, Place] = {}
        self._host = ""
        self._tick_timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self.asked = 0
        self.received = 0
        self.dropped: dict[str, int] = {}  # by code

    def tune(self, told: MulticastPlace, peers: tuple[Peer, ...], host: str) -> None:
        """Our node has told where the groups are and which lives count; `host` is our own address
        on the network that we share with it."""
        if not told.lanes:
            raise ConfigError(
                "this cluster has no multicast: its file has no key `multicast`; connect without it"
            )
        self._places = {peer.node: (peer.host, peer.port) for peer in peers}
        clusters = {cluster for _, _, cluster in told.lanes}
        if clusters != set(self._lanes) or host != self._host:
            self._leave()
            self._host = host
            for group, port, cluster in told.lanes:
                self._lanes[cluster] = Lane(cluster, self._join((group, port), host))
        for lane in self._lanes.values():
            for node, life in told.lives:
                lane.hearing.expect(node, life)

    def _join(self, group: Place, host: str) -> socket.socket:
        try:
            ear = joined(group, host)
        except OSError as error:
            raise ConfigError(
                f"can't hear multicast group {group[0]}:{group[1]} from {host}:"
                f" {error.strerror or error};"
                " connect without `multicast` where the network doesn't have it"
            ) from error
        asyncio.get_running_loop().add_reader(ear, self._drain, ear)
        return ear

    def _leave(self) -> None:
        for lane in self._lanes.values():
            asyncio.get_running_loop().remove_reader(lane.ear)
            lane.ear.close()
        self._lanes = {}

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

    def take_answer(self, node: NodeId, data: bytes) -> None:
        """A piece that a node has sent again for us, on a connection."""
        self._judge(data, self._places.get(node, ("", 0)))

    def _judge(self, data: bytes, place: Place) -> None:
        self.received += 1
        try:
            self._take(data, place)
        except WireError as error:
            self.dropped[error.code] = self.dropped.get(error.code, 0) + 1

    def _take(self, data: bytes, place: Place) -> None:
        lane = self._lanes.get(cluster_of(data))
        message = decode_datagram(data, lane.cluster if lane is not None else NOBODY)
        node = message.source.node
        if self._places.get(node) != place:
            raise WireError("datagram-source", f"node {node} isn't at {place[0]}")
        if lane is None or isinstance(message, Question | Heard):
            return  # between nodes
        frame = lane.hearing.take(message, int(time.monotonic() * 1000))
        if frame is not None:
            self._open(node, frame)
        if lane.hearing.is_lacking:
            self._plan_tick()

    def _open(self, node: NodeId, frame: bytes) -> None:
        """Payloads, and what is told to everybody, are for members; the rest is of the servers."""
        kind, payload = decode_frame(frame)
        source, target = decode_route(payload)
        if node_of(source) != node:
            raise WireError("route-source", f"node {node} speaks for {source}")
        if target == CHANNEL_BASE + Channel.GLOBAL:  # where the sequencer is heard all the time
            self._heard_at = time.monotonic()
        if target in MEMBERS_CHANNELS:
            self._on_message(source, decode_payload(kind, payload, ROUTE_BYTES))

    # now and then

    def _plan_tick(self) -> None:
        if self._tick_timer is None:
            self._tick_timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._tick_timer = None
        for lane in self._lanes.values():
            self._drain(lane.ear)  # What has come isn't lacking.
            for asking in lane.hearing.questions(int(time.monotonic() * 1000)):
                self.asked += 1
                self._ask(asking.node, lane.envelope.question(asking.life, asking.ranges))
        if any(lane.hearing.is_lacking for lane in self._lanes.values()):
            self._plan_tick()
