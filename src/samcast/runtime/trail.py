"""What a node did lately, so that the way of one message can be told afterwards.

Each step of a role leaves a few small records: of payloads their keys, of the order first and last
index, never the messages themselves. They are bounded, oldest first, and looked through only when
somebody asks.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from samcast.group.order_log import OrderLog
from samcast.group.storage import BatchKey, SendStored, StoreBatch
from samcast.machine.ports import Effect, Multicast, NodeId, Send
from samcast.runtime.histogram import Histogram
from samcast.wire.batch import Batch
from samcast.wire.control import Control
from samcast.wire.group import Answers, Commit, CommitAck, CommitSubmit, DataReport
from samcast.wire.order import DecisionEntry, RunEntry

WEIGHT_MAX = 50_000  # records, and runs that they name; some ten megabytes
ARRIVED_MAX = 10_000  # payloads whose confirmation is waited for, to say how long it took
ENTRIES_MAX = 50_000  # of the order that are looked through
NOBODY = 0


class Mark(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to a message at this node."""

    at_s: float  # by this machine's clock
    what: str
    peer: NodeId = NOBODY  # whom it came from or went to
    epoch: int = 0  # in which that was ordered, 0 where that says nothing


class Record(msgspec.Struct, frozen=True, gc=False):
    """One of: the keys of runs, a range of indexes, or all indexes up to one."""

    at_s: float
    what: str
    peer: NodeId
    keys: tuple[BatchKey, ...] = ()
    first: int = 0
    last: int = 0
    epoch: int = 0

    def tells_of(self, key: BatchKey, index: int) -> bool:
        """Whether a run with this key, and its entry with this index, are among them."""
        return key in self.keys if self.keys else self.first <= index <= self.last


class Trail:
    """The records of one node."""

    def __init__(self, weight_max: int = WEIGHT_MAX) -> None:
        self._weight_max = weight_max
        self._weight = 0
        self._records: deque[Record] = deque()
        self._storing: deque[tuple[int, BatchKey]] = deque()
        self._arrived: OrderedDict[BatchKey, float] = OrderedDict()
        self.stored_s = Histogram()
        self.confirmed_s = Histogram()
        heard: dict[type, Callable[[NodeId, Any], None]] = {
            Batch: self._on_batch,
            DataReport: lambda peer, m: self._note_runs("report heard", peer, m),
            CommitSubmit: lambda peer, m: self._note_entries("order received", peer, m),
            CommitAck: lambda peer, m: self._note_up_to("acknowledgement heard", peer, m.index, m),
            Commit: lambda peer, m: self._note_up_to("learned as committed", peer, m.committed, m),
        }
        said: dict[type, Callable[[NodeId, Any], None]] = {
            DataReport: lambda peer, m: self._note_runs("reported", peer, m),
            CommitSubmit: lambda peer, m: self._note_entries("numbered", peer, m),
            CommitAck: lambda peer, m: self._note_up_to("order stored", peer, m.index, m),
            Commit: lambda peer, m: self._note_up_to("committed", peer, m.committed, m),
            Answers: self._on_answers,
        }
        self._heard, self._said = heard, said
        self._now_s = 0.0

    def heard(self, peer: NodeId, message: Control | Batch) -> None:
        """A message came in."""
        on_heard = self._heard.get(type(message))
        if on_heard is not None:
            self._now_s = time.time()
            on_heard(peer, message)

    def done(self, effects: Sequence[Effect]) -> None:
        """A role has taken a step, and wants this."""
        self._now_s = time.time()
        for effect in effects:
            if type(effect) is Send or type(effect) is Multicast:
                on_said = self._said.get(type(effect.message))
                if on_said is not None:
                    on_said(effect.to if type(effect) is Send else NOBODY, effect.message)
            elif type(effect) is StoreBatch:
                self._storing.append((effect.token, effect.key))
            elif type(effect) is SendStored:
                keys = tuple([key for _, key in effect.batches])
                self._note("sent to a reader", effect.to, keys)

    def stored(self, token: int) -> None:
        """Payloads up to this token are durable here."""
        self._now_s = time.time()
        keys: list[BatchKey] = []
        while self._storing and self._storing[0][0] <= token:
            key = self._storing.popleft()[1]
            keys.append(key)
            arrived_s = self._arrived.get(key)
            if arrived_s is not None:
                self.stored_s.note(self._now_s - arrived_s)
        if keys:
            self._note("stored", NOBODY, tuple(keys))

    def _note(
        self,
        what: str,
        peer: NodeId,
        keys: tuple[BatchKey, ...] = (),
        first: int = 0,
        last: int = 0,
        epoch: int = 0,
    ) -> None:
        self._records.append(Record(self._now_s, what, peer, keys, first, last, epoch))
        self._weight += 1 + len(keys)
        while self._weight > self._weight_max:
            self._weight -= 1 + len(self._records.popleft().keys)

    def _on_batch(self, peer: NodeId, batch: Batch) -> None:
        key = (batch.group, batch.sender, batch.incarnation, batch.counter_first, batch.stage)
        self._note("payload received", peer, (key,))
        if key not in self._arrived:
            self._arrived[key] = self._now_s
            if len(self._arrived) > ARRIVED_MAX:
                self._arrived.popitem(last=False)

    def _note_runs(self, what: str, peer: NodeId, report: DataReport) -> None:
        if report.runs:
            keys = tuple([(r.group, r.sender, r.incarnation, r.counter_first, r.stage)
                          for r in report.runs])  # fmt: skip
            self._note(what, peer, keys)

    def _note_entries(self, what: str, peer: NodeId, submit: CommitSubmit) -> None:
        if submit.entries:
            last = submit.index_first + len(submit.entries) - 1
            self._note(what, peer, (), submit.index_first, last, submit.epoch[0])

    def _note_up_to(self, what: str, peer: NodeId, index: int, message: CommitAck | Commit) -> None:
        self._note(what, peer, last=index, epoch=message.epoch[0])

    def _on_answers(self, peer: NodeId, answers: Answers) -> None:
        keys = tuple([(a.group, a.sender, a.incarnation, a.counter_first, 0)
                      for a in answers.answers])  # fmt: skip
        self._note("confirmed to the sender", peer, keys)
        for key in keys:
            arrived_s = self._arrived.pop(key, None)
            if arrived_s is not None:
                self.confirmed_s.note(self._now_s - arrived_s)

    # asking

    def about(self, key: BatchKey, index: int) -> list[Mark]:
        """What happened to a run, each thing once in an epoch, with the first of its times."""
        found: dict[tuple[str, NodeId, int], Mark] = {}
        is_ordered = False  # "up to" says something only of what was ordered before, as far as kept
        for record in self._records:
            mine = (record.what, record.peer, record.epoch)
            if mine in found or not record.tells_of(key, index):
                continue
            is_ordered = is_ordered or bool(record.first)
            if record.keys or is_ordered:
                found[mine] = Mark(record.at_s, *mine)
        return list(found.values())


def find_entry(log: OrderLog, group: int, number: int) -> tuple[int, int] | None:
    """Index of the entry that numbered a message, and the first number of its run or transaction;
    None if it isn't kept any more. The newest are looked at first."""
    for index in range(log.length, max(log.base, log.length - ENTRIES_MAX), -1):
        entry = log.entry(index)
        if type(entry) is RunEntry and entry.group == group:
            if entry.number_first <= number < entry.number_first + entry.count:
                return index, entry.number_first
        elif type(entry) is DecisionEntry:
            for part in entry.parts:
                count = sum(stage.count for stage in part.stages)
                if part.group == group and part.number_first <= number < part.number_first + count:
                    return index, part.number_first
    return None
