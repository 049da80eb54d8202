"""Members of a peer that are processes of ours: they do what lines of their standard input say, and
answer each with one line of JSON."""

import contextlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from samcast.bench.peers.peer import WINDOW
from samcast.errors import SamcastError


class Workers:
    """Several of them; the first one is asked."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._folder = Path()
        self._running: list[subprocess.Popen[str]] = []

    def start(self, folder: Path, commands: Sequence[Sequence[str]]) -> None:
        """All at once; returns when each has said that it is ready."""
        self._folder = folder
        for i, command in enumerate(commands):
            with (folder / f"worker-{i}.log").open("wb") as log:
                self._running.append(
                    subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=log, text=True, start_new_session=True)
                )  # fmt: skip
        for worker in self._running:
            self._answer(worker)

    def rate(self, bodies: list[bytes], window: int = WINDOW) -> float:
        """Seconds for so many messages, so many on their way."""
        return float(self._ask(f"rate {len(bodies)} {len(bodies[0])} {window}"))

    def one(self, body: bytes, count: int) -> list[float]:
        """One message after the other: how long each took, in ms."""
        waits: list[float] = self._ask(f"one {count} {len(body)}")
        return waits

    def stop(self) -> None:
        """End them: the end of their input says so; who doesn't hear it is killed."""
        for worker in self._running:
            with contextlib.suppress(BrokenPipeError):
                assert worker.stdin is not None
                worker.stdin.close()
        for worker in self._running:
            try:
                worker.wait(10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()
        self._running = []

    def _ask(self, question: str) -> Any:
        worker = self._running[0]
        assert worker.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # Then it has no answer, either.
            worker.stdin.write(question + "\n")
            worker.stdin.flush()
        return self._answer(worker)

    def _answer(self, worker: "subprocess.Popen[str]") -> Any:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if not line:
            raise SamcastError(f"{self._what} ended; last words: {self._last_words()}")
        return json.loads(line)

    def _last_words(self) -> str:
        logs = sorted(self._folder.glob("worker-*.log"))
        words = [log.read_text(errors="replace").strip().splitlines()[-1:] for log in logs]
        return " | ".join(line for lines in words for line in lines) or "none"
