"""States that jobs have handed in to this node: looked at as any other, and reported if they are
what they say. Only then do they count, as one report among `k_checkpoint`."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samcast.checkpoint.blocks import BlockList, check_checkpoint, finish, read_list
from samcast.checkpoint.places import LIST, block_name, place_of
from samcast.errors import DiskError, SamcastError

Say = Callable[..., None]


class Adopting:
    """Of one node."""

    def __init__(self, folder: Path, say: Say) -> None:
        self._folder = folder
        self._cluster = ""
        self._say = say
        self._begun: set[Path] = set()

    def look(self, cluster: str, groups: list[dict[str, Any]]) -> None:
        """Begin with what is whole and new here."""
        self._cluster = cluster
        by_id = {int(facts["id"]): facts for facts in groups}
        for listed in self._folder.glob(f"*/.handed-*/{LIST}"):
            handed = listed.parent
            if handed not in self._begun:
                self._begun.add(handed)
                facts = by_id.get(int(handed.parent.name))
                threading.Thread(target=self._adopt, args=(handed, facts), daemon=True).start()

    def _adopt(self, handed: Path, facts: dict[str, Any] | None) -> None:
        group, job = int(handed.parent.name), int(handed.name.split("-")[2], 16)
        try:
            listed = self._checked(handed, facts)
            self._say(group, number=listed.number, rows=listed.rows, size=listed.size,
                      hash=listed.hash, fold=listed.fold,
                      fold_version=listed.fold_version)  # fmt: skip
        except (SamcastError, OSError, ValueError) as error:
            self._say(group, dropped=f"a state that was handed in: {error}", job=job)
        finally:
            shutil.rmtree(handed, ignore_errors=True)
            self._begun.discard(handed)

    def _checked(self, handed: Path, facts: dict[str, Any] | None) -> BlockList:
        """Its files in their places, if they are what their list says, and of our group."""
        listed = read_list((handed / LIST).read_bytes())
        if facts is None:
            raise DiskError("there is no such group, or it has no fold")
        keep = facts["keep"]
        wanted = (self._cluster, facts["name"], keep["fold"], keep["fold_version"])
        found = (listed.cluster, listed.group, listed.fold, listed.fold_version)
        if found != wanted:
            raise DiskError(
                f"it is of {'/'.join(map(str, found))}, not {'/'.join(map(str, wanted))}"
            )
        if listed.number > int(facts["head"]):
            raise DiskError(f"it is at {listed.number}, and the group at {facts['head']}")
        parts = sorted(handed.glob("part-*"))
        if len(parts) != len(listed.blocks):
            raise DiskError(f"{len(parts)} blocks came, of {len(listed.blocks)}")
        for at, part in enumerate(parts, 1):
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.rename(handed / block_name(at))
        place = place_of(self._folder, int(handed.parent.name), listed.number)
        if place.exists():
            own = check_checkpoint(place)
            if own.checkpoint() != listed.checkpoint():
                raise DiskError(f"this server has come to another state at {listed.number}")
            return own
        return finish(handed, place)
