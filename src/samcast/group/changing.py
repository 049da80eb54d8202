"""Changing who serves, while everything runs: learners, copies, then the stop-sign (GRP-23; SAFETY
2.11).

A change that is asked for waits until those who come hold nearly the whole log, and until what
those who go hold has its copies elsewhere. Then the stop-sign is ordered, and nothing behind it in
this configuration. It commits when `k_commit` of the old configuration *and* `k_commit` of the new
one hold it: so no election of the new one can miss what the old one has decided. Whoever leads next
and finds a stop-sign at the end of its log only finishes that.

Nothing here is durable: whoever wants a change repeats it, to whoever leads.
"""

from typing import TYPE_CHECKING

from msgspec import structs

from samcast.errors import ConfigError
from samcast.group.admitting import Admitting
from samcast.group.progress import Progress
from samcast.group.settings import GroupSettings
from samcast.machine.change import check_change, needs_copies, staying_keepers
from samcast.machine.ports import Effect, Introduce, NodeId
from samcast.machine.quorum import kth_largest, lists, servers_with
from samcast.wire.change import ChangeRequest, Join
from samcast.wire.order import ROLE_CHECKPOINT, ROLE_COMMIT, ConfigEntry, Configuration, Server

if TYPE_CHECKING:
    from samcast.group.sequencer import Sequencer


class Changing:
    """At most one change at a time, in one epoch."""

    def __init__(self, sequencer: "Sequencer", settings: GroupSettings) -> None:
        self._sequencer = sequencer
        self._suspect_ms = suspect_ms = settings.suspect_ms
        self._patience_ms = 4 * suspect_ms
        self._wanted: ChangeRequest | None = None
        self._since_ms = 0
        self._until_ms = 0  # unless it is repeated, it is forgotten then
        self._drained = 0  # held by enough, when that last grew
        self._drain_until_ms = 0
        self._drain_end_ms = 0
        self._drain_from_ms = 0
        self.admitting = Admitting(
            sequencer, settings.rejoin_silence_ms, 2 * settings.heartbeat_interval_ms
        )
        self.is_draining = False  # nothing is numbered until all of it has its copies
        self.waits_for = ""  # for people
        self.stop_at = 0  # the stop-sign's index
        self.learners: dict[NodeId, None] = {}
        tail = sequencer.tail
        if tail.configuration.number > sequencer.configuration.number:
            self.stop_at = sequencer.log.length
            self._meet(tail.configuration)

    def _meet(self, target: Configuration) -> None:
        """Have the commit servers that come get our log, too."""
        sequencer = self._sequencer
        for server in servers_with(target, ROLE_COMMIT):
            if server.node not in sequencer.progress:
                sequencer.progress[server.node] = learner = Progress(
                    server.uuid, sequencer.now_ms, sequencer.retry_ms
                )
                learner.base = sequencer.log.base
                self.learners[server.node] = None

    def _forget(self) -> None:
        for node in self.learners:
            del self._sequencer.progress[node]
        self.learners.clear()
        self._wanted = None
        self.is_draining = False

    # what is wanted

    def on_request(self, request: ChangeRequest) -> None:
        """An administrator wants this configuration; the first one is heard to its end."""
        if self._wanted is not None and self._wanted != request:
            return
        try:
            check_change(self._sequencer.configuration, request)
        except ConfigError:
            return
        self._until_ms = self._sequencer.now_ms + self._patience_ms
        if self._wanted is None and not self.stop_at:
            self._wanted = request
            self._since_ms = self._sequencer.now_ms
            self._meet(request.configuration)

    def on_join(self, join: Join, out: list[Effect]) -> None:
        """A server has come back with a new disk: list that in the place of the old one, if that
        is gone. So is what was on it, and there is nothing to wait for."""
        now = self._sequencer.configuration
        if join.configuration != now.number or not self.admitting.may_join(join, out):
            return
        if not self._sequencer.may_order:
            return
        servers = tuple(
            Server(s.node, join.uuid, s.roles) if s.node == join.node else s for s in now.servers
        )
        target = structs.replace(now, number=now.number + 1, servers=servers)
        self._forget()
        self._order(ChangeRequest(target))

    # going on with it

    def on_drained(self) -> None:
        """End of a turn: is it time?"""
        wanted, sequencer = self._wanted, self._sequencer
        if wanted is None or self.stop_at:  # What is ordered must be finished, whoever asks for it.
            return
        if sequencer.now_ms >= self._until_ms:
            self._forget()
            return
        if not sequencer.is_certain or self._is_answering(wanted) or not self._are_near(wanted):
            self.is_draining = False
        elif self._has_copies(wanted):
            self._order(wanted)

    def _is_answering(self, wanted: ChangeRequest) -> bool:
        """The disk whose place a person gives to another still serves: then it is a mistake, or
        that node has to be stopped first."""
        for server in wanted.configuration.servers:
            listed = self.admitting.listed(server.node)
            if listed is None or listed.uuid == server.uuid:
                continue
            if self.admitting.silent_ms(listed.uuid) < self._patience_ms:
                self.waits_for = f"server {server.node} to stop: its disk {listed.uuid} answers"
                return True
        return False

    def _are_near(self, wanted: ChangeRequest) -> bool:
        """Those who come, and enough of all who will count, hold all but a little of our log."""
        sequencer, target = self._sequencer, wanted.configuration
        near = 0
        for server in servers_with(target, ROLE_COMMIT):
            progress = sequencer.progress[server.node]
            lacks = sequencer.log.length - progress.acked
            is_near = progress.is_started and lacks <= sequencer.few and self._is_heard(progress)
            near += is_near
            if not is_near and server.node in self.learners:
                held = progress.acked or progress.received
                self.waits_for = (
                    f"server {server.node}: it has {held} of {sequencer.log.length} entries"
                )
                return False
        if near < target.k_commit:
            self.waits_for = f"commit servers: {near} of {target.k_commit} are there"
        return near >= target.k_commit

    def _is_heard(self, progress: Progress) -> bool:
        return progress.heard_ms >= self._sequencer.now_ms - self._patience_ms

    def _has_copies(self, wanted: ChangeRequest) -> bool:
        """All that is numbered is on enough of the disks that stay; for its last part, which is
        always on its way, numbering waits, but not for long."""
        sequencer, target = self._sequencer, wanted.configuration
        now = sequencer.configuration
        if wanted.is_lost:
            return True
        if not self._has_states(target):
            return False
        if not needs_copies(now, target):
            return True
        # What a server said before we began may be true of a disk that it had; and one that has
        # said nothing for long is not worth waiting for.
        recent_ms = max(self._patience_ms, 2 * sequencer.report_ms)
        since = max(self._since_ms, sequencer.now_ms - recent_ms)
        applied = [sequencer.applied_by(s.node, since) for s in staying_keepers(now, target)]
        held = kth_largest(applied, target.k_data)
        if sequencer.now_ms < self._drain_from_ms:
            return False
        self.waits_for = (
            f"copies: all up to entry {held} of {sequencer.log.length} is on {target.k_data} data"
            " servers that stay"
        )
        if not held or held < sequencer.log.length - 4 * sequencer.few:
            self.is_draining = False
            return False
        self._drain(held)
        return held >= sequencer.log.length

    def _drain(self, held: int) -> None:
        """Have numbering wait while copies are made; if one who must hold them stands still,
        senders wait for it no longer than for a sequencer that has died."""
        now_ms = self._sequencer.now_ms
        if not self.is_draining:
            self.is_draining = True
            self._drain_end_ms = now_ms + self._patience_ms
            self._drained = -1
        if held > self._drained:
            self._drained = held
            self._drain_until_ms = min(now_ms + self._suspect_ms, self._drain_end_ms)
        elif now_ms >= self._drain_until_ms:
            self.is_draining = False
            self._drain_from_ms = now_ms + self._patience_ms

    def _has_states(self, target: Configuration) -> bool:
        """The newest advertised state of each group is on enough of the checkpoint servers that
        stay: the messages behind it may be gone."""
        sequencer = self._sequencer
        before = servers_with(sequencer.configuration, ROLE_CHECKPOINT)
        listed = [s for s in before if lists(target, s.node, s.uuid, ROLE_CHECKPOINT)]
        if len(listed) == len(before):
            return True
        wanted = max(1, min(target.k_checkpoint, len(listed)))
        for group, retained in sequencer.tail.retained.items():
            if not retained.checkpoints:
                continue
            newest = retained.checkpoints[-1].number
            held = [sequencer.retention.newest_of(s.node, group) for s in listed]
            if sum(number >= newest for number in held) < wanted:
                self.waits_for = f"copies: checkpoint {newest} of group {group} on {wanted} servers"
                return False
        return True

    def _order(self, change: ChangeRequest) -> None:
        sequencer = self._sequencer
        self.is_draining = False
        sequencer.append(ConfigEntry(change.configuration, change.places))
        self.stop_at = sequencer.log.length

    # deciding

    def decided(self, index: int) -> int:
        """How far a quorum of the old configuration may decide: not behind the stop-sign, and that
        itself only when a quorum of the new one holds it."""
        stop = self.stop_at
        if not stop or index < stop:
            return index
        return stop if self.is_held_by_next(stop) else stop - 1

    def is_held_by_next(self, stop: int) -> bool:
        """Whether elections of the next configuration must meet somebody who has the stop-sign."""
        target = self._sequencer.tail.configuration
        held = []
        for server in servers_with(target, ROLE_COMMIT):
            progress = self._sequencer.progress.get(server.node)
            if progress is not None and progress.uuid == server.uuid:
                held.append(progress.acked)
        return kth_largest(held, target.k_commit) >= stop

    # now and then

    def on_tick(self, out: list[Effect]) -> None:
        """Make sure that those who come can be reached, and hear from us again if they have begun
        another life."""
        self.admitting.on_tick()
        if not self.learners and self._wanted is None:
            return
        sequencer = self._sequencer
        wanted = self._wanted
        places = wanted.places if wanted is not None else tuple(sequencer.tail.places.values())
        if places:
            out.append(Introduce(places))
        for node in self.learners:
            progress = sequencer.progress[node]
            if progress.is_started and not self._is_heard(progress):
                progress.is_started = False
                progress.heard_ms = sequencer.now_ms
