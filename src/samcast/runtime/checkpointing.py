"""The checkpoint server of a node: its role, the process that folds, and the files it serves."""

import shutil
from collections.abc import Callable
from pathlib import Path

from samcast.checkpoint.places import block_name, place_of
from samcast.group.checkpoint_server import (
    CheckpointServer,
    DropCheckpoint,
    SendBlock,
    TakePiece,
    TellStates,
    Written,
)
from samcast.machine.ports import Effect, Event
from samcast.runtime.fold_process import FoldProcess, Said
from samcast.runtime.handing import Handing
from samcast.wire.control import Control
from samcast.wire.order import Checkpoint
from samcast.wire.retention import BlockReply, BlockRequest, digest_of_list

PIECE_BYTES = 256 * 1024
LISTED_MAX = 64  # lists of blocks whose digests are remembered


class Checkpointing:
    """Of one node."""

    def __init__(
        self,
        role: CheckpointServer,
        folder: Path,
        address: str,
        post: Callable[[Event], None],
        send: Callable[[int, Control], None],
        say: Callable[..., None],
        has_fold: Callable[[int], bool],
    ) -> None:
        self.role = role
        self._folder = folder
        self._post = post
        self._send = send
        self._say = say
        self._process = FoldProcess(address, folder, self._on_said, say)
        self._listed: dict[tuple[Path, int, int], bytes] = {}
        self._handing = Handing(folder, has_fold)
        self.problems: dict[int, str] = {}  # by group: why it has no checkpoint
        self._told: dict[int, str] = {}  # by group: what was said last, so that it is said once

    async def watch(self, has_folds: bool) -> None:
        """Called now and then."""
        self._handing.watch()
        if has_folds:
            await self._process.ensure()

    async def stop(self) -> None:
        """With the node."""
        await self._process.stop()

    def _on_said(self, said: Said) -> None:
        if said.job:
            self._handing.settle(said.group, said.job, said.dropped)
        if said.number:
            self.problems.pop(said.group, None)
            self._told.pop(said.group, None)
            found = Checkpoint(said.number, said.rows, said.size, bytes.fromhex(said.hash))
            self._post(Written(said.group, found, said.fold, said.fold_version))
            return
        if said.well:
            self.problems.pop(said.group, None)
            return
        what = said.failed or said.retried or said.dropped
        if said.group and (said.failed or said.retried):
            self.problems[said.group] = what
        if self._told.get(said.group) != what:
            self._told[said.group] = what
            code = "fold-failed" if said.failed else "fold"
            self._say(code, f"checkpoints of group {said.group}: {what}", group=said.group)

    def apply(self, effect: Effect) -> None:
        """What the role asks for."""
        if type(effect) is SendBlock:
            self._send(effect.to, self._piece(effect.request))
        elif type(effect) is TakePiece:
            self._send(effect.of, self._handing.take(effect.piece))
        elif type(effect) is TellStates:
            outcome = self._handing.outcomes.get(effect.group, (0, ""))
            self._send(effect.to, self.role.states(effect.group, *outcome))
        elif type(effect) is DropCheckpoint:
            shutil.rmtree(place_of(self._folder, effect.group, effect.number), ignore_errors=True)
            if effect.is_wrong:
                self._say(
                    "checkpoint-wrong",
                    f"group {effect.group}: the state that we came to at {effect.number} is not the"
                    " advertised one; it is dropped, and fetched from others",
                    group=effect.group,
                )
                self._process.kill()

    def _digest(self, place: Path) -> bytes:
        """Of the list of a checkpoint; asked for with each piece, so it is remembered."""
        path = place / block_name(0)
        seen = path.stat()
        key = (path, seen.st_ino, seen.st_mtime_ns)  # It may be replaced.
        if key not in self._listed:
            if len(self._listed) >= LISTED_MAX:
                self._listed.clear()
            self._listed[key] = digest_of_list(path.read_bytes())
        return self._listed[key]

    def _piece(self, request: BlockRequest) -> BlockReply:
        here = (request.group, request.number, request.block, request.offset)
        held = self.role.held.get(request.group, {})
        path = place_of(self._folder, request.group, request.number) / block_name(request.block)
        if request.number not in held:
            return BlockReply(*here, 0, b"")
        try:
            if request.listed and request.listed != self._digest(path.parent):
                return BlockReply(*here, 0, b"")
            with path.open("rb") as file:
                total = file.seek(0, 2)
                file.seek(min(request.offset, total))
                return BlockReply(*here, total, file.read(PIECE_BYTES))
        except OSError:  # It went just now, or can't be read: others have it.
            return BlockReply(*here, 0, b"")
