"""A cluster of real processes on this machine, in one folder: made, started, looked at, stopped.

The folder holds the cluster file, a folder per node with its data and log, and `address` for
clients. Starting it again goes on with the same data.
"""

import contextlib
import dataclasses
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from samcast.errors import ConfigError, SamcastError
from samcast.group.settings import GroupSettings
from samcast.runtime.cluster_file import SOCKET_PATH_MAX, ClusterPlan, NodePlan, read_cluster_file
from samcast.runtime.cluster_text import write_cluster_file
from samcast.runtime.folder import LOCK, format_folder
from samcast.runtime.newcomer import write_newcomer

FILE = "cluster.toml"
BUSY = "busy"  # locked by whoever is just starting or stopping nodes
STARTED_IN = "SAMCAST_STARTED_IN"  # tells a node's process that this folder started it
STOP_S = 5.0
CONNECT_S = 1.0
PORT_FIRST = 12_000
PORTS_OUT_FIRST = 32_768  # where a usual system's ports of outgoing connections begin
DATAGRAM_BYTES = 60_000  # of multicast within one machine, where no network sets a limit


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """A node and its process, 0 if it isn't running."""

    plan: NodePlan
    pid: int


class LocalCluster:
    """The cluster of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self.launchers: dict[str, list[str]] = {}  # what runs a node in place of `samcast`
        self._holds = 0

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else starts or stops nodes of this folder meanwhile; whoever comes second waits
        until the first is through, and finds what it has left."""
        if self._holds:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.folder / BUSY, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            self._holds = 1
            yield
        finally:
            self._holds = 0
            os.close(fd)

    # making

    @property
    def exists(self) -> bool:
        """Whether there is a cluster here, running or not."""
        return (self.folder / FILE).exists()

    def make(
        self,
        nodes: int = 3,
        settings: GroupSettings | None = None,
        multicast: str = "",
        datagram_bytes: int = DATAGRAM_BYTES,
    ) -> ClusterPlan:
        """Lay out a new cluster: its file, and a formatted disk for every node."""
        if not 1 <= nodes <= 7:
            raise ConfigError(f"{nodes} nodes; a cluster on one machine has 1 to 7")
        self.folder.mkdir(parents=True, exist_ok=True)
        most = nodes // 2 + 1
        ports = free_ports(2 * nodes)
        plan = ClusterPlan(
            path=self.folder / FILE,
            cluster=f"{self.folder.resolve().parent.name or 'samcast'}-{secrets.token_hex(2)}",
            k_commit=most,
            e_commit=nodes - most + 1 if nodes % 2 else most,
            k_data=min(2, nodes),
            k_checkpoint=min(2, nodes),
            nodes=tuple(
                NodePlan(
                    id=i,
                    name=f"n{i}",
                    host="127.0.0.1",
                    port=ports[i - 1],
                    roles=("commit", "data", "checkpoint"),
                    folder=self.folder / f"n{i}",
                    uuid=1 + secrets.randbelow(2**62),
                    socket=self._socket(f"n{i}.sock"),
                    metrics=f"127.0.0.1:{ports[nodes + i - 1]}",
                )
                for i in range(1, nodes + 1)
            ),
            settings=settings or GroupSettings(),
            multicast=multicast,
            datagram_bytes=datagram_bytes,
        )
        for node in plan.nodes:
            format_folder(node.folder, node.id, node.uuid)
        write_cluster_file(plan)
        return plan

    def _socket(self, name: str) -> Path | None:
        """Beside the node's folder, if the system takes so long a path."""
        path = self.folder / name
        return path if len(str(path.absolute())) <= SOCKET_PATH_MAX else None

    def plan(self) -> ClusterPlan:
        """What the cluster file says."""
        return read_cluster_file(self.folder / FILE)

    @property
    def address(self) -> str:
        """For clients."""
        return ",".join(f"{node.host}:{node.port}" for node in self.plan().present)

    # changing

    def prepare(self, node_id: int, roles: tuple[str, ...] = ()) -> NodePlan:
        """One more node in this folder, which is to be let in."""
        plan = self.plan()
        ports = free_ports(2)
        used = [node.id for node in (*plan.nodes, *plan.joined)]
        number = max(node_id, *(i + 1 for i in used))
        node = NodePlan(
            id=number,
            name=f"n{number}",
            host="127.0.0.1",
            port=ports[0],
            roles=roles or plan.nodes[0].roles,
            folder=self.folder / f"n{number}",
            uuid=1 + secrets.randbelow(2**62),
            socket=self._socket(f"n{number}.sock"),
            metrics=f"127.0.0.1:{ports[1]}",
        )
        write_newcomer(plan, node)
        return node

    def retire(self, name: str) -> None:
        """A node has been removed by order: end it, and start it no more. Its folder stays."""
        self.kill(name, signal.SIGTERM)
        plan = self.plan()
        write_cluster_file(dataclasses.replace(plan, gone=(*plan.gone, name)))

    # processes

    def start(self, name: str) -> int:
        """Start a node unless it runs; its process id."""
        with self.alone():
            node = self.plan().node(name)
            return self.pid_of(node) or self._launch(node)

    def _launch(self, node: NodePlan) -> int:
        with log_path(node).open("ab") as log:
            launcher = self.launchers.get(node.name, [sys.executable, "-m", "samcast.cli.main"])
            child = subprocess.Popen(
                [*launcher, "node", "--config", str(self.folder / FILE), "--name", node.name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, STARTED_IN: self._mark},
            )  # fmt: skip
        self._children[node.name] = child
        pid_path(node).write_text(f"{child.pid}\n")
        return child.pid

    @property
    def _mark(self) -> str:
        return str(self.folder.resolve())

    def start_all(self) -> None:
        """Start all nodes."""
        for node in self.plan().present:
            self.start(node.name)

    def pid_of(self, node: NodePlan) -> int:
        """The process of a node, 0 if it isn't running."""
        child = self._children.get(node.name)
        if child is not None:
            if child.poll() is None:
                return child.pid
            del self._children[node.name]
        try:
            pid = int(pid_path(node).read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return self._holder_of(node)
        is_ours = b"samcast.cli.main" in command and node.name.encode() in command
        return pid if is_ours and is_running(pid) else self._holder_of(node)

    def _holder_of(self, node: NodePlan) -> int:
        """Whoever has the node's disk, if we have started it: where its id was lost, or is another
        one's by now."""
        mark = f"{STARTED_IN}={self._mark}".encode()
        try:
            inode = (node.folder / LOCK).stat().st_ino
            held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        except OSError:
            return 0
        for line in held:
            if len(line) > 5 and line[1] == "FLOCK" and line[5].endswith(f":{inode}"):
                with contextlib.suppress(OSError):
                    if mark in Path(f"/proc/{line[4]}/environ").read_bytes().split(b"\0"):
                        return int(line[4])
        return 0

    def processes(self) -> list[NodeProcess]:
        """All nodes."""
        return [NodeProcess(node, self.pid_of(node)) for node in self.plan().present]

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a node's process, and wait for its end if it is to end."""
        node = self.plan().node(name)
        pid = self.pid_of(node)
        if not pid:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._await_end(NodeProcess(node, pid))

    def _await_end(self, process: NodeProcess) -> bool:
        limit = time.monotonic() + STOP_S
        while is_running(process.pid) or self.pid_of(process.plan):
            if time.monotonic() > limit:
                return False
            time.sleep(0.01)
        return True

    def stop_all(self) -> None:
        """End all nodes, gently first."""
        with self.alone():
            running = [p for p in self.processes() if p.pid]
            for process in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGTERM)
            for process in running:
                if not self._await_end(process):
                    self.kill(process.plan.name)

    def await_ready(self, only: str = "", timeout_s: float = 15.0) -> None:
        """Wait until all nodes, or just one, accept connections; an error with the log's end if one
        doesn't."""
        limit = time.monotonic() + timeout_s
        for node in self.plan().present if not only else (self.plan().node(only),):
            while not is_listening(node):
                if not self.pid_of(node) or time.monotonic() > limit:
                    raise SamcastError(
                        f"node {node.name} doesn't answer; the end of its log:\n{log_end(node)}"
                    )
                time.sleep(0.02)


def log_path(node: NodePlan) -> Path:
    """Beside the node's folder, which is its disk and nothing else."""
    return node.folder.with_name(node.folder.name + ".log")


def pid_path(node: NodePlan) -> Path:
    """Who runs the node."""
    return node.folder.with_name(node.folder.name + ".pid")


def is_running(pid: int) -> bool:
    """Whether a process has not ended yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def log_end(node: NodePlan, lines: int = 10) -> str:
    """The last lines of a node's log."""
    try:
        text = log_path(node).read_text(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:]) or "(empty)"


def is_listening(node: NodePlan) -> bool:
    """Whether the node is up. Its own socket tells; on its port somebody else might answer."""
    if node.socket is None:
        return can_connect(*node.listens_on)
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(CONNECT_S)
        return end.connect_ex(str(node.socket)) == 0


def can_connect(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((host, port), timeout=CONNECT_S):
            return True
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody uses just now: none of those that the system gives to outgoing
    connections, or one of these might take it before its node listens."""
    ports: list[int] = []
    sockets: list[socket.socket] = []
    try:
        while len(ports) < count:
            port = PORT_FIRST + secrets.randbelow(_ports_end() - PORT_FIRST)
            with contextlib.suppress(OSError):
                sockets.append(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
    finally:
        for end in sockets:
            end.close()
    return ports


def _ports_end() -> int:
    """Where the ports of outgoing connections begin."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        first = PORTS_OUT_FIRST
    return first if first > 2 * PORT_FIRST else PORTS_OUT_FIRST
