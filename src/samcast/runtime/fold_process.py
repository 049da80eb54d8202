"""The process beside a node that folds messages into checkpoints: started when a group has a fold,
ended with the node, begun anew if it dies."""

import asyncio
import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from samcast.wire.order import FoldName, Natural

WORKER = "samcast.client.fold_worker"
PAUSE_S = 2.0  # before it is begun anew
LINE_BYTES_MAX = 64 * 1024


class Said(msgspec.Struct, frozen=True):
    """One line of the worker."""

    group: Natural
    number: Natural = 0  # of a checkpoint that is written and checked
    rows: Natural = 0
    size: Natural = 0
    hash: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")] = ""
    fold: FoldName = ""
    fold_version: Natural = 0
    failed: str = ""
    retried: str = ""
    dropped: str = ""
    job: Natural = 0  # whose state this is, if it was handed in
    well: bool = False  # What was retried has succeeded.

    def __post_init__(self) -> None:
        if self.number and not self.hash:
            raise ValueError("a checkpoint without a hash")


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
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, limit=LINE_BYTES_MAX
            )
        except OSError as error:
            self._say("fold", f"the process that folds can't be started: {error}; later, perhaps")
            return
        self._reading = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Whatever it says, it can't hurt us; if it says what it never should, it begins anew."""
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                self._on_said(msgspec.json.decode(line, type=Said))
        except (msgspec.DecodeError, ValueError) as error:
            self._say("fold", f"the process that folds said something else: {str(error)[:200]}")
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
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
