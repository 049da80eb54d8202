"""Sender rows and floors: who sent what last, and how far back anybody can know it (GRP-18, 19,
26).

A group remembers per sender its next counter and its last runs. Memory is bounded, so rows are
forgotten, and two floors say what that means. Below the *memory floor* M a row may have been
forgotten, so nobody can tell whether a run was ever numbered. Below the *admission floor* F
nothing is numbered any more. Both only rise and both are a function of the log alone, so every
server that has folded the same prefix gives the same answers.

Rows of unnamed senders lie in the order of their last number, because numbering moves a row to
the end; the row to evict is always the first, whatever the number of senders.

A copy shares its rows with what it was made from, so that it takes a moment however many there are.
Whoever changes a row asks for it by `own`, which copies it first where somebody else may hold it.
"""

from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import Any

from samcast.limits import BATCH_MESSAGES_MAX
from samcast.wire.group import Answer, AnswerKind, Asked, Span
from samcast.wire.order import INCARNATION_MAX, RunEntry, is_named
from samcast.wire.pieces import Many, Parts, listed

PAST_MAX = 16  # who had a name before is remembered so long

RowState = tuple[
    int,
    int,
    int,
    bool,
    int,
    list[tuple[int, int, int, bytes]],
    list[tuple[int, tuple[Span, ...]]],
    tuple[int, ...],
]
GroupState = tuple[
    str,
    int,
    int,
    int,
    int,
    bool,
    list[tuple[bytes, RowState]],
    list[tuple[bytes, RowState]],
    list[tuple[bytes, int]],
]

# Labels, names that nobody uses again, incarnations under tombstones, the floor of those.
NamingState = tuple[list[tuple[bytes, str]], list[bytes], list[tuple[bytes, int]], int]


class Admission(Enum):
    """What the numbering rule says of a run."""

    NUMBER = 1  # it is next
    HOLD = 2  # something before it is missing, or its name is not open yet
    NEVER = 3  # numbered already, expired or fenced


class Row:
    """What is remembered of one sender."""

    __slots__ = (
        "decided",
        "incarnation",
        "is_ended",
        "label",
        "last",
        "lowest",
        "next",
        "nonce",
        "owner",
        "past",
        "runs",
    )

    def __init__(self, incarnation: int) -> None:
        self.owner: object = None  # the mark of those rows that may change it in place
        self.incarnation = incarnation
        self.next = 1
        self.label = ""  # the name, if it was told
        self.last = 0  # number, or index in the cell, of its last use
        self.is_ended = False  # by ABORT: this incarnation numbers nothing more
        self.nonce = 0  # of the OPEN in force
        self.past: tuple[int, ...] = ()  # of those before it, which can't come back
        self.runs: dict[int, tuple[int, int, bytes]] = {}  # counter -> count, number, digest
        self.lowest = 1  # counter of these; a dict is slow to say which of its keys is the first
        self.decided: dict[int, tuple[Span, ...]] = {}  # tx -> its numbers

    def state(self) -> RowState:
        """For the core snapshot."""
        runs = [(c, *run) for c, run in self.runs.items()]
        decided = list(self.decided.items())
        opened = (self.incarnation, self.next, self.last, self.is_ended, self.nonce)
        return (*opened, runs, decided, self.past)

    @classmethod
    def of_state(cls, state: RowState) -> "Row":
        row = cls(state[0])
        row.next, row.last, row.is_ended, row.nonce = state[1:5]
        row.runs = {c: (count, number, digest) for c, count, number, digest in state[5]}
        row.lowest = next(iter(row.runs), row.next)
        row.decided = dict(state[6])
        row.past = state[7]
        return row

    def open(self, incarnation: int, nonce: int) -> None:
        """Somebody takes the name over; who had it before is fenced for good."""
        if self.nonce and self.nonce != nonce:
            self.past = (*self.past, self.nonce)[-PAST_MAX:]
        self.incarnation, self.nonce, self.is_ended = incarnation, nonce, False

    def copy(self) -> "Row":
        """An independent row, equal to this one."""
        row = Row(self.incarnation)
        row.label = self.label
        row.next, row.last, row.lowest = self.next, self.last, self.lowest
        row.is_ended, row.nonce, row.past = self.is_ended, self.nonce, self.past
        row.runs, row.decided = self.runs.copy(), self.decided.copy()
        return row


class GroupRows:
    """The senders of one group, and its head."""

    __slots__ = (
        "anonymous",
        "buried",
        "head",
        "incarnation_floor",
        "is_removed",
        "lifetime",
        "mark",
        "memory_floor",
        "name",
        "named",
        "runs_max",
        "senders_max",
        "tombstones",
        "unnamed",
    )

    def __init__(self, name: str, lifetime: int, senders_max: int, runs_max: int) -> None:
        self.mark = object()  # what our own rows carry; others are somebody else's, too
        self.name = name
        self.lifetime = lifetime
        self.senders_max = senders_max
        self.runs_max = runs_max
        self.head = 0
        self.memory_floor = 0
        self.is_removed = False
        self.unnamed: OrderedDict[bytes, Row] = OrderedDict()
        self.named: dict[bytes, Row] = {}
        # Name -> head when it was given up, rising.
        self.tombstones: OrderedDict[bytes, int] = OrderedDict()
        self.buried: dict[bytes, int] = {}  # the last incarnation of each of these
        self.incarnation_floor = 0  # the highest one of those that left no tombstone
        # Names of these that nobody uses again, in the order of their last use.
        self.anonymous: OrderedDict[bytes, None] = OrderedDict()

    def row(self, sender: bytes) -> Row | None:
        """The row of a sender, named or not."""
        return self.named.get(sender) if is_named(sender) else self.unnamed.get(sender)

    def own(self, sender: bytes) -> Row:
        """The row of a sender that has one, to be changed: no copy of these rows will see it."""
        rows = self.named if is_named(sender) else self.unnamed
        row = rows[sender]
        if row.owner is not self.mark:
            row = rows[sender] = row.copy()
            row.owner = self.mark
        return row

    def admission_floor(self) -> int:
        """F: a run born below it is never numbered."""
        return max(self.head + 1 - self.lifetime, self.memory_floor)

    def admission(
        self, sender: bytes, incarnation: int, counter_first: int, birth: int
    ) -> Admission:
        """The numbering rule."""
        if self.is_removed or birth > self.head:
            return Admission.NEVER  # Nobody can have known a number that isn't there yet.
        row = self.row(sender)
        if row is None:
            if birth < self.admission_floor():
                return Admission.NEVER
            if is_named(sender):
                return Admission.HOLD  # a named run is never numbered without a row
            return Admission.NUMBER if counter_first == 1 else Admission.HOLD
        if incarnation < row.incarnation or counter_first < row.next:
            return Admission.NEVER
        if incarnation > row.incarnation:
            return Admission.HOLD
        if row.is_ended or birth < self.admission_floor():
            return Admission.NEVER
        return Admission.NUMBER if counter_first == row.next else Admission.HOLD

    def number(self, entry: RunEntry) -> bool:
        """Fold a run in; False (and nothing changed) if the rules don't let it be numbered."""
        admission = self.admission(
            entry.sender, entry.incarnation, entry.counter_first, entry.birth
        )
        if admission is not Admission.NUMBER or entry.number_first != self.head + 1:
            return False
        if not 1 <= entry.count <= BATCH_MESSAGES_MAX:
            return False
        if self.row(entry.sender) is None:
            self.unnamed[entry.sender] = Row(entry.incarnation)
        row = self.own(entry.sender)
        self.head += entry.count
        row.next = entry.counter_first + entry.count
        row.last = self.head
        self._keep(row, entry)
        if not is_named(entry.sender):
            self.unnamed.move_to_end(entry.sender)
        self.raise_floors()
        return True

    def _keep(self, row: Row, entry: RunEntry) -> None:
        runs = row.runs
        runs[entry.counter_first] = (entry.count, entry.number_first, entry.digest)
        while runs and (row.lowest < entry.confirmed_below or len(runs) > self.runs_max):
            run = runs.pop(row.lowest, None)
            # A row's runs follow each other; a state that came from elsewhere might not obey.
            row.lowest = row.lowest + run[0] if run is not None else next(iter(runs))

    def forget_first(self) -> None:
        """The unnamed sender that has been silent for longest goes."""
        row = self.unnamed.popitem(last=False)[1]
        self.memory_floor = max(self.memory_floor, row.last + 1)
        self.raise_floors()

    def raise_floors(self) -> None:
        """After the head moved: forget what is too old or too much, and say so by M."""
        floor = max(self.memory_floor, self.head - 2 * self.lifetime)
        unnamed = self.unnamed
        while unnamed:
            sender = next(iter(unnamed))
            last = unnamed[sender].last
            if last >= floor and len(unnamed) <= self.senders_max:
                break
            del unnamed[sender]
            floor = max(floor, last + 1)
        self.memory_floor = floor
        while self.tombstones:
            sender = next(iter(self.tombstones))
            if self.tombstones[sender] >= floor:
                break
            self._forget_tombstone(sender)

    # names

    @property
    def chosen(self) -> int:
        """Names that somebody may use again."""
        return len(self.named) - len(self.anonymous)

    def incarnation_below(self, sender: bytes, is_anonymous: bool) -> int:
        """Above which a name without a row is opened. Whoever had it before may not know yet that
        it was given up; what it still sends must not pass for the new owner's."""
        before = self.buried.get(sender, INCARNATION_MAX if sender in self.tombstones else 0)
        return before if is_anonymous else max(before, self.incarnation_floor)

    def is_given_up(self, sender: bytes, birth: int) -> bool:
        """Whether an OPEN without a row may be from before the name was given up."""
        return birth < self.memory_floor or birth <= self.tombstones.get(sender, -1)

    def use(self, sender: bytes, index: int) -> None:
        """An owner did something, at this index of the cell."""
        self.own(sender).last = index
        if sender in self.anonymous:
            self.anonymous.move_to_end(sender)

    def evict_anonymous(self, most: int) -> None:
        """Above so many, those go that were not used for longest. Nobody can tell then what they
        did, and the floor says so."""
        while len(self.anonymous) > most:
            sender = self.anonymous.popitem(last=False)[0]
            self._raise_memory_floor(self.named.pop(sender).last + 1)

    def is_meant(self, sender: bytes, below: int) -> bool:
        """Whether a removal is about the row that is there. A copy of it may come late, when
        another process has opened the name since: that one keeps it."""
        row = self.named.get(sender)
        return row is not None and (not below or row.incarnation <= below)

    def is_buried(self, sender: bytes, below: int) -> bool:
        """Whether a name that has no row was given up with all that a removal is about."""
        is_there = sender in self.tombstones
        return is_there and self.buried.get(sender, INCARNATION_MAX) >= below

    def bury(self, sender: bytes, most: int) -> bool:
        """Give a name up; False if too many were, all of them since anything was sent here: then
        the floor can't rise, or nothing could be sent any more."""
        row = self.named.get(sender)
        if row is None:
            return False
        if len(self.tombstones) >= most:
            oldest = next(iter(self.tombstones))
            if self.tombstones[oldest] >= self.head:
                return False
            self._raise_memory_floor(self.tombstones[oldest] + 1)
            self._forget_tombstone(oldest)
        del self.named[sender]
        if sender in self.anonymous:
            del self.anonymous[sender]
            self.buried[sender] = INCARNATION_MAX  # It is never opened again.
        else:
            self.buried[sender] = row.incarnation
        self.tombstones[sender] = self.head
        return True

    def dig_up(self, sender: bytes) -> None:
        """Somebody begins anew under a name."""
        self.tombstones.pop(sender, None)
        self.buried.pop(sender, None)

    def _raise_memory_floor(self, floor: int) -> None:
        self.memory_floor = max(self.memory_floor, floor)

    def _forget_tombstone(self, sender: bytes) -> None:
        del self.tombstones[sender]
        incarnation = self.buried.pop(sender, INCARNATION_MAX)
        if incarnation < INCARNATION_MAX:
            self.incarnation_floor = max(self.incarnation_floor, incarnation)

    def answer(self, asked: Asked) -> tuple[AnswerKind, int] | None:
        """What is certain about a run from this committed state, or None if it may still come."""
        if self.is_removed:
            return (AnswerKind.NO_GROUP, 0)
        row = self.row(asked.sender)
        if row is None:
            return self._answer_without_row(asked)
        if asked.incarnation < row.incarnation:
            return (AnswerKind.FENCED, 0)
        if asked.incarnation > row.incarnation:
            return None
        if asked.counter_first < row.next:
            return self._answer_numbered(row, asked)
        if row.is_ended or asked.birth < self.admission_floor():
            return (AnswerKind.EXPIRED, 0)
        return None

    def _answer_without_row(self, asked: Asked) -> tuple[AnswerKind, int] | None:
        if asked.sender in self.tombstones:
            return (AnswerKind.REMOVED, 0)
        if asked.birth < self.memory_floor:
            return (AnswerKind.FORGOTTEN, 0)
        if asked.birth < self.admission_floor():
            return (AnswerKind.EXPIRED, 0)
        if is_named(asked.sender):
            # A state beyond what the sender has seen has folded its OPEN: the row was removed.
            return (AnswerKind.REMOVED, 0) if self.head > asked.seen else None
        is_whole = asked.confirmed_below == asked.counter_first > 1
        return (AnswerKind.REOPEN, 0) if is_whole and self.head >= asked.seen else None

    @staticmethod
    def _answer_numbered(row: Row, asked: Asked) -> tuple[AnswerKind, int]:
        run = row.runs.get(asked.counter_first)
        if run is None:
            return (AnswerKind.CONFIRMED, 0)
        count, number_first, digest = run
        if count != asked.count or digest != asked.digest:
            return (AnswerKind.CONFLICT, 0)
        return (AnswerKind.NUMBER, number_first)

    def state(self) -> GroupState:
        """For the core snapshot."""
        return self._state(listed)

    def pieces(self) -> Parts:
        """The same, to be encoded in pieces."""
        return Parts(self._state(Many))

    def _state(self, many: Callable[..., Any]) -> GroupState:
        unnamed, named, tombstones = self.unnamed, self.named, self.tombstones
        return (
            self.name,
            self.lifetime,
            self.senders_max,
            self.head,
            self.memory_floor,
            self.is_removed,
            many(len(unnamed), ((s, row.state()) for s, row in unnamed.items())),
            many(len(named), ((s, row.state()) for s, row in named.items())),
            many(len(tombstones), tombstones.items()),
        )

    def naming(self) -> NamingState | None:
        """What a snapshot says of names beside that."""
        labels = [(s, row.label) for s, row in self.named.items() if row.label]
        buried, anonymous = list(self.buried.items()), list(self.anonymous)
        if not (labels or buried or anonymous or self.incarnation_floor):
            return None
        return (labels, anonymous, buried, self.incarnation_floor)

    def set_naming(self, state: NamingState) -> None:
        """Take it up again."""
        labels, anonymous, buried, self.incarnation_floor = state
        for sender, label in labels:
            if sender in self.named:
                self.named[sender].label = label
        self.anonymous = OrderedDict.fromkeys(s for s in anonymous if s in self.named)
        self.buried = {s: inc for s, inc in buried if s in self.tombstones}

    @classmethod
    def of_state(cls, state: GroupState, runs_max: int) -> "GroupRows":
        rows = cls(state[0], state[1], state[2], runs_max)
        rows.head, rows.memory_floor, rows.is_removed = state[3:6]
        rows.unnamed = OrderedDict((s, Row.of_state(row)) for s, row in state[6])
        rows.named = {s: Row.of_state(row) for s, row in state[7]}
        rows.tombstones = OrderedDict(state[8])
        return rows

    def copy(self) -> "GroupRows":
        """Independent rows, equal to these; who changes one first makes its own of it."""
        self.mark = object()
        rows = GroupRows(self.name, self.lifetime, self.senders_max, self.runs_max)
        rows.head, rows.memory_floor = self.head, self.memory_floor
        rows.is_removed = self.is_removed
        rows.unnamed, rows.named = self.unnamed.copy(), self.named.copy()
        rows.tombstones = self.tombstones.copy()
        rows.buried, rows.anonymous = self.buried.copy(), self.anonymous.copy()
        rows.incarnation_floor = self.incarnation_floor
        return rows


def answer_of(asked: Asked, kind: AnswerKind, number_first: int) -> Answer:
    """The message form of an answer."""
    return Answer(
        kind,
        asked.group,
        asked.sender,
        asked.incarnation,
        asked.counter_first,
        asked.count,
        number_first,
        asked.digest,
    )
