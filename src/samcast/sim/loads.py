"""Loads: each drives one real role through its normal path, run by run, and keeps so many
unfinished.

A load makes what its role hears; the meter that it is given takes every step. `add` brings new
runs in, `finish` brings the oldest to their end, so `add(n)` and then rounds of `add(r)`,
`finish(r)` are a role that works with n runs outstanding. Time stands still: nothing is repeated,
no heartbeat falls due, so what is measured is the normal path alone.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from samcast.group.core import Core
from samcast.group.data_server import DataServer
from samcast.group.entry import Entry
from samcast.group.listing import DataRecovery
from samcast.group.member import Member
from samcast.group.sender import Sender, Submitted
from samcast.group.settings import GroupSettings
from samcast.machine.ports import (
    Effect,
    Event,
    Multicast,
    Received,
    Role,
    Send,
    Store,
    Stored,
    Ticked,
)
from samcast.sim.chance import SeededChance
from samcast.wire.batch import Batch, Message, columns_from_messages, make_batch
from samcast.wire.group import (
    Answer,
    AnswerKind,
    Answers,
    Commit,
    CommitSubmit,
    DataReport,
    Head,
)
from samcast.wire.order import (
    HASH_NONE,
    ROLE_COMMIT,
    ROLE_DATA,
    AnyEntry,
    Configuration,
    Epoch,
    EpochEntry,
    GroupEntry,
    RunEntry,
    Server,
    unnamed_sender,
)

GROUP = 1
CLIENT = 1000
MESSAGES = 10  # of one batch, of 100 bytes each
COLUMNS = columns_from_messages([Message(bytes(100))] * MESSAGES)
EPOCH: Epoch = (1, 1, 1)
LIFETIME = 2**40
SENDERS_MAX = 10**6
SERVERS = tuple(Server(node, node, ROLE_COMMIT | ROLE_DATA) for node in (1, 2, 3))
CONFIGURATION = Configuration(1, SERVERS, 2, 2, 2)
NOW_MS = 2000  # enough for an election and a group
TICK = Ticked(NOW_MS)
ROOMY = GroupSettings(  # nothing is refused, forgotten or cut into pieces for want of room
    sender_runs_max=10**6,
    snapshot_interval=10**9,
    entries_per_message_max=10**6,
    pending_runs_max=10**6,
    held_runs_max=10**6,
    member_runs_max=10**6,
)
BEGINNING: tuple[AnyEntry, ...] = (
    EpochEntry(EPOCH),
    GroupEntry(GROUP, "measured", LIFETIME, SENDERS_MAX),
)


class Meter(Protocol):
    """Who takes the steps, with a watch in hand or without."""

    def step(self, role: Role, events: Sequence[Event]) -> list[Effect]:
        """One turn of a role."""
        ...

    def fold(self, core: Core, entries: Sequence[AnyEntry]) -> None:
        """The same of a core alone."""
        ...


class Plain:
    """Takes steps without a watch."""

    def step(self, role: Role, events: Sequence[Event]) -> list[Effect]:
        return role.step(events)

    def fold(self, core: Core, entries: Sequence[AnyEntry]) -> None:
        for entry in entries:
            core.apply(entry)


class Load(Protocol):
    """One role at work."""

    def add(self, meter: Meter, runs: int) -> None:
        """So many new runs come in."""
        ...

    def finish(self, meter: Meter, runs: int) -> None:
        """The oldest so many are done."""
        ...


class Flow:
    """Runs of many senders, who take turns, and the entries that number them in the same order."""

    def __init__(self, senders: int, unconfirmed: int, index_next: int = 1) -> None:
        self._ids = [unnamed_sender(b"\0" + i.to_bytes(15, "big")) for i in range(senders)]
        self._counters = [1] * senders
        self._turn = 0
        self._lag = MESSAGES * (1 + unconfirmed // senders)  # counters that a sender hears late
        self._unnumbered: deque[Batch] = deque()
        self._number_next = 1
        self.index_next = index_next

    def batches(self, runs: int) -> list[Batch]:
        """The next runs."""
        return [self._batch() for _ in range(runs)]

    def _batch(self) -> Batch:
        at = self._turn
        self._turn = (at + 1) % len(self._ids)
        counter = self._counters[at]
        self._counters[at] += MESSAGES
        batch = make_batch(
            group=GROUP,
            sender=self._ids[at],
            incarnation=1,
            counter_first=counter,
            count=MESSAGES,
            birth=0,
            confirmed_below=max(1, counter - self._lag),
            seen=0,
            sent_ms=NOW_MS,
            configuration=1,
            columns=COLUMNS,
        )
        self._unnumbered.append(batch)
        return batch

    def oldest(self, runs: int) -> list[Batch]:
        """What `entries` will number next."""
        return [self._unnumbered[at] for at in range(runs)]

    def entries(self, runs: int) -> tuple[RunEntry, ...]:
        """Number the oldest."""
        return tuple(self._entry() for _ in range(runs))

    def _entry(self) -> RunEntry:
        batch = self._unnumbered.popleft()
        number = self._number_next
        self._number_next += batch.count
        self.index_next += 1
        return RunEntry(
            batch.group,
            batch.sender,
            batch.incarnation,
            batch.counter_first,
            batch.count,
            number,
            batch.digest,
            batch.birth,
            batch.confirmed_below,
        )

    def commit(self, runs: int, epoch: Epoch = EPOCH) -> Commit:
        """What the sequencer says of the oldest."""
        return committed(self.entries(runs), self.index_next - runs, epoch)


def committed(entries: tuple[AnyEntry, ...], index_first: int, epoch: Epoch = EPOCH) -> Commit:
    """A commit of these entries."""
    last = index_first + len(entries) - 1
    return Commit(1, epoch, index_first, entries, last, HASH_NONE)


def last_token(effects: list[Effect]) -> int:
    """Of the stores that a step asked for."""
    return max((effect.token for effect in effects if isinstance(effect, Store)), default=0)


# The roles.


class SenderLoad:
    """Batches of an application go out, answers come in."""

    def __init__(self) -> None:
        self.role = Sender(CLIENT, CONFIGURATION, ROOMY, SeededChance(1), GROUP)
        self.role.step([TICK, Received(1, Head(GROUP, 0))])
        self._sent: deque[Batch] = deque()
        self._number_next = 1

    def add(self, meter: Meter, runs: int) -> None:
        """Submitted, made into batches, sent."""
        effects = meter.step(self.role, [TICK, *[Submitted(1, COLUMNS, MESSAGES)] * runs])
        for effect in effects:
            assert type(effect) is Multicast
            assert type(effect.message) is Batch
            self._sent.append(effect.message)

    def finish(self, meter: Meter, runs: int) -> None:
        """One data server has told us the numbers."""
        answers = tuple(self._answer() for _ in range(runs))
        message = Answers(answers, GROUP, self._number_next - 1)
        effects = meter.step(self.role, [TICK, Received(1, message)])
        assert len(effects) == runs

    def _answer(self) -> Answer:
        b, number = self._sent.popleft(), self._number_next
        self._number_next += b.count
        kind = AnswerKind.NUMBER
        return Answer(
            kind, GROUP, b.sender, b.incarnation, b.counter_first, b.count, number, b.digest
        )


class EntryLoad:
    """Batches pass through, commits become answers. It keeps nothing of a run."""

    def __init__(self, flow: Flow) -> None:
        self.role = Entry(CLIENT, CONFIGURATION, ROOMY)
        self._flow = flow

    def add(self, meter: Meter, runs: int) -> None:
        """Batches of clients."""
        batches = self._flow.batches(runs)
        effects = meter.step(self.role, [TICK, *[Received(CLIENT + 1, b) for b in batches]])
        assert len(effects) == runs

    def finish(self, meter: Meter, runs: int) -> None:
        """The sequencer's commit of them."""
        effects = meter.step(self.role, [TICK, Received(1, self._flow.commit(runs))])
        assert len(effects) == 1


class DataLoad:
    """Payloads are stored, reported, numbered, and marked with their numbers."""

    def __init__(self, flow: Flow, is_disk_late: bool = False) -> None:
        self.role = data_server()
        self._flow = flow
        self._is_disk_late = is_disk_late  # what is outstanding isn't durable yet
        self._tokens: deque[int] = deque()
        flow.index_next = 1 + len(BEGINNING)
        effects = self.role.step([TICK, Received(1, committed(BEGINNING, 1))])
        self.role.step([TICK, Stored(last_token(effects))])

    def add(self, meter: Meter, runs: int) -> None:
        """Payloads of clients, and the disk's word for them."""
        batches = self._flow.batches(runs)
        effects = meter.step(self.role, [TICK, *[Received(CLIENT, b) for b in batches]])
        self._tokens += [effect.token for effect in effects if isinstance(effect, Store)]
        if not self._is_disk_late:
            self._sync(meter, len(self._tokens))

    def _sync(self, meter: Meter, runs: int) -> None:
        tokens = [self._tokens.popleft() for _ in range(runs)]
        effects = meter.step(self.role, [TICK, Stored(tokens[-1])])
        assert any(type(e) is Send and type(e.message) is DataReport for e in effects)

    def finish(self, meter: Meter, runs: int) -> None:
        """The sequencer's commit of them; then the marks are durable, too."""
        if self._is_disk_late:
            self._sync(meter, runs)
        effects = meter.step(self.role, [TICK, Received(1, self._flow.commit(runs))])
        token = last_token(effects)
        assert token
        if not self._is_disk_late:
            meter.step(self.role, [TICK, Stored(token)])


class MemberLoad:
    """Payloads and commits meet, and are delivered in order."""

    def __init__(self, flow: Flow, is_payload_late: bool = False) -> None:
        self.role = member()
        self._flow = flow
        self._is_payload_late = is_payload_late  # what is outstanding has numbers, but no payload
        self._late: deque[Batch] = deque()

    def add(self, meter: Meter, runs: int) -> None:
        """Whatever comes first."""
        batches = self._flow.batches(runs)
        if self._is_payload_late:
            self._late += batches
            effects = meter.step(self.role, [TICK, Received(1, self._flow.commit(runs))])
        else:
            effects = meter.step(self.role, [TICK, *[Received(2, b) for b in batches]])
        assert not effects

    def finish(self, meter: Meter, runs: int) -> None:
        """Whatever comes second."""
        if self._is_payload_late:
            batches = [self._late.popleft() for _ in range(runs)]
            effects = meter.step(self.role, [TICK, *[Received(2, b) for b in batches]])
        else:
            effects = meter.step(self.role, [TICK, Received(1, self._flow.commit(runs))])
        assert len(effects) == 1


class FullMemberLoad:
    """A member waits for one payload and has room for nothing more; the order goes on."""

    def __init__(self, flow: Flow, runs_max: int) -> None:
        self.role = member(GroupSettings(member_runs_max=runs_max))
        self._flow = flow
        flow.batches(1)
        self.role.step([TICK, Received(1, flow.commit(1))])

    def add(self, meter: Meter, runs: int) -> None:
        """A payload and its commit."""
        batches = self._flow.batches(runs)
        meter.step(self.role, [TICK, *[Received(2, b) for b in batches]])
        effects = meter.step(self.role, [TICK, Received(1, self._flow.commit(runs))])
        assert not effects

    def finish(self, meter: Meter, runs: int) -> None:
        """Never."""


class CoreLoad:
    """The fold alone; what is outstanding is what a row remembers for its sender."""

    def __init__(self, flow: Flow) -> None:
        self.core = Core(CONFIGURATION, ROOMY)
        self._flow = flow
        for entry in BEGINNING:
            self.core.apply(entry)

    def add(self, meter: Meter, runs: int) -> None:
        """Committed entries."""
        self._flow.batches(runs)
        meter.fold(self.core, self._flow.entries(runs))

    def finish(self, meter: Meter, runs: int) -> None:
        """A row forgets by itself what its sender has heard of."""


class OverheardLoad:
    """Submits reach a data server or a member as well, and commits are bare claims."""

    def __init__(self, flow: Flow, role: DataServer | Member) -> None:
        self.role = role
        self._flow = flow
        flow.index_next = 1 + len(BEGINNING)
        self._committed = len(BEGINNING)
        self._step(Plain(), [Received(1, committed(BEGINNING, 1))])

    def _step(self, meter: Meter, events: list[Event]) -> list[Effect]:
        effects = meter.step(self.role, [TICK, *events])
        if token := last_token(effects):
            effects += meter.step(self.role, [TICK, Stored(token)])
        return effects

    def add(self, meter: Meter, runs: int) -> None:
        """Payloads, and the sequencer's submit of them."""
        payloads = [Received(CLIENT, b) for b in self._flow.batches(runs)]
        first = self._flow.index_next
        entries = self._flow.entries(runs)
        submit = CommitSubmit(1, EPOCH, first, entries, self._committed, HASH_NONE)
        self._step(meter, [*payloads, Received(1, submit)])

    def finish(self, meter: Meter, runs: int) -> None:
        """The sequencer's claim."""
        first = self._committed + 1
        self._committed += runs
        claim = Commit(1, EPOCH, first, (), self._committed, HASH_NONE)
        assert self._step(meter, [Received(1, claim)])


def data_server() -> DataServer:
    """One of three, with an empty disk."""
    return DataServer(2, CONFIGURATION, ROOMY, DataRecovery(2))


def member(settings: GroupSettings = ROOMY) -> Member:
    """One that knows that there is nothing to deliver yet."""
    role = Member(CLIENT, CONFIGURATION, settings, GROUP)
    role.step([TICK, Received(1, Head(GROUP, 0))])
    return role
