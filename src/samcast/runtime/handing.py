"""Files of states that jobs hand in to this node, until the process that folds has seen them."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from samcast.checkpoint.places import LIST, handed_folder, handed_name
from samcast.wire.handing import LIST_PART, HandedIn, HandIn

IDLE_S = 600.0  # after which another job may come instead of one that says nothing
GIVEN_UP_S = 3600.0  # after which what it has given goes
STALE_S = 6 * 3600.0  # after which it goes even if it is whole, and nobody looks at it
ROOM_BYTES = 1024**3  # that stay free
FILE_BYTES_MAX = 256 * 1024 * 1024
FILES_MAX = 1_000_000  # of one part, and parts


@dataclass(slots=True)
class _Coming:
    """A state on its way in, or whole, and to be looked at."""

    number: int
    job: int
    heard_s: float
    is_whole: bool = False


class Handing:
    """At most one state of each group at a time."""

    def __init__(self, folder: Path, has_fold: Callable[[int], bool]) -> None:
        self._folder = folder
        self._has_fold = has_fold
        self._coming: dict[int, _Coming] = {}
        self.outcomes: dict[int, tuple[int, str]] = {}  # by group: the last job, and why not
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob("*/.handed-*"):  # Of a job that talked to us before we restarted.
            shutil.rmtree(left, ignore_errors=True)

    def take(self, piece: HandIn) -> HandedIn:
        """Write a piece to its file."""
        where = (piece.group, piece.number, piece.job, piece.part, piece.at)
        being = self._coming.get(piece.group)
        is_whole = being is not None and being.job == piece.job and being.is_whole
        if being is not None and is_whole:
            being.heard_s = time.monotonic()
        if is_whole or self.outcomes.get(piece.group, (0, ""))[0] == piece.job:
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
            if size == piece.total or piece.offset > size:
                return size  # A task that runs twice gives the same twice.
            file.seek(piece.offset)
            file.write(piece.data)
            file.truncate()
        end = piece.offset + len(piece.data)
        if is_list and end == piece.total:
            path.rename(place / LIST)  # Now it is whole, and is looked at.
            self._coming[piece.group].is_whole = True
        return end

    def _why_not(self, piece: HandIn) -> str:
        """An empty text if it is welcome."""
        if max(piece.part, piece.at) > FILES_MAX or piece.total > FILE_BYTES_MAX:
            return f"a state of at most {FILES_MAX} parts of {FILE_BYTES_MAX >> 20} MiB is taken"
        if not 0 < piece.offset + len(piece.data) <= piece.total:
            return "a piece that is no part of its file"
        if not self._has_fold(piece.group):
            return f"group {piece.group} has no fold, or isn't known here yet"
        now = time.monotonic()
        being = self._coming.get(piece.group)
        if being is None or being.job != piece.job:
            if being is not None and (being.is_whole or now - being.heard_s < IDLE_S):
                return f"another job is handing in a state of group {piece.group}"
            if being is not None:
                self._drop(piece.group, being)
            being = self._coming[piece.group] = _Coming(piece.number, piece.job, now)
        being.heard_s = now
        if shutil.disk_usage(self._folder).free < ROOM_BYTES + piece.total - piece.offset:
            self._drop(piece.group, being)  # What it has given is of no use, and takes room.
            del self._coming[piece.group]
            return f"less than {ROOM_BYTES >> 20} MiB are free here"
        return ""

    def settle(self, group: int, job: int, refused: str) -> None:
        """It was looked at; an empty text if it is what it should be."""
        self.outcomes[group] = (job, refused)
        being = self._coming.get(group)
        if being is not None and being.job == job:
            del self._coming[group]

    def watch(self) -> None:
        """Called now and then: what a job has left goes."""
        now = time.monotonic()
        for group, being in list(self._coming.items()):
            if now - being.heard_s >= (STALE_S if being.is_whole else GIVEN_UP_S):
                self._drop(group, being)
                del self._coming[group]

    def _drop(self, group: int, being: _Coming) -> None:
        place = handed_folder(self._folder, group, being.number, being.job)
        shutil.rmtree(place, ignore_errors=True)
