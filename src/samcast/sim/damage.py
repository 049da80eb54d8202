"""How much of the disks may be hurt at a time: what the configuration promises to survive.

At most min(k_commit, k_data) - 1 servers are without their whole disk at any moment, counted
until they are listed, vote again, and hold everything that was committed when they came back. A
configuration that is asked for counts as the present one does: once it is ordered, it must be
reached, with those of its disks that it can't do without.
"""

from samcast.machine.quorum import servers_with
from samcast.sim.cluster import Cluster
from samcast.sim.world import Process
from samcast.wire.order import ROLE_COMMIT, Configuration


class Damage:
    """Servers without their whole disk."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._hurt: dict[int, tuple[Process, int]] = {}  # committed index when it was listed again
        self._wanted: list[Configuration] = []
        self.copied: dict[int, None] = {}  # servers beside which a copy runs

    def _budget(self, *, is_rot: bool) -> int:
        now = self._cluster.judge.facts.configuration
        wanted = [target for target in self._wanted if target.number > now.number]
        return min(_budget_of(one, is_rot=is_rot) for one in (now, *wanted))

    def may_want(self, target: Configuration) -> bool:
        """Whether somebody may ask for a configuration, and does: not if too much is hurt."""
        if len(self) > _budget_of(target, is_rot=False):
            return False
        self._wanted.append(target)
        return True

    def __len__(self) -> int:
        self._settle()
        return len({**self._hurt, **self.copied})

    def add(self, process: Process) -> None:
        """This server's disk isn't whole."""
        self._hurt.setdefault(process.node, (process, -1))

    def may_hurt(self, process: Process, *, is_rot: bool) -> bool:
        """Whether the promises cover one more."""
        self._settle()
        now = self._cluster.judge.facts.configuration
        if process.node not in [s.node for s in now.servers]:
            return False
        hurt = {**self._hurt, **self.copied}
        is_whole = process.is_up and process.node not in hurt
        return is_whole and len(hurt) < self._budget(is_rot=is_rot)

    def _settle(self) -> None:
        cluster = self._cluster
        facts = cluster.judge.facts
        for node, (process, listed_at) in list(self._hurt.items()):
            if process not in cluster.servers:
                del self._hurt[node]  # It was replaced.
                continue
            disk = process.disk
            is_listed = disk is not None and any(
                s.node == node and s.uuid == disk.uuid for s in facts.configuration.servers
            )
            if not process.is_up or not is_listed:
                self._hurt[node] = (process, -1)
                continue
            commit, data = cluster.commit_server(process), cluster.data_server(process)
            if commit is not None and (commit.unknown_from or commit.is_learner):
                continue
            if listed_at < 0:
                listed_at = facts.committed + 1
                self._hurt[node] = (process, listed_at)
            is_held = commit is None or commit.durable_length >= listed_at
            is_whole = data is None or data.applied >= listed_at
            if is_held and is_whole and facts.committed >= listed_at:
                del self._hurt[node]


def _budget_of(now: Configuration, *, is_rot: bool) -> int:
    """Of rot a server recovers under its old uuid; a new uuid takes a commit without it."""
    voters = len(servers_with(now, ROLE_COMMIT))
    budget = min(now.k_commit - 1, now.k_data - 1, voters - now.e_commit)
    return budget if is_rot else min(budget, voters - now.k_commit)
