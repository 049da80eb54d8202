"""Connections to all data servers, for when a message goes alone: it then reaches them without the
detour through one of them, and whoever knows its number first says so.

A busy sender doesn't use them: its node passes batches on while it stores them, and the client has
one copy to write instead of several.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from samcast.runtime.connection import Connection, Traffic
from samcast.wire.session import (
    KIND_SESSION,
    PROTOCOL,
    Hello,
    Peer,
    Refused,
    Welcome,
    decode_session,
    encode_session,
)

REDIAL_S = 1.0
DIAL_S = 2.0

OnFrame = Callable[[int, bytes], None]
OnDone = Callable[["asyncio.Task[None]"], None]


class Side:
    """A connection to one more node, made anew when it is lost."""

    def __init__(self, traffic: Traffic, peer: Peer, cluster: str, on_frame: OnFrame) -> None:
        self._traffic = traffic
        self._peer = peer
        self._cluster = cluster
        self._on_frame = on_frame
        self._lost = asyncio.Event()
        self.connection: Connection | None = None  # once it was welcomed

    async def keep(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._connect()
            await asyncio.sleep(REDIAL_S)

    async def _connect(self) -> None:
        self._lost = asyncio.Event()
        dialed = Connection(self._traffic, self._on_any_frame, self._on_lost)
        dialed.on_open = self._greet
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(DIAL_S):
                await loop.create_connection(lambda: dialed, self._peer.host, self._peer.port)
            await self._lost.wait()
        except (OSError, ValueError):  # also a time-out, or what is no address: tried again
            pass
        finally:
            self.connection = None
            dialed.abort()

    def _greet(self, connection: Connection) -> None:
        connection.trust()
        connection.write(encode_session(Hello(PROTOCOL, self._cluster)))

    def _on_any_frame(self, connection: Connection, kind: int, payload: bytes) -> None:
        if kind != KIND_SESSION:
            self._on_frame(kind, payload)
            return
        message = decode_session(payload)
        if isinstance(message, Welcome):
            self.connection = connection
        elif isinstance(message, Refused):
            connection.abort()

    def _on_lost(self, connection: Connection) -> None:
        self.connection = None
        self._lost.set()


class Fanout:
    """The connections to the data servers that we are not connected to otherwise."""

    def __init__(self, traffic: Traffic, on_frame: OnFrame, on_done: OnDone) -> None:
        self._traffic = traffic
        self._on_frame = on_frame
        self._on_done = on_done
        self._sides: dict[int, Side] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, peers: list[Peer], cluster: str) -> None:
        """Be connected to just these from now on."""
        self.end()
        self._sides = {
            peer.node: Side(self._traffic, peer, cluster, self._on_frame) for peer in peers
        }
        self._tasks = [asyncio.create_task(side.keep()) for side in self._sides.values()]
        for task in self._tasks:
            task.add_done_callback(self._on_done)

    def end(self) -> list[asyncio.Task[Any]]:
        """Give all of them up; what is still to be waited for."""
        tasks, self._tasks, self._sides = self._tasks, [], {}
        for task in tasks:
            task.cancel()
        return tasks

    @property
    def has_begun(self) -> bool:
        """Whether anybody asked for it."""
        return bool(self._sides)

    def connections(self) -> dict[int, Connection]:
        """All of them by node; empty unless all are there."""
        found = {node: side.connection for node, side in self._sides.items()}
        whole = {node: connection for node, connection in found.items() if connection is not None}
        return whole if len(whole) == len(found) else {}
