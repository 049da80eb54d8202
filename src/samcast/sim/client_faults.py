"""Faults of clients: crashes, crowds, zombies, stolen ids, aborts, names that are given up."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from samcast.group.asking import Proposer
from samcast.group.owner import State
from samcast.sim.clients import MemberApp, OwnerApp, SenderApp
from samcast.wire.group import AbortRequest, SenderRemovalRequest
from samcast.wire.order import CELL

if TYPE_CHECKING:
    from samcast.sim.faults import Faults

ABORT_TRIES = 600
OPEN_TRIES = 300


class ClientFaults:
    """What can go wrong with those who use the cluster."""

    def __init__(self, faults: "Faults") -> None:
        self._faults = faults
        self._chance = faults.chance
        self._cluster = faults.cluster

    def menu(self) -> list[Callable[[], None]]:
        """One of these at a time."""
        return [
            self.crash_client, self.crash_sender, self.crash_sender, self.crowd, self.crowd,
            self.abort, self.abort, self.remove_name, self.takeover, self.takeover, self.twin,
        ]  # fmt: skip

    def crash_client(self) -> None:
        """A member, an entry or an owner dies and starts again."""
        cluster = self._cluster
        apps: list[MemberApp | OwnerApp] = [*cluster.members, *cluster.owners]
        app = self._chance.pick(apps)
        if app.process.is_up:
            self._faults.note("crash_client", app.process)
            app.process.stop()
            self._faults.later(1, 200, app.start)
        if cluster.entries and self._chance.happens(0.5):
            entry = self._chance.pick(cluster.entries)
            entry.stop()
            self._faults.later(1, 100, cluster.start_entry, entry)

    def crash_sender(self) -> None:
        """A sender dies; a named one goes on later, another one is somebody else then."""
        apps = [a for a in self._cluster.senders if a.process.is_up and not a.is_over]
        if apps:
            app = self._chance.pick([a for a in apps if a.is_named] or apps)
            self._faults.note("crash_sender", app.process)
            app.process.stop()
            self._faults.later(1, 300, app.start)

    def crowd(self) -> None:
        """Short-lived senders that push others' rows out."""
        self._faults.note("crowd")
        for _ in range(self._chance.between(2, 6)):
            app = self._cluster.add_sender(is_named=False)
            app.want(1)

    def abort(self) -> None:
        """Somebody gives up a transaction, mostly one that is just under way."""
        if self._cluster.owners:
            app = self._chance.pick(self._cluster.owners)
            self._await_deciding(app, 0 if self._chance.happens(0.2) else ABORT_TRIES)

    def _await_deciding(self, app: OwnerApp, tries: int) -> None:
        owner = app.owner
        if owner is None or not self._faults.is_on:
            return
        if tries and owner.state is not State.DECIDING:
            wait = self._chance.between(200, 2000)
            self._faults.world.at(wait, self._await_deciding, app, tries - 1)
            return
        self._faults.note("abort")
        tx = owner.tx_next + self._chance.pick((0, 0, 0, 1))
        self._cluster.propose(AbortRequest(owner.id, owner.incarnation, tx))
        if self._chance.happens(0.5):  # Stages may outlive the sequencer that was to decide.
            self._faults.servers.crash_sequencer()

    def takeover(self) -> None:
        """A second process opens a name while the first, perhaps paused, still lives."""
        named = [a for a in self._cluster.senders if a.is_named and not a.is_removed]
        both: list[SenderApp | OwnerApp] = [*named, *self._cluster.owners]
        apps = [a for a in both if a.process.is_up and not a.is_over]
        if apps:
            app = self._chance.pick(apps)
            self._faults.note("takeover", app.process)
            if self._chance.happens(0.5):
                now = self._faults.world.now_us
                app.process.paused_until = now + self._chance.below(500_000)
            former = app.owner if isinstance(app, OwnerApp) else app.sender
            heir = self._cluster.take_over(app)
            if former is not None and former.opened:
                scope = CELL if isinstance(app, OwnerApp) else app.group
                removal = SenderRemovalRequest(scope, former.id, former.opened)
                self._await_heir(heir, removal, OPEN_TRIES)

    def _await_heir(
        self, heir: SenderApp | OwnerApp, removal: SenderRemovalRequest, tries: int
    ) -> None:
        """A copy of a removal of the name comes when another process has it."""
        if heir.is_over or not self._faults.is_on or not tries:
            return
        if not heir.is_open:
            self._faults.world.at(1000, self._await_heir, heir, removal, tries - 1)
            return
        self._faults.note("late_removal")
        self._cluster.propose(removal)
        heir.want(1)

    def twin(self) -> None:
        """An unnamed sender restarts with its old id and a counter from 1: two contents, one id."""
        apps = [a for a in self._cluster.senders if a.sender is not None and not a.is_named]
        if apps:
            app = self._chance.pick(apps)
            sender = app.sender
            assert sender is not None
            self._faults.note("twin", app.process)
            app.process.stop()
            app.start(twin_of=sender.id)

    def remove_name(self) -> None:
        """A name is given up while its runs and its OPEN may still be on their way."""
        named = [a for a in self._cluster.senders if a.is_named and not a.is_over]
        if named:
            self.give_up_name(self._chance.pick(named))

    def give_up_name(self, app: SenderApp) -> Proposer | None:
        """Have a name removed, whoever may still use it."""
        sender = app.sender
        if sender is None:
            return None
        self._faults.note("remove_name")
        for other in self._cluster.senders:
            if other.key == app.key:
                other.is_removed = True
        return self._cluster.propose(SenderRemovalRequest(app.group, sender.id, sender.opened))
