"""One TCP connection: bytes to frames and back, bounded in both directions.

Reads go into one slab that is used again and again. What is written in one turn leaves in one call.
A peer that doesn't read is not waited for: beyond a bound its frames are dropped (roles repeat what
matters), so it can't take the node's memory.
"""

import asyncio
import fcntl
import socket
import struct
import termios
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from samcast.limits import FRAME_BYTES_MAX, FRAME_BYTES_UNTRUSTED_MAX, NODE_MAX
from samcast.wire.errors import WireError
from samcast.wire.frame import FrameDecoder
from samcast.wire.session import Refused, encode_session

SLAB_BYTES = 256 * 1024
SLOW_BYTES = 64 * 1024  # that wait: then the other end doesn't keep up just now
WAITING_BYTES_MAX = 64 * 1024 * 1024  # beyond what the socket takes
DEAD_S = 9  # without a sign of life from the other end's kernel

OnFrame = Callable[["Connection", int, bytes], None]


class Slow(Protocol):
    """Whoever bounds what all those together hold that don't keep up."""

    def add(self, reader: "Connection") -> None:
        """This one doesn't just now."""

    def remove(self, reader: "Connection") -> None:
        """It does again."""

    def leave(self, reader: "Connection") -> None:
        """It is gone."""

    def has_room(self, reader: "Connection", waiting: int, size: int) -> bool:
        """Whether so much may be added to what waits for one."""
        ...


class Traffic:
    """What all connections of a process share: counts, and who has something to send. A host sends
    it at the end of its turn; what is written between turns leaves as soon as the loop is through
    with what it does."""

    def __init__(self) -> None:
        self._waiting: list[Connection] = []
        self._is_planned = False
        self.frames_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.dropped = 0  # frames

    def add(self, connection: "Connection") -> None:
        """This one has something now."""
        self._waiting.append(connection)
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._on_planned)

    def _on_planned(self) -> None:
        self._is_planned = False
        self.flush()

    def flush(self) -> None:
        """Send it all, to clients first: somebody waits for what they hear, while what nodes hear
        starts more work, on processors that clients may need."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            if len(waiting) > 1:
                waiting.sort(key=by_urgency)
            for connection in waiting:
                connection.flush()


def by_urgency(connection: "Connection") -> bool:
    """Clients before nodes."""
    return connection.id <= NODE_MAX


def notice_the_dead(end: socket.socket) -> None:
    """A peer behind a cut cable is gone after seconds, not after the kernel's quarter of an
    hour, so that a new connection is made as soon as the cable is whole again."""
    if end.family not in (socket.AF_INET, socket.AF_INET6):
        return
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, DEAD_S // 3)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, DEAD_S // 3)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * DEAD_S)


class Connection(asyncio.BufferedProtocol):
    """Either side of a connection; its owner gets whole frames."""

    def __init__(
        self,
        traffic: Traffic,
        on_frame: OnFrame,
        on_lost: Callable[["Connection"], None],
    ) -> None:
        self._traffic = traffic
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._slab = bytearray(SLAB_BYTES)
        self._view = memoryview(self._slab)
        self._decoder = FrameDecoder(FRAME_BYTES_UNTRUSTED_MAX)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes | memoryview] = []
        self._waiting = 0  # bytes that have not left, while there is something in `_out`
        self._written = 0  # bytes of all frames
        self._large: deque[tuple[int, int]] = deque()  # where each begins and ends in those
        self.id = 0  # who is at the other end, once that is known
        self.uuid = 0  # and if it is a node: its disk, its process, and what people call that
        self.process = 0
        self.where = ""
        self.is_refused = False
        self.is_dialed = False  # we called, so it is the other end that answers with a welcome
        self.dropped = 0
        self.on_open: Callable[[Connection], None] | None = None
        self.slow: Slow | None = None  # of a client: what it holds counts with that of all others
        self.frames_in = 0

    def own_host(self) -> str:
        """The address of our end; nothing on a Unix socket."""
        name = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return str(name[0]) if isinstance(name, tuple) else ""

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes, but do all that they do.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=SLOW_BYTES, low=0)
        notice_the_dead(self._transport.get_extra_info("socket"))
        if self.on_open is not None:
            self.on_open(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._decoder.feed(self._view[:nbytes])
            failure = self._decoder.failure
        except WireError as error:
            self.refuse(error.code, error.detail)
            return
        self.frames_in += len(frames)
        self._traffic.frames_in += len(frames)
        self._traffic.bytes_in += nbytes
        for kind, payload in frames:
            if self._transport is None:
                return
            try:
                self._on_frame(self, kind, payload)
            except WireError as error:
                self.refuse(error.code, error.detail)
                return
        if failure is not None:
            self.refuse(failure.code, failure.detail)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self.slow is not None:
            self.slow.add(self)

    def resume_writing(self) -> None:
        self._large.clear()
        if self.slow is not None:
            self.slow.remove(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._out.clear()
        self._large.clear()
        if self.slow is not None:
            self.slow.leave(self)
        self._on_lost(self)

    # our side

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def trust(self) -> None:
        """The other end has said who it is: it may send large frames from now on."""
        self._decoder.allow(FRAME_BYTES_MAX)

    def write(self, *frame: bytes | memoryview) -> None:
        """Send a frame, in however many parts, with the others of this turn; dropped if the peer
        doesn't keep up."""
        transport = self._transport
        if transport is None:
            return
        if not self._out:
            self._waiting = transport.get_write_buffer_size()
            self._traffic.add(self)
        size = sum(map(len, frame))
        is_full = self._waiting > WAITING_BYTES_MAX
        slow = self.slow
        if is_full or (slow is not None and not slow.has_room(self, self._waiting, size)):
            self.dropped += 1
            self._traffic.dropped += 1
            return
        if slow is not None and size > SLOW_BYTES:
            self._let_go(self._written - self._waiting)
            self._large.append((self._written, self._written + size))
        self._waiting += size
        self._written += size
        self._out += frame

    @property
    def under_way(self) -> int:
        """Bytes that wait to leave."""
        if self._transport is None:
            return 0
        return self._waiting if self._out else self._transport.get_write_buffer_size()

    @property
    def held(self) -> int:
        """Bytes of memory that this takes: a frame that has left in part is still there, whole."""
        if self._transport is None:
            return 0
        under_way = self.under_way
        left = self._written - under_way
        self._let_go(left)
        begins = self._large[0][0] if self._large else left
        return under_way + max(0, left - begins)

    def _let_go(self, left: int) -> None:
        """Large frames of which nothing waits any more."""
        while self._large and self._large[0][1] <= left:
            self._large.popleft()

    @property
    def taken(self) -> int:
        """Bytes that the other end has taken. Our kernel's buffer takes more only once a good part
        of it is free, so what is in there is asked for: a slow reader moves on all the same."""
        if self._transport is None:
            return self._written
        end = self._transport.get_extra_info("socket")
        queued = bytearray(4)
        try:
            fcntl.ioctl(end.fileno(), termios.TIOCOUTQ, queued)
        except OSError:  # It is being closed.
            return self._written
        return self._written - self.under_way - int(struct.unpack("i", queued)[0])

    def flush(self) -> None:
        """Hand over what was written in this turn."""
        out, self._out = self._out, []
        if self._transport is None or not out:
            return
        try:
            self._transport.writelines(out)
        except RuntimeError:  # Closed while it was being made: nobody tells us of that.
            self._transport = None
            return
        self._traffic.bytes_out += sum(map(len, out))

    def refuse(self, code: str, detail: str) -> None:
        """Say why, and close."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            self.flush()
            transport.write(encode_session(Refused(code, detail)))
            transport.close()

    def close(self) -> None:
        """Send what waits, then end."""
        if self._transport is not None:
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        """End at once: the other end takes nothing any more, or nobody wants it to."""
        if self._transport is not None:
            self._transport.abort()

    def peer_name(self) -> str:
        """For people."""
        name: Any = self._transport.get_extra_info("peername") if self._transport else None
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "closed")
