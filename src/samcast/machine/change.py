"""From one configuration to the next: what may follow what (SAFETY 2.11).

The same rules for whoever asks for a change, for the sequencer that orders it, and for the fold
that lets it take effect.
"""

from samcast.errors import ConfigError
from samcast.machine.quorum import check_quorums, lists, servers_with
from samcast.wire.change import ChangeRequest
from samcast.wire.order import ROLE_DATA, Configuration, Server

REPLACED_MAX = 1000  # disks that once were listed; beyond that the oldest is as good as unknown


def check_change(now: Configuration, request: ChangeRequest) -> None:
    """Refuse what can't follow the present configuration, with a sentence that says why."""
    target = request.configuration
    if target.number != now.number + 1:
        raise ConfigError(
            f"the cluster has configuration {now.number}, and this change was made for"
            f" {target.number - 1}: somebody else has changed it; look again, then repeat"
        )
    check_quorums(target)
    check_servers(now, request)
    staying = len(staying_keepers(now, target))
    if needs_copies(now, target) and not request.is_lost and staying < target.k_data:
        raise ConfigError(
            f"k_data is {target.k_data} and only {staying} of the present data servers stay:"
            " what the others hold must be copied first; add servers before you remove these"
        )


def check_servers(now: Configuration, request: ChangeRequest) -> None:
    """Who stays stays as it is; who is new has an id that nobody had, and a place."""
    target, last = request.configuration, node_last(now)
    before = {server.node: server for server in now.servers}
    coming = [server.node for server in target.servers if server.node not in before]
    placed = [place.node for place in request.places]
    if sorted(placed) != sorted(coming):
        raise ConfigError(
            f"servers {coming} are new, and places are given for {placed}; each newcomer needs"
            " one, and nobody else"
        )
    for server in target.servers:
        old = before.get(server.node)
        if old is not None and old != server and not _is_admitted(old, server, request):
            raise ConfigError(
                f"server {server.node} stays, so its disk and its roles must stay as they are"
            )
        if old is None and server.node <= last:
            raise ConfigError(
                f"the id {server.node} is or was another node's; prepare this one again, it gets"
                f" {last + 1} or a higher one"
            )
    uuids = [server.uuid for server in target.servers]
    if 0 in uuids or len(dict.fromkeys(uuids)) != len(uuids):
        raise ConfigError("two servers have one disk; prepare each node in a folder of its own")
    highest = max(last, *(server.node for server in target.servers))
    if target.node_last != highest:
        raise ConfigError(f"node_last is {target.node_last}; the highest id ever is {highest}")


def _is_admitted(old: Server, server: Server, request: ChangeRequest) -> bool:
    """Whether only the disk differs, and it is the one that an operator has named."""
    is_same_node = old.node == server.node and old.roles == server.roles
    return is_same_node and server.uuid == request.admitted


def replaced_by(
    known: list[tuple[int, int]], now: Configuration, target: Configuration
) -> list[tuple[int, int]]:
    """Nodes and uuids of the disks that others took the place of, oldest first."""
    listed = {server.node: server.uuid for server in target.servers}
    lost = [(s.node, s.uuid) for s in now.servers if listed.get(s.node, s.uuid) != s.uuid]
    left = [disk for disk in known if disk not in lost and listed.get(disk[0]) != disk[1]]
    return [*left, *lost][-REPLACED_MAX:]


def node_last(configuration: Configuration) -> int:
    """The highest id that was ever used."""
    return max(configuration.node_last, *(server.node for server in configuration.servers))


def needs_copies(now: Configuration, target: Configuration) -> bool:
    """Whether payloads would have fewer copies than they must."""
    is_leaving = len(staying_keepers(now, target)) < len(servers_with(now, ROLE_DATA))
    return is_leaving or target.k_data > now.k_data


def staying_keepers(now: Configuration, target: Configuration) -> tuple[Server, ...]:
    """Data servers of both, with the same disk."""
    return tuple(
        server
        for server in servers_with(now, ROLE_DATA)
        if lists(target, server.node, server.uuid, ROLE_DATA)
    )
