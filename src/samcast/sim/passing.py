"""Clients that pass by: each runs transactions under no name of its own, and most vanish without a
word. Limits are tiny here, so what leaks by use shows within seconds.

Checked beside the promises on messages: whoever is still there can always go on, and is never told
that its name was taken or that there are too many.
"""

from samcast.group.owner import Decided, Forgotten, Owner, OwnerStopped, State
from samcast.machine.ports import Channel, Effect, Role
from samcast.sim.checkers import Violation
from samcast.sim.clients import OwnerApp
from samcast.sim.cluster import Cluster
from samcast.sim.faults import Faults
from samcast.sim.world import Process
from samcast.wire.group import AbortRequest, SenderRemovalRequest
from samcast.wire.order import CELL

TRIES = 200


class PassingApp(OwnerApp):
    """Transactions without a name; another life is somebody else."""

    def start(self) -> None:
        """Begin a life."""
        cluster = self._cluster
        self.attempt = cluster.next_attempt()
        self.key = f"{self._name}.{self.attempt}".encode()
        self.is_open = self._busy = False
        self.tx = self.goal = 0
        channel = Channel.PAYLOAD if cluster.shape.has_multicast else Channel.DATA
        chance, settings = cluster.world.chance, cluster.settings
        node, servers = self.process.node, cluster.configuration
        self.process.start([Owner(node, servers, settings, chance, "", channel)])

    def vanish(self) -> None:
        """Nobody hears of it again."""
        self.is_over = True
        if self.process.is_up:
            self.process.stop()

    def _on_effect(self, process: Process, role: Role, effect: Effect) -> None:
        if type(effect) is OwnerStopped:
            raise Violation("L", f"{process.name}, who has no name, heard {effect.kind.name}")
        if type(effect) is Forgotten:
            facts = self._cluster.judge.facts
            parts = facts.transactions[(self.key, self.tx)]
            for part in range(1, parts + 1):
                facts.given_up[(b"%s/%d" % (self.key, part), self.tx)] = None
            self._busy = False
        if type(effect) is Decided:  # Its own counter began anew with each name that it had.
            effect = Decided(effect.token, effect.token, effect.spans)
        super()._on_effect(process, role, effect)


class Passing:
    """Those of one seed."""

    def __init__(self, cluster: Cluster, faults: Faults) -> None:
        self._cluster = cluster
        self._faults = faults
        self._world = cluster.world
        self._chance = cluster.world.chance
        self.staying: list[PassingApp] = []
        self._others: list[PassingApp] = []

    def plan(self, from_us: int, until_us: int) -> None:
        """In some seeds: one or two that stay, and many that don't."""
        chance = self._chance
        if not chance.happens(0.5):
            return
        for _ in range(chance.between(1, 2)):
            app = self._begin()
            self.staying.append(app)
            for _ in range(chance.between(3, 8)):
                self._world.at(chance.between(from_us, until_us), app.want, 1)
            for _ in range(chance.between(0, 2)):
                self._world.at(chance.between(from_us, until_us), self._trouble, app)
            self._world.at(chance.between(from_us, until_us), self._overtake, app, TRIES)
        for _ in range(chance.between(6, 16)):
            self._world.at(chance.between(from_us, until_us), self._pass)

    def _begin(self) -> PassingApp:
        process = self._cluster.add_client("tx-passing")
        app = PassingApp(self._cluster, process, tuple(self._cluster.groups))
        app.start()
        return app

    def _pass(self) -> None:
        if self._faults.is_on:
            app = self._come()
            app.want(self._chance.between(0, 2))
            self._faults.later(1, 400, self._leave, app)

    def _leave(self, app: PassingApp) -> None:
        """With a word or without; what is under way may be ordered or not."""
        if self._chance.happens(0.3):
            self._give_up(app)
        if self._chance.happens(0.8):
            app.vanish()

    def _give_up(self, app: PassingApp) -> None:
        if app.owner is not None:
            self._cluster.propose(SenderRemovalRequest(CELL, app.owner.id, app.owner.opened))

    def _trouble(self, app: PassingApp) -> None:
        """Somebody takes its name, or its transaction, from one that goes on."""
        owner = app.owner
        if owner is None or not self._faults.is_on:
            return
        if self._chance.happens(0.5):
            self._give_up(app)
        else:
            self._cluster.propose(AbortRequest(owner.id, owner.incarnation, owner.tx_next))

    def _overtake(self, app: PassingApp, tries: int) -> None:
        """Others push its row out, or its tombstone, while it waits for word of a decision that may
        have been made."""
        owner, chance = app.owner, self._chance
        if owner is None or not self._faults.is_on or not tries:
            return
        if owner.state is not State.DECIDING:
            app.want(int(owner.state is State.READY and app.is_idle))
            self._world.at(chance.between(500, 4000), self._overtake, app, tries - 1)
            return
        self._faults.note("overtake")
        network = self._world.network
        servers = [server.node for server in self._cluster.servers]
        links = network.cut(servers, [app.process.node])
        self._faults.later(300, 600, network.mend, links)
        if chance.happens(0.5):
            for _ in range(chance.between(1, 5)):
                self._faults.later(20, 100, self._come_to_stay)
            return
        self._faults.later(20, 40, self._give_up, app)
        for at in (40, 100, 160):  # one after the other, so that none of them is pushed out
            self._faults.later(at, at + 10, self._come_and_go)

    def _come(self) -> PassingApp:
        app = self._begin()
        self._others.append(app)
        return app

    def _come_to_stay(self) -> None:
        self._come()

    def _come_and_go(self) -> None:
        self._go_when_open(self._come(), TRIES)

    def _go_when_open(self, app: PassingApp, tries: int) -> None:
        if app.is_open or not tries:
            self._give_up(app)
            return
        self._world.at(1000, self._go_when_open, app, tries - 1)

    def finish(self) -> None:
        """Who only came by is gone; the others, and one that is new, have work to do."""
        for app in self._others:
            app.vanish()
        if self.staying:
            self.staying.append(self._begin())
        for app in self.staying:
            app.want(1)

    @property
    def stuck(self) -> list[str]:
        """Who still waits."""
        return [app.process.name for app in self.staying if not app.is_idle]
