"""The client's end of a connection: finds a node, stays with it, goes to another when it is gone.

Roles of the client (senders, members, owners) run here as they do in the simulator; what they send
while nobody is connected is lost, and repeated by them.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from samcast.client.ending import Ended
from samcast.client.fanout import Fanout
from samcast.client.listener import Listener, OnMessage
from samcast.errors import ClientError, ConfigError, NotConnectedError, RefusedError
from samcast.machine.ports import Channel, Effect, NodeId
from samcast.runtime.connection import Connection, Traffic
from samcast.runtime.host import Host
from samcast.wire.batch import Batch
from samcast.wire.change import Moved
from samcast.wire.codec import decode_payload, message_parts
from samcast.wire.control import Control
from samcast.wire.frame import frame_parts
from samcast.wire.group import HeadRequest, NumberRequest, Propose
from samcast.wire.names import NamesRequest
from samcast.wire.order import ROLE_COMMIT, ROLE_DATA, Configuration
from samcast.wire.retention import CheckpointsRequest
from samcast.wire.session import (
    CHANNEL_BASE,
    KIND_DATAGRAM,
    KIND_SESSION,
    PROTOCOL,
    REMOVED,
    ROUTE_BYTES,
    Changed,
    Hello,
    MulticastPlace,
    MulticastRequest,
    Peer,
    Ping,
    PlanRequest,
    Refused,
    Status,
    StatusRequest,
    TraceRequest,
    Welcome,
    decode_route,
    decode_session,
    encode_route,
    encode_session,
)

Address = tuple[str, int]  # host and port; or `unix:PATH` and 0
UNIX = "unix:"
CONNECT_S = 2.0  # for one node to answer
SILENCE_S = 3.0  # without a word from a node before another one is tried
PING_S = 1.0
REDIAL_S = (0.02, 0.5)
FAREWELL_S = 0.5
ASKED_S = 3.0
ASKED_MAX = 1000
FOR_COMMIT_SERVERS = (Propose, HeadRequest, NumberRequest, CheckpointsRequest, NamesRequest)
LIGHT_BYTES = 8 * 1024  # a batch beyond that isn't a lone message


class Link:
    """One client's connection to a cluster; used in its loop only."""

    def __init__(self, addresses: list[Address], cluster: str, multicast: bool = False) -> None:
        self._addresses = addresses
        self._cluster = cluster
        self._turn = 0
        self._connection: Connection | None = None  # once it was welcomed
        self._dialed: Connection | None = None  # until then
        self._appliers: dict[int, Callable[[Any], None]] = {}
        self.host = Host(0, self, self._apply)
        self.node: NodeId = 0  # that we are connected to
        self.configuration: Configuration | None = None
        self._instead = 0
        self.origin = ""  # of the cluster, once we know it
        self.peers: tuple[Peer, ...] = ()
        self.cluster = ""
        self._welcomed: asyncio.Future[None] | None = None
        self._lost = asyncio.Event()
        self._statuses: list[asyncio.Future[bytes]] = []
        self._asked_at: dict[int, float] = {}  # group, or -nonce
        self._traffic = Traffic()
        self._fanout = Fanout(self._traffic, self._on_side_frame, self.on_task_done)
        self.on_heard: OnMessage = lambda source, message: None
        self.listener: Listener | None = None
        if multicast:
            self.listener = Listener(self._ask_node, lambda *heard: self.on_heard(*heard))
        self.has_multicast = False  # among nodes
        self.is_alone: Callable[[], bool] = lambda: False  # whether one message is all there is
        self.on_connected: list[Callable[[], None]] = []
        self._keeping: asyncio.Task[None] | None = None
        self._heard_at = 0.0
        self.reconnects = -1

    # life

    async def start(self) -> None:
        """Connect to any node, then stay connected; an error if none answers."""
        self.host.start([])
        problems: list[str] = []
        for _ in range(len(self._addresses)):
            address = self._next_address()
            try:
                await self._connect(address)
                break
            except (OSError, ValueError, RefusedError) as error:
                is_gone = isinstance(error, RefusedError) and str(error).startswith(REMOVED)
                if isinstance(error, RefusedError | ConfigError) and not is_gone:
                    raise
                host, port = address
                where = host if host.startswith(UNIX) else f"{host}:{port}"
                problems.append(f"{where}: {str(error) or 'no answer'}")
        else:
            raise NotConnectedError(
                f"no node answered ({'; '.join(problems)}); is the cluster up (`samcast up`)? If"
                " others of its nodes are, name them, too: host:port,host:port"
            )
        self._keeping = asyncio.create_task(self._keep())
        self._keeping.add_done_callback(self.on_task_done)

    def on_task_done(self, task: asyncio.Task[None]) -> None:
        """What runs beside the roles ends only when the client does."""
        error = None if task.cancelled() else task.exception()
        if error is not None and self.host.on_bug is not None:
            self.host.on_bug(error)

    def give_up(self) -> None:
        """Nothing more is done or sent; `stop` is still to come."""
        self.host.stop()
        if self._keeping is not None:
            self._keeping.cancel()
        self._fanout.end()
        if self._connection is not None:
            self._connection.abort()

    def tell_all(self, error: ClientError) -> None:
        """Whoever waits for a role hears that nothing more comes."""
        for on_effect in list(self._appliers.values()):
            on_effect(Ended(error))

    async def stop(self) -> None:
        """Send what waits, then end; a node that doesn't take it is not waited for long."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        self.host.stop()
        if self.listener is not None:
            self.listener.stop()
        await asyncio.gather(*self._fanout.end(), return_exceptions=True)
        if self._connection is None:
            return
        self._connection.close()
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self._lost.wait()
        except TimeoutError:
            self._connection.abort()
            await asyncio.sleep(0)

    def _next_address(self) -> Address:
        self._turn += 1
        return self._addresses[self._turn % len(self._addresses)]

    async def _connect(self, address: Address) -> None:
        loop = asyncio.get_running_loop()
        welcomed = self._welcomed = loop.create_future()
        self._lost = asyncio.Event()
        dialed = self._dialed = Connection(self._traffic, self._on_frame, self._on_lost)
        dialed.on_open = self._greet
        try:
            async with asyncio.timeout(CONNECT_S):
                if address[0].startswith(UNIX):
                    path = address[0].removeprefix(UNIX)
                    await loop.create_unix_connection(lambda: dialed, path)
                else:
                    await loop.create_connection(lambda: dialed, *address)
                await welcomed
        except BaseException:  # Also when we are cancelled: nobody else would ever close it.
            dialed.abort()
            raise
        finally:
            self._dialed = None
        self._connection = dialed
        if not dialed.is_open:  # It was lost between its welcome and now.
            self._lost.set()
        self.reconnects += 1
        for call in self.on_connected:
            call()

    def _greet(self, connection: Connection) -> None:
        connection.trust()
        connection.write(encode_session(Hello(PROTOCOL, self._cluster)))

    async def _keep(self) -> None:
        """Notice a node that is gone or silent, and find another."""
        loop = asyncio.get_running_loop()
        wait_s = REDIAL_S[0]
        nonce = 0
        while True:
            try:
                async with asyncio.timeout(PING_S):
                    await self._lost.wait()
            except TimeoutError:
                nonce += 1
                assert self._connection is not None
                self._connection.write(encode_session(Ping(nonce)))
                if loop.time() - self._heard_at < SILENCE_S:
                    continue
                self._connection.abort()
            self._forget()
            try:
                await self._connect(self._next_address())
                wait_s = REDIAL_S[0]
            # Also what is no address (ValueError): the next one may be.
            except (OSError, ValueError, RefusedError):
                self._lost.set()
                wait_s = min(2 * wait_s, REDIAL_S[1])
                await asyncio.sleep(wait_s)

    def _forget(self) -> None:
        """Nothing more will come from the node that we had."""
        self._connection = None
        self._fanout.end()
        for status in self._statuses:
            if not status.done():
                status.set_exception(NotConnectedError("the node went away; ask again"))
        self._statuses.clear()

    def _on_lost(self, connection: Connection) -> None:
        if connection is self._dialed:
            self._settle_welcome(ConnectionError("the connection was closed"))
        elif connection is self._connection:
            self._lost.set()

    @property
    def is_connected(self) -> bool:
        """Whether a node answers just now, as far as we know."""
        return self._connection is not None

    # what comes in

    def _on_frame(self, connection: Connection, kind: int, payload: bytes) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        if kind == KIND_SESSION:
            self._on_session(connection, payload)
        elif kind == KIND_DATAGRAM:
            if self.listener is not None:
                source, _ = decode_route(payload)
                self.listener.take_answer(source, payload[ROUTE_BYTES:])
        else:
            self._on_side_frame(kind, payload)

    def _on_side_frame(self, kind: int, payload: bytes) -> None:
        source, _ = decode_route(payload)
        self.host.deliver(source, decode_payload(kind, payload, ROUTE_BYTES))

    def _on_session(self, connection: Connection, payload: bytes) -> None:
        message = decode_session(payload)
        if isinstance(message, Welcome):
            self._on_welcome(connection, message)
        elif isinstance(message, Changed):
            self._take(message.configuration, message.peers)
            self._fanout.end()  # Begun again, with those who are there now.
            if self.listener is not None:  # Where they are has changed, too.
                connection.write(encode_session(MulticastRequest()))
        elif isinstance(message, MulticastPlace):
            self._on_place(connection, message)
        elif isinstance(message, Refused):
            self._settle_welcome(RefusedError(f"{message.code}: {message.detail}"))
        elif isinstance(message, Status) and self._statuses:
            status = self._statuses.pop(0)
            if not status.done():
                status.set_result(message.text)

    def _on_welcome(self, connection: Connection, welcome: Welcome) -> None:
        if self.origin and welcome.origin != self.origin:
            self._settle_welcome(
                RefusedError(
                    f"this is another cluster that is called {welcome.cluster!r}, too; nothing of"
                    " what this client knows is true there: connect anew if you mean it"
                )
            )
            return
        self.origin = welcome.origin
        self.has_multicast = welcome.life != 0
        self.node = welcome.node
        self.cluster = welcome.cluster
        self._take(welcome.configuration, welcome.peers)
        if self.listener is not None:
            connection.write(encode_session(MulticastRequest()))
        else:
            self._settle_welcome()

    def _take(self, configuration: Configuration, peers: tuple[Peer, ...]) -> None:
        """Who the nodes are; one that is behind the others doesn't take us back."""
        if self.configuration is not None and configuration.number < self.configuration.number:
            return
        self.configuration = configuration
        self.peers = peers
        if self.host.knows(Moved):
            self.host.deliver(self.node, Moved(configuration))
        known = [(peer.host, peer.port) for peer in peers]
        self._addresses += [a for a in known if a not in self._addresses]

    def _settle_welcome(self, error: Exception | None = None) -> None:
        if self._welcomed is None or self._welcomed.done():
            return
        if error is None:
            self._welcomed.set_result(None)
        else:
            self._welcomed.set_exception(error)

    def _on_place(self, connection: Connection, told: MulticastPlace) -> None:
        if self.listener is None:
            return
        own = connection.own_host()
        if not own:  # By a Unix socket: we are where our node is.
            own = next((peer.host for peer in self.peers if peer.node == self.node), "")
        try:
            self.listener.tune(told, self.peers, own)
        except ConfigError as error:
            if self.reconnects < 0:  # Later it does without: the stream works, too.
                self._settle_welcome(error)
                return
        self._settle_welcome()

    def _ask_node(self, node: NodeId, datagram: bytes) -> None:
        if self._connection is not None:
            route = encode_route(0, node)
            self._connection.write(*frame_parts(KIND_DATAGRAM, route, datagram))

    # what goes out

    def send(self, to: NodeId, message: Control | Batch) -> None:
        """To one node, through ours; a question for any commit server first to our own, which we
        know to be there."""
        if isinstance(message, HeadRequest | Propose) and self._is_first(message):
            to = self.node if self.node in self._commit_nodes() else to
        self._write(self._present(to, message), message)

    def _present(self, node: NodeId, message: Control | Batch) -> NodeId:
        """A role may still mean a server that has left: then one that has come since, in turn."""
        if any(server.node == node for server in self.servers.servers):
            return node
        is_of_order = isinstance(message, FOR_COMMIT_SERVERS)
        nodes = self._commit_nodes() if is_of_order else self.keepers()
        self._instead += 1
        return nodes[self._instead % len(nodes)]

    def _is_first(self, question: HeadRequest | Propose) -> bool:
        """Whether it hasn't been asked just now."""
        now = asyncio.get_running_loop().time()
        if len(self._asked_at) > ASKED_MAX:
            self._asked_at.clear()
        key = question.group if isinstance(question, HeadRequest) else -question.nonce
        before = self._asked_at.get(key, 0.0)
        self._asked_at[key] = now
        return now - before > ASKED_S

    def _commit_nodes(self) -> list[NodeId]:
        return [s.node for s in self.servers.servers if s.roles & ROLE_COMMIT]

    def multicast(self, channel: Channel, message: Control | Batch) -> None:
        """To all of a channel, through our node; a lone message to each of them itself."""
        is_light = type(message) is Batch and len(message.columns) <= LIGHT_BYTES
        # Where there is multicast it is our node that reaches all of them, members included.
        is_short_cut = is_light and not self.has_multicast and self.is_alone()
        if not is_short_cut or not self._fan_out(message):
            self._write(CHANNEL_BASE + channel, message)

    def flush(self) -> None:
        """Have what was sent leave now."""
        self._traffic.flush()

    def _fan_out(self, message: Control | Batch) -> bool:
        connection = self._connection
        if connection is None:
            return False
        if not self._fanout.has_begun:  # This one goes the usual way.
            others = [p for p in self.peers if p.node in self.keepers() and p.node != self.node]
            self._fanout.begin(others, self.cluster)
            return False
        sides = self._fanout.connections()
        if not sides:
            return False
        if self.node in self.keepers():
            sides[self.node] = connection
        for node, side in sides.items():
            side.write(*message_parts(encode_route(0, node), message))
        return True

    def _write(self, target: int, message: Control | Batch) -> None:
        if self._connection is not None:
            self._connection.write(*message_parts(encode_route(0, target), message))

    async def ask(self, question: StatusRequest | TraceRequest | PlanRequest) -> bytes:
        """What the node that we are connected to says of itself; it answers in order."""
        if self._connection is None:
            raise NotConnectedError("no node is connected just now; try again")
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._statuses.append(future)
        self._connection.write(encode_session(question))
        return await future

    @property
    def servers(self) -> Configuration:
        """The configuration, once somebody has told it."""
        assert self.configuration is not None, "used before it was connected"
        return self.configuration

    def keepers(self) -> list[NodeId]:
        """The nodes that keep payloads."""
        return [s.node for s in self.servers.servers if s.roles & ROLE_DATA]

    def data_node(self) -> NodeId:
        """Who streams to us: our own node if it keeps payloads."""
        keepers = self.keepers()
        return self.node if self.node in keepers else keepers[self._turn % len(keepers)]

    # roles

    def add(self, role: Any, on_effect: Callable[[Any], None]) -> int:
        """Run a role; its effects for the application go to `on_effect`."""
        at = self.host.add(role)
        self._appliers[at] = on_effect
        return at

    def remove(self, at: int) -> None:
        """A role has done its work."""
        self.host.remove(at)
        self._appliers.pop(at, None)

    def _apply(self, at: int, effect: Effect) -> None:
        on_effect = self._appliers.get(at)
        if on_effect is not None:
            on_effect(effect)
