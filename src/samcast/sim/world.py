"""The world: virtual time, processes that host roles, and the queue of what happens next.

A process drains what has arrived, steps its roles, hands stores to its disk and messages to the
network, exactly as a node's event loop does. When turns happen and how arrivals are grouped into
them is drawn from the seed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any

from samcast.group.storage import DropBatch, DropCollected, Rotted, SendStored
from samcast.machine.ports import (
    Channel,
    Effect,
    Event,
    Multicast,
    Received,
    Role,
    Send,
    Store,
    Stored,
    Ticked,
    Warn,
)
from samcast.sim.chance import SeededChance
from samcast.sim.disk import Device, Disk
from samcast.sim.network import Network
from samcast.sim.platter import DiedError
from samcast.wire.batch import Batch
from samcast.wire.codec import Message
from samcast.wire.control import Control
from samcast.wire.group import CommitAck, Promise, Repair, StartReply

US_PER_MS = 1000
LOOK_US = 40_000  # between two looks of a node after its disk
VOTES = (CommitAck, Promise, StartReply)  # what counts towards a quorum


class Planned:
    """Something that will be called, unless it is cancelled."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        """Not any more."""
        self.is_cancelled = True


class Process:
    """One process: roles, perhaps a disk, a clock of its own."""

    def __init__(self, world: "World", node: int, name: str) -> None:
        self.world = world
        self.node = node
        self.name = name
        self.disk: Disk | None = None
        self.roles: list[Role] = []
        self.is_up = False
        self.boots = 0
        self.paused_until = 0
        self.clock_rate = 1.0
        self.clock_offset_ms = 0
        self._routes: dict[type, list[int]] = {}
        self._inbox: list[list[Event]] = []
        self._dues_ms: list[int] = []  # per role, asked after each of its steps
        self._turn_at = 0  # 0: no turn is planned
        self._wake_at = 0
        self.life = 0  # so that what was planned for a former life is ignored
        self.on_effect: Callable[[Process, Role, Effect], None] = lambda p, r, e: None

    # life

    def start(self, roles: list[Role]) -> None:
        """Begin a life with these roles."""
        self.roles = roles
        self.is_up = True
        self.boots += 1
        self.life += 1
        self._inbox = [[] for _ in roles]
        self._dues_ms = [role.due_ms() for role in roles]
        self._routes = {}
        for at, role in enumerate(roles):
            for kind in role._handlers:  # type: ignore[attr-defined]
                self._routes.setdefault(kind, []).append(at)
        self._turn_at = self._wake_at = 0
        self.paused_until = 0
        self.plan_turn(1)

    def stop(self) -> bool:
        """End this life at once; True if the disk was torn by it."""
        self.is_up = False
        self.life += 1
        self.roles = []
        self._inbox = []
        return self.disk.crash() if self.disk is not None else False

    def now_ms(self) -> int:
        """What this process's monotonic clock says."""
        return int(self.world.now_us / US_PER_MS * self.clock_rate) + self.clock_offset_ms

    # turns

    def post(self, role: int, event: Event, delay_us: int = 20) -> None:
        """Something for one role."""
        if self.is_up:
            self._inbox[role].append(event)
            self.plan_turn(delay_us)

    def receive(self, source: int, message: Message) -> None:
        """A message arrived: to every role that knows its kind."""
        if not self.is_up:
            return
        routes = self._routes.get(type(message))
        if routes is None:
            self.world.warn(self, Warn("misdirected", type(message).__name__))
            return
        event = Received(source, message)
        for at in routes:
            self._inbox[at].append(event)
        self.plan_turn(20 + int(self.world.chance.unit() * self.world.turn_jitter_us))

    def plan_turn(self, delay_us: int) -> None:
        """Run a turn soon, joined with one that is planned already."""
        if self._turn_at:
            return
        at = max(self.world.now_us + delay_us, self.paused_until)
        self._turn_at = at
        self.world.at(at - self.world.now_us, self._turn, self.life)

    def _turn(self, life: int) -> None:
        if life != self.life:
            return
        if self.world.now_us < self.paused_until:
            self._turn_at = 0
            self.plan_turn(0)
            return
        self._turn_at = 0
        now_ms = self.now_ms()
        ticked = Ticked(now_ms)
        dues = self._dues_ms
        for at, role in enumerate(self.roles):
            events = self._inbox[at]
            if not events and dues[at] > now_ms:
                continue
            if self.world.is_cutting and len(events) > 1 and self.world.chance.happens(0.2):
                cut = self.world.chance.between(1, len(events) - 1)
                events, self._inbox[at] = events[:cut], events[cut:]
                self.plan_turn(30)
            else:
                self._inbox[at] = []
            self.world.step(self, at, role, [ticked, *events])
            if life != self.life:
                return
            dues[at] = role.due_ms()
        self._plan_wake(now_ms, min(dues))

    def _plan_wake(self, now_ms: int, due: int) -> None:
        wait_us = max(1, int((due - now_ms) * US_PER_MS / self.clock_rate))
        at = self.world.now_us + min(wait_us, 10**9)
        if not self._wake_at or at < self._wake_at or self._wake_at <= self.world.now_us:
            self._wake_at = at
            self.world.at(at - self.world.now_us, self._wake, self.life, at)

    def _wake(self, life: int, at: int) -> None:
        if life == self.life and at == self._wake_at:
            self._wake_at = 0
            self.plan_turn(0)


class World:
    """Everything of one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = SeededChance(seed)
        self.now_us = 1
        self._queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self.events = 0
        self.turn_jitter_us = 200
        self.is_cutting = True
        self.network = Network(self.chance, self.at, self._arrive)
        self.processes: dict[int, Process] = {}
        self.channels: dict[Channel, list[int]] = {c: [] for c in Channel}
        self.warnings: dict[str, int] = {}
        self._votes: dict[int, int] = {}
        self.on_step: Callable[[Process, Role], None] = lambda p, r: None
        self.on_vote: Callable[[Process, Control], None] = lambda p, m: None
        self.on_store: Callable[[Process, Store], None] = lambda p, e: None
        self.on_synced: Callable[[Process, Device, int], None] = lambda p, d, t: None
        self.on_disk_failed: Callable[[Process], None] = lambda p: None
        self.on_died: Callable[[Process], None] = lambda p: None
        self.on_bug: Callable[[Process, AssertionError], None] | None = None

    # time

    def at(self, delay_us: int, call: Callable[..., None], *args: Any) -> None:
        """Have something happen later."""
        self._sequence += 1
        heappush(self._queue, (self.now_us + delay_us, self._sequence, call, args))

    def run_until(self, until_us: int, is_done: Callable[[], bool] | None = None) -> bool:
        """Let time pass; True if `is_done` came true before its end."""
        queue = self._queue
        while queue and queue[0][0] <= until_us:
            self.now_us, _, call, args = heappop(queue)
            self.events += 1
            call(*args)
            if is_done is not None and self.events % 64 == 0 and is_done():
                return True
        self.now_us = max(self.now_us, until_us)
        return is_done is not None and is_done()

    # processes

    def add(self, node: int, name: str, channels: tuple[Channel, ...]) -> Process:
        """A new process; it has no life yet."""
        process = self.processes[node] = Process(self, node, name)
        for channel in channels:
            self.channels[channel].append(node)
        return process

    def remove(self, node: int) -> None:
        """A client goes for good."""
        process = self.processes.pop(node, None)
        if process is not None:
            process.stop()
            for nodes in self.channels.values():
                if node in nodes:
                    nodes.remove(node)

    def _arrive(self, source: int, target: int, message: Message) -> None:
        process = self.processes.get(target)
        if process is not None:
            process.receive(source, message)

    def warn(self, process: Process, warn: Warn) -> None:
        """Count a coded warning."""
        self.warnings[warn.code] = self.warnings.get(warn.code, 0) + 1

    def step(self, process: Process, at: int, role: Role, events: list[Event]) -> None:
        """One turn of one role, and what follows from it."""
        try:
            effects = role.step(events)
        except AssertionError as error:
            if self.on_bug is None:
                raise
            self.on_bug(process, error)
            return
        self.on_step(process, role)
        life = process.life
        for effect in effects:
            if life != process.life:  # It died of the last one.
                return
            self._carry_out(process, at, role, effect)

    def votes_of(self, process: Process) -> int:
        """How often it has told others something that binds it."""
        return self._votes.get(process.node, 0)

    def _carry_out(self, process: Process, at: int, role: Role, effect: Effect) -> None:
        kind = type(effect)
        if kind is Send:
            if isinstance(effect.message, VOTES):  # type: ignore[attr-defined]
                self._votes[process.node] = self._votes.get(process.node, 0) + 1
                self.on_vote(process, effect.message)  # type: ignore[attr-defined]
            self._send(process, effect.to, effect.message)  # type: ignore[attr-defined]
        elif kind is Multicast:
            self._multicast(process, effect)  # type: ignore[arg-type]
        elif isinstance(effect, Store):
            self._store(process, at, effect)
        elif kind is SendStored:
            self._send_stored(process, at, effect)  # type: ignore[arg-type]
        elif kind is Warn:
            self.warn(process, effect)  # type: ignore[arg-type]
        else:
            if kind is DropBatch and process.disk is not None:
                process.disk.forget(effect.key)  # type: ignore[attr-defined]
            elif kind is DropCollected and process.disk is not None:
                for key in effect.keys:  # type: ignore[attr-defined]
                    process.disk.forget(key)
            process.on_effect(process, role, effect)

    # messages

    def _send(self, process: Process, to: int, message: Control | Batch) -> None:
        if to == process.node:
            process.receive(to, message)  # type: ignore[arg-type]
        else:
            self.network.send(process.node, (to,), message)

    def _multicast(self, process: Process, effect: Multicast) -> None:
        targets = self.channels[effect.channel]
        self.network.send(process.node, [t for t in targets if t != process.node], effect.message)
        if process.node in targets:
            process.receive(process.node, effect.message)  # type: ignore[arg-type]

    def _send_stored(self, process: Process, at: int, effect: SendStored) -> None:
        assert process.disk is not None
        found: list[tuple[int, bytes]] = []
        for number, key in effect.batches:
            payload = process.disk.read(key)
            if payload is None:
                process.post(at, Rotted(key))
            else:
                found.append((number, payload))
        if found:
            self._send(process, effect.to, Repair(tuple(found)))

    # disks

    def _store(self, process: Process, at: int, effect: Store) -> None:
        assert process.disk is not None
        with self._disk_of(process) as disk:
            disk.store(effect).role_at = at
            self.on_store(process, effect)
        self.sync(process)

    @contextmanager
    def _disk_of(self, process: Process) -> Iterator[Disk]:
        """Whatever is done to a disk may fail, or be the last thing that its process does."""
        assert process.disk is not None
        try:
            yield process.disk
        except OSError:
            self.on_disk_failed(process)
        except DiedError:
            self.on_died(process)

    def sync(self, process: Process) -> None:
        """Have devices write what waits, unless they are at it."""
        life = process.life
        with self._disk_of(process) as disk:
            for device in (disk.order, disk.data):
                if device.is_waiting and not device.is_syncing and life == process.life:
                    device.begin_sync()
                    wait = disk.sync_us + int(self.chance.unit() * disk.sync_us)
                    self.at(wait * device.slow, self._synced, process, life, device)

    def _synced(self, process: Process, life: int, device: Device) -> None:
        if life != process.life:
            return
        with self._disk_of(process):
            token = device.end_sync()
            if token:
                self.on_synced(process, device, token)
                process.post(device.role_at, Stored(token))
        if life == process.life:
            self.sync(process)

    def begin_disk(self, process: Process) -> None:
        """A life begins: stores are carried out from now on, and a node looks after its disk."""
        assert process.disk is not None
        life = process.life

        def later(seconds: float, call: Callable[[], None]) -> Planned:
            planned = Planned(call)

            def due() -> None:
                if life == process.life and not planned.is_cancelled:
                    planned.call()
                    self.sync(process)

            self.at(int(seconds * 1_000_000), due)
            return planned

        process.disk.start(later)
        self.at(self.chance.between(1000, LOOK_US), self._look, process, life)

    def _look(self, process: Process, life: int) -> None:
        if life != process.life:
            return
        with self._disk_of(process) as disk:
            disk.look()
        if life == process.life:
            self.sync(process)
            self.at(LOOK_US, self._look, process, life)
