"""How much of the disks may be hurt at a time: what the configuration promises to survive.

At most min(k_commit, k_data) - 1 servers are without their whole disk at any moment, counted
until they are listed, vote again, and hold everything that was committed when they came back.
"""

from samcast.sim.cluster import Cluster
from samcast.sim.world import Process


class Damage:
    """Servers without their whole disk."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._hurt: dict[int, tuple[Process, int]] = {}  # committed index when it was listed again
        shape = cluster.shape
        # Of rot a server recovers under its old uuid; a new uuid takes a commit without it.
        self._budget_rot = min(shape.k - 1, shape.k_data - 1, shape.servers - shape.e)
        self._budget = min(self._budget_rot, shape.servers - shape.k)

    def __len__(self) -> int:
        self._settle()
        return len(self._hurt)

    def add(self, process: Process) -> None:
        """This server's disk isn't whole."""
        self._hurt.setdefault(process.node, (process, -1))

    def may_hurt(self, process: Process, *, is_rot: bool) -> bool:
        """Whether the promises cover one more."""
        self._settle()
        budget = self._budget_rot if is_rot else self._budget
        return process.is_up and process.node not in self._hurt and len(self._hurt) < budget

    def _settle(self) -> None:
        cluster = self._cluster
        facts = cluster.judge.facts
        for node, (process, listed_at) in list(self._hurt.items()):
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
