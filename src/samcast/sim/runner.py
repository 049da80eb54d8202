"""Runs seeds: a phase with faults, in which safety is judged after every step, then a phase in
which a core quorum is healed, the rest stays broken, and everything sent must come through in
bounded time.
"""

import gc
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TextIO

import msgspec

from samcast.machine.quorum import servers_with
from samcast.sim.changes import Changes
from samcast.sim.checkers import Violation
from samcast.sim.clients import MemberApp, OwnerApp, SenderApp
from samcast.sim.cluster import SEGMENT_BYTES, Cluster
from samcast.sim.copies import Copies
from samcast.sim.faults import Faults
from samcast.sim.passing import Passing
from samcast.sim.reading import EVERY, Reading
from samcast.sim.trace import Trace
from samcast.sim.world import Process, World
from samcast.wire.order import ROLE_COMMIT, ROLE_DATA

FAULTS_MIN = 10
RUNS_MIN = 225
RUNS_WANTED = 280  # runs join messages, so fewer than that come out
SECOND_US = 1_000_000
CALM_US = 10 * SECOND_US  # to make the groups before anything goes wrong
HEALED_US = 60 * SECOND_US  # bound of the liveness phase, in simulated time


class Result(msgspec.Struct):
    """What one seed gave."""

    seed: int
    promise: str = ""  # the one that was broken
    detail: str = ""
    last: list[str] = []
    events: int = 0
    simulated_s: float = 0.0
    wall_s: float = 0.0
    runs: int = 0
    committed: int = 0
    elections: int = 0
    elections_with_suffix: int = 0
    servers: int = 0
    senders: int = 0
    faults: dict[str, int] = {}
    states: dict[str, dict[str, int]] = {}
    warnings: dict[str, int] = {}
    unseed: str = ""


class Run:
    """One seed, from the first start to the verdict."""

    def __init__(self, seed: int, trace: Trace, is_mutated: bool) -> None:
        self.world = World(seed)
        self.trace = trace
        self.cluster = Cluster(self.world, trace)
        self.faults = Faults(self.cluster)
        self.changes = Changes(self.cluster, self.faults)
        self.copies = Copies(self.cluster, self.faults)
        self.passing = Passing(self.cluster, self.faults)
        if not seed % EVERY:
            damage, judge = self.faults.servers.damage, self.cluster.judge
            judge.reading = Reading(
                lambda: self.cluster.servers,
                lambda: len(damage),
                judge.collection.gone,
                SEGMENT_BYTES,
            )
        self.world.on_disk_failed = self.faults.servers.on_disk_failed
        self.world.on_died = self.faults.disks.on_died
        if is_mutated:
            self.world.on_bug = self._on_bug

    def _on_bug(self, process: Process, error: AssertionError) -> None:
        """Under a mutant an assertion stops the process, as it would in production."""
        self.faults.servers.on_disk_failed(process)

    def play(self) -> None:
        """Raise a `Violation` if a promise is broken."""
        world, cluster = self.world, self.cluster
        cluster.start()
        if not cluster.make_groups(CALM_US):
            raise Violation("L", "the groups could not be made on a healthy cluster")
        cluster.start_clients()
        length_us = world.chance.pick((3, 3, 4)) * SECOND_US
        self._plan_work(length_us)
        self.faults.plan(FAULTS_MIN + 3 + world.chance.below(6), 50_000, length_us)
        self.faults.plan_elections(3, 50_000, length_us)
        self.changes.plan(50_000, length_us)
        self.copies.plan(50_000, length_us)
        self.passing.plan(50_000, length_us)
        world.run_until(world.now_us + length_us)
        while sum(self.faults.counts.values()) < FAULTS_MIN:  # Some found nobody to strike.
            if (victim := self.faults.one()) is not None:
                self.faults.servers.crash(victim)
            world.run_until(world.now_us + SECOND_US // 10)
        self._heal()
        self._finish()

    def play_briefly(self, length_us: int) -> None:
        """The beginning of the same, with as many faults in a shorter time, and no healing."""
        world, cluster = self.world, self.cluster
        cluster.start()
        if not cluster.make_groups(CALM_US):
            raise Violation("L", "the groups could not be made on a healthy cluster")
        cluster.start_clients()
        self._plan_work(length_us)
        self.faults.plan(FAULTS_MIN, length_us // 10, length_us)
        self.faults.plan_elections(2, length_us // 10, length_us)
        self.changes.plan(length_us // 10, length_us)
        world.run_until(world.now_us + length_us)

    def _plan_work(self, length_us: int) -> None:
        """Spread the messages over the whole phase, so that every fault meets some."""
        world, cluster = self.world, self.cluster
        for _ in range(RUNS_WANTED):
            app = world.chance.pick(cluster.senders)
            world.at(world.chance.below(length_us), app.want, 1)
        for owner in cluster.owners:
            for _ in range(world.chance.between(3, 12)):
                world.at(world.chance.below(length_us), owner.want, 1)

    def _heal(self) -> None:
        """A core quorum is healed; as many as may be stay broken for ever."""
        world, cluster, faults = self.world, self.cluster, self.faults
        faults.is_on = False
        self.copies.end()
        world.network.heal()
        broken = self._choose_broken()
        for process in cluster.servers:
            process.paused_until = 0
            process.clock_rate = 1.0
            assert process.disk is not None
            process.disk.slow_down(1)
            process.disk.is_failing = False
            faults.disks.mend(process)
            if process.node in broken:
                if process.is_up:
                    process.stop()
                faults.keep_down(process)
            elif not process.is_up:
                faults.restart(process)
            else:
                process.plan_turn(1)
                faults.free(process)
        for entry in cluster.entries:
            if not entry.is_up:
                cluster.start_entry(entry)
        apps: list[MemberApp | OwnerApp | SenderApp] = [
            *cluster.members,
            *cluster.owners,
            *cluster.senders,
        ]
        for app in apps:
            if not app.process.is_up:
                app.start()

    def _choose_broken(self) -> list[int]:
        """Servers that the promises can do without, whatever only they may hold."""
        faults, chance, facts = self.faults, self.world.chance, self.cluster.judge.facts
        if len(faults.servers.damage) or self.changes.are_pending or chance.happens(0.3):
            return []
        now = facts.configuration
        if facts.settled != now.number:
            return []
        voters, keepers = (len(servers_with(now, role)) for role in (ROLE_COMMIT, ROLE_DATA))
        most = min(now.k_commit - 1, now.k_data - 1, voters - max(now.k_commit, now.e_commit))
        most = min(most, keepers - now.k_data)
        if most < 1:
            return []
        return chance.some([s.node for s in now.servers], chance.between(1, most))

    def _finish(self) -> None:
        world, cluster = self.world, self.cluster
        missing = max(0, RUNS_MIN - cluster.judge.runs_committed)
        for app in cluster.senders:
            app.want(2)
        # Fresh ones, since others may have been stopped; a batch takes up to three messages.
        for _ in range(2 if missing else 0):
            cluster.add_sender(is_named=False).want(1 + missing)
        for owner in cluster.owners:
            owner.want(1)
        self.passing.finish()
        limit = world.now_us + HEALED_US
        if not world.run_until(limit, self._is_quiet):
            raise Violation("L", self._stuck())
        cluster.judge.check_end()

    def _is_quiet(self) -> bool:
        cluster = self.cluster
        return (
            all(app.is_idle for app in cluster.senders)
            and all(owner.is_idle for owner in cluster.owners)
            and not self.passing.stuck
            and cluster.members_are_current()
        )

    def _stuck(self) -> str:
        cluster = self.cluster
        senders = [a.process.name for a in cluster.senders if not a.is_idle]
        owners = [o.process.name for o in cluster.owners if not o.is_idle]
        owners += self.passing.stuck
        heads = cluster.judge.facts.heads
        members = [
            f"{m.process.name} at {m.position} of {heads.get(m.group, 0)}"
            for m in cluster.members
            if m.position <= heads.get(m.group, 0)
        ]
        leading = [p.name for p in cluster.sequencers()]
        return f"after healing: senders {senders}, owners {owners}, {members}, led by {leading}"


def run_seed(seed: int, file: TextIO | None = None, is_mutated: bool = False) -> Result:
    """Play one seed to its end."""
    started = time.perf_counter()
    gc.disable()  # A run is short and its garbage has few cycles; collecting costs a tenth.
    try:
        return _run_seed(seed, file, is_mutated, started)
    finally:
        gc.enable()
        gc.collect()


def _run_seed(seed: int, file: TextIO | None, is_mutated: bool, started: float) -> Result:
    trace = Trace(file)
    result = Result(seed)
    run = Run(seed, trace, is_mutated)
    try:
        run.play()
    except Violation as violation:
        result.promise, result.detail = violation.promise, violation.detail
    except AssertionError as error:
        if is_mutated:
            raise
        result.promise, result.detail = "assertion", _where(error)
    world, cluster = run.world, run.cluster
    result.last = trace.last if result.promise else []
    result.events = world.events
    result.simulated_s = world.now_us / SECOND_US
    result.runs = cluster.judge.runs_committed
    result.committed = sum(cluster.judge.facts.heads.values())
    result.elections = cluster.judge.elections
    result.elections_with_suffix = cluster.judge.elections_with_suffix
    result.servers = len(cluster.servers)
    result.senders = len(cluster.senders)
    result.faults = run.faults.counts
    result.states = run.faults.states
    result.warnings = world.warnings
    result.unseed = trace.unseed(world.chance.fingerprint())
    result.wall_s = time.perf_counter() - started
    return result


def _where(error: AssertionError) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is None:
        return str(error)
    return f"{at.tb_frame.f_code.co_qualname} line {at.tb_lineno}: {error}"


def run_many(
    seeds: list[int], jobs: int, on_result: Callable[[Result], Any], is_mutated: bool = False
) -> None:
    """Play many seeds on several cores; results come as they are done."""
    if jobs <= 1:
        for seed in seeds:
            on_result(run_seed(seed, None, is_mutated))
        return
    with ProcessPoolExecutor(jobs) as pool:
        for result in pool.map(run_seed, seeds, chunksize=4):
            on_result(result)
