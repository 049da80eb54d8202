"""Fetching a checkpoint in blocks, from several servers at once (GRP-17).

Whoever has cut the state into the same blocks may give any of them; what was
refused, or doesn't come, is asked of the next one. Nothing is asked twice that is here, so a
fetch goes on wherever it was interrupted.
"""

from collections.abc import Sequence

from samcast.machine.ports import NEVER_MS, Effect, Event, NodeId, Received, Send, Ticked
from samcast.wire.retention import BlockReply, BlockRequest

REPEAT_MS = 1000
AT_ONCE = 2  # blocks asked of one server at a time
BLOCK_BYTES_MAX = 256 * 1024 * 1024
FORGIVE_MS = 3000  # after which a server that lacked a block is asked again


class Fetched(Effect, frozen=True, gc=False):
    """A block, as it is in its file."""

    block: int
    server: NodeId
    data: bytes


class Absent(Effect, frozen=True, gc=False):
    """Nobody has this block just now: some have said so, and the others are silent."""

    block: int


class Refuse(Event, frozen=True, gc=False):
    """A block was not what it should be; have another server give it."""

    block: int
    server: NodeId


class Want(Event, frozen=True, gc=False):
    """Fetch these, too, of the list with this digest."""

    blocks: tuple[int, ...]
    listed: bytes = b""


class _Asked:
    """A block on its way."""

    __slots__ = ("data", "due_ms", "server")

    def __init__(self, server: NodeId, due_ms: int) -> None:
        self.server = server
        self.due_ms = due_ms
        self.data = bytearray()


class Fetching:
    """One fetch of one checkpoint."""

    def __init__(
        self, group: int, number: int, servers: Sequence[NodeId], blocks: Sequence[int] = (0,)
    ) -> None:
        self._group = group
        self._number = number
        self._servers = list(servers)
        self._turn = 0
        self._now_ms = 0
        self._wanted = list(blocks)
        self._listed = b""
        self._asked: dict[int, _Asked] = {}
        self._lacking: dict[tuple[int, NodeId], int] = {}  # until when not to ask
        self._denied: dict[int, None] = {}  # blocks that somebody has said not to have
        self._handlers = {BlockReply: self._on_reply}
        self.bytes = 0

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Received and type(event.message) is BlockReply:
                self._on_reply(event.sender, event.message, out)
            elif type(event) is Ticked:
                self._now_ms = event.now_ms
            elif type(event) is Want:
                self._wanted += event.blocks
                self._listed = event.listed
            elif type(event) is Refuse:
                self._lacking[(event.block, event.server)] = self._now_ms + FORGIVE_MS
                self._wanted.insert(0, event.block)
        self._give_up_on_silent()
        self._tell_what_is_absent(out)
        self._ask(out)
        return out

    def due_ms(self) -> int:
        """When the next answer is overdue."""
        waits = [asked.due_ms for asked in self._asked.values()]
        if self._wanted:
            waits.append(self._now_ms + REPEAT_MS)
        return min(waits, default=NEVER_MS)

    def _give_up_on_silent(self) -> None:
        for block, asked in list(self._asked.items()):
            if self._now_ms >= asked.due_ms:
                del self._asked[block]
                self._lacking[(block, asked.server)] = self._now_ms + FORGIVE_MS
                self._wanted.insert(0, block)

    def _tell_what_is_absent(self, out: list[Effect]) -> None:
        """Once in each round of questions: it may be superseded, and what is newer is there."""
        for block in list(self._denied):
            is_over = all(
                self._lacking.get((block, server), 0) > self._now_ms for server in self._servers
            )
            if block in self._wanted and is_over:
                del self._denied[block]
                out.append(Absent(block))

    def _ask(self, out: list[Effect]) -> None:
        for block in list(self._wanted):
            server = self._server_for(block)
            if server is None:
                continue
            self._wanted.remove(block)
            self._asked[block] = _Asked(server, self._now_ms + REPEAT_MS)
            out.append(Send(server, self._request(block, 0)))
            if len(self._asked) >= AT_ONCE * len(self._servers):
                return

    def _server_for(self, block: int) -> NodeId | None:
        """The next one that has room and isn't known to lack it."""
        for _ in self._servers:
            self._turn += 1
            server = self._servers[self._turn % len(self._servers)]
            busy = sum(1 for asked in self._asked.values() if asked.server == server)
            if busy < AT_ONCE and self._lacking.get((block, server), 0) <= self._now_ms:
                return server
        return None

    def _on_reply(self, sender: NodeId, reply: BlockReply, out: list[Effect]) -> None:
        asked = self._asked.get(reply.block)
        if asked is None or asked.server != sender or reply.number != self._number:
            return
        is_sound = 0 < len(reply.data) <= reply.total <= BLOCK_BYTES_MAX
        if not is_sound:
            if not reply.total:
                self._denied[reply.block] = None
            asked.due_ms = 0  # There is none, or it makes no sense: ask another one.
            return
        if reply.offset != len(asked.data):
            return  # a piece that came twice
        asked.data += reply.data
        self.bytes += len(reply.data)
        asked.due_ms = self._now_ms + REPEAT_MS
        if len(asked.data) >= reply.total:
            del self._asked[reply.block]
            out.append(Fetched(reply.block, sender, bytes(asked.data)))
        else:
            out.append(Send(sender, self._request(reply.block, len(asked.data))))

    def _request(self, block: int, offset: int) -> BlockRequest:
        listed = self._listed if block else b""
        return BlockRequest(self._group, self._number, block, offset, listed)
