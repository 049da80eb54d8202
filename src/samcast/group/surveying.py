"""Asks one server for all that it has of a range of a group's numbers, and nobody else: not to read
the messages, but to see whether this server has what the others have.

A commit server is asked which runs have these numbers, a data server for the runs themselves,
whose digests are computed anew from what comes.
"""

from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from samcast.machine.ports import NEVER_MS, Effect, Event, NodeId, Received, Send, Ticked
from samcast.wire.batch import decode_batch
from samcast.wire.errors import WireError
from samcast.wire.group import NumberReply, NumberRequest, PayloadRequest, Repair
from samcast.wire.order import AnyEntry, DecisionEntry, RunEntry
from samcast.wire.retention import Collected

WAITING_MAX = 8  # answers that wait to be taken
REPEAT_MS = 500
PROBE_FROM = 3  # questions without an answer, after which we ask what is behind
SILENT_MAX = 60  # ... and after which nobody is there
MORE_BYTES = 256 * 1024  # so large a piece of an answer is probably not its last one
MORE_MS = 40
PROBES = 40  # at growing distances


class Kind(Enum):
    """What a server is asked for."""

    ORDER = "order"
    CONTENT = "content"


class Seen(msgspec.Struct, frozen=True, gc=False):
    """A run, as one server has it."""

    number: int
    count: int
    digest: bytes


class Surveyed(Effect, frozen=True, gc=False):
    """What came: runs, in order; a stretch that is gone for good, or one that should be there and
    is not."""

    runs: tuple[Seen, ...] = ()
    gone: tuple[int, int] | None = None  # from, up to but not with
    lacking: tuple[int, int] | None = None
    silent: tuple[int, int] | None = None  # nothing was said about these
    is_over: bool = False


class Taken(Event, frozen=True, gc=False):
    """The application has taken one answer."""


class Surveyor:
    """One range of one server."""

    def __init__(self, server: NodeId, kind: Kind, group: int, first: int, end: int) -> None:
        self._server = server
        self._kind = kind
        self._group = group
        self._next = first
        self._end = end
        self._waiting = 0
        self._asked = 0  # times, since something came
        self._due_ms = self._now_ms = 0
        self._is_over = False
        self._handlers: dict[type, Callable[..., None]] = {
            NumberReply: self._on_numbers,
            Repair: self._on_repair,
            Collected: self._on_collected,
        }

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn."""
        out: list[Effect] = []
        for event in events:
            if type(event) is Received and event.sender == self._server:
                handler = self._handlers.get(type(event.message))
                if handler is not None and not self._is_over:
                    handler(event.message, out)
            elif type(event) is Taken:
                self._waiting -= 1
            elif type(event) is Ticked:
                self._now_ms = event.now_ms
        if not self._is_over:
            self._go_on(out)
        return out

    def due_ms(self) -> int:
        """The next question."""
        is_idle = self._is_over or self._waiting >= WAITING_MAX
        return NEVER_MS if is_idle else max(self._due_ms, self._now_ms)

    def _go_on(self, out: list[Effect]) -> None:
        if self._next >= self._end:
            self._finish(out)
        elif self._waiting < WAITING_MAX and self._now_ms >= self._due_ms:
            if self._asked >= SILENT_MAX:
                self._tell(out, Surveyed(silent=(self._next, self._end)))
                self._finish(out)
                return
            self._asked += 1
            self._due_ms = self._now_ms + REPEAT_MS
            out.append(Send(self._server, self._question()))

    def _question(self) -> NumberRequest | PayloadRequest:
        spans = [(self._group, self._next, self._end - self._next)]
        if self._kind is Kind.ORDER:
            return NumberRequest(tuple(spans))
        if self._is_probing:  # A server that lacks what comes first says nothing at all.
            behind = [self._next + 2**power for power in range(PROBES)]
            spans += [(self._group, number, 1) for number in behind if number < self._end]
        return PayloadRequest((), (), tuple(spans))

    @property
    def _is_probing(self) -> bool:
        return self._kind is Kind.CONTENT and self._asked >= PROBE_FROM

    def _finish(self, out: list[Effect]) -> None:
        self._is_over = True
        self._tell(out, Surveyed(is_over=True))

    def _tell(self, out: list[Effect], what: Surveyed) -> None:
        self._waiting += 1
        out.append(what)

    # answers

    def _on_numbers(self, reply: NumberReply, out: list[Effect]) -> None:
        for group, first, count in reply.gone:
            if group == self._group and first <= self._next < first + count:
                self._pass_over(first + count, out)
        runs = [run for entry in reply.entries for run in self._runs_of(entry)]
        self._take(sorted(runs, key=_number), out)
        self._due_ms = self._now_ms if runs else self._due_ms

    def _runs_of(self, entry: AnyEntry) -> list[Seen]:
        if type(entry) is RunEntry and entry.group == self._group:
            return [Seen(entry.number_first, entry.count, entry.digest)]
        found: list[Seen] = []
        for part in entry.parts if type(entry) is DecisionEntry else ():
            number = part.number_first
            for stage in part.stages:
                if part.group == self._group:
                    found.append(Seen(number, stage.count, stage.digest))
                number += stage.count
        return found

    def _on_repair(self, repair: Repair, out: list[Effect]) -> None:
        runs: list[Seen] = []
        size = 0
        for number, payload in repair.batches:
            size += len(payload)
            try:
                batch = decode_batch(payload)
            except WireError:
                continue  # As if it weren't there: that is what this server has.
            if batch.group == self._group:
                runs.append(Seen(number, batch.count, batch.digest))
        before = self._next
        # Of what was found by probing only the first is known to follow the hole.
        self._take(sorted(runs, key=_number)[: 1 if self._is_probing else None], out)
        if self._next > before:  # What is stale tells nothing about how far an answer has come.
            self._due_ms = self._now_ms + (MORE_MS if size >= MORE_BYTES else 0)

    def _on_collected(self, said: Collected, out: list[Effect]) -> None:
        if said.group == self._group and said.number >= self._next:
            self._pass_over(said.number + 1, out)
            self._due_ms = self._now_ms

    def _pass_over(self, end: int, out: list[Effect]) -> None:
        end = min(end, self._end)
        self._tell(out, Surveyed(gone=(self._next, end)))
        self._next = end
        self._asked = 0

    def _take(self, runs: Sequence[Seen], out: list[Effect]) -> None:
        """What follows, and what is skipped on the way there."""
        taken: list[Seen] = []
        for run in runs:
            if run.number + run.count <= self._next or run.number >= self._end:
                continue
            if run.number > self._next:
                self._tell(out, Surveyed(tuple(taken), lacking=(self._next, run.number)))
                taken = []
            taken.append(run)
            self._next = run.number + run.count
        if taken:
            self._tell(out, Surveyed(tuple(taken)))
            self._asked = 0


def _number(run: Seen) -> int:
    return run.number
