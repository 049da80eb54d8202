"""Who calls whom: each node dials those with lower ids; the others dial it, and are told now and
then that they may. Whoever isn't of the cluster yet dials nobody, and is called by whoever leads.
"""

import asyncio
import contextlib
from collections.abc import Callable

from samcast.machine.ports import NodeId
from samcast.runtime.connection import Connection
from samcast.wire.session import Peer

REDIAL_S = (0.05, 0.2)  # a node that comes back is needed soon, and a call costs next to nothing
DIAL_S = 2.0
HELLO_S = 5.0
KNOCK_S = 3.0  # between two knocks at who should have dialed us
REFUSED_S = 2.0  # before a node that refused us is dialed again

Open = Callable[[Callable[[Connection], None]], Connection]  # a connection that greets


class Dialing:
    """The calls of one node."""

    def __init__(
        self, own: NodeId, open_connection: Open, is_connected: Callable[[NodeId], bool]
    ) -> None:
        self._own = own
        self._open = open_connection
        self._is_connected = is_connected
        self._calls: dict[NodeId, tuple[Peer, asyncio.Task[None]]] = {}
        self._meeting: dict[NodeId, asyncio.Task[None]] = {}
        self._knocked: dict[NodeId, asyncio.Event] = {}
        self._refused_by: dict[NodeId, None] = {}

    def follow(self, others: tuple[Peer, ...]) -> None:
        """These are to be connected with from now on, and no others."""
        wanted = {peer.node: peer for peer in others}
        for node, (peer, task) in list(self._calls.items()):
            if wanted.get(node) != peer:
                task.cancel()
                del self._calls[node]
                self._knocked.pop(node, None)
        for node, peer in wanted.items():
            if node in self._calls:
                continue
            if node < self._own:
                self._knocked[node] = asyncio.Event()
                task = asyncio.create_task(self._keep_dialed(peer))
            else:
                task = asyncio.create_task(self._keep_knocking(peer))
            self._calls[node] = (peer, task)

    def meet(self, peer: Peer) -> None:
        """Connect with one that isn't of the cluster yet."""
        task = self._meeting.get(peer.node)
        if peer.node in self._calls or self._is_connected(peer.node):
            return
        if task is None or task.done():
            self._meeting[peer.node] = asyncio.create_task(self._meet(peer))

    async def _meet(self, peer: Peer) -> None:
        await self._dial(peer)

    async def stop(self) -> None:
        """No more."""
        tasks = [*(task for _, task in self._calls.values()), *self._meeting.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_knock(self, node: NodeId) -> bool:
        """A node says that it is there; True if it is we who dial that one."""
        knocked = self._knocked.get(node)
        if knocked is not None:
            knocked.set()
        return knocked is not None

    async def _keep_dialed(self, peer: Peer) -> None:
        wait_s = REDIAL_S[0]
        knocked = self._knocked[peer.node]
        while True:
            was_connected = self._is_connected(peer.node) or await self._dial(peer)
            wait_s = REDIAL_S[0] if was_connected else min(2 * wait_s, REDIAL_S[1])
            if peer.node in self._refused_by:
                del self._refused_by[peer.node]
                wait_s = REFUSED_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await knocked.wait()
            knocked.clear()

    async def _keep_knocking(self, peer: Peer) -> None:
        """Whoever dials us may be waiting between two tries, or may have forgotten all about us."""
        while True:
            if not self._is_connected(peer.node):
                await self._knock(peer)
            await asyncio.sleep(KNOCK_S)

    async def _knock(self, peer: Peer) -> None:
        """Say that we are here. Usually the connection ends with that; one who doesn't know the
        cluster yet keeps it."""
        lost = asyncio.Event()
        knocking = self._open(lambda connection: lost.set())
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(DIAL_S):
                await loop.create_connection(lambda: knocking, peer.host, peer.port)
                await lost.wait()
        except (OSError, ValueError):  # also a time-out, or no address: it will dial us
            pass
        finally:
            if not knocking.id:
                knocking.abort()

    async def _dial(self, peer: Peer) -> bool:
        """Connect, and wait until that is over; whether it ever was a connection to the peer."""
        lost = asyncio.Event()
        connection = self._open(lambda connection: lost.set())
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(DIAL_S):  # The kernel alone would try for minutes.
                await loop.create_connection(lambda: connection, peer.host, peer.port)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HELLO_S):
                    await lost.wait()
            if not connection.id:
                connection.abort()
            await lost.wait()
        except (OSError, ValueError):  # also a time-out, or what is no address
            pass
        finally:
            if not connection.id:
                connection.abort()
        if connection.is_refused:
            self._refused_by[peer.node] = None
        return connection.id != 0
