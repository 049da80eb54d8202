"""Files of states that jobs hand in to this node, until the process that folds has seen them."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from samcast.checkpoint.places import LIST, handed_folder, handed_name
from samcast.wire.handing import LIST_PART, HandedIn, HandIn

IDLE_S = 120.0  # after which a job that says nothing more has given up
ROOM_BYTES = 1024**3  # that stay free
FILE_BYTES_MAX = 256 * 1024 * 1024
FILES_MAX = 1_000_000  # of one part, and parts


@dataclass(slots=True)
class _Open:
    """A state on its way in."""

    number: int
    job: int
    heard_s: float


class Handing:
    """At most one state of each group at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[int, _Open] = {}
        self._whole: dict[int, int] = {}  # by group: the last job that has handed in all
        self.refused: dict[int, tuple[int, str]] = {}  # by group: the last job's, and why
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob("*/.handed-*"):  # Of a job that talked to us before we restarted.
            shutil.rmtree(left, ignore_errors=True)

    def take(self, piece: HandIn) -> HandedIn:
        """Write a piece to its file."""
        where = (piece.group, piece.number, piece.job, piece.part, piece.at)
        if self._whole.get(piece.group) == piece.job:
            return HandedIn(*where, piece.total)  # said twice
        try:
            why = self._why_not(piece)
            end = 0 if why else self._write(piece)
        except OSError as error:
            return HandedIn(*where, 0, f"it can't be written here: {error}")
        return HandedIn(*where, end, why)

    def _write(self, piece: HandIn) -> int:
        """How much of the file is there now."""
        place = handed_folder(self._folder, piece.group, piece.number, piece.job)
        place.mkdir(parents=True, exist_ok=True)
        is_list = piece.part == LIST_PART
        path = place / (f".{LIST}" if is_list else handed_name(piece.part, piece.at))
        with path.open("r+b" if path.exists() else "w+b") as file:
            size = file.seek(0, 2)
            if piece.offset > size:
                return size
            file.seek(piece.offset)
            file.write(piece.data)
            file.truncate()
        end = piece.offset + len(piece.data)
        if is_list and end >= piece.total:
            path.rename(place / LIST)  # Now it is whole, and is looked at.
            del self._open[piece.group]
            self._whole[piece.group] = piece.job
        return end

    def _why_not(self, piece: HandIn) -> str:
        """An empty text if it is welcome."""
        if max(piece.part, piece.at) > FILES_MAX or piece.total > FILE_BYTES_MAX:
            return f"a state of at most {FILES_MAX} parts of {FILE_BYTES_MAX >> 20} MiB is taken"
        now = time.monotonic()
        being = self._open.get(piece.group)
        if being is None or being.job != piece.job:
            if being is not None and now - being.heard_s < IDLE_S:
                return f"another job is handing in a state of group {piece.group}"
            if being is not None:
                self._drop(piece.group, being)
            self._open[piece.group] = _Open(piece.number, piece.job, now)
            self.refused.pop(piece.group, None)
        self._open[piece.group].heard_s = now
        if not piece.offset and shutil.disk_usage(self._folder).free < ROOM_BYTES + piece.total:
            return f"less than {ROOM_BYTES >> 20} MiB are free here"
        return ""

    def refuse(self, group: int, job: int, why: str) -> None:
        """It was looked at, and is not what it should be."""
        self.refused[group] = (job, why)

    def watch(self) -> None:
        """Called now and then: what a job has left goes."""
        now = time.monotonic()
        for group, being in list(self._open.items()):
            if now - being.heard_s >= IDLE_S:
                self._drop(group, being)
                del self._open[group]

    def _drop(self, group: int, being: _Open) -> None:
        place = handed_folder(self._folder, group, being.number, being.job)
        shutil.rmtree(place, ignore_errors=True)
