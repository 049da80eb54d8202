"""Who the nodes of the cluster are by now, and where they are found.

It begins with the cluster file, which tells how the cluster began, and goes on with what the order
and other nodes tell. The latest is kept in the node's folder, so that a node finds the others
again after all that its file names are gone.
"""

import contextlib
from pathlib import Path

import msgspec

from samcast.machine.change import node_last
from samcast.machine.ports import Channel, NodeId
from samcast.machine.quorum import is_sound
from samcast.runtime.cluster_file import ClusterPlan
from samcast.runtime.folder import write_durably
from samcast.wire.order import ROLE_COMMIT, ROLE_DATA, Configuration, Place
from samcast.wire.session import Peer

FILE = "peers"
ROLE_OF = {Channel.DATA: ROLE_DATA, Channel.COMMIT: ROLE_COMMIT, Channel.PAYLOAD: ROLE_DATA}


class Known(msgspec.Struct, frozen=True):
    """A configuration, and where its nodes are, as far as that is known."""

    configuration: Configuration
    peers: tuple[Peer, ...]


class Directory:
    """Of one node."""

    def __init__(self, plan: ClusterPlan, own: NodeId) -> None:
        self._own = own
        self._path: Path | None = None
        peers = tuple(Peer(n.id, n.name, n.host, n.port) for n in plan.nodes)
        self._names = {n.id: n.name for n in (*plan.nodes, *plan.joined)}
        self._known = Known(plan.configuration(), peers)

    def keep_in(self, folder: Path) -> None:
        """Go on with what was known when the node last ran, and keep what comes. What can't be
        read there is learned again from the others."""
        self._path = folder / FILE
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=Known)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return
        if is_sound(kept.configuration):
            self._take(kept)

    # learning

    def learn(self, configuration: Configuration, peers: tuple[Peer, ...]) -> bool:
        """Somebody says so; True if it is new to us."""
        known = self._known
        listed = [server.node for server in configuration.servers]
        places = {peer.node: peer for peer in (*known.peers, *peers)}
        found = Known(configuration, tuple(places[node] for node in listed if node in places))
        is_later = configuration.number > known.configuration.number
        is_same = configuration.number == known.configuration.number
        if not is_later and not (is_same and len(found.peers) > len(known.peers)):
            return False
        self._take(found)
        if self._path is not None:
            # A hint for the next start: without it others tell us again.
            with contextlib.suppress(OSError):
                write_durably(self._path, msgspec.json.encode(found))
        return True

    def learn_ordered(self, configuration: Configuration, places: dict[int, Place]) -> bool:
        """The order says so."""
        peers = tuple(Peer(p.node, p.name, p.host, p.port) for p in places.values())
        return self.learn(configuration, peers)

    def note_names(self, places: tuple[Place, ...]) -> None:
        """Of those who are to come."""
        self._names.update({place.node: place.name for place in places})

    def _take(self, known: Known) -> None:
        if known.configuration.number >= self._known.configuration.number:
            self._known = known
            self._names.update({peer.node: peer.name for peer in known.peers})

    # asking

    @property
    def configuration(self) -> Configuration:
        """The latest that we know of."""
        return self._known.configuration

    @property
    def peers(self) -> tuple[Peer, ...]:
        """All nodes, ourselves included, as far as it is known where they are."""
        return self._known.peers

    @property
    def others(self) -> tuple[Peer, ...]:
        """All others."""
        return tuple(peer for peer in self.peers if peer.node != self._own)

    def lists(self, node: NodeId) -> bool:
        """Whether a node is of the cluster now."""
        return any(server.node == node for server in self.configuration.servers)

    def is_removed(self, node: NodeId) -> bool:
        """Whether a node is of the cluster no more; one that is to come is not."""
        return not self.lists(node) and node <= node_last(self.configuration)

    def on_channel(self, channel: Channel) -> list[NodeId]:
        """The other nodes that a multicast on this channel is for."""
        role = ROLE_OF.get(channel)
        servers = self.configuration.servers
        listed = [s.node for s in servers if role is None or s.roles & role]
        return [node for node in listed if node != self._own]

    def name_of(self, node: NodeId) -> str:
        """For people."""
        return self._names.get(node, f"node {node}" if node else "nobody")
