"""The connections of one node: to all other nodes, and from clients, whose entry it is.

A client talks to one node only. What it sends goes on, with its id as the source, to the node or
the channel that it names; what others answer comes back the same way. Nothing here is reliable:
roles repeat what matters, so a frame for somebody who isn't connected is dropped.
"""

import asyncio
import time
from collections.abc import Callable

from samcast.errors import ConfigError
from samcast.limits import NODE_MAX
from samcast.machine.ports import Channel, NodeId, Reachable, Unreachable
from samcast.runtime.cluster_file import ClusterPlan, NodePlan
from samcast.runtime.connection import Connection, Traffic
from samcast.runtime.datagrams import Datagrams
from samcast.runtime.dialing import HELLO_S, Dialing
from samcast.runtime.directory import Directory
from samcast.runtime.greeting import check_file, check_hello, check_listed
from samcast.runtime.listeners import Listeners
from samcast.runtime.lives import SAID_MAX, Lives, note_life
from samcast.runtime.readers import Readers
from samcast.wire.batch import Batch
from samcast.wire.codec import KIND_BATCH, KIND_CONTROL, decode_payload, message_parts
from samcast.wire.control import Control
from samcast.wire.errors import WireError
from samcast.wire.frame import decode_frame, frame_parts
from samcast.wire.group import Follow, HeadRequest, NumberRequest, PayloadRequest, Propose
from samcast.wire.handing import HandIn, StatesRequest
from samcast.wire.names import NamesRequest
from samcast.wire.order import Configuration, Place
from samcast.wire.retention import BlockRequest, CheckpointsRequest
from samcast.wire.rows import RowsRequest
from samcast.wire.session import (
    CHANNEL_BASE,
    KIND_DATAGRAM,
    KIND_SESSION,
    PROTOCOL,
    REMOVED,
    ROUTE_BYTES,
    Changed,
    Hello,
    MulticastRequest,
    Peer,
    Ping,
    PlanRequest,
    Refused,
    Rival,
    Status,
    StatusRequest,
    TraceRequest,
    Welcome,
    client_id,
    decode_route,
    decode_session,
    encode_route,
    encode_session,
    node_of,
)
from samcast.wire.stages import StagesRequest

CLIENTS_MAX = 10_000
BACKLOG = 4096  # many come at once when another node dies; beyond it they wait for seconds
SAID_TO_MAX = 1000
# What a client may say to roles; anything else is not its business.
CLIENT_TAGS = {
    kind.__struct_config__.tag
    for kind in (Propose, HeadRequest, NumberRequest, PayloadRequest, Follow, CheckpointsRequest,
                 BlockRequest, StagesRequest, RowsRequest, StatesRequest, HandIn, NamesRequest)
}  # fmt: skip

CHANNELS = {int(channel) for channel in Channel}

Deliver = Callable[[NodeId, Control | Batch], None]
Question = StatusRequest | TraceRequest | PlanRequest


class Mesh:
    """All connections of one node."""

    def __init__(
        self,
        plan: ClusterPlan,
        node: NodePlan,
        directory: Directory,
        deliver: Deliver,
        is_on: Callable[[Channel], bool],
        answer: Callable[[Question], bytes],
        on_connection: Callable[[Reachable | Unreachable], None],
        say: Callable[..., None],
        datagrams: Datagrams | None = None,
    ) -> None:
        self._plan = plan
        self._node = node
        self._deliver = deliver
        self._is_on = is_on
        self._directory = directory
        self._answer = answer
        self._on_connection = on_connection
        self._say = say
        self.datagrams = datagrams
        self.traffic = Traffic()
        self._peers: dict[NodeId, Connection] = {}
        self._clients: dict[int, Connection] = {}
        self.readers = Readers()
        self._listeners = Listeners(datagrams)
        self.lives = Lives(node.id, directory, say)
        self._client_next = time.time_ns() // 1000  # so that ids aren't used again after a restart
        self._servers: list[asyncio.Server] = []
        self._dialing = Dialing(node.id, self._open, lambda peer: peer in self._peers)
        self._on_channel = {channel: directory.on_channel(channel) for channel in Channel}
        # Somebody has told us who the nodes are, or that we are none of them any more.
        self._on_learned: Callable[[], None] = self.follow
        self.on_removed: Callable[[str], None] = lambda why: None
        self._is_retired = False
        self._said: dict[str, str] = {}  # to whom what, last
        self.nonsense: dict[str, int] = {}  # of others' clients, by code

    # life

    async def start(self) -> None:
        """Listen, and connect with the others."""
        loop = asyncio.get_running_loop()
        host, port = self._node.listens_on
        try:
            made = await loop.create_server(self._accept, host, port, backlog=BACKLOG)
            self._servers.append(made)
        except OSError as error:
            raise ConfigError(
                f"can't listen on {host}:{port}: {error.strerror}; choose"
                " another port, or stop what uses it"
            ) from error
        if self._node.socket is not None:
            self._node.socket.unlink(missing_ok=True)  # Of a former life: the folder is ours.
            self._servers.append(
                await loop.create_unix_server(self._accept, str(self._node.socket))
            )
        if self.datagrams is not None:
            self.datagrams.start(self._on_multicast, list(filter(self._is_on, Channel)))
        self.follow()

    def _accept(self) -> Connection:
        connection = Connection(self.traffic, self._on_frame, self._on_lost)
        connection.on_open = self._expect_hello
        return connection

    def _expect_hello(self, connection: Connection) -> None:
        """Whoever connects and says nothing doesn't keep its place for long."""

        def see() -> None:
            if not connection.id:
                connection.refuse("session-silent", f"no hello within {HELLO_S:.0f} s")

        asyncio.get_running_loop().call_later(HELLO_S, see)

    async def stop(self) -> None:
        """Close everything."""
        await self._dialing.stop()
        for server in self._servers:
            server.close()
        if self.datagrams is not None:
            self.datagrams.stop()
        if self._node.socket is not None:
            self._node.socket.unlink(missing_ok=True)
        for connection in [*self._peers.values(), *self._clients.values()]:
            connection.close()
        await asyncio.sleep(0)

    def _open(self, on_lost: Callable[[Connection], None]) -> Connection:
        """A connection that we make."""

        def lost(connection: Connection) -> None:
            self._on_lost(connection)
            on_lost(connection)

        connection = Connection(self.traffic, self._on_frame, lost)
        connection.on_open = self._greet
        connection.is_dialed = True
        return connection

    # who there is

    def follow(self) -> None:
        """Our directory has changed: connect with those who came, part with those who left, and
        tell everybody."""
        others = self._directory.others
        if self._directory.lists(self._node.id):
            self._dialing.follow(others)
        self._on_channel = {channel: self._directory.on_channel(channel) for channel in Channel}
        if self.datagrams is not None:
            self.datagrams.follow(others)
        said = self._changed()
        for connection in [*self._peers.values(), *self._clients.values()]:
            connection.write(said)
        for node, connection in list(self._peers.items()):
            if self._directory.is_removed(node):
                connection.close()

    def _changed(self) -> bytes:
        return encode_session(Changed(self._directory.configuration, self._directory.peers))

    def introduce(self, places: tuple[Place, ...]) -> None:
        """Connect with servers that are to come."""
        self._directory.note_names(places)
        for place in places:
            if place.node != self._node.id:
                peer = Peer(place.node, place.name, place.host, place.port)
                self._dialing.meet(peer)
                if self.datagrams is not None:
                    self.datagrams.add(peer)

    def retire(self) -> None:
        """We are of no more use to clients: they find another node at once."""
        self._is_retired = True
        for connection in list(self._clients.values()):
            connection.close()

    def _learn(self, configuration: Configuration, peers: tuple[Peer, ...]) -> None:
        if self._directory.learn(configuration, peers):
            self._on_learned()

    def _greet(self, connection: Connection) -> None:
        facts, digest = self._plan.facts(), self._plan.digest()
        own = (self.lives.uuid, self.lives.process, self.lives.where)
        hello = Hello(PROTOCOL, self._plan.cluster, self._node.id, digest, facts, self._life, *own)
        connection.write(encode_session(hello))

    def _on_lost(self, connection: Connection) -> None:
        if self._clients.get(connection.id) is connection:
            del self._clients[connection.id]
            self._listeners.remove(connection)
        elif self._peers.get(connection.id) is connection:
            del self._peers[connection.id]
            if self.datagrams is not None:
                self.datagrams.forget(connection.id)
            self._on_connection(Unreachable(connection.id))
        self.lives.on_lost(connection)

    # sessions

    def _on_session(self, connection: Connection, payload: bytes) -> None:
        message = decode_session(payload)
        if isinstance(message, Hello):
            self._on_hello(connection, message)
        elif isinstance(message, Welcome) and connection.is_dialed:
            self._on_welcome(connection, message)
        elif isinstance(message, Refused) and connection.is_dialed:
            self._on_refused(connection, message)
        elif not connection.id:
            raise WireError("session-order", "say hello first; this node doesn't know you")
        elif isinstance(message, Changed) and connection.id <= NODE_MAX:
            self._learn(message.configuration, message.peers)
        elif isinstance(message, StatusRequest | TraceRequest | PlanRequest):
            connection.write(encode_session(Status(self._answer(message))))
        elif isinstance(message, Ping | Rival):
            self.lives.on_session(connection, message)
        elif isinstance(message, MulticastRequest) and connection.id > NODE_MAX:
            self._listeners.add(connection)

    def _on_welcome(self, connection: Connection, welcome: Welcome) -> None:
        node, first = welcome.node, self._peers.get(welcome.node)
        note_life(connection, welcome)
        is_other = first is not None and self.lives.is_other(first, connection)
        if first is not None and is_other and self.lives.outranks(node, first, connection):
            self.lives.refuse(node, first, connection)
            return
        self._add_peer(connection, node, welcome.life)
        self._learn(welcome.configuration, welcome.peers)
        if welcome.configuration.number < self._directory.configuration.number:
            connection.write(self._changed())

    def _on_refused(self, connection: Connection, refused: Refused) -> None:
        said = f"{connection.peer_name()} refused us: {refused.detail[:SAID_MAX]!r}"
        self._say_once(connection.peer_name(), "refused", said, code=refused.code[:SAID_MAX])
        connection.is_refused = True
        connection.close()
        if refused.code == REMOVED:
            self.on_removed(refused.detail[:SAID_MAX])

    def _say_once(self, whom: str, event: str, text: str, **facts: str | int) -> None:
        """Not again and again to one and the same, who tries again and again."""
        if self._said.get(whom) != text and len(self._said) < SAID_TO_MAX:
            self._said[whom] = text
            self._say(event, text, **facts)

    def _on_hello(self, connection: Connection, hello: Hello) -> None:
        if connection.id:
            raise WireError("session-order", "hello was said already; it is said once")
        check_hello(self._plan, hello)
        if hello.node:
            self._on_node_hello(connection, hello)
            return
        if self._is_retired:
            others = ", ".join(f"{p.host}:{p.port}" for p in self._directory.others)
            raise WireError(REMOVED, f"this node was removed from the cluster; use {others}")
        if len(self._clients) >= CLIENTS_MAX:
            raise WireError(
                "session-clients", f"{CLIENTS_MAX} clients are connected; use another node"
            )
        self._client_next += 1
        connection.id = client_id(self._node.id, self._client_next)
        self._clients[connection.id] = connection
        connection.slow = self.readers
        self._welcome(connection)

    def _on_node_hello(self, connection: Connection, hello: Hello) -> None:
        try:
            check_file(self._plan, hello)
        except WireError as error:
            said = f"node {hello.node} was refused: {error.detail[:SAID_MAX]!r}"
            self._say_once(f"node {hello.node}", "refused-node", said, node=hello.node)
            raise
        check_listed(self._directory, self._node.id, hello.node)
        note_life(connection, hello)
        node, first = hello.node, self._peers.get(hello.node)
        is_other = self.lives.is_other(first, connection)
        if self._dialing.on_knock(node):  # It is we who dial that one.
            if first is not None and is_other:
                self.lives.challenge(node, first, connection, lambda: _part(first, connection))
            else:
                connection.close()
        elif first is None or not is_other or self.lives.outranks(node, connection, first):
            self._let_in(connection, hello)
        else:
            self.lives.challenge(node, first, connection, lambda: self._let_in(connection, hello))

    def _let_in(self, connection: Connection, hello: Hello) -> None:
        self._add_peer(connection, hello.node, hello.life)
        self._welcome(connection)

    @property
    def _life(self) -> int:
        return self.datagrams.life if self.datagrams is not None else 0

    def _add_peer(self, connection: Connection, node: NodeId, life: int) -> None:
        if self.datagrams is not None:
            self.datagrams.expect(node, life)
        old = self._peers.get(node)
        connection.id = node
        connection.trust()
        self._peers[node] = connection
        if old is not None and old is not connection:
            old.close()
        self._on_connection(Reachable(node))

    def _welcome(self, connection: Connection) -> None:
        connection.trust()
        directory = self._directory
        welcome = Welcome(
            connection.id, self._node.id, self._plan.cluster, directory.configuration,
            directory.peers, self._life, self._plan.origin(),
            self.lives.uuid, self.lives.process, self.lives.where,
        )  # fmt: skip
        connection.write(encode_session(welcome))

    # routing what comes in

    def _on_frame(self, connection: Connection, kind: int, payload: bytes) -> None:
        if kind == KIND_SESSION:
            self._on_session(connection, payload)
            return
        if not connection.id:
            raise WireError("session-order", "say hello first; this node doesn't know you")
        source, target = decode_route(payload)
        if connection.id > NODE_MAX:
            self._on_client_frame(connection, kind, target, payload)
            return
        if node_of(source) != connection.id:
            raise WireError("route-source", f"node {connection.id} speaks for {source}")
        if kind == KIND_DATAGRAM and target == self._node.id:
            self._answer_listener(source, payload)
        elif target >= CHANNEL_BASE or target == self._node.id:
            self._deliver_from_node(source, kind, payload)
        elif target in self._clients:
            self._clients[target].write(*frame_parts(kind, payload))

    def _deliver_from_node(self, source: NodeId, kind: int, payload: bytes) -> None:
        """What a node passes on for its client it hasn't looked at: nonsense isn't that node's."""
        try:
            message = decode_payload(kind, payload, ROUTE_BYTES)
        except WireError as error:
            if source <= NODE_MAX:
                raise
            self.nonsense[error.code] = self.nonsense.get(error.code, 0) + 1
            return
        self._deliver(source, message)

    def _on_client_frame(
        self, connection: Connection, kind: int, target: int, payload: bytes
    ) -> None:
        is_known = kind in (KIND_BATCH, KIND_DATAGRAM) or (
            kind == KIND_CONTROL and _is_for_clients(payload)
        )
        if not is_known:
            raise WireError("client-kind", "that is not for clients to say")
        if target == self._node.id:
            if kind == KIND_DATAGRAM:
                self._answer_listener(connection.id, payload)
            else:
                self._deliver(connection.id, decode_payload(kind, payload, ROUTE_BYTES))
            return
        # Cut through: the others get it before our own roles look at it.
        body = memoryview(payload)[ROUTE_BYTES:]
        frame = frame_parts(kind, encode_route(connection.id, target), body)
        if target <= NODE_MAX:
            self._write_to(target, frame)
            return
        is_for_all = kind == KIND_BATCH and target >= CHANNEL_BASE
        if not is_for_all or target - CHANNEL_BASE not in (Channel.DATA, Channel.PAYLOAD):
            raise WireError("client-channel", f"{target} is nobody to whom clients may say that")
        channel = Channel(target - CHANNEL_BASE)
        self._spread(channel, frame)
        if self._is_on(channel):
            self._deliver(connection.id, decode_payload(kind, payload, ROUTE_BYTES))

    def _answer_listener(self, client: NodeId, payload: bytes) -> None:
        """A client that listens to the group lacks something of what we have sent there."""
        if self.datagrams is None:
            return
        try:
            again = self.datagrams.answer_client(client, payload[ROUTE_BYTES:])
        except WireError as error:
            self.nonsense[error.code] = self.nonsense.get(error.code, 0) + 1
            return
        route = encode_route(self._node.id, client)
        for datagram in again:
            self._write_to(client, frame_parts(KIND_DATAGRAM, route, datagram))

    # what goes out

    def send(self, to: NodeId, message: Control | Batch) -> None:
        """To a node, or to a client wherever it is connected."""
        self._write_to(to, message_parts(encode_route(self._node.id, to), message))

    def under_way(self, to: NodeId) -> int | None:
        """Bytes that wait to leave for there; None: nobody is there."""
        connection = self._connection_to(to)
        return connection.under_way if connection is not None else None

    def may_begin(self, to: NodeId, size: int) -> bool:
        """Whether a large answer may leave for there; a client elsewhere has its turn there."""
        return to not in self._clients or self.readers.may_begin(self._clients[to], size)

    def _connection_to(self, to: NodeId) -> Connection | None:
        node = node_of(to)
        if node == self._node.id:
            return self._clients.get(to)
        return self._peers.get(node)

    def _write_to(self, to: NodeId, frame: tuple[bytes | memoryview, ...]) -> None:
        connection = self._connection_to(to)
        if connection is not None:
            connection.write(*frame)

    def multicast(self, channel: Channel, message: Control | Batch) -> None:
        """To all other nodes of a channel."""
        route = encode_route(self._node.id, CHANNEL_BASE + channel)
        self._spread(channel, message_parts(route, message))

    def _spread(self, channel: Channel, frame: tuple[bytes | memoryview, ...]) -> None:
        """One transmission that reaches all, or, where there is none, one to each."""
        if self.datagrams is not None and self.datagrams.send(channel, frame):
            return
        for node in self._on_channel[channel]:
            peer = self._peers.get(node)
            if peer is not None:
                peer.write(*frame)

    def _on_multicast(self, node: NodeId, frame: bytes) -> None:
        """The same frames as on connections; everybody hears them, so some aren't for us."""
        kind, payload = decode_frame(frame)
        source, target = decode_route(payload)
        if node_of(source) != node or target < CHANNEL_BASE:
            raise WireError("route-source", f"node {node} speaks for {source} to {target}")
        if target - CHANNEL_BASE in CHANNELS and self._is_on(Channel(target - CHANNEL_BASE)):
            self._deliver_from_node(source, kind, payload)

    def flush(self) -> None:
        """Have what was sent leave now."""
        self.traffic.flush()

    # for people

    def connected(self) -> dict[str, int]:
        """Who is there."""
        return {"nodes": len(self._peers), "clients": len(self._clients)}


def _part(first: Connection, knocking: Connection) -> None:
    """Nobody answers there, so it is time to dial again."""
    first.abort()
    knocking.close()


def _is_for_clients(payload: bytes) -> bool:
    """By the tag, the first element of a short array: a look that costs nothing."""
    start = payload[ROUTE_BYTES : ROUTE_BYTES + 2]
    return len(start) == 2 and start[0] & 0xF0 == 0x90 and start[1] in CLIENT_TAGS
