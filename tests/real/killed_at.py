"""A node that dies at a step of the protocol. The process is the real one; it kills itself, as hard
as others would, where a file tells it to. Run as `python -m tests.real.killed_at STEP
samcast.cli.main node ...`, where STEP is a file that may change while the node runs:

    {"what": "CommitSubmit", "when": "between", "nth": 3}

`what` is a message that the node sends, or a store; `before`: it is neither sent nor stored;
`between`: only one of those who should hear it does; `after`: all do, and the disk has been told.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from samcast.machine.ports import Effect, Multicast, Send
from samcast.runtime.host import Host
from samcast.runtime.node import Node


class Death:
    """Waits for its moment."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = 0
        self._what = self._when = ""
        self._left = 0
        self._carry_out = Host._carry_out
        self._step_all = Host._step_all

    def install(self) -> None:
        death = self

        def step_all(host: Host) -> None:
            death.look()
            death._step_all(host)

        def carry_out(host: Host, at: int, effect: Effect) -> None:
            death.carry_out(host, at, effect)

        Host._step_all = step_all  # type: ignore[method-assign, assignment]
        Host._carry_out = carry_out  # type: ignore[method-assign, assignment]

    def look(self) -> None:
        """What the file says now."""
        try:
            stamp = self._path.stat().st_mtime_ns
            if stamp != self._stamp:
                said: dict[str, Any] = json.loads(self._path.read_text())
                self._what, self._when = said.get("what", ""), said.get("when", "")
                self._left = said.get("nth", 1)
                self._stamp = stamp
        except (OSError, ValueError):
            pass  # It isn't there yet, or is being written.

    def carry_out(self, host: Host, at: int, effect: Effect) -> None:
        thing = effect.message if isinstance(effect, Send | Multicast) else effect
        if type(thing).__name__ == self._what:
            self._left -= 1
            if not self._left:
                self._die(host, at, effect)
        self._carry_out(host, at, effect)

    def _die(self, host: Host, at: int, effect: Effect) -> None:
        node = host._network
        assert isinstance(node, Node)
        mesh = node._mesh
        if self._when == "between":
            first = min(mesh._peers, default=0)
            mesh._peers = {n: peer for n, peer in mesh._peers.items() if n == first}
        if self._when != "before":
            self._carry_out(host, at, effect)
            mesh.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def launcher(step: Path) -> list[str]:
    """What runs such a node."""
    return [sys.executable, "-m", "tests.real.killed_at", str(step), "samcast.cli.main"]


def main() -> None:
    Death(Path(sys.argv[1])).install()
    from samcast.cli.main import main as samcast

    sys.argv = sys.argv[2:]
    samcast()


if __name__ == "__main__":
    main()
