"""The process beside a node that folds messages into checkpoints: started when a group has a fold,
ended with the node, begun anew if it dies."""

import asyncio
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

WORKER = "samcast.client.fold_worker"
PAUSE_S = 2.0  # before it is begun anew
LINE_BYTES_MAX = 64 * 1024


class Said(msgspec.Struct, frozen=True):
    """One line of the worker."""

    group: int
    number: int = 0  # of a checkpoint that is written and checked
    rows: int = 0
    size: int = 0
    hash: str = ""
    failed: str = ""
    retried: str = ""
    dropped: str = ""


class FoldProcess:
    """At most one at a time."""

    def __init__(
        self,
        address: str,
        folder: Path,
        on_said: Callable[[Said], None],
        say: Callable[..., None],
    ) -> None:
        self._address = address
        self._folder = folder
        self._on_said = on_said
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self._not_before = 0.0
        self._has_complained = False

    @property
    def pid(self) -> int:
        """Of the process that runs; 0: none."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and running else 0

    async def ensure(self) -> None:
        """Have it run."""
        if self.pid or time.monotonic() < self._not_before:
            return
        if importlib.util.find_spec("pyarrow") is None:
            if not self._has_complained:
                self._has_complained = True
                self._say(
                    "no-pyarrow",
                    "a group here has checkpoints, which this node can't write without pyarrow:"
                    " pip install 'samcast[arrow]'",
                )
            return
        self._not_before = time.monotonic() + PAUSE_S
        command = [sys.executable, "-m", WORKER, self._address, str(self._folder)]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, limit=LINE_BYTES_MAX
        )
        self._reading = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            try:
                said = msgspec.json.decode(line, type=Said)
            except msgspec.DecodeError:
                continue  # Somebody else's words on its standard output.
            self._on_said(said)
        await process.wait()

    def kill(self) -> None:
        """What it holds is wrong; it begins anew from its disk."""
        if self.pid and self._process is not None:
            self._process.kill()

    async def stop(self) -> None:
        """With the node."""
        if self._process is None:
            return
        self.kill()
        await self._process.wait()


def facts_of(said: Said) -> dict[str, Any]:
    """For a line of the log."""
    return {k: v for k, v in msgspec.structs.asdict(said).items() if v}
