"""Quorums of a configuration: who counts, and how many of them it takes."""

from collections.abc import Iterable

from samcast.errors import ConfigError
from samcast.limits import NODE_MAX, SERVERS_MAX
from samcast.wire.order import ROLE_CHECKPOINT, ROLE_COMMIT, ROLE_DATA, Configuration, Server

ROLES_ALL = ROLE_COMMIT | ROLE_DATA | ROLE_CHECKPOINT
UUID_MAX = 2**63 - 1


def check_quorums(configuration: Configuration) -> None:
    """Refuse a configuration whose quorums don't meet, with a sentence that says which."""
    n = sum(1 for s in configuration.servers if s.roles & ROLE_COMMIT)
    n_data = sum(1 for s in configuration.servers if s.roles & ROLE_DATA)
    k, e, k_data = configuration.k_commit, configuration.e_commit, configuration.k_data
    _check_listed(configuration)
    if not 1 <= k <= n:
        raise ConfigError(f"k_commit is {k} but there are {n} commit servers; choose 1 to {n}")
    if not 1 <= e <= n:
        raise ConfigError(f"e_commit is {e} but there are {n} commit servers; choose 1 to {n}")
    if e < n - k + 1:
        raise ConfigError(
            f"e_commit is {e}: an election could miss what {k} of {n} have committed; "
            f"it must be at least n - k + 1 = {n - k + 1}"
        )
    if not 1 <= k_data <= n_data:
        raise ConfigError(f"k_data is {k_data} but there are {n_data} data servers")
    n_checkpoint = sum(1 for s in configuration.servers if s.roles & ROLE_CHECKPOINT)
    if not 0 <= configuration.k_checkpoint <= n_checkpoint:
        raise ConfigError(
            f"k_checkpoint is {configuration.k_checkpoint} but there are {n_checkpoint} checkpoint"
            " servers"
        )


def _check_listed(configuration: Configuration) -> None:
    if len(configuration.servers) > SERVERS_MAX:
        raise ConfigError(f"{len(configuration.servers)} servers; there may be {SERVERS_MAX}")
    for server in configuration.servers:
        is_sound_server = (
            1 <= server.node <= NODE_MAX
            and 1 <= server.roles <= ROLES_ALL
            and server.uuid <= UUID_MAX
        )
        if not is_sound_server:
            raise ConfigError(f"{server} can't be: ids are 1 to {NODE_MAX}, roles 1 to {ROLES_ALL}")
    if configuration.node_last > NODE_MAX:
        raise ConfigError(f"node_last is {configuration.node_last}; it may be {NODE_MAX}")
    if len({s.node for s in configuration.servers}) != len(configuration.servers):
        raise ConfigError("a node is listed twice; give every server its own id")


def is_sound(configuration: Configuration) -> bool:
    """Whether a configuration from outside could ever have been made."""
    try:
        check_quorums(configuration)
    except ConfigError:
        return False
    return True


def servers_with(configuration: Configuration, role: int) -> tuple[Server, ...]:
    """The servers that have a role."""
    return tuple(s for s in configuration.servers if s.roles & role)


def lists(configuration: Configuration, node: int, uuid: int, role: int) -> bool:
    """Whether this node, with this very disk, has the role in the configuration."""
    for server in configuration.servers:
        if server.node == node and server.uuid == uuid and server.roles & role:
            return True
    return False


def newer(one: Configuration, other: Configuration) -> Configuration:
    """The one with the higher number; never one that could not have been made."""
    return other if other.number > one.number and is_sound(other) else one


def kth_largest(values: Iterable[int], k: int) -> int:
    """The largest number that at least `k` of the values reach, or 0 if there are fewer."""
    ordered = sorted(values, reverse=True)
    return ordered[k - 1] if len(ordered) >= k else 0
