"""Two live processes of one node: somebody has copied a server's folder and started the copy.

A copied folder is noticed, so the copy begins a disk of its own and asks for its node's place. What
is sent to the node reaches both, which is worse than real connections are: there the one that came
second is refused. In the end an operator stops one of them: the copy, unless it has the place.
"""

from samcast.group.sequencer import Sequencer
from samcast.sim.checkers import Violation
from samcast.sim.cluster import SEGMENT_BYTES, Cluster
from samcast.sim.disk import Disk
from samcast.sim.faults import Faults
from samcast.sim.world import US_PER_MS, Process
from samcast.wire.change import Join
from samcast.wire.codec import Message
from samcast.wire.group import CommitAck, DataReport, StartReply
from samcast.wire.retention import CheckpointReport, Holdings

SIGNS = (CommitAck, StartReply, DataReport, Holdings, CheckpointReport, Join)  # of a disk's life
LIVES_APART = 10**6  # a copy's lives are counted from here, so that no two are taken for one
TRIES = 20
LOOK_US = 150_000
MARGIN = 4  # clocks may be fast, and a pause of the listener's counts for a moment


class Places:
    """J: no disk takes by itself the place of one that answers."""

    def __init__(self, silence_us: int) -> None:
        self._silence_us = silence_us
        self._heard_us: dict[tuple[int, int], int] = {}  # by whom, and which disk

    def on_arrived(self, listener: int, message: Message, now_us: int) -> None:
        if isinstance(message, SIGNS):
            self._heard_us[(listener, message.uuid)] = now_us

    def on_ordered(self, listener: int, sequencer: Sequencer, now_us: int) -> None:
        """A stop-sign stands in the log of whoever leads."""
        before, after = sequencer.configuration, sequencer.tail.configuration
        listed = {server.node: server.uuid for server in after.servers}
        for server in before.servers:
            if listed.get(server.node, server.uuid) == server.uuid:
                continue
            heard_us = self._heard_us.get((listener, server.uuid))
            if heard_us is not None and now_us - heard_us < self._silence_us // MARGIN:
                raise Violation(
                    "J",
                    f"disk {server.uuid} of server {server.node} lost its place, and was heard"
                    f" {(now_us - heard_us) // US_PER_MS} ms ago",
                )


class Copies:
    """The copy of one seed, if it has one."""

    def __init__(self, cluster: Cluster, faults: Faults) -> None:
        self._cluster = cluster
        self._faults = faults
        self._world = world = cluster.world
        self._places = Places(cluster.settings.rejoin_silence_ms * US_PER_MS)
        self._victim: Process | None = None
        self._copy: Process | None = None
        self._arrive = world.network.arrive
        world.network.arrive = self._on_arrived
        self._on_other_stop_sign = cluster.judge.on_stop_sign
        cluster.judge.on_stop_sign = self._on_stop_sign

    def _on_arrived(self, source: int, target: int, message: Message) -> None:
        process = self._world.processes.get(target)
        if process is not None and process.is_up:
            self._places.on_arrived(target, message, self._world.now_us)
        self._arrive(source, target, message)
        if self._copy is not None and self._copy.node == target:
            self._copy.receive(source, message)

    def _on_stop_sign(self, process: Process, sequencer: Sequencer) -> None:
        if sequencer.changing.stop_at > sequencer.epoch_index:  # its own, and no other's
            self._places.on_ordered(process.node, sequencer, self._world.now_us)
        self._on_other_stop_sign(process, sequencer)

    # the copy's life

    def plan(self, from_us: int, until_us: int) -> None:
        """In some seeds, for a part of the time."""
        chance = self._world.chance
        if chance.happens(0.3):
            self._world.at(chance.between(from_us, until_us), self._begin, TRIES)

    def _begin(self, tries: int) -> None:
        victim = self._faults.one()
        damage = self._faults.servers.damage
        if not self._faults.is_on or not tries:
            return
        if victim is None or not damage.may_hurt(victim, is_rot=False):
            self._world.at(LOOK_US // 3, self._begin, tries - 1)
            return
        self._faults.note("copy")
        damage.copied[victim.node] = None  # Its disk may lose its place, as good as lost then.
        self._victim = victim
        self._copy = copy = Process(self._world, victim.node, f"{victim.name}-copy")
        copy.life = LIVES_APART
        copy.disk = Disk(copy.node, self._world.chance, self._cluster.settings, SEGMENT_BYTES)
        self._cluster.start_server(copy)
        self._faults.later(300, 1500, self.end)

    def end(self) -> None:
        """An operator looks at it."""
        victim, copy = self._victim, self._copy
        if victim is None or copy is None:
            return
        self._copy = None
        self._faults.servers.damage.copied.pop(victim.node, None)
        copy.stop()
        assert copy.disk is not None
        if self._has_place(copy):
            if victim.is_up:
                victim.stop()
            victim.disk = copy.disk
            self._faults.restart(victim)
        if victim in self._cluster.servers:
            self._faults.servers.damage.add(victim)
            self._look(TRIES)

    def _has_place(self, process: Process) -> bool:
        assert process.disk is not None
        servers = self._cluster.judge.facts.configuration.servers
        return any(s.node == process.node and s.uuid == process.disk.uuid for s in servers)

    def _look(self, tries: int) -> None:
        """The copy may have got the place after it was stopped; its disk is gone, and the other
        one never gets it back by itself: so it is given an empty one."""
        victim = self._victim
        assert victim is not None
        assert victim.disk is not None
        commit = self._cluster.commit_server(victim)
        is_out = commit.is_learner if commit is not None else not self._has_place(victim)
        if victim.is_up and is_out and tries == TRIES // 2:
            victim.stop()
            victim.disk.wipe()
            self._faults.restart(victim)
        if tries:
            self._world.at(LOOK_US, self._look, tries - 1)
