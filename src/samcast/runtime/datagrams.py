"""Multicast between nodes: frames that one transmission brings to all others.

Sockets hear the groups, and one more speaks, asks for what is lacking and is asked. What comes from
anybody but the nodes of our file, from their own addresses, is dropped and counted, and never
answered. Clients that listen ask on their connections, and are answered there.
"""

import asyncio
import secrets
import socket
import time
from collections.abc import Callable, Sequence

from samcast.errors import ConfigError
from samcast.machine.ports import Channel, NodeId
from samcast.multicast.pace import Pace
from samcast.runtime.cluster_file import ClusterPlan, NodePlan
from samcast.runtime.group_socket import Place, Speaker, joined, received
from samcast.runtime.lane import Lane
from samcast.wire.datagram import (
    Heard,
    Question,
    Source,
    cluster_of,
    decode_datagram,
)
from samcast.wire.errors import WireError
from samcast.wire.session import Peer

# Larger ones go by connections, which have their own flow control.
FRAME_BYTES_MAX = 4 * 1024 * 1024
TICK_S = 0.002
CLIENTS_BYTES_PER_S = 20_000_000
MEMBERS_CHANNELS = (Channel.GLOBAL, Channel.PAYLOAD)

OnFrame = Callable[[NodeId, bytes], None]


def datagrams_of(plan: ClusterPlan, node: NodePlan) -> "Datagrams | None":
    """As the cluster file says."""
    return Datagrams(plan, node) if plan.multicast else None


class Datagrams:
    """One node's end of all lanes."""

    def __init__(self, plan: ClusterPlan, node: NodePlan) -> None:
        self._host = node.host
        self._node = node.id
        self._places: dict[NodeId, Place] = {}
        self.follow(tuple(Peer(n.id, n.name, n.host, n.port) for n in plan.nodes))
        self._own = node.listens_on
        self.life = 1 + secrets.randbelow(2**62)
        self._groups = plan.groups()
        source = Source(node.id, self.life)
        lanes = {group: Lane(group, plan, source) for group in self._groups.values()}
        self._lanes = {lane.cluster: lane for lane in lanes.values()}
        self._of_channel = {channel: lanes[group] for channel, group in self._groups.items()}
        self._on_frame: OnFrame = lambda node, frame: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._speaker: Speaker | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self._for_clients = Pace(CLIENTS_BYTES_PER_S)  # what may be repeated for those who listen
        self.on_new_life: Callable[[], None] = lambda: None
        self.received = 0
        self.heard = 0  # of these, pieces of other nodes that count
        self.asked = 0  # questions of ours
        self.answered = 0  # questions of others
        self.repeated = 0  # pieces, for others' questions
        self._dropped: dict[str, int] = {}  # by code

    def follow(self, peers: tuple[Peer, ...]) -> None:
        """These are the nodes from now on; what comes from anybody else is dropped."""
        self._places = {p.node: (p.host, p.port) for p in peers if p.node != self._node}

    def add(self, peer: Peer) -> None:
        """One that is to come is heard already."""
        self._places[peer.node] = (peer.host, peer.port)

    # life

    def start(self, on_frame: OnFrame, channels: Sequence[Channel]) -> None:
        """Join the groups of these channels."""
        self._on_frame = on_frame
        self._loop = asyncio.get_running_loop()
        hearing = {self._of_channel[channel].cluster for channel in channels}
        for lane in self._lanes.values():
            try:
                lane.ear = joined(lane.group, self._host) if lane.cluster in hearing else None
                self._speaker = self._speaker or Speaker(self._own, self._host)
            except OSError as error:
                raise ConfigError(
                    f"can't use multicast group {lane.group[0]}:{lane.group[1]} on {self._host}:"
                    f" {error.strerror}; does this network have it? Leave `multicast` out otherwise"
                ) from error
        for end in self._ends():
            self._loop.add_reader(end, self._drain, end)

    def _ends(self) -> list[socket.socket]:
        ears = [lane.ear for lane in self._lanes.values() if lane.ear is not None]
        return [*ears, self._speaker.end] if self._speaker is not None else ears

    def stop(self) -> None:
        """Leave them."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        for end in self._ends():
            if self._loop is not None:
                self._loop.remove_reader(end)
            end.close()
        self._speaker = None
        for lane in self._lanes.values():
            lane.ear = None

    # what goes out

    def send(self, channel: Channel, frame: tuple[bytes | memoryview, ...]) -> bool:
        """To all others of a channel, unless it is too large for that, or too much waits."""
        if self._speaker is None or sum(map(len, frame)) > FRAME_BYTES_MAX:
            return False
        is_sent = self._of_channel[channel].send(b"".join(frame), self._speaker, now_ms())
        self._plan_tick()
        return is_sent

    # what comes in

    def _drain(self, end: socket.socket) -> None:
        for data, place in received(end):
            self.received += 1
            try:
                self._take(data, place)
            except WireError as error:
                self._dropped[error.code] = self._dropped.get(error.code, 0) + 1

    def _take(self, data: bytes, place: Place) -> None:
        lane = self._lane_of(data)
        message = decode_datagram(data, lane.cluster)
        node = message.source.node
        if self._places.get(node) != place:
            if node != self._node:  # Our own come back to us.
                raise WireError("datagram-source", f"node {node} isn't at {place[0]}")
            return
        if self._speaker is None:
            return
        if isinstance(message, Question | Heard):
            lane.hearing.check(message.source)
        if isinstance(message, Question):
            self._speaker.put(self._answer(lane, node, message), place)
        elif isinstance(message, Heard):
            if message.life == self.life:
                lane.on_heard(node, message.sequence, self._speaker, now_ms())
        else:
            frame = lane.hearing.take(message, now_ms())
            self.heard += 1
            if frame is not None:
                self._tell(lane, node)
                self._on_frame(node, frame)
            if lane.hearing.is_lacking:
                self._plan_tick()

    def _lane_of(self, data: bytes) -> Lane:
        """Any one if it is of none: then that is found out when it is looked at."""
        return self._lanes.get(cluster_of(data)) or next(iter(self._lanes.values()))

    def _tell(self, lane: Lane, node: NodeId) -> None:
        """Let a node know how far we have heard it, so that it goes on."""
        told = lane.hearing.to_tell(node)
        if told is not None and self._speaker is not None and node in self._places:
            self._speaker.put([lane.envelope.heard(*told)], self._places[node])

    def answer_client(self, client: NodeId, data: bytes) -> list[bytes]:
        """What a client that listens is to be sent again, on its connection."""
        lane = self._lane_of(data)
        message = decode_datagram(data, lane.cluster)
        if not isinstance(message, Question):
            raise WireError("datagram-client", "clients that listen ask, and say nothing else")
        if not self._for_clients.room(now_ms()):
            raise WireError("datagram-busy", "too much was sent again for clients; ask later")
        repeated = self.repeated
        again = self._answer(lane, client, message)
        self._for_clients.sent((self.repeated - repeated) * lane.piece_bytes)
        return again

    def _answer(self, lane: Lane, asker: NodeId, question: Question) -> list[bytes]:
        """What goes to all is sent here; the rest is for the one who asked."""
        if question.life != self.life or self._speaker is None:
            return []
        again = lane.again(asker, question, now_ms())
        self.answered += 1
        self.repeated += len(again.to_one) + len(again.to_all)
        self._speaker.put(again.to_all, lane.group)
        return again.to_one

    # others

    def expect(self, node: NodeId, life: int) -> None:
        """A node has told, on a connection, which life it is in; nothing of another one counts."""
        are_new = [lane.expect(node, life, now_ms()) for lane in self._lanes.values()]
        if any(are_new):
            self.on_new_life()

    def forget(self, node: NodeId) -> None:
        """A node is gone: nobody waits until it has heard something."""
        for lane in self._lanes.values():
            lane.forget(node)

    @property
    def lives(self) -> tuple[tuple[NodeId, int], ...]:
        """Of all nodes that we know of, ours included."""
        lane = next(iter(self._lanes.values()))
        return tuple({**lane.hearing.lives, self._node: self.life}.items())

    def lanes_of_members(self) -> tuple[tuple[str, int, int], ...]:
        """Group, port and cluster of what members hear."""
        lanes = [self._of_channel[channel] for channel in MEMBERS_CHANNELS]
        return tuple(dict.fromkeys((*lane.group, lane.cluster) for lane in lanes))

    # now and then

    def _plan_tick(self) -> None:
        if self._tick_timer is None and self._loop is not None:
            self._tick_timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        """Ask for what is lacking; send what may be sent by now; say what was the last."""
        self._tick_timer = None
        if self._speaker is None:
            return
        for end in self._ends():  # What has come isn't lacking.
            self._drain(end)
        for lane in self._lanes.values():
            for asking in lane.hearing.questions(now_ms()):
                if asking.node not in self._places:
                    continue  # It has left the cluster; others have what it sent.
                self.asked += 1
                question = lane.envelope.question(asking.life, asking.ranges)
                self._speaker.put([question], self._places[asking.node])
            lane.send_waiting(self._speaker, now_ms())
            lane.tell_newest(self._speaker, now_ms())
        if any(lane.is_busy for lane in self._lanes.values()):
            self._plan_tick()

    # for people

    def counts(self) -> dict[str, int]:
        """What there was so far."""
        speaker = self._speaker
        return {
            "sent": speaker.sent if speaker is not None else 0,
            "sent_bytes": speaker.sent_bytes if speaker is not None else 0,
            "received": self.received,
            "heard": self.heard,
            "asked": self.asked,
            "answered": self.answered,
            "repeated": self.repeated,
            "given_up": sum(lane.hearing.given_up for lane in self._lanes.values()),
        }

    @property
    def dropped(self) -> dict[str, int]:
        """By code, what made no sense or had no room."""
        unsent = self._speaker.unsent if self._speaker is not None else 0
        return {**self._dropped, **({"datagram-unsent": unsent} if unsent else {})}


def now_ms() -> int:
    """A clock that only goes forward."""
    return int(time.monotonic() * 1000)
