"""Handing a state in: one file after the other, piece by piece, to one checkpoint server; and what
it holds."""

from collections.abc import Callable, Sequence

from samcast.machine.ports import NEVER_MS, Effect, Event, NodeId, Received, Send, Ticked
from samcast.wire.handing import HandedIn, HandIn, States, StatesRequest

PIECE_BYTES = 512 * 1024
REPEAT_MS = 1000


class Give(Event, frozen=True, gc=False):
    """Hand this file in, after those before."""

    part: int
    at: int
    data: bytes


class Ask(Event, frozen=True, gc=False):
    """Ask what the server holds."""


class Given(Effect, frozen=True, gc=False):
    """A file is there; or why it is not."""

    part: int
    at: int
    refused: str = ""


class Told(Effect, frozen=True, gc=False):
    """What the server holds."""

    states: States


class Handing:
    """One state, one server."""

    def __init__(self, server: NodeId, group: int, number: int, job: int) -> None:
        self._server = server
        self._group = group
        self._number = number
        self._job = job
        self._files: list[Give] = []
        self._offset = 0
        self._asks = False
        self._now_ms = self._due_ms = 0
        self._handlers: dict[type, Callable[..., None]] = {
            HandedIn: self._on_handed_in,
            States: self._on_states,
        }

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Ticked:
                self._now_ms = event.now_ms
            elif type(event) is Give:
                self._files.append(event)
                self._due_ms = self._now_ms if len(self._files) == 1 else self._due_ms
            elif type(event) is Ask:
                self._asks = True
                self._due_ms = self._now_ms
            elif type(event) is Received and event.sender == self._server:
                handler = self._handlers.get(type(event.message))
                if handler is not None:
                    handler(event.message, out)
        if (self._files or self._asks) and self._now_ms >= self._due_ms:
            self._due_ms = self._now_ms + REPEAT_MS
            self._say(out)
        return out

    def due_ms(self) -> int:
        """When an answer is overdue."""
        return max(self._due_ms, self._now_ms) if self._files or self._asks else NEVER_MS

    def _say(self, out: list[Effect]) -> None:
        if self._asks:
            out.append(Send(self._server, StatesRequest(self._group)))
        if self._files:
            file = self._files[0]
            piece = file.data[self._offset : self._offset + PIECE_BYTES]
            where = (self._group, self._number, self._job, file.part, file.at)
            out.append(Send(self._server, HandIn(*where, self._offset, len(file.data), piece)))

    def _on_states(self, said: States, out: list[Effect]) -> None:
        if said.group == self._group and self._asks:
            self._asks = False
            out.append(Told(said))

    def _on_handed_in(self, said: HandedIn, out: list[Effect]) -> None:
        if not self._files or said.job != self._job:
            return
        file = self._files[0]
        here = (self._group, self._number, file.part, file.at)
        if (said.group, said.number, said.part, said.at) != here:
            return  # of a file before
        self._offset = min(said.offset, len(file.data))
        self._due_ms = self._now_ms
        if said.refused or self._offset == len(file.data):
            del self._files[0]
            self._offset = 0
            out.append(Given(file.part, file.at, said.refused))
