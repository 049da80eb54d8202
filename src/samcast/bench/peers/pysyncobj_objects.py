"""PySyncObj: three replicas of a Python object, each in a process of its own."""

import contextlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from samcast.bench.peers.peer import WINDOW
from samcast.errors import SamcastError
from samcast.runtime.local_cluster import free_ports

REPLICAS = 3


class PySyncObj:
    """A replicated method call per message, called at the first replica."""

    name = "pysyncobj"
    promise = "applied by a quorum; written to a file, not fsynced"

    def __init__(self) -> None:
        self._replicas: list[subprocess.Popen[str]] = []
        self._folder = Path()

    def missing(self) -> str:
        """What must be installed first."""
        is_here = importlib.util.find_spec("pysyncobj") is not None
        return "" if is_here else "pip install pysyncobj"

    def start(self, folder: Path) -> None:
        """Three replicas."""
        self._folder = folder
        places = [f"127.0.0.1:{port}" for port in free_ports(REPLICAS)]
        for i, own in enumerate(places):
            others = [place for place in places if place != own]
            command = [sys.executable, "-m", "samcast.bench.peers.pysyncobj_replica",
                       str(folder / f"journal-{i}"), own, *others]  # fmt: skip
            with (folder / f"replica-{i}.log").open("wb") as log:
                self._replicas.append(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=log, text=True, start_new_session=True)
                )  # fmt: skip
        for replica in self._replicas:
            self._answer(replica)

    def _answer(self, replica: "subprocess.Popen[str]") -> Any:
        assert replica.stdout is not None
        line = replica.stdout.readline()
        if not line:
            raise SamcastError(
                f"a replica of PySyncObj ended; its last words: {self._last_words()}"
            )
        return json.loads(line)

    def _last_words(self) -> str:
        logs = sorted(self._folder.glob("replica-*.log"))
        words = [log.read_text(errors="replace").strip().splitlines()[-1:] for log in logs]
        return " | ".join(line for lines in words for line in lines) or "none"

    def _ask(self, question: str) -> Any:
        replica = self._replicas[0]
        assert replica.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # Then it has no answer, either.
            replica.stdin.write(question + "\n")
            replica.stdin.flush()
        return self._answer(replica)

    def stop(self) -> None:
        """End it."""
        for replica in self._replicas:
            with contextlib.suppress(ProcessLookupError):
                replica.kill()
            replica.communicate()
        self._replicas = []

    def rate(self, bodies: list[bytes], window: int = WINDOW) -> float:
        """Calls with a callback each."""
        return float(self._ask(f"rate {len(bodies)} {len(bodies[0])} {window}"))

    def one(self, body: bytes, count: int) -> list[float]:
        """One call after the other."""
        waits: list[float] = self._ask(f"one {count} {len(body)}")
        return waits
