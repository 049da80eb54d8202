"""Multicast between nodes: frames that one transmission brings to all others.

Two sockets: one hears the group, one speaks, asks for what is lacking and is asked. What comes from
anybody but the nodes of our file, from their own addresses, is dropped and counted, and never
answered.
"""

import asyncio
import contextlib
import errno
import hashlib
import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator

from samcast.errors import ConfigError
from samcast.machine.ports import NodeId
from samcast.multicast.reassembly import Reassembly
from samcast.multicast.recent import Recent
from samcast.runtime.chance import SystemChance
from samcast.runtime.cluster_file import ClusterPlan, NodePlan, host_and_port
from samcast.wire.datagram import (
    DATAGRAM_HEADER_BYTES,
    Envelope,
    Newest,
    Piece,
    Question,
    Source,
    decode_datagram,
)
from samcast.wire.errors import WireError

IP_HEADERS_BYTES = 28
FRAME_BYTES_MAX = (
    4 * 1024 * 1024
)  # larger ones go by connections, which have their own flow control
BUFFER_BYTES = 8 * 1024 * 1024
SO_RCVBUFFORCE = 33  # beyond what ordinary users may have; root only
UDP_SEGMENT = 103  # of Linux, which Python doesn't name
UDP_GRO = 104
BUNCH_MAX = 64  # datagrams of one call
BUNCH_BYTES = 60_000
NOTES_BYTES = socket.CMSG_SPACE(4)
DRAIN_MAX = 256  # datagrams of one turn of the loop
TICK_S = 0.002
QUIET_MS = (10, 40)  # after our last frame: then we say that it was the last, each time once
DATAGRAM_MAX = 65536
# What a kernel or a card says that can't cut datagrams apart.
CANT_CUT = {errno.EINVAL, errno.EIO, errno.EOPNOTSUPP, errno.EMSGSIZE, errno.ENOPROTOOPT}

OnFrame = Callable[[NodeId, bytes], None]


def datagrams_of(plan: ClusterPlan, node: NodePlan) -> "Datagrams | None":
    """As the cluster file says."""
    return Datagrams(plan, node) if plan.multicast else None


class Datagrams:
    """One node's end of the group."""

    def __init__(self, plan: ClusterPlan, node: NodePlan) -> None:
        self._group = host_and_port(plan.multicast)
        self._host = node.host
        self._places = {n.id: (n.host, n.port) for n in plan.nodes if n.id != node.id}
        name = f"{plan.cluster} {plan.digest()}".encode()
        self._cluster = int.from_bytes(hashlib.sha256(name).digest()[:8], "little")
        self._own = node.listens_on
        self.life = 1 + secrets.randbelow(2**62)
        self._envelope = Envelope(self._cluster, Source(node.id, self.life))
        size = plan.datagram_bytes - IP_HEADERS_BYTES - DATAGRAM_HEADER_BYTES
        self._recent = Recent(self._envelope, size)
        self._chance = SystemChance()
        self._lives: dict[NodeId, int] = {}
        self._heard: dict[NodeId, Reassembly] = {}
        self._given_up_before = 0  # in lives that are over
        self._on_frame: OnFrame = lambda node, frame: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hearing: socket.socket | None = None
        self._speaking: socket.socket | None = None
        self._cuts = True  # until the kernel says that it doesn't
        self._sent_ms = 0
        self._tells = len(QUIET_MS)  # how often we have said which frame was the last
        self._tick_timer: asyncio.TimerHandle | None = None
        self.sent = 0
        self.received = 0
        self.asked = 0  # questions of ours
        self.repeated = 0  # pieces, for others' questions
        self.dropped: dict[str, int] = {}  # by code

    # life

    def start(self, on_frame: OnFrame) -> None:
        """Join the group."""
        self._on_frame = on_frame
        self._loop = asyncio.get_running_loop()
        try:
            self._hearing = self._joined()
            self._speaking = self._spoken()
        except OSError as error:
            raise ConfigError(
                f"can't use multicast group {self._group[0]}:{self._group[1]} on {self._host}:"
                f" {error.strerror}; does this network have it? Leave `multicast` out otherwise"
            ) from error
        self._loop.add_reader(self._hearing, self._drain, self._hearing)
        self._loop.add_reader(self._speaking, self._drain, self._speaking)

    def _joined(self) -> socket.socket:
        end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _enlarge(end)
        end.bind(self._group)
        joining = socket.inet_aton(self._group[0]) + socket.inet_aton(self._host)
        end.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joining)
        return end

    def _spoken(self) -> socket.socket:
        end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(self._host))
        end.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        _enlarge(end)
        end.bind(self._own)
        return end

    def stop(self) -> None:
        """Leave it."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        for end in (self._hearing, self._speaking):
            if end is not None:
                if self._loop is not None:
                    self._loop.remove_reader(end)
                end.close()
        self._hearing = self._speaking = None

    # what goes out

    def send(self, frame: tuple[bytes | memoryview, ...]) -> bool:
        """To all others, unless it is too large for that."""
        if self._speaking is None or sum(map(len, frame)) > FRAME_BYTES_MAX:
            return False
        self._put(self._recent.send(b"".join(frame)), self._group)
        self._sent_ms, self._tells = self._now_ms(), 0
        self._plan_tick()
        return True

    def _put(self, datagrams: list[bytes], to: tuple[str, int]) -> None:
        """Many in one call where the kernel can cut them apart again (GSO)."""
        self.sent += len(datagrams)
        for bunch in bunches(datagrams) if self._cuts else ([one] for one in datagrams):
            try:
                self._put_bunch(bunch, to)
            except OSError as error:  # No room for it, as a rule: it is asked for if it matters.
                if len(bunch) > 1 and error.errno in CANT_CUT:
                    self._cuts = False
                    self._put(bunch, to)
                    continue
                self._drop("datagram-unsent", len(bunch))

    def _put_bunch(self, bunch: list[bytes], to: tuple[str, int]) -> None:
        assert self._speaking is not None
        if len(bunch) == 1:
            self._speaking.sendto(bunch[0], to)
        else:
            cut = (socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("H", len(bunch[0])))
            self._speaking.sendmsg([b"".join(bunch)], [cut], 0, to)

    def _drop(self, code: str, count: int = 1) -> None:
        self.dropped[code] = self.dropped.get(code, 0) + count

    # what comes in

    def _drain(self, end: socket.socket) -> None:
        for _ in range(DRAIN_MAX):
            try:
                data, notes, _, place = end.recvmsg(DATAGRAM_MAX, NOTES_BYTES)
            except OSError:  # nothing more, or a complaint about what we sent
                return
            size = len(data)
            for _, kind, note in notes:
                if kind == UDP_GRO:  # The kernel has joined some of one sender's.
                    size = struct.unpack("i", note[:4])[0]
            for at in range(0, max(1, len(data)), max(1, size)):
                self.received += 1
                try:
                    self._take(data[at : at + size], place)
                except WireError as error:
                    self._drop(error.code)

    def _take(self, data: bytes, place: tuple[str, int]) -> None:
        message = decode_datagram(data, self._cluster)
        source = message.source
        if self._places.get(source.node) != place:
            if source.node != self._envelope.source.node:  # Our own come back to us.
                raise WireError("datagram-source", f"node {source.node} isn't at {place[0]}")
            return
        if type(message) is Question:
            self._answer(message, place)
            return
        if self._lives.get(source.node) != source.life:
            raise WireError("datagram-life", f"node {source.node} has told us of another life")
        heard = self._heard[source.node]
        if type(message) is Newest:
            heard.announce(message.sequence, self._now_ms())
        elif type(message) is Piece:
            frame = heard.take(message, self._now_ms())
            if frame is not None:
                self._on_frame(source.node, frame)
        if heard.is_lacking:
            self._plan_tick()

    def expect(self, node: NodeId, life: int) -> None:
        """A node has told, on a connection, which life it is in; nothing of another one counts."""
        if self._lives.get(node) != life:
            before = self._heard.get(node)
            self._given_up_before += before.given_up if before is not None else 0
            self._lives[node] = life
            self._heard[node] = Reassembly(self._chance)

    def _answer(self, question: Question, place: tuple[str, int]) -> None:
        if question.life == self._envelope.source.life:
            again = self._recent.answer(question.source.node, question.ranges, self._now_ms())
            self.repeated += len(again.to_one) + len(again.to_all)
            self._put(again.to_one, place)
            self._put(again.to_all, self._group)

    def _now_ms(self) -> int:
        return int(time.monotonic() * 1000)

    @property
    def given_up(self) -> int:
        """Frames that nobody could bring us here; roles ask for what they need of them."""
        now = sum(heard.given_up for heard in self._heard.values())
        return self._given_up_before + now

    # now and then

    def _plan_tick(self) -> None:
        if self._tick_timer is None and self._loop is not None:
            self._tick_timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        """Ask for what is lacking; say which frame was the last, for those who lack just that."""
        self._tick_timer = None
        if self._speaking is None:
            return
        now_ms = self._now_ms()
        for node, heard in self._heard.items():
            if heard.due_ms() <= now_ms:
                ranges = heard.questions(now_ms)
                if ranges:
                    self.asked += 1
                    question = self._envelope.question(self._lives[node], tuple(ranges))
                    self._put([question], self._places[node])
        if self._tells < len(QUIET_MS) and now_ms - self._sent_ms >= QUIET_MS[self._tells]:
            self._tells += 1
            self._put([self._envelope.newest(self._recent.sequence)], self._group)
        if self._tells < len(QUIET_MS) or any(h.is_lacking for h in self._heard.values()):
            self._plan_tick()


def bunches(datagrams: list[bytes]) -> Iterator[list[bytes]]:
    """Datagrams that may be sent in one call: of one length, the last one perhaps shorter."""
    bunch: list[bytes] = []
    for datagram in datagrams:
        is_full = len(bunch) == BUNCH_MAX or sum(map(len, bunch)) + len(datagram) > BUNCH_BYTES
        if bunch and (is_full or len(datagram) > len(bunch[0]) or len(bunch[-1]) < len(bunch[0])):
            yield bunch
            bunch = []
        bunch.append(datagram)
    if bunch:
        yield bunch


def _enlarge(end: socket.socket) -> None:
    """Room for bursts while the loop is busy; less than asked for is no error, and neither is a
    kernel that doesn't join datagrams."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    try:
        end.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    except OSError:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
