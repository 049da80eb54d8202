"""A relay before every node: all that nodes and clients say to each other goes through it, and it
can lose, double, delay, hold, damage and replay frames, per link and direction.

TCP itself loses nothing, so what happens here is worse than what a network does to it.
"""

import asyncio
import contextlib
import random
import threading
from collections import deque
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from samcast.runtime.cluster_text import write_cluster_file
from samcast.runtime.local_cluster import LocalCluster, free_ports
from samcast.wire.frame import FRAME_HEADER_BYTES
from samcast.wire.session import KIND_SESSION, Hello, decode_session

CLIENTS = 0  # as the other end of a link
KEPT_FRAMES = 200  # of each link, to be replayed

Link = tuple[int, int]  # from, to


@dataclass
class Sky:
    """What happens to the frames of a link; shares are between 0 and 1."""

    loss: float = 0.0
    doubled: float = 0.0
    delayed: float = 0.0
    delay_s: float = 0.0  # at most
    flipped: float = 0.0
    is_cut: bool = False  # held until it isn't


CLEAR = Sky()


class Pipe:
    """One direction of one connection."""

    def __init__(self, weather: "Weather", link: Link, writer: asyncio.StreamWriter) -> None:
        self._weather = weather
        self.link = link
        self.writer = writer

    async def run(self, reader: asyncio.StreamReader) -> None:
        while True:
            frame = await read_frame(reader)
            await self._weather.passable(self.link)
            self._take(frame)
            await self.writer.drain()

    def _take(self, frame: bytes) -> None:
        sky, chance = self._weather.sky(self.link), self._weather.chance
        if frame[5] == KIND_SESSION:  # Without a hello there is no connection to be bad.
            self.writer.write(frame)
            return
        self._weather.keep(self.link, frame)
        if chance.random() < sky.loss:
            self._weather.lost += 1
            return
        if chance.random() < sky.flipped:
            self._weather.flipped += 1
            frame = flip_bit(frame, chance)
        times = chance.randint(2, 5) if chance.random() < sky.doubled else 1
        for _ in range(times):
            if chance.random() < sky.delayed:
                self._weather.delayed += 1
                wait_s = chance.random() * sky.delay_s
                asyncio.get_running_loop().call_later(wait_s, self.write, frame)
            else:
                self.write(frame)

    def write(self, frame: bytes) -> None:
        if not self.writer.is_closing():
            self.writer.write(frame)


class Weather:
    """All relays of one cluster."""

    def __init__(self, cluster: LocalCluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self._skies: dict[Link, Sky] = {}
        self._everywhere = CLEAR
        self._pipes: list[Pipe] = []
        self._old: dict[Link, deque[bytes]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self.lost = self.delayed = self.flipped = self.replayed = 0

    # life

    def __enter__(self) -> "Weather":
        """Between making a cluster and starting it: its nodes get relays as their addresses."""
        self._thread.start()
        plan = self.cluster.plan()
        nodes = [
            replace(node, port=port, listen=f"{node.host}:{node.port}")
            for node, port in zip(plan.nodes, free_ports(len(plan.nodes)), strict=True)
        ]
        for node in nodes:
            self._wait(self._listen(node.id, (node.host, node.port), node.listens_on))
        write_cluster_file(replace(plan, nodes=tuple(nodes)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._wait(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, node: int, at: tuple[str, int], inner: tuple[str, int]) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._relay(node, inner, reader, writer)
            writer.transport.abort()

        self._servers.append(await asyncio.start_server(serve, *at))

    async def _relay(
        self,
        node: int,
        inner: tuple[str, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        hello = await read_frame(reader)
        said = decode_session(hello[FRAME_HEADER_BYTES:])
        source = said.node if isinstance(said, Hello) else CLIENTS
        await self.passable((source, node))
        back, forth = await asyncio.open_connection(*inner)
        forth.write(hello)
        pipes = [Pipe(self, (source, node), forth), Pipe(self, (node, source), writer)]
        self._pipes += pipes
        try:
            await first_end(pipes[0].run(reader), pipes[1].run(back))
        finally:
            forth.transport.abort()
            self._pipes = [p for p in self._pipes if p not in pipes]

    # what it is like

    def sky(self, link: Link) -> Sky:
        """What happens on a link now."""
        return self._skies.get(link, self._everywhere)

    async def passable(self, link: Link) -> None:
        """Wait for the end of a cut."""
        while self.sky(link).is_cut:  # noqa: ASYNC110 - it is ended by another thread
            await asyncio.sleep(0.01)

    def everywhere(self, sky: Sky) -> None:
        """The same on all links."""
        self._skies = {}
        self._everywhere = sky

    def cut(self, *links: Link) -> None:
        """Nothing gets through on these, and nothing is lost."""
        self._skies |= {link: Sky(is_cut=True) for link in links}

    def alone(self, *nodes: int) -> None:
        """These reach each other, and the others reach each other, but not each other's."""
        ids = [node.id for node in self.cluster.plan().nodes]
        self.cut(*[(a, b) for a in ids for b in ids if (a in nodes) != (b in nodes)])

    def clear(self) -> None:
        """Nothing happens any more."""
        self.everywhere(CLEAR)

    def keep(self, link: Link, frame: bytes) -> None:
        """So that it can be replayed."""
        kept = self._old.setdefault(link, deque(maxlen=KEPT_FRAMES))
        if self.chance.random() < 0.1:
            kept.append(frame)

    def replay(self) -> None:
        """Send old frames between nodes again."""

        async def send() -> None:
            for pipe in self._pipes:
                if CLIENTS not in pipe.link:
                    for frame in list(self._old.get(pipe.link, ())):
                        self.replayed += 1
                        pipe.write(frame)

        self._wait(send())


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    header = await reader.readexactly(FRAME_HEADER_BYTES)
    return header + await reader.readexactly(int.from_bytes(header[8:12], "little"))


def flip_bit(frame: bytes, chance: random.Random) -> bytes:
    data = bytearray(frame)
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


async def first_end(*works: Awaitable[None]) -> None:
    """Until one of these ends; the other ends with it."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
