"""The fold of a checkpoint server, as a process beside its node:

    python -m samcast.client.fold_worker ADDRESS FOLDER

It follows every group that has a fold as any member does, writes a checkpoint at the numbers at
which all servers do, and says so in lines of JSON on its standard output. It ends with its
standard input, so it never outlives its node.
"""

import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from samcast.checkpoint.applying import Applying
from samcast.checkpoint.blocks import (
    BlockList,
    check_checkpoint,
    load_checkpoint,
    sound_checkpoint,
    write_checkpoint,
)
from samcast.checkpoint.folds import AnyFold, fold_of
from samcast.checkpoint.places import ADOPTED, RESTORED, place_of
from samcast.client.adopting import Adopting
from samcast.client.blocking import Client, connect
from samcast.client.copying import copy_checkpoint
from samcast.client.joining import fetch_table
from samcast.errors import ClientError, ClientFailedError, DiskError, FoldError, SamcastError
from samcast.group.table import Schedule, Table, next_due
from samcast.wire.order import Checkpoint

LOOK_S = 0.5
AGAIN_S = 2.0
COPIES_S = 5.0  # between two looks at what is advertised, where jobs fold
BEHIND_S = 0.02  # before a server is asked again that hasn't come so far yet
NICE = 5  # nodes come first
ROOM_BYTES = 512 * 1024 * 1024  # that a checkpoint leaves to others

SAID_MAX = 1000  # characters of one fact

_says = threading.Lock()
_node: TextIO = sys.stdout  # a fold may print what it likes elsewhere


def say(group: int, **facts: Any) -> None:
    """One line to the node."""
    told = {key: fact[:SAID_MAX] if isinstance(fact, str) else fact for key, fact in facts.items()}
    with _says:
        _node.write(json.dumps({"group": group, **told}) + "\n")
        _node.flush()


class Folding:
    """One group."""

    def __init__(
        self,
        client: Client,
        folder: Path,
        places: threading.Lock,
        cluster: str,
        facts: dict[str, Any],
    ) -> None:
        self._client = client
        self._folder = folder
        self._places = places
        self._cluster = cluster
        self._id = int(facts["id"])
        self._name = str(facts["name"])
        self._known = 0  # up to this number we know which interval counts
        self._intervals: tuple[tuple[int, int], ...] = ()
        keep = facts["keep"]
        self._kind = (str(keep["fold"]), int(keep["fold_version"]), bool(keep["by_jobs"]))
        self._is_by_jobs = self._kind[2]
        if not self._is_by_jobs:  # Who only keeps states needn't be able to make them.
            self._fold: AnyFold = fold_of(*self._kind[:2])
        self._table = Table()
        self._is_over = False

    def see(self, facts: dict[str, Any]) -> bool:
        """The settings may have changed; False if another fold is wanted now, or others fold."""
        keep = facts["keep"]
        is_same = self._kind == (keep["fold"], keep["fold_version"], bool(keep["by_jobs"]))
        self._is_over = self._is_over or not is_same
        return is_same

    def run(self) -> None:
        """For ever; what goes wrong is said, and tried again from what is on the disk, unless it
        is the fold itself."""
        while not self._is_over:
            try:
                self._begin()
                say(self._id, well=True)
                if self._is_by_jobs:
                    self._keep_copies()
                else:
                    self._follow()
            except FoldError as error:
                say(self._id, failed=f"group {self._name!r}: {error}")
                return
            except Exception as error:  # noqa: BLE001 - told to the node, and tried again
                say(self._id, retried=str(error) or repr(error))
            time.sleep(AGAIN_S)

    def _begin(self) -> None:
        """Our own newest state, or where the messages after it are gone, an advertised one."""
        there = self._client.engine.call(self._client.engine.checkpoints(self._id))
        self._table = Table()
        for number in self._own():
            place = place_of(self._folder, self._id, number)
            with self._places:
                try:
                    listed, table = self._sound(place, there.checkpoints)
                except SamcastError as error:
                    say(self._id, dropped=f"checkpoint {number}: {error}")
                    shutil.rmtree(place, ignore_errors=True)
                    continue
            self._report(listed)
            # What somebody else has folded is no ground to stand on before others say the same.
            is_ground = listed.checkpoint() in there.checkpoints or not (place / ADOPTED).exists()
            if table is not None and is_ground and table.number > self._table.number:
                self._table = table
        if self._table.number < there.collected and not self._is_by_jobs:
            if not there.checkpoints:
                raise ClientError(f"{self._name!r}: messages are gone, and no checkpoint is there")
            self._table = fetch_table(self._client.engine, self._id, there.checkpoints[-1])
            self._write()

    def _sound(
        self, place: Path, advertised: tuple[Checkpoint, ...]
    ) -> tuple[BlockList, Table | None]:
        """A state that is here, without its rows where jobs fold; a `DiskError` if it is not what
        it should be."""
        listed, table = None, None
        if self._is_by_jobs:
            listed = check_checkpoint(place)
        else:
            listed, table = load_checkpoint(place)
        if not self._is_ours(listed):
            raise DiskError(f"it is of {listed.cluster}/{listed.group}")
        rivals = [found for found in advertised if found.number == listed.number]
        if rivals and rivals[0] != listed.checkpoint():
            raise DiskError("it is not the advertised one")
        return listed, table

    def _is_ours(self, listed: BlockList) -> bool:
        """Of this very group and fold, or restored."""
        wanted = (self._name, *self._kind[:2])
        is_same = (listed.group, listed.fold, listed.fold_version) == wanted
        return is_same and listed.cluster in (self._cluster, RESTORED)

    def _own(self) -> list[int]:
        folder = place_of(self._folder, self._id, 0).parent
        return sorted(int(path.name) for path in folder.glob("[0-9]*"))

    def _follow(self) -> None:
        group = self._client.group(self._name, create=False)
        applying = Applying(self._fold, self._table)
        schedule = Schedule(self._table)
        for number_first, batch in group.read_batches(applying.reached + 1):
            last = number_first + batch.count - 1
            self._learn_intervals(last)
            while applying.reached < last and not self._is_over:
                until, interval = next_due(self._intervals, applying.reached + 1, last)
                applying.take(number_first, batch, until)
                if interval:
                    applying.settle()
                    if schedule.is_due(self._table, interval):
                        self._tell_refused(applying)
                        self._write()
            if self._is_over:
                return

    def _keep_copies(self) -> None:
        """Where jobs fold: have what is advertised here, too, whoever it was handed to."""
        while not self._is_over:
            there = self._client.engine.call(self._client.engine.checkpoints(self._id))
            if there.checkpoints and there.checkpoints[-1].number not in self._own():
                self._copy(there.checkpoints[-1])
            time.sleep(COPIES_S)

    def _copy(self, checkpoint: Checkpoint) -> None:
        if self._has_room(checkpoint.number, checkpoint.size):
            place = place_of(self._folder, self._id, checkpoint.number)
            with self._places:
                listed = sound_checkpoint(place)
            if listed is None:
                engine = self._client.engine
                listed = copy_checkpoint(engine, self._id, checkpoint, place, self._places)
            self._report(listed)

    def _has_room(self, number: int, size: int) -> bool:
        """Votes come first; a later checkpoint is as good."""
        free = shutil.disk_usage(self._folder).free
        if free >= ROOM_BYTES + 2 * size:
            return True
        say(self._id, dropped=f"no room for checkpoint {number}, {free >> 20} MiB are free")
        return False

    def _learn_intervals(self, number: int) -> None:
        """A change of the interval counts for all messages behind it in the order: ask one who
        has folded that far, before we go there ourselves."""
        while self._known < number:
            there = self._client.engine.call(self._client.engine.checkpoints(self._id))
            self._known, self._intervals = there.head, there.intervals
            if self._known < number:
                time.sleep(BEHIND_S)

    def _tell_refused(self, applying: Applying) -> None:
        if applying.refused:
            say(self._id, dropped=f"{applying.refused} messages of {self._name!r} are nothing that"
                f" fold {self._fold.name!r} can take, and have no effect; the first is"
                f" {applying.refused_first}")  # fmt: skip
        applying.refused = applying.refused_first = 0

    def _write(self) -> None:
        if not self._has_room(self._table.number, self._table.size):
            return
        about = (self._cluster, self._name, self._fold.name, self._fold.version)
        place = place_of(self._folder, self._id, self._table.number)
        with self._places:
            listed = sound_checkpoint(place)
            is_same = listed is not None and listed.about() == about
            if listed is None or not is_same or listed.hash != self._table.state_hash().hex():
                listed = write_checkpoint(place, self._table, about)
            (place / ADOPTED).unlink(missing_ok=True)  # We have come to it, too.
        self._report(listed)

    def _report(self, listed: BlockList) -> None:
        if self._is_over:
            return  # It is of a fold that the group has no more.
        say(self._id, number=listed.number, rows=listed.rows, size=listed.size, hash=listed.hash,
            fold=listed.fold, fold_version=listed.fold_version)  # fmt: skip


def main() -> None:
    address, place = sys.argv[1:]
    os.nice(NICE)
    global _node
    _node = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_input, daemon=True).start()
    folder = Path(place)
    folder.mkdir(exist_ok=True)
    running: dict[int, Folding] = {}
    with connect(address) as client:
        places = threading.Lock()
        adopting = Adopting(folder, places, say)
        while True:
            try:
                _look(client, folder, places, running, adopting)
            except ClientFailedError:  # The node starts us anew.
                raise
            except (SamcastError, TimeoutError) as error:
                say(0, retried=str(error) or repr(error))
            time.sleep(LOOK_S)


def _look(
    client: Client,
    folder: Path,
    places: threading.Lock,
    running: dict[int, Folding],
    adopting: Adopting,
) -> None:
    """Begin with groups that are new here."""
    status: dict[str, Any] = client.status()
    if not status.get("is_current", True):
        return  # Our node has just started, and doesn't know yet what there is.
    folded = [facts for facts in status.get("groups", []) if facts["keep"]["fold"]]
    adopting.look(str(status.get("cluster")), folded)
    for facts in folded:
        if facts["id"] in running:
            if running[facts["id"]].see(facts):
                continue
            del running[facts["id"]]
        try:
            folding = Folding(client, folder, places, str(status["cluster"]), facts)
        except Exception as error:  # noqa: BLE001 - a fold is anybody's code
            say(facts["id"], failed=str(error) or repr(error))
            continue
        running[facts["id"]] = folding
        threading.Thread(target=folding.run, name=f"fold {facts['name']}", daemon=True).start()


def _end_with_input() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
