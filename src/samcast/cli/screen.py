"""The live screen of `samcast up`: nodes, numbers, and keys to kill and restart them."""

import contextlib
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from samcast.cli.demo import Demo, Seen
from samcast.runtime.local_cluster import LocalCluster

PROGRAM = """import samcast

with samcast.connect() as client:
    orders = client.group("orders")
    for i in range(5):
        print("confirmed as number", orders.send(f"order {i}").number())
    for message in orders.read(1, count=5):
        print(message.number, message.body.decode())"""


class Screen:
    """What a person sees, and what they can do."""

    def __init__(self, cluster: LocalCluster, demo: Demo) -> None:
        self._cluster = cluster
        self._demo = demo

    def run(self) -> None:
        """Until `q` or Ctrl-C."""
        with keys() as pressed, Live(self.render(), refresh_per_second=4, screen=True) as live:
            while True:
                live.update(self.render())
                key = pressed(0.25)
                if key in ("q", "\x03"):
                    return
                self._on_key(key)

    def run_plain(self) -> None:
        """A line per second, for logs."""
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(1)
                print(plain(self._demo.seen), flush=True)

    def _on_key(self, key: str) -> None:
        names = [process.plan.name for process in self._cluster.processes()]
        if key == "s":
            leading = [n["name"] for n in self._demo.seen.nodes if n.get("sequencing")]
            for name in leading[:1]:
                self._toggle(name)
        elif key.isdecimal() and 1 <= int(key) <= len(names):
            self._toggle(names[int(key) - 1])

    def _toggle(self, name: str) -> None:
        if self._cluster.pid_of(self._cluster.plan().node(name)):
            self._cluster.kill(name)
            self._demo.say(f"killed {name} (SIGKILL)")
        else:
            self._cluster.start(name)
            self._demo.say(f"started {name} again")

    def render(self) -> Group:
        """The whole screen."""
        seen = self._demo.seen
        nodes = Table(expand=True)
        for column in ("key", "node", "pid", "state", "epoch", "index", "waiting", "warnings"):
            nodes.add_column(column)
        for at, node in enumerate(seen.nodes, 1):
            state = "SEQUENCING" if node.get("sequencing") else str(node["state"])
            style = {"down": "red", "SEQUENCING": "bold green"}.get(state, "")
            nodes.add_row(
                str(at), node["name"], str(node["pid"] or "-"), Text(state, style),
                str(node.get("epoch", "-")), str(node.get("index", "-")),
                str(node.get("data", {}).get("waiting", "-")),
                str(sum(node.get("warnings", {}).values())),
            )  # fmt: skip
        numbers = Table.grid(padding=(0, 3))
        numbers.add_row("confirmed", f"{seen.confirmed:,}", "rate", f"{seen.rate:,.0f} per second")
        numbers.add_row("delivered", f"{seen.delivered:,}", "gaps", str(seen.gaps))
        numbers.add_row(
            "confirmed within", f"{seen.latency_ms:.1f} ms",
            "longest wait", f"{seen.longest_wait_ms:.0f} ms",
        )  # fmt: skip
        keys_line = (
            f"[b]s[/b] kill the sequencer   [b]1-{max(1, len(seen.nodes))}[/b] kill or restart a"
            " node   [b]q[/b] quit"
        )
        return Group(
            Panel(nodes, title=keys_line),
            Panel(numbers, title="one sender, one member: numbers go on without a gap"),
            Panel("\n".join(seen.events) or "press s", title="what happened"),
            Panel(
                f"export SAMCAST_CLUSTER={self._cluster.address}\n\n{PROGRAM}",
                title="try it in another terminal",
            ),
            Text(seen.trouble, "red"),
        )


def plain(seen: Seen) -> str:
    """All numbers in one line."""
    leading = [node["name"] for node in seen.nodes if node.get("sequencing")]
    up = sum(1 for node in seen.nodes if node["pid"])
    return (
        f"{time.strftime('%H:%M:%S')} nodes {up}/{len(seen.nodes)} sequencer"
        f" {leading[0] if leading else '-'} confirmed {seen.confirmed} delivered {seen.delivered}"
        f" gaps {seen.gaps} rate {seen.rate:.0f}/s latency {seen.latency_ms:.1f} ms"
        f" longest {seen.longest_wait_ms:.0f} ms"
    )


@contextlib.contextmanager
def keys() -> Iterator["Pressed"]:
    """Keys as they are pressed, without Enter; the terminal is as before afterwards."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield Pressed()
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


class Pressed:
    """Called with how long to wait; the key, or nothing."""

    def __call__(self, wait_s: float) -> str:
        try:
            ready, _, _ = select.select([sys.stdin], [], [], wait_s)
        except KeyboardInterrupt:
            return "q"
        return sys.stdin.read(1) if ready else ""
