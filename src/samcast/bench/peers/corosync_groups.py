"""Corosync: three daemons in a ring, a member of a closed process group at each."""

import os
import shutil
import sys
from pathlib import Path

from samcast.bench.peers.peer import WINDOW
from samcast.bench.peers.workers import Workers

HOSTS = 3
CONFIG = """totem {{
  version: 2
  cluster_name: compared
  transport: knet
}}
logging {{
  to_stderr: yes
  to_syslog: no
}}
quorum {{
  provider: corosync_votequorum
}}
nodelist {{
{nodes}}}
"""
NODE = """  node {{
    nodeid: {number}
    name: host-{number}
    ring0_addr: 127.0.0.{number}
  }}
"""
LINKER = ("/etc/ld.so.cache", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf")


class Corosync:
    """Messages multicast by the member at the first daemon, which hears them back in their order.
    A host is a process with system folders of its own, for the daemon's paths are fixed."""

    name = "corosync"
    promise = "ordered by the ring, delivered at the sender; in memory only"

    def __init__(self) -> None:
        self._hosts = Workers("a host of corosync")

    def missing(self) -> str:
        """What must be installed first."""
        if shutil.which("corosync") is None:
            return "apt install corosync"
        return "" if os.geteuid() == 0 else "become root, who may mount (unshare --mount)"

    def start(self, folder: Path) -> None:
        """Three hosts."""
        nodes = "".join(NODE.format(number=number) for number in range(1, HOSTS + 1))
        commands = []
        for number in range(1, HOSTS + 1):
            own = folder / f"host-{number}"
            for place in ("etc/corosync", "etc/libqb", "var/run", "var/lib/corosync", "tmp"):
                (own / place).mkdir(parents=True)
            for file in LINKER:
                shutil.copy(file, own / "etc")
            (own / "etc/libqb/force-filesystem-sockets").touch()
            (own / "etc/corosync/corosync.conf").write_text(CONFIG.format(nodes=nodes))
            commands.append(["unshare", "--mount", "--uts", sys.executable, "-m",
                             "samcast.bench.peers.corosync_host", str(own)])  # fmt: skip
        self._hosts.start(folder, commands)

    def stop(self) -> None:
        """End it."""
        self._hosts.stop()

    def rate(self, bodies: list[bytes], window: int = WINDOW) -> float:
        """Multicast, so many on their way."""
        return self._hosts.rate(bodies, window)

    def one(self, body: bytes, count: int) -> list[float]:
        """One after the other."""
        return self._hosts.one(body, count)
