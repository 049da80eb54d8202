"""Reads a range of a group's messages, as fast as it is taken, from one data server after another.

Unlike a member it waits for nothing to come: the range is there. It asks, gets an answer of some
size, and asks for what follows; who doesn't answer, or can't go on, is passed over.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from samcast.machine.ports import NEVER_MS, Effect, Event, NodeId, Received, Send, Ticked, Warn
from samcast.machine.quorum import servers_with
from samcast.wire.batch import Batch, decode_batch
from samcast.wire.errors import WireError
from samcast.wire.group import Repair
from samcast.wire.order import ROLE_DATA, Configuration
from samcast.wire.retention import Collected
from samcast.wire.rows import ANY_TIME, Rows, RowsRequest, Skipped, count_of
from samcast.wire.stretch import SINGLE_RUNS_MAX, Stretch, arrow_of_stretch

if TYPE_CHECKING:
    import pyarrow

ANSWERS_MAX = 4  # that wait to be taken
REPEAT_MS = 400
PAUSE_MS = 20  # when nobody can go on just now


class RowsCame(Effect, frozen=True, gc=False):
    """The next part of the range: short runs together, or runs as stored with their numbers."""

    rows: Rows | None
    runs: tuple[tuple[int, Batch], ...]
    end: int  # the number behind it
    stretch: tuple[int, "pyarrow.RecordBatch"] | None = None  # from this number on


class RowsGone(Effect, frozen=True, gc=False):
    """Messages up to this number are gone."""

    number: int


class Taken(Event, frozen=True, gc=False):
    """The application has taken one answer."""


class RowReader:
    """One range."""

    def __init__(
        self,
        node: NodeId,
        configuration: Configuration,
        server: NodeId,
        span: tuple[int, int, int],
        sent: tuple[int, int] = ANY_TIME,
        as_stored: bool = False,
    ) -> None:
        self.node = node
        self._servers = [s.node for s in servers_with(configuration, ROLE_DATA)]
        self._turn = self._servers.index(server) if server in self._servers else 0
        self._group, self.number_next, self._end = span
        self._sent = sent
        self._as_stored = as_stored
        self._checked_below = 0  # numbers that a server must look at itself before it sends them
        self._sender: NodeId = 0  # of what has come
        self._waiting = 0
        self._asked = 0  # since when, in ms; 0: nobody
        self._due_ms = 0
        self._now_ms = 0
        self._is_over = False
        self._handlers: dict[type, Callable[..., None]] = {
            Rows: self._on_rows,
            Stretch: self._on_stretch,
            Skipped: self._on_skipped,
            Repair: self._on_repair,
            Collected: self._on_collected,
        }

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Received:
                handler = self._handlers.get(type(event.message))
                if handler is not None and not self._is_done:
                    self._sender = event.sender
                    handler(event.message, out)
            elif type(event) is Taken:
                self._waiting -= 1
            elif type(event) is Ticked:
                self._now_ms = event.now_ms
        if not self._is_done and self._waiting < ANSWERS_MAX and self._now_ms >= self._due_ms:
            if self._asked:  # No answer came, or a useless one: somebody else may do better.
                self._turn += 1
            self._ask(out)
        return out

    @property
    def _is_done(self) -> bool:
        return self._is_over or self.number_next >= self._end

    def due_ms(self) -> int:
        """The next question."""
        is_idle = self._is_done or self._waiting >= ANSWERS_MAX
        return NEVER_MS if is_idle else max(self._due_ms, self._now_ms)

    def _ask(self, out: list[Effect]) -> None:
        self._asked = max(1, self._now_ms)
        self._due_ms = self._now_ms + REPEAT_MS
        server = self._servers[self._turn % len(self._servers)]
        as_stored = self._as_stored and self.number_next >= self._checked_below
        wanted = RowsRequest(self._group, self.number_next, self._end, self._sent, as_stored)
        out.append(Send(server, wanted))

    def _on_rows(self, rows: Rows, out: list[Effect]) -> None:
        if rows.group != self._group:
            return
        try:
            end = rows.number_first + count_of(rows)
        except WireError as error:
            out.append(Warn("rows-malformed", str(error)))
            return
        if rows.number_first <= self.number_next < end:
            self._come(RowsCame(rows, (), end), end, out)
        elif not rows.counts and rows.number_first == self.number_next:
            self._due_ms = min(self._due_ms, self._now_ms + PAUSE_MS)

    def _on_stretch(self, stretch: Stretch, out: list[Effect]) -> None:
        if stretch.group != self._group or stretch.number_first != self.number_next:
            return
        try:
            rows = arrow_of_stretch(stretch)
        except WireError as error:
            out.append(Warn("stretch-unsound", str(error)))
            self._on_unsound()
            return
        end = stretch.number_first + rows.num_rows
        self._come(RowsCame(None, (), end, (stretch.number_first, rows)), end, out)

    def _on_unsound(self) -> None:
        """The server may not know yet that its disk has rotted: it is to look at what it sends, and
        so finds out. If it was asked for that already, somebody else may do better."""
        if self.number_next < self._checked_below or self._sender not in self._servers:
            self._due_ms = min(self._due_ms, self._now_ms + PAUSE_MS)
            return
        self._checked_below = self.number_next + SINGLE_RUNS_MAX
        self._turn = self._servers.index(self._sender)
        self._asked, self._due_ms = 0, self._now_ms

    def _on_skipped(self, skipped: Skipped, out: list[Effect]) -> None:
        """Nothing of the wanted time is there for a while."""
        if skipped.group == self._group and self._sent != ANY_TIME:
            end = min(skipped.number_end, self._end)
            if skipped.number_first <= self.number_next < end:
                self._come(RowsCame(None, (), end), end, out)

    def _on_repair(self, repair: Repair, out: list[Effect]) -> None:
        runs: list[tuple[int, Batch]] = []
        end = self.number_next
        for number, payload in repair.batches:
            try:
                batch = decode_batch(payload)
            except WireError as error:
                out.append(Warn("repair-malformed", str(error)))
                return
            if batch.group == self._group and number <= end < number + batch.count:
                runs.append((number, batch))
                end = number + batch.count
        if runs:
            self._come(RowsCame(None, tuple(runs), end), end, out)

    def _come(self, came: RowsCame, end: int, out: list[Effect]) -> None:
        self.number_next = end
        self._waiting += 1
        self._asked = 0
        self._due_ms = self._now_ms
        out.append(came)

    def _on_collected(self, said: Collected, out: list[Effect]) -> None:
        if said.group == self._group and said.number >= self.number_next:
            self._is_over = True
            out.append(RowsGone(said.number))
