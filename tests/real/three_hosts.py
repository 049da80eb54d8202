"""Three hosts on one network: a network namespace for each node, joined by a bridge. Only within a
namespace that `unshare` has made for us, so that nobody else hears it.
"""

import dataclasses
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from samcast.runtime.cluster_file import DATAGRAM_BYTES
from samcast.runtime.cluster_text import write_cluster_file
from samcast.runtime.local_cluster import LocalCluster
from tests.real.lossy import launcher

NETWORK = "10.77.0"
PORT = 7100


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


class Host:
    """A namespace with one address, alive as long as a process of ours is in it."""

    def __init__(self, number: int) -> None:
        self.address = f"{NETWORK}.{number}"
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo here; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == b"here\n"
        self.enter = ["nsenter", f"--net=/proc/{self._keeper.pid}/ns/net", "--"]
        ours, theirs = f"port{number}", f"host{number}"
        ip("link", "add", ours, "type", "veth", "peer", "name", theirs)
        ip("link", "set", ours, "master", "br0")
        ip("link", "set", ours, "up")
        ip("link", "set", theirs, "netns", str(self._keeper.pid))
        for command in (
            ["addr", "add", f"{self.address}/24", "dev", theirs],
            ["link", "set", "lo", "up"],
            ["link", "set", theirs, "up"],
        ):
            subprocess.run([*self.enter, "ip", *command], check=True)

    def end(self) -> None:
        self._keeper.kill()
        self._keeper.communicate()


@contextmanager
def three_hosts(folder: Path, group: str, loss: float) -> Iterator[LocalCluster]:
    """A cluster with a node on each of them; we ourselves are on the same network."""
    ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
    ip("addr", "add", f"{NETWORK}.254/24", "dev", "br0")
    ip("link", "set", "br0", "up")
    hosts = [Host(number) for number in (1, 2, 3)]
    try:
        cluster = LocalCluster(folder / "cluster")
        plan = cluster.make(3, multicast=group, datagram_bytes=DATAGRAM_BYTES)
        nodes = tuple(
            dataclasses.replace(
                node, host=host.address, port=PORT, metrics=f"{host.address}:{PORT + 1}"
            )
            for node, host in zip(plan.nodes, hosts, strict=True)
        )
        write_cluster_file(dataclasses.replace(plan, nodes=nodes, is_insecure=True))
        for node, host in zip(nodes, hosts, strict=True):
            cluster.launchers[node.name] = [*host.enter, *launcher(loss)]
        yield cluster
    finally:
        for host in hosts:
            host.end()
