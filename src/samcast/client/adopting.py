"""States that jobs have handed in to this node: looked at as any other, and reported if they are
what they say. Only then do they count, as one report among `k_checkpoint`."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samcast.checkpoint.blocks import (
    BlockList,
    check_checkpoint,
    read_list,
    sound_checkpoint,
    take_place,
)
from samcast.checkpoint.places import ADOPTED, LIST, block_name, place_of
from samcast.errors import DiskError

Say = Callable[..., None]


class Adopting:
    """Of one node. Whoever gives a state its place holds `places`, so that nobody replaces what
    another has just written."""

    def __init__(self, folder: Path, places: threading.Lock, say: Say) -> None:
        self._folder = folder
        self._places = places
        self._say = say
        self._cluster = ""
        self._groups: dict[int, dict[str, Any]] = {}  # as of the last look
        self._begun: set[Path] = set()

    def look(self, cluster: str, groups: list[dict[str, Any]]) -> None:
        """Begin with what is whole and new here."""
        self._cluster = cluster
        by_id = self._groups = {int(facts["id"]): facts for facts in groups}
        for listed in self._folder.glob(f"*/.handed-*/{LIST}"):
            handed = listed.parent
            facts = by_id.get(int(handed.parent.name))
            is_early = facts is not None and _number(handed) > int(facts["head"])
            if handed not in self._begun and not is_early:  # We may not have come so far yet.
                self._begun.add(handed)
                threading.Thread(
                    target=self._adopt, args=(handed,), name="adopt", daemon=True
                ).start()

    def _adopt(self, handed: Path) -> None:
        group, job = int(handed.parent.name), int(handed.name.split("-")[2], 16)
        try:
            listed = self._adopted(handed)
            self._say(group, number=listed.number, rows=listed.rows, size=listed.size,
                      hash=listed.hash, fold=listed.fold, fold_version=listed.fold_version,
                      job=job)  # fmt: skip
        except Exception as error:  # noqa: BLE001 - anybody's files; told to the node, and the job
            why = str(error) or repr(error)
            self._say(group, dropped=f"a state that was handed in: {why}", job=job)
        finally:
            shutil.rmtree(handed, ignore_errors=True)
            self._begun.discard(handed)

    def _adopted(self, handed: Path) -> BlockList:
        """Its files in their places, if they are what their list says, and of our group."""
        listed = read_list((handed / LIST).read_bytes())
        self._check_wanted(handed, listed)
        _name_blocks(handed, len(listed.blocks))
        (handed / ADOPTED).touch()
        check_checkpoint(handed)
        place = place_of(self._folder, int(handed.parent.name), listed.number)
        with self._places:
            self._check_wanted(handed, listed)  # That took a while.
            own = sound_checkpoint(place)
            if own is None or own.about() != listed.about():  # What it had before is void.
                take_place(handed, place)
                return listed
        if own.checkpoint() != listed.checkpoint():
            raise DiskError(f"this server has come to another state at {listed.number}")
        return own

    def _check_wanted(self, handed: Path, listed: BlockList) -> None:
        facts = self._groups.get(int(handed.parent.name))
        if facts is None:
            raise DiskError("there is no such group, or it has no fold")
        keep = facts["keep"]
        wanted = (self._cluster, facts["name"], keep["fold"], keep["fold_version"])
        found = listed.about()
        if found != wanted or listed.number != _number(handed):
            theirs, ours = ("/".join(map(str, one)) for one in (found, wanted))
            raise DiskError(f"it is of {theirs} at {listed.number}, not {ours}")


def _number(handed: Path) -> int:
    return int(handed.name.split("-")[1])


def _name_blocks(handed: Path, count: int) -> None:
    """Parts become blocks, in the order of their names; some may be so already, if a process died
    over it."""
    named = len(list(handed.glob("block-*")))
    parts = sorted(handed.glob("part-*"))
    if named + len(parts) != count:
        raise DiskError(f"{named + len(parts)} blocks came, of {count}")
    for at, part in enumerate(parts, named + 1):
        _sync(part)
        part.rename(handed / block_name(at))
    _sync(handed / LIST)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
