"""The cluster file: TOML that all nodes of a cluster share, checked in full before anything runs.

Every complaint names the file, the key, what it is and what it may be.
"""

import dataclasses
import hashlib
import ipaddress
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from operator import or_
from pathlib import Path
from typing import Any

from samcast.errors import ConfigError
from samcast.group.settings import LATER, GroupSettings
from samcast.limits import NODE_MAX, SERVERS_MAX
from samcast.machine.ports import Channel
from samcast.machine.quorum import check_quorums
from samcast.wire.order import ROLE_CHECKPOINT, ROLE_COMMIT, ROLE_DATA, Configuration, Server

ROLES = {"commit": ROLE_COMMIT, "data": ROLE_DATA, "checkpoint": ROLE_CHECKPOINT}
NODE_KEYS = {"id", "name", "host", "port", "listen", "socket", "metrics", "roles", "folder",
             "uuid"}  # fmt: skip
TOP_KEYS = {"cluster", "k_commit", "e_commit", "k_data", "k_checkpoint", "node", "joined", "gone",
            "settings", "insecure", "multicast", "datagram_bytes", "parity_percent",
            "pace_mb_per_s", "multicast_apart"}  # fmt: skip
MULTICAST_KEYS = ("datagram_bytes", "parity_percent", "pace_mb_per_s", "multicast_apart")
LAST_GROUP = ipaddress.IPv4Address("239.255.255.255")
DATAGRAM_BYTES = 1400  # fits every usual network
SOCKET_PATH_MAX = 100  # what every system takes


def bits_of(roles: Iterable[str]) -> int:
    """Roles as servers are listed in the order."""
    return reduce(or_, (ROLES[role] for role in roles), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node of the file."""

    id: int
    name: str
    host: str
    port: int
    roles: tuple[str, ...]
    folder: Path
    uuid: int  # of its first disk
    listen: str = ""  # host:port, where that isn't what others dial
    socket: Path | None = None  # a Unix socket besides, for clients of the same machine
    metrics: str = ""  # host:port of the page for Prometheus

    @property
    def listens_on(self) -> tuple[str, int]:
        """Where its own socket is."""
        return host_and_port(self.listen) if self.listen else (self.host, self.port)

    @property
    def role_bits(self) -> int:
        """As servers are listed in the order."""
        return bits_of(self.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """The whole file."""

    path: Path
    cluster: str
    k_commit: int
    e_commit: int
    k_data: int
    nodes: tuple[NodePlan, ...]
    settings: GroupSettings
    k_checkpoint: int = 0  # 0: nobody keeps checkpoints
    is_insecure: bool = False
    multicast: str = ""  # group:port, where the network has multicast
    datagram_bytes: int = DATAGRAM_BYTES
    parity_percent: int = 0  # of multicast: pieces that make up for lost ones
    pace_mb_per_s: int = 0  # of multicast: a node's payloads go no faster; 0: as fast as they can
    is_multicast_apart: bool = False  # four groups, one for each channel, instead of one
    # `nodes` are those that the cluster began with, the same in all files; who came later is in
    # its own file, and who left is remembered where a folder has them all.
    joined: tuple[NodePlan, ...] = ()
    gone: tuple[str, ...] = ()

    @property
    def present(self) -> tuple[NodePlan, ...]:
        """As far as this file knows: those that are to run."""
        return tuple(n for n in (*self.nodes, *self.joined) if n.name not in self.gone)

    def node(self, name: str) -> NodePlan:
        """The node of this name."""
        for node in (*self.nodes, *self.joined):
            if node.name == name:
                return node
        known = ", ".join(node.name for node in (*self.nodes, *self.joined))
        raise ConfigError(f"{self.path}: there is no node {name!r}; it lists {known}")

    def groups(self) -> dict[Channel, tuple[str, int]]:
        """Where each channel is multicast: all at one place, or at four that follow each other."""
        host, port = host_and_port(self.multicast)
        first = ipaddress.IPv4Address(host)
        return {
            channel: (str(first + place if self.is_multicast_apart else first), port)
            for place, channel in enumerate(Channel)
        }

    def configuration(self) -> Configuration:
        """The configuration that the cluster begins with."""
        servers = tuple(Server(n.id, n.uuid, n.role_bits) for n in self.nodes)
        counts = (self.k_commit, self.e_commit, self.k_data, self.k_checkpoint)
        return Configuration(1, servers, *counts)

    def facts(self) -> tuple[tuple[str, str], ...]:
        """What all nodes must agree on, key by key."""
        facts = {
            "cluster": self.cluster,
            "k_commit": str(self.k_commit),
            "e_commit": str(self.e_commit),
            "k_data": str(self.k_data),
            "k_checkpoint": str(self.k_checkpoint),
        }
        if self.multicast:
            facts |= {"multicast": self.multicast, "datagram_bytes": str(self.datagram_bytes)}
            facts |= {"parity_percent": str(self.parity_percent)}
            facts |= {"pace_mb_per_s": str(self.pace_mb_per_s)}
            facts |= {"multicast_apart": str(self.is_multicast_apart)}
        for node in self.nodes:
            roles = "+".join(node.roles)
            facts[f"node.{node.id}"] = f"{node.name} {node.host}:{node.port} {roles} {node.uuid}"
        for field in dataclasses.fields(self.settings):
            value = getattr(self.settings, field.name)
            if field.name not in LATER or value != field.default:
                facts[f"settings.{field.name}"] = str(value)
        return tuple(sorted(facts.items()))

    def digest(self) -> str:
        """One word for all of that."""
        return hashlib.sha256(repr(self.facts()).encode()).hexdigest()[:16]

    def origin(self) -> str:
        """Which cluster this is, whatever it is called and whoever serves by now: the disks that
        it began with."""
        disks = [(node.id, node.uuid) for node in self.nodes]
        return hashlib.sha256(repr((self.cluster, disks)).encode()).hexdigest()[:16]


def read_cluster_file(path: Path) -> ClusterPlan:
    """The plan in a file, or a `ConfigError` that says what to mend."""
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; write one (docs/using.md shows how), or let `samcast up` make"
            " a cluster on this machine"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    return _Reader(path).read(content)


def read_cluster_text(text: str, path: Path) -> ClusterPlan:
    """The plan in a text that is to be the file at a path."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    return _Reader(path).read(content)


def _usual_k_checkpoint(nodes: tuple[NodePlan, ...]) -> int:
    """Two that have come to the same state, where there are two."""
    return min(2, sum(1 for node in nodes if "checkpoint" in node.roles))


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, content: dict[str, Any]) -> ClusterPlan:
        self._no_others(content, TOP_KEYS, "")
        tables = content.get("node")
        if not isinstance(tables, list) or not tables or len(tables) > SERVERS_MAX:
            raise self._error("node", tables, f"1 to {SERVERS_MAX} tables [[node]]")
        nodes = tuple(self._node(table, f"node {i}") for i, table in enumerate(tables, 1))
        joined = self._joined(content.get("joined", []))
        for what in ("id", "name", "uuid"):
            values = [getattr(node, what) for node in (*nodes, *joined)]
            twice = [value for value in values if values.count(value) > 1]
            if twice:
                raise self._error(f"node.{what}", twice[0], "something that no other node has")
        plan = ClusterPlan(
            path=self._path,
            cluster=self._text(content, "cluster", ""),
            k_commit=self._number(content, "k_commit", "", 1, SERVERS_MAX),
            e_commit=self._number(content, "e_commit", "", 1, SERVERS_MAX),
            k_data=self._number(content, "k_data", "", 1, SERVERS_MAX),
            k_checkpoint=self._number(
                {"k_checkpoint": _usual_k_checkpoint(nodes), **content},
                "k_checkpoint",
                "",
                0,
                SERVERS_MAX,
            ),
            nodes=nodes,
            joined=joined,
            gone=self._gone(content.get("gone", []), (*nodes, *joined)),
            settings=self._settings(content.get("settings", {})),
            is_insecure=self._bool(content, "insecure"),
            multicast=self._multicast(content),
            datagram_bytes=self._number(
                {"datagram_bytes": DATAGRAM_BYTES, **content}, "datagram_bytes", "", 500, 60_000
            ),
            parity_percent=self._parity(content),
            pace_mb_per_s=self._number(
                {"pace_mb_per_s": 0, **content}, "pace_mb_per_s", "", 0, 100_000
            ),
            is_multicast_apart=self._bool(content, "multicast_apart"),
        )
        try:
            check_quorums(plan.configuration())
        except ValueError as error:
            raise ConfigError(f"{self._path}: {error}") from None
        self._check_hosts(plan)
        self._check_places(plan)
        return plan

    def _joined(self, tables: Any) -> tuple[NodePlan, ...]:
        if not isinstance(tables, list):
            raise self._error("joined", tables, "tables [[joined]]")
        return tuple(self._node(table, f"joined {i}") for i, table in enumerate(tables, 1))

    def _gone(self, names: Any, nodes: tuple[NodePlan, ...]) -> tuple[str, ...]:
        known = [node.name for node in nodes]
        if not isinstance(names, list) or any(name not in known for name in names):
            raise self._error("gone", names, f"a list of names of nodes: {', '.join(known)}")
        return tuple(names)

    def _multicast(self, content: dict[str, Any]) -> str:
        address = self._address(content, "multicast", "", "group:port, such as 239.1.2.3:7000")
        alone = [key for key in MULTICAST_KEYS if key in content and not address]
        if alone:
            raise ConfigError(
                f"{self._path}: {alone[0]} says something only where there is `multicast`; add"
                " that, or leave it out"
            )
        last = 3 if content.get("multicast_apart") is True else 0
        if address and not _is_multicast(host_and_port(address)[0], last):
            raise self._error(
                "multicast", address,
                "an IPv4 group that is yours to use and a port, such as 239.1.2.3:7000",
            )  # fmt: skip
        return address

    def _parity(self, content: dict[str, Any]) -> int:
        percent = self._number({"parity_percent": 0, **content}, "parity_percent", "", 0, 100)
        if percent and find_spec("zfec") is None:
            raise ConfigError(
                f"{self._path}: parity_percent is {percent}, and that needs a library: pip install"
                " 'samcast[fec]', or leave it out"
            )
        return percent

    def _node(self, table: Any, where: str) -> NodePlan:
        if not isinstance(table, dict):
            raise self._error(where, table, "a table")
        self._no_others(table, NODE_KEYS, where + ".")
        name = self._text(table, "name", where)
        roles = table.get("roles", list(ROLES))
        if not isinstance(roles, list) or not roles or any(role not in ROLES for role in roles):
            raise self._error(f"{where}.roles", roles, f"a list of {', '.join(ROLES)}")
        return NodePlan(
            id=self._number(table, "id", where, 1, NODE_MAX),
            name=name,
            host=self._text(table, "host", where),
            port=self._number(table, "port", where, 1, 65535),
            roles=tuple(roles),
            folder=self._path.parent / str(table.get("folder", name)),
            uuid=self._number(table, "uuid", where, 1, 2**62),
            listen=self._address(table, "listen", where),
            metrics=self._address(table, "metrics", where),
            socket=self._socket(table, where),
        )

    def _socket(self, table: dict[str, Any], where: str) -> Path | None:
        if "socket" not in table:
            return None
        path = self._path.parent / self._text(table, "socket", where)
        if len(str(path.absolute())) > SOCKET_PATH_MAX:
            raise self._error(
                f"{where}.socket", str(path.absolute()), f"at most {SOCKET_PATH_MAX} characters"
            )
        return path

    def _address(self, table: dict[str, Any], key: str, where: str, form: str = "host:port") -> str:
        if key not in table:
            return ""
        value = table[key]
        host, _, port = str(value).rpartition(":")
        if not isinstance(value, str) or not host or not port.isdecimal():
            raise self._error(f"{where}.{key}".lstrip("."), value, form)
        if not 1 <= int(port) <= 65535:
            raise self._error(
                f"{where}.{key}".lstrip("."), value, f"{form} with a port from 1 to 65535"
            )
        return value

    def _settings(self, table: Any) -> GroupSettings:
        if not isinstance(table, dict):
            raise self._error("settings", table, "a table")
        kinds = {field.name: field.type for field in dataclasses.fields(GroupSettings)}
        self._no_others(table, set(kinds), "settings.")
        for key, value in table.items():
            wanted = bool if kinds[key] in (bool, "bool") else int
            if type(value) is not wanted:
                raise self._error(
                    f"settings.{key}", value, "true or false" if wanted is bool else "a number"
                )
        try:
            return GroupSettings(**table)
        except ConfigError as error:
            raise ConfigError(f"{self._path}: settings: {error}") from None

    def _check_places(self, plan: ClusterPlan) -> None:
        """Two that listen on one machine need two ports."""
        # A newcomer may be where one was that has left, which its own file doesn't know.
        for nodes in (plan.nodes, plan.joined):
            self._check_apart(tuple(n for n in nodes if n.name not in plan.gone))

    def _check_apart(self, nodes: tuple[NodePlan, ...]) -> None:
        seen: dict[tuple[str, int], str] = {}
        for node in nodes:
            ports = {"port": node.listens_on[1]}
            if node.metrics:
                ports["metrics"] = host_and_port(node.metrics)[1]
            for key, port in ports.items():
                before = seen.setdefault((node.host, port), f"{key} of {node.name}")
                if before != f"{key} of {node.name}":
                    raise ConfigError(
                        f"{self._path}: {key} of {node.name} is {port}, and so is {before}, on"
                        f" {node.host}; choose another"
                    )

    def _check_hosts(self, plan: ClusterPlan) -> None:
        for node in (*plan.nodes, *plan.joined):
            if plan.multicast and not _is_ipv4(node.host):
                raise self._error(
                    f"node {node.name}: host", node.host, "an IPv4 address where there is multicast"
                )
            if plan.multicast and (
                node.listens_on[0] not in (node.host, "0.0.0.0") or node.listens_on[1] != node.port
            ):
                raise self._error(
                    f"node {node.name}: listen", node.listen,
                    f"{node.host}:{node.port} or 0.0.0.0:{node.port} where there is multicast,"
                    " since datagrams tell their sender by its address",
                )  # fmt: skip
            places = [(node.listens_on[0], "listen", "read and write")]
            if node.metrics:
                places.append((host_and_port(node.metrics)[0], "show its metrics", "read them"))
            for host, what, risk in places:
                if not is_loopback(host) and not plan.is_insecure:
                    raise ConfigError(
                        f"{self._path}: node {node.name} would {what} on {host}, beyond this"
                        f" machine, where anybody could {risk}; say `insecure = true` if"
                        " that network is only yours"
                    )

    def _no_others(self, table: dict[str, Any], known: set[str], where: str) -> None:
        for key in table:
            if key in known:
                continue
            if key in NODE_KEYS and known == TOP_KEYS:
                raise ConfigError(f"{self._path}: {key} belongs into the table [[node]] of a node")
            if key in TOP_KEYS and known == NODE_KEYS:
                raise ConfigError(f"{self._path}: {where}{key} belongs above the first [[node]]")
            raise ConfigError(
                f"{self._path}: {where}{key} is no key that we know; there are"
                f" {', '.join(sorted(known))}"
            )

    def _number(self, table: dict[str, Any], key: str, where: str, low: int, high: int) -> int:
        value = table.get(key)
        if type(value) is not int or not low <= value <= high:
            raise self._error(f"{where}.{key}".lstrip("."), value, f"a number, {low} to {high}")
        return value

    def _text(self, table: dict[str, Any], key: str, where: str) -> str:
        value = table.get(key)
        if not isinstance(value, str) or not 1 <= len(value) <= 200:
            raise self._error(f"{where}.{key}".lstrip("."), value, "1 to 200 characters")
        return value

    def _bool(self, table: dict[str, Any], key: str) -> bool:
        value = table.get(key, False)
        if type(value) is not bool:
            raise self._error(key, value, "true or false")
        return value

    def _error(self, key: str, value: Any, allowed: str) -> ConfigError:
        said = "missing" if value is None else f"{value!r}"
        return ConfigError(f"{self._path}: {key} is {said}; it must be {allowed}")


def host_and_port(address: str) -> tuple[str, int]:
    """Of an address that has been checked."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _is_ipv4(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 4
    except ValueError:
        return False


def _is_multicast(host: str, more: int) -> bool:
    """Whether users may take it, and some behind it: 224.0.0.x belongs to the machinery of
    networks."""
    if not _is_ipv4(host):
        return False
    address = ipaddress.IPv4Address(host)
    is_ours = address.is_multicast and address not in ipaddress.ip_network("224.0.0.0/24")
    return is_ours and int(address) + more <= int(LAST_GROUP)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
