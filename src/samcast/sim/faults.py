"""Faults: what goes wrong, when, and how often in which state of the roles.

Damage to disks is kept within the budget that the configuration promises to survive: at most
min(k_commit, k_data) - 1 servers are without their whole disk at a time, counted until they are whole
again. Everything else may happen at any time and together.
"""

from collections.abc import Callable

from samcast.group.storage import Filled, Freed
from samcast.group.election import State
from samcast.sim.cluster import Cluster
from samcast.sim.world import Process
from samcast.wire.group import AbortRequest, SenderRemovalRequest
from samcast.wire.order import ROLE_DATA

NETWORK_STATES = ("leading", "electing", "leaderless")


class Damage:
    """One server without its whole disk."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.listed_at = -1  # committed index when its disk was first seen listed and voting


class Faults:
    """Injects the faults of one seed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._chance = cluster.world.chance
        self.is_on = True
        self.counts: dict[str, int] = {}
        self.states: dict[str, dict[str, int]] = {}
        self._down: dict[int, None] = {}
        self.damaged: dict[int, Damage] = {}
        shape = cluster.shape
        # Of rot a server recovers under its old uuid; a new uuid takes a commit without it.
        self.budget_rot = min(shape.k - 1, shape.k_data - 1, shape.servers - shape.e)
        self.budget = min(self.budget_rot, shape.servers - shape.k)
        network: list[Callable[[], None]] = [
            self.loss, self.burst, self.duplicate, self.reorder, self.hold_old, self.cut_whole,
            self.cut_one_way, self.cut_pair, self.swizzle, self.flip,
        ]  # fmt: skip
        process: list[Callable[[], None]] = [
            self.crash, self.crash, self.crash_sequencer, self.crash_sequencer, self.crash_unacked,
            self.crash_unacked, self.crash_unacked, self.pause, self.pause_sequencer, self.rolling,
            self.power_cut, self.clock_rate, self.clock_jump, self.crash_client,
        ]  # fmt: skip
        disk: list[Callable[[], None]] = [
            self.sync_error, self.disk_full, self.disk_slow, self.rot_head, self.rot_middle,
            self.rot_tail, self.rot_vote, self.rot_data, self.wipe, self.restore_old,
        ]  # fmt: skip
        sender: list[Callable[[], None]] = [
            self.crash_named, self.crowd, self.abort, self.remove_name,
        ]  # fmt: skip
        # Each seed has its own taste, so that combinations that drown each other occur alone, too.
        every = [network, process, disk, sender]
        self._menu = [fault for kind in every for fault in kind]
        if self._chance.happens(0.7):
            kinds = self._chance.some(every, self._chance.between(1, 3))
            self._menu = [fault for kind in kinds for fault in kind]
            self._menu += [self.crash_unacked, self.crash_unacked, self.crash_sequencer]

    # when

    def plan(self, count: int, from_us: int, until_us: int) -> None:
        """Spread so many faults over a stretch of time."""
        for _ in range(count):
            delay = self._chance.between(from_us, until_us)
            self._world.at(delay, self._strike)

    def plan_elections(self, count: int, from_us: int, until_us: int) -> None:
        """Have the sequencer die this often at its worst moment, whatever else happens."""
        for at in range(count):
            third = (until_us - from_us) // count
            start = from_us + third * at
            self._world.at(self._chance.between(start, start + third // 2), self.crash_unacked)

    def keep_down(self, process: Process) -> None:
        """This server doesn't come back."""
        self._down[process.node] = None

    def free(self, process: Process) -> None:
        """Disks have room again."""
        if self._cluster.data_server(process) is not None:
            process.post(len(process.roles) - 1, Freed())

    def _strike(self) -> None:
        if self.is_on:
            self._chance.pick(self._menu)()

    def _note(self, kind: str, process: Process | None = None) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        state = self._state_of(process) if process is not None else self._cluster_state()
        states = self.states.setdefault(kind, {})
        states[state] = states.get(state, 0) + 1
        name = process.name if process is not None else "network"
        self._cluster.judge.trace.add(self._world.now_us, name, "fault", kind=kind, state=state)

    def _state_of(self, process: Process) -> str:
        role = self._cluster.commit_server(process)
        if not process.is_up:
            return "down"
        if role is None:
            return "data" if self._cluster.data_server(process) is not None else "client"
        if role.is_learner:
            return "learner"
        if role.unknown_from:
            return "unknown"
        if role.sequencer is not None:
            is_new = role.sequencer.committed < role.sequencer.epoch_index
            return "recovering" if is_new else "leading"
        if role.installing.is_writing:
            return "installing"
        return "following" if role.election.state is State.FOLLOWING else "electing"

    def _cluster_state(self) -> str:
        leading = self._cluster.sequencers()
        if any(self._state_of(p) == "leading" for p in leading):
            return "leading"
        return "electing" if leading else "leaderless"

    def _up(self) -> list[Process]:
        return [p for p in self._cluster.servers if p.is_up]

    def _one(self) -> Process | None:
        up = self._up()
        return self._chance.pick(up) if up else None

    def _later(self, low_ms: int, high_ms: int, call: Callable[..., None], *args: object) -> None:
        self._world.at(1000 * self._chance.between(low_ms, high_ms), call, *args)

    # the network

    def _for_a_while(self, kind: str, field: str, value: float) -> None:
        network = self._world.network
        self._note(kind)
        setattr(network, field, value)

        def end() -> None:
            if self.is_on:
                setattr(network, field, 0.0)

        self._later(50, 800, end)

    def loss(self) -> None:
        self._for_a_while("loss", "loss", self._chance.pick((0.01, 0.05, 0.2, 0.3)))

    def burst(self) -> None:
        self._note("burst")
        self._world.network.loss = 1.0

        def end() -> None:
            if self.is_on:
                self._world.network.loss = 0.0

        self._later(20, 250, end)

    def duplicate(self) -> None:
        self._for_a_while("duplicate", "duplication", self._chance.pick((0.1, 0.5)))

    def reorder(self) -> None:
        self._world.network.late_us = self._chance.pick((5_000, 50_000, 400_000))
        self._for_a_while("reorder", "late", self._chance.pick((0.1, 0.4)))

    def flip(self) -> None:
        self._for_a_while("flip", "flips", self._chance.pick((0.02, 0.1)))

    def hold_old(self) -> None:
        """Keep some packets, and let them arrive in a much later epoch."""
        self._note("hold_old")
        network = self._world.network
        network.hold = 0.1

        def stop() -> None:
            network.hold = 0.0

        def release() -> None:
            if self.is_on:
                network.release_held()

        self._later(50, 200, stop)
        self._later(400, 1500, release)

    def _all(self) -> list[int]:
        return list(self._world.processes)

    def cut_whole(self) -> None:
        """Two sides that don't hear each other."""
        nodes = [p.node for p in self._cluster.servers]
        side = self._chance.some(nodes, self._chance.between(1, max(1, len(nodes) // 2)))
        other = [n for n in self._all() if n not in side]
        self._note("cut_whole")
        links = self._world.network.cut(side, other) + self._world.network.cut(other, side)
        self._later(100, 900, self._mend, links)

    def cut_one_way(self) -> None:
        """A server that hears but isn't heard, or the reverse; often the sequencer."""
        leading = self._cluster.sequencers()
        victim = self._chance.pick(leading) if leading else self._one()
        if victim is None:
            return
        self._note("cut_one_way", victim)
        others = [n for n in self._all() if n != victim.node]
        if self._chance.happens(0.5):
            links = self._world.network.cut([victim.node], others)
        else:
            links = self._world.network.cut(others, [victim.node])
        self._later(100, 1200, self._mend, links)

    def cut_pair(self) -> None:
        """Two servers that don't hear each other while both hear the rest."""
        one, other = self._chance.some([p.node for p in self._cluster.servers], 2)
        self._note("cut_pair")
        links = self._world.network.cut([one], [other]) + self._world.network.cut([other], [one])
        self._later(100, 1500, self._mend, links)

    def _mend(self, links: list[tuple[int, int]]) -> None:
        self._world.network.mend(links)

    def swizzle(self) -> None:
        """Clog some nodes one by one, unclog them in another order."""
        self._note("swizzle")
        nodes = [p.node for p in self._cluster.servers]
        nodes = self._chance.some(nodes, self._chance.between(1, len(nodes)))
        for at, node in enumerate(nodes):
            self._world.at(20_000 * at, self._clog, node)
        for node in nodes:
            self._later(20 * len(nodes), 600, self._world.network.unclog, node)

    def _clog(self, node: int) -> None:
        if self.is_on:
            self._world.network.clog(node)

    # processes

    def stop(self, process: Process, kind: str) -> None:
        """A process dies; it comes back some time later."""
        self._note(kind, process)
        if process.stop():
            self._note("torn", process)
        self._cluster.judge.trace.add(self._world.now_us, process.name, "crash")
        self._later(1, self._chance.pick((5, 60, 600)), self.restart, process)

    def restart(self, process: Process) -> None:
        """A server begins another life."""
        if process.is_up or process.node in self._down:
            return
        is_new = self._cluster.start_server(process)
        role = self._cluster.commit_server(process)
        if is_new or (role is not None and role.unknown_from):
            self.damaged.setdefault(process.node, Damage(process))
        self._cluster.judge.trace.add(self._world.now_us, process.name, "restart")

    def crash(self) -> None:
        victim = self._one()
        if victim is not None:
            self.stop(victim, "crash")

    def crash_sequencer(self) -> None:
        leading = [p for p in self._cluster.sequencers() if p.is_up]
        if leading:
            self.stop(self._chance.pick(leading), "crash_sequencer")

    def crash_unacked(self) -> None:
        """The sequencer dies as soon as it has submitted what isn't committed."""
        self._await_unacked(4000)

    def _await_unacked(self, tries: int) -> None:
        if not self.is_on or not tries:
            return
        for process in self._cluster.sequencers():
            role = self._cluster.commit_server(process)
            if role is None or role.sequencer is None:
                continue
            sequencer = role.sequencer
            held = [
                p
                for p in self._up()
                if (other := self._cluster.commit_server(p)) is not None
                and other.log_epoch == sequencer.epoch
                and other.log.length > sequencer.committed
            ]
            if sequencer.committed >= sequencer.epoch_index and held:
                if self._chance.happens(0.3):
                    self.stop(process, "crash_unacked")
                    return
        self._world.at(self._chance.between(20, 400), self._await_unacked, tries - 1)

    def pause(self) -> None:
        victim = self._one()
        if victim is not None:
            self._pause(victim, "pause")

    def pause_sequencer(self) -> None:
        leading = [p for p in self._cluster.sequencers() if p.is_up]
        if leading:
            self._pause(self._chance.pick(leading), "pause_sequencer")

    def _pause(self, victim: Process, kind: str) -> None:
        self._note(kind, victim)
        victim.paused_until = self._world.now_us + 1000 * self._chance.between(50, 900)

    def rolling(self) -> None:
        """Every server is restarted, one after the other."""
        self._note("rolling")
        for at, process in enumerate(self._cluster.servers):
            self._world.at(150_000 * at + 1, self._roll, process)

    def _roll(self, process: Process) -> None:
        if self.is_on and process.is_up:
            process.stop()
            self._cluster.judge.trace.add(self._world.now_us, process.name, "crash")
            self._later(5, 40, self.restart, process)

    def power_cut(self) -> None:
        """All servers die at once, with whatever was on its way to their disks."""
        self._note("power_cut")
        torn = 0
        for process in self._up():
            torn += process.stop()
            self._later(20, 200, self.restart, process)
        if torn > 1:
            self._note("torn_everywhere")

    def clock_rate(self) -> None:
        victim = self._one()
        if victim is not None:
            self._note("clock_rate", victim)
            now = victim.now_ms()
            victim.clock_rate = self._chance.pick((0.8, 0.9, 1.1, 1.25))
            victim.clock_offset_ms += now - victim.now_ms()

    def clock_jump(self) -> None:
        victim = self._one()
        if victim is not None:
            self._note("clock_jump", victim)
            victim.clock_offset_ms += self._chance.pick((50, 500, 5000))

    def crash_client(self) -> None:
        """A member, an entry or an owner dies and starts again."""
        cluster = self._cluster
        apps = [*cluster.members, *cluster.owners]
        app = self._chance.pick(apps)
        if app.process.is_up:
            self._note("crash_client", app.process)
            app.process.stop()
            self._later(1, 200, app.start)
        if cluster.entries and self._chance.happens(0.5):
            entry = self._chance.pick(cluster.entries)
            entry.stop()
            self._later(1, 100, cluster.start_entry, entry)

    # disks

    def sync_error(self) -> None:
        victim = self._one()
        if victim is not None and victim.disk is not None:
            self._note("sync_error", victim)
            victim.disk.is_failing = True

    def on_disk_failed(self, process: Process) -> None:
        """A failed sync stops the node; it starts again from what is really on the disk."""
        process.stop()
        self._cluster.judge.trace.add(self._world.now_us, process.name, "crash")
        self._later(10, 100, self.restart, process)

    def disk_full(self) -> None:
        victims = [p for p in self._up() if self._cluster.roles_of(p.node) & ROLE_DATA]
        if victims:
            victim = self._chance.pick(victims)
            self._note("disk_full", victim)
            at = len(victim.roles) - 1
            victim.post(at, Filled())
            self._later(50, 600, self._free, victim, victim.life)

    def _free(self, victim: Process, life: int) -> None:
        if victim.life == life:
            victim.post(len(victim.roles) - 1, Freed())

    def disk_slow(self) -> None:
        victim = self._one()
        if victim is not None and victim.disk is not None:
            self._note("disk_slow", victim)
            disk = victim.disk
            disk.slow = self._chance.pick((10, 100, 400))
            self._later(100, 800, self._speed_up, victim)

    def _speed_up(self, victim: Process) -> None:
        assert victim.disk is not None
        victim.disk.slow = 1

    def _may_damage(self, budget: int) -> Process | None:
        """A server whose disk may be hurt without going beyond the budget."""
        self.settle_damage()
        whole = [p for p in self._up() if p.node not in self.damaged]
        return self._chance.pick(whole) if whole and len(self.damaged) < budget else None

    def settle_damage(self) -> None:
        """Forget damage that is repaired: listed, voting, and holding all that was committed."""
        cluster = self._cluster
        facts = cluster.judge.facts
        for node, damage in list(self.damaged.items()):
            process = damage.process
            disk = process.disk
            listed = disk is not None and any(
                s.node == node and s.uuid == disk.uuid for s in facts.configuration.servers
            )
            commit, data = cluster.commit_server(process), cluster.data_server(process)
            if not process.is_up or not listed:
                damage.listed_at = -1
                continue
            if commit is not None and (commit.unknown_from or commit.is_learner):
                continue
            if damage.listed_at < 0:
                damage.listed_at = facts.committed + 1
            is_held = commit is None or commit.durable_length >= damage.listed_at
            is_whole = data is None or data.applied >= damage.listed_at
            if is_held and is_whole and facts.committed >= damage.listed_at:
                del self.damaged[node]

    def _damage(self, kind: str, budget: int, hurt: Callable[[Process], bool]) -> None:
        victim = self._may_damage(budget)
        if victim is None or victim.disk is None:
            return
        self._note(kind, victim)
        victim.stop()
        if hurt(victim):
            self.damaged[victim.node] = Damage(victim)
        self._cluster.judge.trace.add(self._world.now_us, victim.name, "crash")
        self._later(1, 300, self.restart, victim)

    def _rot(self, where: str) -> None:
        def hurt(victim: Process) -> bool:
            assert victim.disk is not None
            return victim.disk.rot(where)

        self._damage(f"rot_{where}", self.budget if where == "vote" else self.budget_rot, hurt)

    def rot_head(self) -> None:
        self._rot("head")

    def rot_middle(self) -> None:
        self._rot("middle")

    def rot_tail(self) -> None:
        self._rot("tail")

    def rot_vote(self) -> None:
        self._rot("vote")

    def rot_data(self) -> None:
        self._rot("data")

    def wipe(self) -> None:
        def hurt(victim: Process) -> bool:
            assert victim.disk is not None
            victim.disk.wipe()
            return True

        self._damage("wipe", self.budget, hurt)

    def restore_old(self) -> None:
        """Keep a copy of a disk, and put it back much later."""
        victim = self._one()
        if victim is None or victim.disk is None:
            return
        copy = victim.disk.copy()

        def restore() -> None:
            self.settle_damage()
            if not self.is_on or not victim.is_up or victim.node in self.damaged:
                return
            if len(self.damaged) >= self.budget:
                return

            def hurt(process: Process) -> bool:
                assert process.disk is not None
                process.disk.restore(copy)
                return True

            self._note("restore_old", victim)
            victim.stop()
            hurt(victim)
            self.damaged[victim.node] = Damage(victim)
            self._later(1, 300, self.restart, victim)

        self._later(100, 1000, restore)

    # senders

    def crash_named(self) -> None:
        apps = [a for a in self._cluster.senders if a.process.is_up and not a.is_over]
        if apps:
            named = [a for a in apps if a.is_named] or apps
            app = self._chance.pick(named)
            self._note("crash_sender", app.process)
            app.process.stop()
            self._later(1, 300, app.start)

    def crowd(self) -> None:
        """Short-lived senders that push others' rows out."""
        self._note("crowd")
        for _ in range(self._chance.between(2, 6)):
            app = self._cluster.add_sender(is_named=False)
            app.want(1)

    def abort(self) -> None:
        owners = [o for o in self._cluster.owners if o.owner is not None]
        if owners:
            owner = self._chance.pick(owners).owner
            assert owner is not None
            self._note("abort")
            tx = owner.tx_next + self._chance.pick((0, 0, 0, 1))
            self._cluster.propose(AbortRequest(owner.id, owner.incarnation, tx))

    def remove_name(self) -> None:
        named = [a for a in self._cluster.senders if a.is_named and not a.is_over]
        if named:
            app = self._chance.pick(named)
            sender = app.sender
            if sender is not None:
                self._note("remove_name")
                self._cluster.propose(SenderRemovalRequest(app.group, sender.id))
