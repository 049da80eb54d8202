"""What is asked of every system that is compared."""

import contextlib
import importlib.util
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from samcast.errors import SamcastError

WINDOW = 1000  # messages on their way
START_S = 90.0


class Peer(Protocol):
    """One system, as three nodes of one machine."""

    name: str
    promise: str  # what a confirmation means, configured as it is here

    def missing(self) -> str:
        """What must be installed first; nothing if it can run."""
        ...

    def start(self, folder: Path) -> None:
        """Start a new cluster in a folder."""
        ...

    def stop(self) -> None:
        """End it."""
        ...

    def rate(self, bodies: list[bytes], window: int = WINDOW) -> float:
        """Seconds from the first send until the last confirmation, so many being on their way."""
        ...

    def one(self, body: bytes, count: int) -> list[float]:
        """How long each confirmation took, in ms, one message in flight."""
        ...


class Processes:
    """The servers of a peer: started in a folder, ended by their own ids."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """One server; what it prints goes to a file."""
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 env=environment, cwd=self._folder, start_new_session=True)
            )  # fmt: skip

    def stop(self) -> None:
        """All of them."""
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running = []


def await_port(port: int, within_s: float = START_S) -> None:
    """Until somebody listens."""
    limit = time.monotonic() + within_s
    while time.monotonic() < limit:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise SamcastError(f"nobody listens on port {port} after {within_s:.0f} s")


def missing(program: str, package: str, module: str, distribution: str) -> str:
    """What to install for a server program and its Python client."""
    wanted = []
    if shutil.which(program) is None:
        wanted.append(f"apt install {package}")
    if importlib.util.find_spec(module) is None:
        wanted.append(f"pip install {distribution}")
    return " && ".join(wanted)
