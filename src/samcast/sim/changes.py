"""Administrators of a seed: they replace, add and remove servers and change quorums, while
everything else goes wrong.
"""

from msgspec import structs

from samcast.errors import ConfigError
from samcast.group.asking import Proposer
from samcast.group.sequencer import Sequencer
from samcast.machine.change import check_change, node_last
from samcast.machine.quorum import servers_with
from samcast.sim.cluster import Cluster
from samcast.sim.faults import Faults
from samcast.sim.world import Process
from samcast.wire.change import ChangeRequest
from samcast.wire.group import OutcomeKind
from samcast.wire.order import ROLE_COMMIT, ROLE_DATA, Configuration, Place, Server

LOOK_US = 20_000
WAIT_US = 1_500_000  # an administrator gives up then
TRIES = 20


class Changes:
    """The changes of one seed."""

    def __init__(self, cluster: Cluster, faults: Faults) -> None:
        self._cluster = cluster
        self._faults = faults
        self._world = cluster.world
        self._chance = cluster.world.chance
        self._pending: list[tuple[Proposer, ChangeRequest, Process | None, int]] = []
        self.done: dict[str, int] = {}
        self._split_from: dict[int, list[tuple[int, int]]] = {}  # leaders apart, and the cut links
        self._split_until: dict[int, int] = {}
        cluster.judge.on_progress = self._on_progress
        cluster.judge.on_stop_sign = self._on_stop_sign

    def plan(self, from_us: int, until_us: int) -> None:
        """In some seeds, so many as a busy administrator makes; sometimes two at once."""
        if not self._chance.happens(0.35):
            return
        for _ in range(self._chance.between(1, 3)):
            at = self._chance.between(from_us, until_us)
            for _ in range(self._chance.pick((1, 1, 2))):
                self._world.at(at, self._begin)
        self._world.at(LOOK_US, self._look)

    def _begin(self) -> None:
        if not self._faults.is_on:
            return
        for _ in range(TRIES):
            make = self._chance.pick((self._replace, self._replace, self._replace, self._add,
                                      self._remove, self._quorums))  # fmt: skip
            request = make(self._cluster.judge.facts.configuration)
            if request is not None and self._may_follow(request):
                self._ask(request)
                return

    def _may_follow(self, request: ChangeRequest) -> bool:
        """By the rules, and so that clients that know only the first servers find one of them."""
        try:
            check_change(self._cluster.judge.facts.configuration, request)
        except ConfigError:
            return False
        first = [s.node for s in servers_with(self._cluster.configuration, ROLE_COMMIT)]
        left = servers_with(request.configuration, ROLE_COMMIT)
        is_found = any(s.node in first for s in left)
        return is_found and self._faults.servers.damage.may_want(request.configuration)

    def _ask(self, request: ChangeRequest) -> None:
        now = self._cluster.judge.facts.configuration
        known = [s.node for s in now.servers]
        new = None
        for server in request.configuration.servers:
            if server.node not in known:
                new = self._cluster.add_server(server.node, server.roles)
                assert new.disk is not None
                uuid = new.disk.uuid
                servers = tuple(
                    structs.replace(s, uuid=uuid) if s.node == server.node else s
                    for s in request.configuration.servers
                )
                configuration = structs.replace(request.configuration, servers=servers)
                request = structs.replace(request, configuration=configuration)
                self._cluster.start_server(new)
        proposer = self._cluster.propose(request)
        self._pending.append((proposer, request, new, self._world.now_us + WAIT_US))

    # what to ask for

    def _replace(self, now: Configuration) -> ChangeRequest | None:
        leaving = self._chance.pick(now.servers)
        servers = tuple(s for s in now.servers if s is not leaving)
        return self._with_new(now, servers, leaving.roles, {})

    def _add(self, now: Configuration) -> ChangeRequest | None:
        roles = self._chance.pick(now.servers).roles
        return self._with_new(now, now.servers, roles, self._quorums_for(now, roles, 1))

    def _remove(self, now: Configuration) -> ChangeRequest | None:
        leaving = self._chance.pick(now.servers)
        servers = tuple(s for s in now.servers if s is not leaving)
        if len(servers) < 3:
            return None
        counts = self._quorums_for(now, leaving.roles, -1)
        return ChangeRequest(self._next(now, servers, counts))

    def _quorums(self, now: Configuration) -> ChangeRequest | None:
        counts = self._quorums_for(now, 0, 0)
        keepers = len(servers_with(now, ROLE_DATA))
        counts["k_data"] = self._chance.between(min(2, keepers), min(3, keepers))
        return ChangeRequest(self._next(now, now.servers, counts))

    def _quorums_for(self, now: Configuration, roles: int, more: int) -> dict[str, int]:
        voters = len(servers_with(now, ROLE_COMMIT)) + (more if roles & ROLE_COMMIT else 0)
        k = self._chance.between(min(2, voters), voters)
        return {"k_commit": k, "e_commit": voters - k + 1}

    def _with_new(
        self, now: Configuration, servers: tuple[Server, ...], roles: int, counts: dict[str, int]
    ) -> ChangeRequest:
        node = max(node_last(now), self._cluster.node_last) + 1
        place = Place(node, f"server-{node}", "sim", 1)
        listed = (*servers, Server(node, 2**62 + node, roles))
        return ChangeRequest(self._next(now, listed, counts), (place,))

    @staticmethod
    def _next(
        now: Configuration, servers: tuple[Server, ...], counts: dict[str, int]
    ) -> Configuration:
        last = max(node_last(now), *(s.node for s in servers))
        number = now.number + 1
        return structs.replace(now, number=number, servers=servers, node_last=last, **counts)

    # trouble in the middle

    def _on_stop_sign(self, process: Process, sequencer: Sequencer) -> None:
        """Only those who leave hear of it from whoever ordered it; it dies, and the others must
        not go on as if nothing had been decided."""
        old, new = sequencer.configuration, sequencer.tail.configuration
        voters = [s.node for s in servers_with(new, ROLE_COMMIT) if s.node != process.node]
        leaving = [s.node for s in servers_with(old, ROLE_COMMIT) if s.node not in voters]
        if not self._faults.is_on or self._chance.happens(0.2):
            return
        if self._chance.happens(0.4) and len(leaving) >= old.k_commit:
            self._faults.note("part_stop_sign", process)
            network = self._world.network
            links = network.cut([process.node], voters) + network.cut(voters, [process.node])
            self._faults.later(30, 200, self._crash, process)
            self._faults.later(600, 1500, network.mend, links)

    def _split(self, process: Process, sequencer: Sequencer) -> None:
        """Whoever ordered it knows that it is decided, and is alone with those who come, who may
        elect it; the others have it, but don't know, and may elect somebody in the old
        configuration. Then one side's leader dies, and all see each other."""
        old, new = sequencer.configuration, sequencer.tail.configuration
        coming = list(sequencer.changing.learners)
        voters = [s.node for c in (old, new) for s in servers_with(c, ROLE_COMMIT)]
        rest = [n for n in dict.fromkeys(voters) if n not in coming and n != process.node]
        staying = [s.node for s in servers_with(new, ROLE_COMMIT) if s.node in rest]
        lacking = max(new.k_commit, new.e_commit) - len(coming) - 1  # of those who can go on alone
        chosen = self._chance.some(staying, min(max(0, lacking), len(staying)))
        one = [process.node, *coming, *chosen]
        other = [node for node in rest if node not in one]
        before = [s.node for s in servers_with(old, ROLE_COMMIT)]
        if sum(node in before for node in other) < old.e_commit:
            return  # They could elect nobody.
        self._faults.note("split_stop_sign", process)
        network = self._world.network
        self._split_from[process.node] = network.cut(one, other) + network.cut(other, one)
        self._split_until[process.node] = self._world.now_us + self._chance.between(200, 700) * 1000
        self._faults.later(900, 1500, self._join_again, process)

    def _on_progress(self, process: Process, sequencer: Sequencer) -> None:
        """The stop-sign is decided: part them. Or something behind it is: whoever knows dies before
        anybody else does."""
        stop = sequencer.changing.stop_at
        if stop and sequencer.committed >= stop and self._faults.is_on:
            if process.node not in self._split_from and self._chance.happens(0.8):
                self._split(process, sequencer)
            return
        is_new = sequencer.configuration.number == self._cluster.judge.facts.configuration.number
        is_decided = sequencer.committed > sequencer.epoch_index
        is_time = self._world.now_us >= self._split_until.get(
            process.node, 0
        )  # others have elected
        if process.node in self._split_from and is_new and is_decided and is_time:
            network = self._world.network
            others = [p.node for p in self._cluster.servers if p is not process]
            self._faults.later(100, 400, network.mend, network.cut([process.node], others))
            self._world.at(1, self._crash, process)
            self._world.at(2, self._join_again, process)

    def _join_again(self, process: Process) -> None:
        links = self._split_from.pop(process.node, None)
        if links is not None:
            self._world.network.mend(links)

    def _crash(self, process: Process) -> None:
        if self._faults.is_on and process.is_up:
            self._faults.servers.crash(process)

    # what became of it

    def _look(self) -> None:
        for item in list(self._pending):
            proposer, request, _, until_us = item
            outcome = proposer.outcome
            if outcome is not None and outcome.kind is OutcomeKind.DONE:
                self._pending.remove(item)
                self._on_done(request)
            elif outcome is not None or self._world.now_us > until_us:
                self._pending.remove(item)
                self._give_up(proposer)
        self._cluster.forget_proposers()
        if self._faults.is_on or self._pending:
            self._world.at(LOOK_US, self._look)

    def _on_done(self, request: ChangeRequest) -> None:
        """Who is no longer listed goes; or stays up, and must be told by the others."""
        self._note("change_done")
        listed = [s.node for s in request.configuration.servers]
        later = [s.node for s in self._cluster.judge.facts.configuration.servers]
        for process in list(self._cluster.servers):
            if process.node in listed or process.node in later:
                continue
            if self._is_wanted(process):
                continue
            self._cluster.servers.remove(process)
            if not self._split_from and self._chance.happens(0.6):
                self._faults.keep_down(process)
                if process.is_up:
                    process.stop()

    def _is_wanted(self, process: Process) -> bool:
        return any(new is process for _, _, new, _ in self._pending)

    def _give_up(self, proposer: Proposer) -> None:
        """Refused, or it takes too long. The new server stays: it may be ordered already."""
        self._note("change_refused" if proposer.outcome is not None else "change_given_up")
        for process, other in list(self._cluster.proposers):
            if other is proposer:
                self._cluster.proposers.remove((process, other))
                self._world.remove(process.node)

    def _note(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1
        self._faults.note(what)

    @property
    def are_pending(self) -> bool:
        """Whether one may still be ordered."""
        return bool(self._pending)
