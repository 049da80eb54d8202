"""Changing a cluster while it runs: which configuration is to follow, and waiting until it does."""

import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from samcast.client.blocking import Client, connect
from samcast.errors import ConfigError, RefusedError, SamcastError, WaitTimeoutError
from samcast.machine.change import check_change, node_last
from samcast.machine.quorum import servers_with
from samcast.runtime.cluster_file import bits_of
from samcast.wire.change import ChangeRequest
from samcast.wire.group import OutcomeKind
from samcast.wire.order import (
    ROLE_CHECKPOINT,
    ROLE_COMMIT,
    ROLE_DATA,
    Configuration,
    Place,
    Server,
)

LOOK_S = 0.5
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Quorums:
    """How many must agree; None: as before, or the usual number where that no longer fits."""

    k_commit: int | None = None
    e_commit: int | None = None
    k_data: int | None = None
    k_checkpoint: int | None = None


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A node that runs and waits to be let in, as it says itself."""

    server: Server
    place: Place


def newcomer_at(address: str, cluster: str) -> Newcomer:
    """Ask a waiting node who it is."""
    with connect(address) as client:
        said = client.status()
    name = str(said["name"])
    if said["cluster"] != cluster:
        raise ConfigError(
            f"{name} at {address} was made for cluster {said['cluster']!r}, not for {cluster!r};"
            " `samcast node prepare` makes one for this"
        )
    if said["is_listed"]:
        raise ConfigError(f"{name} at {address} is of this cluster already")
    host, _, port = str(said["address"]).rpartition(":")
    roles = said["roles"]
    assert isinstance(roles, list)
    node = int(str(said["id"]))
    server = Server(node, int(str(said["uuid"])), bits_of(roles))
    return Newcomer(server, Place(node, name, host, int(port)))


class Administration:
    """Changes of one cluster, one at a time."""

    def __init__(self, client: Client, say: Say) -> None:
        self._client = client
        self._say = say

    @property
    def cluster(self) -> str:
        """Its name."""
        return str(self._client.status()["cluster"])

    @property
    def configuration(self) -> Configuration:
        """As our node knows it."""
        return self._client.engine.configuration

    @property
    def places(self) -> dict[int, Place]:
        """Where the nodes are."""
        ids = {name: node for node, name in self._client.engine.node_names.items()}
        return {
            ids[name]: Place(ids[name], name, host, port) for name, host, port in self._client.nodes
        }

    def add(self, newcomer: Newcomer, quorums: Quorums, timeout_s: float) -> Configuration:
        """One more node."""
        servers = (*self.configuration.servers, newcomer.server)
        return self._change(servers, (newcomer.place,), quorums, timeout_s, False)

    def remove(
        self, name: str, quorums: Quorums, timeout_s: float, is_lost: bool = False
    ) -> Configuration:
        """One node less."""
        leaving = self.node_of(name)
        servers = tuple(s for s in self.configuration.servers if s.node != leaving)
        return self._change(servers, (), quorums, timeout_s, is_lost)

    def replace(
        self, name: str, newcomer: Newcomer, timeout_s: float, is_lost: bool = False
    ) -> Configuration:
        """One node in the place of another."""
        leaving = self.node_of(name)
        staying = tuple(s for s in self.configuration.servers if s.node != leaving)
        servers = (*staying, newcomer.server)
        return self._change(servers, (newcomer.place,), Quorums(), timeout_s, is_lost)

    def admit(self, name: str, disk: int, timeout_s: float) -> Configuration:
        """A disk of a node in the place of its listed one, which is gone or is to go."""
        node = self.node_of(name)
        servers = tuple(
            structs.replace(s, uuid=disk) if s.node == node else s
            for s in self.configuration.servers
        )
        return self._change(servers, (), Quorums(), timeout_s, True, disk)

    def disk_that_asks(self, name: str) -> int:
        """The one disk that asks whoever leads for a node's place."""
        node = self.node_of(name)
        disks = [int(a["disk"]) for a in self._told_by_leader("asking", []) if a["node"] == node]
        if len(disks) == 1:
            return disks[0]
        if disks:
            raise ConfigError(
                f"several disks ask for the place of {name}; say --disk with one of"
                f" {', '.join(map(str, disks))}"
            )
        raise ConfigError(
            f"no other disk asks for the place of {name}. Start the node that has it, and stop the"
            " one that has the place now; `samcast doctor` shows whether there are two"
        )

    def set_quorums(self, quorums: Quorums, timeout_s: float) -> Configuration:
        """The same nodes, and more or fewer of them that must agree."""
        return self._change(self.configuration.servers, (), quorums, timeout_s, False)

    def node_of(self, name: str) -> int:
        """The id of a node by its name."""
        names = self._client.engine.node_names
        for node, known in names.items():
            if known == name:
                return node
        raise ConfigError(f"there is no node {name!r}; there are {', '.join(names.values())}")

    # the change itself

    def _change(
        self,
        servers: tuple[Server, ...],
        places: tuple[Place, ...],
        quorums: Quorums,
        timeout_s: float,
        is_lost: bool,
        admitted: int = 0,
    ) -> Configuration:
        now = self.configuration
        taken = self._client.engine.node_names.values()
        for place in places:
            if place.name in taken:
                raise ConfigError(f"there is a node {place.name!r} already; prepare another name")
            if place.node <= node_last(now):
                raise ConfigError(
                    f"{place.name} was prepared with the id {place.node}, which is another node's"
                    " by now; prepare it again"
                )
        target = structs.replace(
            now,
            number=now.number + 1,
            servers=servers,
            node_last=max([node_last(now), *(s.node for s in servers)]),
            **counts_for(now, servers, quorums),
        )
        request = ChangeRequest(target, places, is_lost, admitted)
        check_change(now, request)
        return self._order(request, timeout_s)

    def _order(self, request: ChangeRequest, timeout_s: float) -> Configuration:
        engine = self._client.engine
        future = engine.start(engine.propose(request))
        until = time.monotonic() + timeout_s
        outcome, said = None, ""
        while outcome is None:
            try:
                outcome = future.result(LOOK_S)
            except FutureTimeoutError:
                said = self._tell_what_it_waits_for(said)
                if time.monotonic() > until:
                    future.cancel()
                    raise WaitTimeoutError(
                        f"the change has not come about within {timeout_s:.0f} s"
                        f" (waiting for {said or 'a leader'}); it is given up, unless it was"
                        " ordered just now: `samcast node list` shows it"
                    ) from None
        if outcome.kind is OutcomeKind.DONE:
            return request.configuration
        raise RefusedError(
            f"the cluster has configuration {outcome.value} by now: somebody else has changed it;"
            " look at `samcast node list`, then repeat what is still to be done"
        )

    def _tell_what_it_waits_for(self, said: str) -> str:
        waits_for = self._waits_for()
        if waits_for and waits_for != said:
            self._say(f"waiting for {waits_for}")
        return waits_for or said

    def _waits_for(self) -> str:
        """What whoever leads waits for."""
        return str(self._told_by_leader("change_waits_for", ""))

    def _told_by_leader(self, key: str, otherwise: Any) -> Any:
        """Of its status, if it can be found."""
        for name, host, port in self._client.nodes:
            try:
                with connect(f"{host}:{port}") as other:
                    said = other.status()
            except (SamcastError, TimeoutError):
                continue
            if said["name"] == name and said["sequencing"]:
                return said.get(key, otherwise)
        return otherwise


def counts_for(now: Configuration, servers: tuple[Server, ...], quorums: Quorums) -> dict[str, int]:
    """The numbers that are said; the others as they are, or, where the number of servers changes,
    the usual ones."""
    target = structs.replace(now, servers=servers)
    voters = len(servers_with(target, ROLE_COMMIT))
    is_other = voters != len(servers_with(now, ROLE_COMMIT))
    k_usual = voters // 2 + 1 if is_other else now.k_commit
    k_commit = k_usual if quorums.k_commit is None else quorums.k_commit
    is_same = k_commit == now.k_commit and not is_other
    e_commit = now.e_commit if is_same else voters - k_commit + 1
    keepers, folders = (len(servers_with(target, r)) for r in (ROLE_DATA, ROLE_CHECKPOINT))
    k_data = min(now.k_data, keepers) if quorums.k_data is None else quorums.k_data
    k_checkpoint = min(now.k_checkpoint, folders)
    return {
        "k_commit": k_commit,
        "e_commit": e_commit if quorums.e_commit is None else quorums.e_commit,
        "k_data": k_data,
        "k_checkpoint": k_checkpoint if quorums.k_checkpoint is None else quorums.k_checkpoint,
    }
