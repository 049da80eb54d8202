"""Faults: what goes wrong, when, and how often in which state of the roles.

Each seed has its own taste, so that kinds which drown each other also occur alone. Half of the
strikes at servers are aimed: they wait for a server that is just recovering, installing,
electing, learning or repairing, since that is where the rules are thin.
"""

from collections.abc import Callable

from samcast.group.election import State
from samcast.group.storage import Freed
from samcast.sim.client_faults import ClientFaults
from samcast.sim.cluster import Cluster
from samcast.sim.disk_faults import DiskFaults
from samcast.sim.junk import Junk
from samcast.sim.network_faults import NetworkFaults
from samcast.sim.plots import Plots
from samcast.sim.server_faults import ServerFaults
from samcast.sim.world import Process

RARE_STATES = ("recovering", "installing", "electing", "learner", "unknown")
AIM_TRIES = 250


class Faults:
    """Injects the faults of one seed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.chance = cluster.world.chance
        self.is_on = True
        self.counts: dict[str, int] = {}
        self.states: dict[str, dict[str, int]] = {}
        self._down: dict[int, None] = {}
        self.network = NetworkFaults(self)
        self.servers = ServerFaults(self)
        self.disks = DiskFaults(self)
        self.clients = ClientFaults(self)
        self.junk = Junk(self)
        self.plots = Plots(self)
        self.world.network.on_full = lambda: self.note("link_full")
        kinds: list[list[Callable[[], None]]] = [
            self.timed(self.network.menu()), self.servers.process_menu(),
            self.servers.disk_menu(), self.disks.menu(), self.timed(self.clients.menu()),
            self.timed(self.junk.menu()), self.plots.menu(),
        ]  # fmt: skip
        self._menu = [fault for kind in kinds for fault in kind]
        if self.chance.happens(0.7):
            chosen = self.chance.some(kinds, self.chance.between(1, 3))
            self._menu = [fault for kind in chosen for fault in kind]
            self._menu += [self.servers.crash_unacked, self.servers.crash_sequencer]

    # when

    def plan(self, count: int, from_us: int, until_us: int) -> None:
        """Spread so many faults over a stretch of time."""
        for _ in range(count):
            self.world.at(self.chance.between(from_us, until_us), self._strike)

    def plan_elections(self, count: int, from_us: int, until_us: int) -> None:
        """Have the sequencer die this often at its worst moment, whatever else happens."""
        for at in range(count):
            third = (until_us - from_us) // count
            start = from_us + third * at
            delay = self.chance.between(start, start + third // 2)
            self.world.at(delay, self.servers.crash_unacked)

    def _strike(self) -> None:
        if self.is_on:
            self.chance.pick(self._menu)()

    def aim(self, strike: Callable[[Process], None]) -> Callable[[], None]:
        """A fault of one server, as one of the menu: any server, or one in a rare state."""

        def aimed() -> None:
            if self.chance.happens(0.5):
                self._await_state(self.chance.pick(RARE_STATES), strike, AIM_TRIES)
            elif (victim := self.one()) is not None:
                strike(victim)

        return aimed

    def _await_state(self, state: str, strike: Callable[[Process], None], tries: int) -> None:
        if not self.is_on:
            return
        if not tries:  # It isn't to be had in this seed; better now than not at all.
            if (victim := self.one()) is not None:
                strike(victim)
            return
        for process in self.up():
            if self.state_of(process) == state:
                strike(process)
                return
        self.world.at(self.chance.between(200, 4000), self._await_state, state, strike, tries - 1)

    def strike_while_hurt(self, process: Process) -> None:
        """Trouble comes in pairs: while a disk is being made good, its server is hit again."""
        strike = self.chance.pick(self.servers.singles())
        states = self.chance.pick((("learner", "unknown"), ("installing",)))
        self.await_states(process, states, strike)

    def await_states(
        self, process: Process, states: tuple[str, ...], strike: Callable[[Process], None],
        tries: int = 2 * AIM_TRIES,
    ) -> None:  # fmt: skip
        """Strike this server as soon as it is in one of these states."""
        if not self.is_on or not tries:
            return
        if process.is_up and self.state_of(process) in states:
            strike(process)
            return
        wait = self.chance.between(100, 800)
        self.world.at(wait, self.await_states, process, states, strike, tries - 1)

    def timed(self, menu: list[Callable[[], None]]) -> list[Callable[[], None]]:
        """Faults of the whole cluster: at any time, or just while nobody leads for sure."""

        def timed(strike: Callable[[], None]) -> Callable[[], None]:
            def later() -> None:
                wanted = self.chance.pick(("any", "any", "electing", "leaderless"))
                self._await_cluster(wanted, strike, AIM_TRIES if wanted != "any" else 0)

            return later

        return [timed(strike) for strike in menu]

    def when_led(self, strike: Callable[[], None]) -> Callable[[], None]:
        """A fault that waits until somebody leads."""
        return lambda: self._await_cluster("leading", strike, AIM_TRIES)

    def _await_cluster(self, state: str, strike: Callable[[], None], tries: int) -> None:
        if not self.is_on:
            return
        if not tries or self.cluster_state() == state:
            strike()
            return
        wait = self.chance.between(200, 2000)
        self.world.at(wait, self._await_cluster, state, strike, tries - 1)

    def later(self, low_ms: int, high_ms: int, call: Callable[..., None], *args: object) -> None:
        """Something that follows from a fault."""
        self.world.at(1000 * self.chance.between(low_ms, high_ms), call, *args)

    # what is counted

    def note(self, kind: str, process: Process | None = None) -> None:
        """A fault happens, in this state."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        state = self.state_of(process) if process is not None else self.cluster_state()
        states = self.states.setdefault(kind, {})
        states[state] = states.get(state, 0) + 1
        name = process.name if process is not None else "network"
        self.cluster.judge.trace.add(self.world.now_us, name, "fault", kind=kind, state=state)

    def state_of(self, process: Process) -> str:
        """What a process is just doing."""
        role = self.cluster.commit_server(process)
        if not process.is_up:
            return "down"
        if role is None:
            return "data" if self.cluster.data_server(process) is not None else "client"
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

    def cluster_state(self) -> str:
        """Whether anybody leads."""
        leading = self.cluster.sequencers()
        if any(self.state_of(p) == "leading" for p in leading):
            return "leading"
        return "electing" if leading else "leaderless"

    # whom

    def up(self) -> list[Process]:
        """Servers that live."""
        return [p for p in self.cluster.servers if p.is_up]

    def one(self) -> Process | None:
        """Any server that lives."""
        up = self.up()
        return self.chance.pick(up) if up else None

    def leading(self) -> list[Process]:
        """Servers that lead, or believe so."""
        return [p for p in self.cluster.sequencers() if p.is_up]

    # coming back

    def restart(self, process: Process) -> None:
        """A server begins another life, unless it is to stay down."""
        if not process.is_up and process.node not in self._down:
            self.disks.start(process)

    def crashed(self, process: Process) -> None:
        """A process has just died."""
        self.cluster.judge.trace.add(self.world.now_us, process.name, "crash")

    def keep_down(self, process: Process) -> None:
        """This server doesn't come back."""
        self._down[process.node] = None

    def free(self, process: Process) -> None:
        """Disks have room again."""
        if self.cluster.data_server(process) is not None:
            process.post(len(process.roles) - 1, Freed())
