"""The member: delivers a group's messages in number order, without gaps, and repairs what it
missed.

It treats an entry as committed only if it came in a `Commit`, in a commit server's answer, or in
a submit of the same epoch as a claim that covers it. A gap in the order is asked from commit
servers, a missing payload from data servers, each in turn, many in one query; with `is_one_step`,
or where the order's entries are gone, data servers are asked by number (GRP-08 to 11). A payload
is delivered only if its digest is the one that was ordered.
"""

from bisect import insort
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from samcast.group.kept import KeptPayloads
from samcast.group.settings import GroupSettings
from samcast.group.storage import BatchKey
from samcast.machine.ports import NEVER_MS, Effect, Event, NodeId, Received, Send, Ticked, Warn
from samcast.machine.quorum import newer, servers_with
from samcast.machine.ranges import Ranges
from samcast.wire.batch import Batch, decode_batch
from samcast.wire.errors import WireError
from samcast.wire.group import (
    Commit,
    CommitSubmit,
    Head,
    HeadRequest,
    Heartbeat,
    NumberReply,
    NumberRequest,
    PayloadRequest,
    Repair,
    RunKey,
    Span,
)
from samcast.wire.order import (
    EPOCH_NONE,
    ROLE_COMMIT,
    ROLE_DATA,
    AnyEntry,
    ConfigEntry,
    Configuration,
    DecisionEntry,
    Epoch,
    RunEntry,
)
from samcast.wire.retention import Collected
from samcast.wire.stages import StageKey

UNITS_PER_ASK_MAX = 1000  # gone through for missing payloads; what comes first matters most


class Deliver(Effect, frozen=True, gc=False):
    """Hand these to the application, in this order; a transaction's share is never split."""

    group: int
    runs: tuple[tuple[int, Batch], ...]  # first number, content


class Lost(Effect, frozen=True, gc=False):
    """What comes next was not kept: messages up to this number are gone."""

    group: int
    number: int


class Slot:
    """One payload's place in the order."""

    __slots__ = ("count", "digest", "key")

    def __init__(self, key: BatchKey, count: int, digest: bytes) -> None:
        self.key = key
        self.count = count
        self.digest = digest


class Unit:
    """What is delivered in one step: a run, or a decision's share in this group."""

    __slots__ = ("end", "slots")

    def __init__(self, number_first: int, slots: list[Slot]) -> None:
        self.slots = slots
        self.end = number_first + sum(slot.count for slot in slots)


class Member:
    """One member of one group."""

    def __init__(
        self,
        node: NodeId,
        configuration: Configuration,
        settings: GroupSettings,
        group: int,
        number_next: int = 1,
        is_from_oldest: bool = False,
        floor: int = 0,
    ) -> None:
        self.node = node
        self.group = group
        self._is_from_oldest = is_from_oldest  # begin with what there is, be it not the first
        self._floor = floor  # up to here nothing is wanted, or there
        self.number_next = number_next  # the position: everything below is delivered
        self.first = number_next  # with which to begin; a batch around it is delivered whole
        self._has_delivered = False
        self._configuration = configuration
        self._settings = settings
        self._now_ms = 0
        self._head = number_next - 1  # highest number known to be committed
        self._units: dict[int, Unit] = {}
        self._firsts: list[int] = []  # of the units, in order, behind some that are delivered
        self._known = Ranges()
        self._gone = Ranges()  # numbers whose entries no commit server has any more
        self._payloads = KeptPayloads(settings.member_runs_max, settings.member_bytes_max)
        self._by_number: dict[int, Batch] = {}  # answers to questions by number
        self._overheard: dict[int, AnyEntry] = {}
        self._overheard_order: list[int] = []  # a heap of their indexes
        self._overheard_epoch: Epoch = EPOCH_NONE
        self._heard_ms = 0
        self.heads_heard = 0  # that were told to us alone
        self.is_paused = False  # the application doesn't keep up: ask for nothing
        self._ask_due_ms = 0
        self._ask_wait_ms = settings.retry_ms
        self._asked: tuple[NodeId, int] = (0, 0)  # whom we asked last by number, and from which on
        self._turns: dict[str, int] = {}  # whom to ask next, by kind of question
        self._handlers: dict[type, Callable[[NodeId, Any, list[Effect]], None]] = {
            Batch: self._on_batch,
            Commit: self._on_commit,
            CommitSubmit: self._on_submit,
            Heartbeat: self._on_heartbeat,
            Head: self._on_head,
            NumberReply: self._on_number_reply,
            Repair: self._on_repair,
            Collected: self._on_collected,
        }

    def step(self, events: Sequence[Event]) -> list[Effect]:
        """Take everything that arrived in one turn; what can be delivered is said once."""
        out: list[Effect] = []
        handler_of = self._handlers.get
        for event in events:
            if type(event) is Received:
                handler = handler_of(type(event.message))
                if handler is not None:
                    handler(event.sender, event.message, out)
            elif type(event) is Ticked:
                self._now_ms = event.now_ms
        self._deliver(out)
        self._ask(out)
        return out

    def due_ms(self) -> int:
        """When to ask: soon if something is missing, else after a silence."""
        if self.is_paused:
            return NEVER_MS
        if self._head >= self.number_next:
            return max(self._ask_due_ms, self._now_ms + 1)
        return max(self._ask_due_ms, self._heard_ms + 2 * self._settings.suspect_ms)

    def load(self) -> tuple[int, int]:
        """How many runs it keeps that it can't deliver yet, and how many it may keep."""
        return len(self._units), self._settings.member_runs_max

    @property
    def head(self) -> int:
        """The highest number that is known to be committed."""
        return self._head

    # what is committed

    def _on_commit(self, sender: NodeId, commit: Commit, out: list[Effect]) -> None:
        if commit.epoch[1] != sender:
            return
        self._heard_ms = self._now_ms
        for entry in commit.entries[: max(0, commit.committed + 1 - commit.index_first)]:
            self._on_committed(entry)
        self._on_claim(commit.epoch, commit.committed)

    def _on_heartbeat(self, sender: NodeId, beat: Heartbeat, out: list[Effect]) -> None:
        if beat.epoch[1] != sender:
            return
        self._heard_ms = self._now_ms
        self._on_claim(beat.epoch, beat.committed)
        for group, head in beat.heads:
            if group == self.group:
                self._see_head(head)

    def _on_head(self, sender: NodeId, head: Head, out: list[Effect]) -> None:
        if head.group == self.group:
            self.heads_heard += 1
            self._heard_ms = self._now_ms
            self._see_head(head.number)

    def _on_collected(self, sender: NodeId, collected: Collected, out: list[Effect]) -> None:
        """What we wait for may be gone, by the committed order."""
        if collected.group != self.group or collected.number < self.number_next:
            return
        if not self._is_from_oldest or self._has_delivered:
            out.append(Lost(self.group, collected.number))
            return
        self._floor = collected.number
        self.first = self.number_next = collected.number + 1
        cut = {n: unit.slots for n, unit in self._units.items() if n < self.number_next}
        for number_first in cut:
            self._drop(number_first)
        self._firsts = sorted(self._units)
        for number_first, slots in cut.items():
            self._add(number_first, slots)
        self._known.remove(0, self.number_next)
        self._gone.remove(0, self.number_next)
        self._by_number = {n: b for n, b in self._by_number.items() if n >= self.number_next}
        self._see_head(collected.number)

    def _see_head(self, number: int) -> None:
        if number > self._head:
            self._head = number

    def _on_submit(self, sender: NodeId, submit: CommitSubmit, out: list[Effect]) -> None:
        """Overheard: not committed, but worth remembering for a claim of the same epoch."""
        if submit.epoch < self._overheard_epoch or submit.epoch[1] != sender:
            return
        if submit.epoch > self._overheard_epoch:
            self._overheard.clear()
            self._overheard_order.clear()
            self._overheard_epoch = submit.epoch
        for index, entry in enumerate(submit.entries, submit.index_first):
            if len(self._overheard) < self._settings.member_runs_max:
                if index not in self._overheard:
                    heappush(self._overheard_order, index)
                self._overheard[index] = entry
        self._on_claim(submit.epoch, submit.committed)

    def _on_claim(self, epoch: Epoch, committed: int) -> None:
        """A claim covers what was overheard of its own epoch, and nothing else."""
        if epoch != self._overheard_epoch:
            return
        order = self._overheard_order
        while order and order[0] <= committed:
            self._on_committed(self._overheard.pop(heappop(order)))

    def _on_number_reply(self, sender: NodeId, reply: NumberReply, out: list[Effect]) -> None:
        for entry in reply.entries:
            self._on_committed(entry)
        for group, first, count in reply.gone:
            if group == self.group and len(self._gone) < self._settings.member_runs_max:
                self._gone.add(max(first, self.number_next), first + count)

    def _on_committed(self, entry: AnyEntry) -> None:
        """Learn which payloads have which numbers."""
        if type(entry) is RunEntry:
            if entry.group == self.group:
                key = (entry.group, entry.sender, entry.incarnation, entry.counter_first, 0)
                self._add(entry.number_first, [Slot(key, entry.count, entry.digest)])
        elif type(entry) is DecisionEntry:
            for part in entry.parts:
                if part.group == self.group:
                    base = (part.group, entry.owner, entry.incarnation, entry.tx)
                    slots = [Slot((*base, r.stage), r.count, r.digest) for r in part.stages]
                    self._add(part.number_first, slots)
        elif type(entry) is ConfigEntry:
            self._configuration = newer(self._configuration, entry.configuration)

    def _add(self, number_first: int, slots: list[Slot]) -> None:
        if number_first < 1 or not slots or any(slot.count < 1 for slot in slots):
            return
        # Of a transaction that lies across the floor the first stages may be gone.
        while len(slots) > 1 and number_first + slots[0].count - 1 <= self._floor:
            number_first += slots[0].count
            slots = slots[1:]
        unit = Unit(number_first, slots)
        self._see_head(unit.end - 1)
        self._align(number_first, unit.end)
        if number_first < self.number_next or number_first in self._units:
            return
        if len(self._units) >= self._settings.member_runs_max:
            # What comes first matters most; the rest can be asked for again.
            if not self._firsts or self._firsts[-1] < number_first:
                return
            self._drop(self._firsts.pop())
        self._units[number_first] = unit
        insort(self._firsts, number_first)
        self._known.add(number_first, unit.end)
        for slot in slots:
            self._payloads.want(slot.key)

    def _align(self, number_first: int, end: int) -> None:
        """Who begins in the middle of something gets all of it: nobody cuts a batch."""
        if not self._has_delivered and number_first < self.number_next < end and number_first > 0:
            self.number_next = number_first

    def _drop(self, number_first: int) -> None:
        unit = self._units.pop(number_first)
        self._known.remove(number_first, unit.end)
        for slot in unit.slots:
            self._payloads.unwant(slot.key)

    # payloads

    def _on_batch(self, sender: NodeId, batch: Batch, out: list[Effect]) -> None:
        if batch.group == self.group:
            self._keep(batch)

    def _keep(self, batch: Batch) -> None:
        self._payloads.keep(key_of(batch), batch)

    def _on_repair(self, sender: NodeId, repair: Repair, out: list[Effect]) -> None:
        before = self._share_by_number()[1]
        for number_first, payload in repair.batches:
            try:
                batch = decode_batch(payload)
            except WireError as error:
                out.append(Warn("repair-malformed", f"{sender}: {error}"))
                continue
            if batch.group != self.group:
                continue
            self._align(number_first, number_first + batch.count)
            is_asked = self._settings.is_one_step or number_first in self._gone
            is_new = number_first >= self.number_next and number_first not in self._known
            if is_asked and is_new:
                self._keep_by_number(number_first, batch)
            else:
                self._keep(batch)
        if self._asked == (sender, before) and self._share_by_number()[1] > before:
            # Not all of a large transaction came: ask for what follows as fast as it comes.
            self._ask_due_ms, self._ask_wait_ms = self._now_ms, self._settings.retry_ms + 1

    def _keep_by_number(self, number_first: int, batch: Batch) -> None:
        is_next = number_first == self._share_by_number()[1]
        self._by_number[number_first] = batch
        if len(self._by_number) > self._settings.member_runs_max and not is_next:
            del self._by_number[max(self._by_number)]

    # delivering

    def _deliver(self, out: list[Effect]) -> None:
        runs: list[tuple[int, Batch]] = []
        before = self.number_next
        while self._deliver_next(runs):
            pass
        if self.number_next > before:
            self._has_delivered = True
            self._known.remove(0, self.number_next)
            self._gone.remove(0, self.number_next)
            delivered = len(self._firsts) - len(self._units)
            if delivered > len(self._units):
                del self._firsts[:delivered]
            self._ask_wait_ms = self._settings.retry_ms
            self._ask_due_ms = self._now_ms + self._ask_wait_ms // 2
            out.append(Deliver(self.group, tuple(runs)))

    def _deliver_next(self, runs: list[tuple[int, Batch]]) -> bool:
        number = self.number_next
        unit = self._units.get(number)
        if unit is None:
            return self._deliver_by_number(runs)
        found = [self._payloads.get(slot.key) for slot in unit.slots]
        for slot, payload in zip(unit.slots, found, strict=True):
            if payload is None:
                return False
            if not self.matches(slot, payload):
                self._payloads.pop(slot.key)  # Not what was ordered: ask for the right one.
                return False
        for slot, payload in zip(unit.slots, found, strict=True):
            assert payload is not None
            runs.append((number, payload))
            number += slot.count
            self._payloads.pop(slot.key)
        self._drop(self.number_next)
        self._by_number.pop(self.number_next, None)
        self.number_next = unit.end
        return True

    def _deliver_by_number(self, runs: list[tuple[int, Batch]]) -> bool:
        share, end = self._share_by_number()
        if not share:
            return False
        # A head is never within a transaction, but what we know of it may be old.
        is_end_known = end == self._head + 1 or end in self._by_number or end in self._units
        if share[0].stage and not is_end_known:
            return False  # More of the same transaction may follow.
        for batch in share:
            runs.append((self.number_next, batch))
            self._payloads.pop(key_of(batch))  # It may have come by another way, too.
            del self._by_number[self.number_next]
            self.number_next += batch.count
        self._see_head(self.number_next - 1)
        return True

    def _share_by_number(self) -> tuple[list[Batch], int]:
        """What data servers have given for the position by their committed marks: a run, or the
        stages of one decision as far as they are here; and the number behind it. A decision's
        stages follow each other, so its share ends where something else begins."""
        share: list[Batch] = []
        at = self.number_next
        while at not in self._units and (batch := self._by_number.get(at)) is not None:
            if share and not _is_of_one_decision(share[0], batch):
                break
            share.append(batch)
            at += batch.count
            if not batch.stage:
                break
        return share, at

    @staticmethod
    def matches(slot: Slot, batch: Batch) -> bool:
        """Content is what the order says, not what an id says."""
        return batch.digest == slot.digest and batch.count == slot.count

    # asking

    def _ask(self, out: list[Effect]) -> None:
        if self.is_paused:
            return
        if self._now_ms < self.due_ms() and self._now_ms < self._ask_due_ms:
            return
        if self._head < self.number_next:
            if self._now_ms >= self.due_ms():
                self._wait()
                out.append(Send(self._next(ROLE_COMMIT, "head"), HeadRequest(self.group)))
            return
        if self._ask_due_ms < self._heard_ms and self._ask_wait_ms == self._settings.retry_ms:
            # A gap was just seen: what fills it may be on its way.
            self._ask_due_ms = self._now_ms + self._ask_wait_ms // 2
            self._ask_wait_ms += 1
            return
        if self._now_ms < self._ask_due_ms:
            return
        self._wait()
        self._ask_for_order(out)
        self._ask_for_payloads(out)

    def _wait(self) -> None:
        self._ask_due_ms = self._now_ms + self._ask_wait_ms
        self._ask_wait_ms = min(2 * self._ask_wait_ms, self._settings.retry_max_ms)

    def _next(self, role: int, question: str) -> NodeId:
        """Each kind of question goes round by itself: two kinds with one count between them might
        each ask only every second server, for ever."""
        servers = servers_with(self._configuration, role)
        self._turns[question] = turn = self._turns.get(question, self.node) + 1
        return servers[turn % len(servers)].node

    def _ask_for_order(self, out: list[Effect]) -> None:
        most = self._settings.spans_per_request_max
        start = self._share_by_number()[1]
        end = min(self._head, start + self._settings.member_runs_max) + 1
        holes = self._known.missing(start, end, most)
        by_order: list[Span] = []
        by_number: list[Span] = []
        for first, end in holes:
            is_gone = self._settings.is_one_step or first in self._gone
            if first in self._gone:
                end = min(end, self._gone.contiguous_end(first))
            (by_number if is_gone else by_order).append((self.group, first, end - first))
        if by_order:
            out.append(Send(self._next(ROLE_COMMIT, "order"), NumberRequest(tuple(by_order))))
        if by_number:
            request = PayloadRequest((), (), tuple(by_number))
            self._asked = (self._next(ROLE_DATA, "numbers"), by_number[0][1])
            out.append(Send(self._asked[0], request))

    def _ask_for_payloads(self, out: list[Effect]) -> None:
        most = self._settings.repairs_per_reply_max
        runs: list[RunKey] = []
        stages: list[StageKey] = []
        number = self.number_next
        for _ in range(UNITS_PER_ASK_MAX):
            unit = self._units.get(number)
            if unit is None or len(runs) + len(stages) >= most:
                break
            for slot in unit.slots:
                if slot.key in self._payloads:
                    continue
                if slot.key[4]:
                    stages.append(slot.key)
                else:
                    runs.append(slot.key[:4])
            number = unit.end
        if runs or stages:
            request = PayloadRequest(tuple(runs[:most]), tuple(stages[:most]))
            out.append(Send(self._next(ROLE_DATA, "payloads"), request))


def key_of(batch: Batch) -> BatchKey:
    """As the order names it."""
    return (batch.group, batch.sender, batch.incarnation, batch.counter_first, batch.stage)


def _is_of_one_decision(one: Batch, other: Batch) -> bool:
    if not one.stage or not other.stage or one.sender != other.sender:
        return False
    return (one.incarnation, one.counter_first) == (other.incarnation, other.counter_first)
