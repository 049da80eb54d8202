"""Loads of commit servers: one that leads and one that follows, out of an election of their own."""

from collections import deque

from samcast.group.commit_server import CommitServer
from samcast.group.storage import OrderRecovery
from samcast.machine.ports import Effect, Event, Multicast, Received, Send, Store, Stored, Ticked
from samcast.sim.chance import SeededChance
from samcast.sim.loads import (
    CLIENT,
    CONFIGURATION,
    LIFETIME,
    NOW_MS,
    ROOMY,
    SENDERS_MAX,
    SERVERS,
    TICK,
    Flow,
    Meter,
    committed,
    last_token,
)
from samcast.wire.batch import Batch
from samcast.wire.group import (
    Commit,
    CommitAck,
    CommitSubmit,
    DataReport,
    GroupRequest,
    Propose,
    Reported,
)
from samcast.wire.order import HASH_NONE


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


def elect() -> tuple[CommitServer, CommitServer]:
    """A leader with a group, and a follower, out of three commit servers that hear each other."""
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
