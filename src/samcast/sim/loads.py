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

from samcast.group.commit_server import CommitServer
from samcast.group.core import Core
from samcast.group.data_server import DataServer
from samcast.group.entry import Entry
from samcast.group.member import Member
from samcast.group.sender import Sender, Submitted
from samcast.group.settings import GroupSettings
from samcast.group.storage import DataRecovery, OrderRecovery
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
    CommitAck,
    CommitSubmit,
    DataReport,
    GroupRequest,
    Head,
    Propose,
    Reported,
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
    entries_per_message_max=10**5,
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


def reports(batches: list[Batch]) -> tuple[Reported, ...]:
    """What a data server says of payloads that it has."""
    return tuple(
        Reported(
            b.group,
            b.sender,
            b.incarnation,
            b.counter_first,
            b.count,
            b.birth,
            b.confirmed_below,
            b.digest,
            0,
        )
        for b in batches
    )


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
        self.role = DataServer(2, CONFIGURATION, ROOMY, DataRecovery(2))
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


class LeaderLoad:
    """Reports are counted, numbered, submitted, stored, acknowledged, committed, folded."""

    def __init__(self, flow: Flow, is_commit_late: bool = False) -> None:
        self.role, _ = elect()
        self._flow = flow
        self._is_commit_late = is_commit_late  # what is outstanding is submitted already
        assert self.role.sequencer is not None
        self._epoch = self.role.sequencer.epoch
        self._reported: deque[Batch] = deque()
        self._committed = self.role.core.index

    def add(self, meter: Meter, runs: int) -> None:
        """A first data server has the payloads; where commits are late, so has a second."""
        batches = self._flow.batches(runs)
        self._reported += batches
        self._report(meter, 1, batches)
        if self._is_commit_late:
            self._submit(meter, runs)

    def _report(self, meter: Meter, node: int, batches: list[Batch]) -> list[Effect]:
        report = DataReport(1, self._epoch, node, 0, reports(batches))
        return meter.step(self.role, [TICK, Received(node, report)])

    def _submit(self, meter: Meter, runs: int) -> None:
        """Up to our own disk's word for the new entries."""
        batches = [self._reported.popleft() for _ in range(runs)]
        (submit,) = multicasts(self._report(meter, 2, batches))
        assert type(submit) is CommitSubmit
        assert len(submit.entries) == runs
        effects = meter.step(self.role, [TICK, Received(self.role.node, submit)])
        effects = meter.step(self.role, [TICK, Stored(last_token(effects))])
        (ack,) = [effect.message for effect in effects if type(effect) is Send]
        meter.step(self.role, [TICK, Received(self.role.node, ack)])

    def finish(self, meter: Meter, runs: int) -> None:
        """A second commit server has them: they are committed."""
        if not self._is_commit_late:
            self._submit(meter, runs)
        self._committed += runs
        node = 1 + self.role.node % 3
        ack = CommitAck(1, self._epoch, node, self._committed, False, 0, HASH_NONE)
        (commit,) = multicasts(meter.step(self.role, [TICK, Received(node, ack)]))
        assert type(commit) is Commit
        meter.step(self.role, [TICK, Received(self.role.node, commit)])
        assert self.role.core.index == self._committed


class GapLoad:
    """The sequencer hears of runs whose predecessor is missing; none of them can be numbered."""

    def __init__(self, flow: Flow) -> None:
        self.role, _ = elect()
        assert self.role.sequencer is not None
        self._epoch = self.role.sequencer.epoch
        self._flow = flow
        flow.batches(1)

    def add(self, meter: Meter, runs: int) -> None:
        """Two data servers have the payloads."""
        reported = reports(self._flow.batches(runs))
        for node in (1, 2):
            report = DataReport(1, self._epoch, node, 0, reported)
            effects = meter.step(self.role, [TICK, Received(node, report)])
            assert not effects

    def finish(self, meter: Meter, runs: int) -> None:
        """Never."""


class FollowerLoad:
    """Entries are stored and acknowledged, and folded when they are committed."""

    def __init__(self, flow: Flow) -> None:
        leader, self.role = elect()
        assert leader.sequencer is not None
        self._epoch = leader.sequencer.epoch
        self._leader = leader.node
        self._flow = flow
        flow.index_next = self.role.log.length + 1
        self._committed = self.role.core.index

    def add(self, meter: Meter, runs: int) -> None:
        """The sequencer submits, the disk stores."""
        first = self._flow.index_next
        self._flow.batches(runs)
        entries = self._flow.entries(runs)
        submit = CommitSubmit(1, self._epoch, first, entries, self._committed, HASH_NONE)
        effects = meter.step(self.role, [TICK, Received(self._leader, submit)])
        effects = meter.step(self.role, [TICK, Stored(last_token(effects))])
        assert [type(effect) for effect in effects] == [Send]

    def finish(self, meter: Meter, runs: int) -> None:
        """The sequencer commits."""
        first = self._committed + 1
        self._committed += runs
        entries = tuple(self.role.log.slice(first, runs))
        commit = committed(entries, first, self._epoch)
        meter.step(self.role, [TICK, Received(self._leader, commit)])
        assert self.role.core.index == self._committed


class MemberLoad:
    """Payloads and commits meet, and are delivered in order."""

    def __init__(self, flow: Flow, is_payload_late: bool = False) -> None:
        self.role = Member(CLIENT, CONFIGURATION, ROOMY, GROUP)
        self.role.step([TICK, Received(1, Head(GROUP, 0))])
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
        settings = GroupSettings(member_runs_max=runs_max, entries_per_message_max=10**5)
        self.role = Member(CLIENT, CONFIGURATION, settings, GROUP)
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


# Electing a sequencer.


def elect() -> tuple[CommitServer, CommitServer]:
    """A leader with a group, and a follower, out of three commit servers that talk to each other."""
    servers = [
        CommitServer(s.node, CONFIGURATION, ROOMY, OrderRecovery(s.uuid), SeededChance(s.node))
        for s in SERVERS
    ]
    inboxes: list[list[Event]] = [[] for _ in servers]
    request = GroupRequest("measured", LIFETIME, SENDERS_MAX)
    for now_ms in range(0, NOW_MS + 1, 10):
        for server, inbox in zip(servers, inboxes, strict=True):
            if server.sequencer is not None and not server.core.group_ids:
                inbox.append(Received(CLIENT, Propose(1, request)))
            events = inbox.copy()
            inbox.clear()
            deliver(server, server.step([Ticked(now_ms), *events]), inboxes)
    (leader,) = [server for server in servers if server.sequencer is not None]
    follower = servers[leader.node % len(servers)]
    assert follower.core.group_ids
    return leader, follower


def deliver(server: CommitServer, effects: list[Effect], inboxes: list[list[Event]]) -> None:
    """Without loss, in order, with a disk that is done at once."""
    for effect in effects:
        if isinstance(effect, Store):
            inboxes[server.node - 1].append(Stored(effect.token))
        elif type(effect) is Multicast:
            for inbox in inboxes:
                inbox.append(Received(server.node, effect.message))
        elif type(effect) is Send and effect.to <= len(inboxes):
            inboxes[effect.to - 1].append(Received(server.node, effect.message))


def multicasts(effects: list[Effect]) -> list[object]:
    """What a step says to all."""
    return [effect.message for effect in effects if type(effect) is Multicast]
