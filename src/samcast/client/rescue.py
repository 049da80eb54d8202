"""When too few disks are left for a quorum: a backup made of those that are, offline.

Nobody can know whether what was lost held something newer; what is known is written down in an
incident record. The restored cluster is another one, with the same numbers: in the places of
messages whose payload is on none of the disks are empty ones, whose headers say so.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from samcast.checkpoint.places import RESTORED, place_of
from samcast.client.backup import (
    CHECKPOINT,
    INCIDENT,
    LIST,
    Copy,
    CopyWriter,
    GroupCopy,
    Say,
    check,
)
from samcast.disk.data_store import DataStore
from samcast.disk.layout import DATA, ORDER, SUPER
from samcast.disk.order_store import OrderStore
from samcast.errors import DiskError
from samcast.group.commit_server import CommitServer
from samcast.group.core import Core
from samcast.group.installing import Stamp
from samcast.group.recovery import read_super
from samcast.group.retained import Retained
from samcast.group.storage import BatchKey
from samcast.machine.quorum import servers_with
from samcast.runtime.chance import SystemChance
from samcast.runtime.cluster_file import ClusterPlan, NodePlan
from samcast.runtime.folder import lock_folder, write_durably
from samcast.runtime.os_folder import OsFolder
from samcast.wire.batch import Batch, columns_from_cells, decode_batch, make_batch
from samcast.wire.order import (
    CELL,
    ROLE_COMMIT,
    DecisionEntry,
    RunEntry,
    unnamed_sender,
)

LOST = b"samcast-lost"  # headers of a message whose payload is gone
FILLER_MESSAGES = 10_000
Lost = tuple[int, int]  # first and last number


class Survivor(msgspec.Struct, frozen=True):
    """A disk that was read."""

    name: str
    uuid: int
    entries: int  # of the order
    epoch: int
    is_rotten: bool
    payloads: int


class LostIn(msgspec.Struct, frozen=True):
    """What is missing of a group."""

    group: str
    number: int  # the last one that the order knows
    lost: list[Lost]


class Incident(msgspec.Struct, frozen=True):
    """What happened, for whoever has to explain it."""

    cluster: str
    rescued_at: str
    configuration: int
    survivors: list[Survivor]
    is_order_whole: bool  # so many disks that no confirmed message can be missing from the order
    groups: list[LostIn]


class _Disk:
    """The folder of one node, opened by nobody else."""

    def __init__(self, plan: ClusterPlan, node: NodePlan) -> None:
        self.node = node
        if not (node.folder / SUPER).exists():
            raise DiskError(f"{node.folder} is no disk of a node; name folders that are left")
        self._lock = lock_folder(node.folder)
        record = read_super((node.folder / SUPER).read_bytes())
        if record is None:
            raise DiskError(f"{node.folder / SUPER} can't be read; do without this disk")
        self.uuid = record.uuid
        folder = OsFolder(node.folder)
        self._order = OrderStore(folder.folder(ORDER))
        order = self._order.recover(record.uuid, is_laid_out=record.layout > 0)
        if order is None:
            raise DiskError(f"the vote in {node.folder} can't be read; do without this disk")
        initial, settings = plan.configuration(), plan.settings
        self.commit = CommitServer(node.id, initial, settings, order, SystemChance())
        self.data = DataStore(folder.folder(DATA))
        recovery = self.data.recover_left(record.uuid)
        self.counts = {found.key: found.count for found in recovery.found()}
        self.numbers = recovery.numbers()

    def close(self) -> None:
        self._order.close()
        os.close(self._lock)

    def rank(self) -> tuple[bool, Stamp, int]:
        """By which of several the best is chosen."""
        return (not self.commit.unknown_from, self.commit.stamp, self.commit.log.length)

    def folded(self) -> Core:
        """All that this disk knows of the order, decided or not: more is better than less."""
        core, log = self.commit.core.copy(), self.commit.log
        for index in range(core.index + 1, log.length + 1):
            core.apply(log.entry(index), log.hash_at(index))
        return core

    def ordered(self) -> dict[BatchKey, int]:
        """The numbers that its entries give."""
        numbers: dict[BatchKey, int] = {}
        log = self.commit.log
        for index in range(log.base + 1, log.length + 1):
            entry = log.entry(index)
            if type(entry) is RunEntry:
                key = (entry.group, entry.sender, entry.incarnation, entry.counter_first, 0)
                numbers[key] = entry.number_first
            elif type(entry) is DecisionEntry:
                for part in entry.parts:
                    number = part.number_first
                    for ref in part.stages:
                        staged = (part.group, entry.owner, entry.incarnation, entry.tx, ref.stage)
                        numbers[staged] = number
                        number += ref.count
        return numbers

    def survivor(self) -> Survivor:
        commit = self.commit
        length, epoch = commit.log.length, commit.log_epoch[0]
        is_rotten = commit.unknown_from > 0
        return Survivor(self.node.name, self.uuid, length, epoch, is_rotten, len(self.counts))


def rescue(plan: ClusterPlan, names: list[str], place: Path, say: Say) -> Incident:
    """Write a backup of what the disks of these nodes hold; the nodes must not run. A name is one
    of the file's nodes, or NAME=FOLDER."""
    if place.exists() and any(place.iterdir()):
        raise DiskError(f"{place} is not empty; the backup goes into a folder of its own")
    nodes = [_node(plan, name) for name in names]

    async def work() -> Incident:
        disks = [_Disk(plan, node) for node in nodes]
        try:
            return _rescue(plan, disks, place, say)
        finally:
            for disk in disks:
                disk.close()

    return asyncio.run(work())


def _node(plan: ClusterPlan, said: str) -> NodePlan:
    name, _, folder = said.partition("=")
    if not folder:
        return plan.node(name)
    path = Path(folder)
    record = read_super((path / SUPER).read_bytes()) if (path / SUPER).exists() else None
    number = record.node if record is not None else 1
    return NodePlan(id=number, name=name, host="", port=0, roles=(), folder=path, uuid=1)


def _rescue(plan: ClusterPlan, disks: list[_Disk], place: Path, say: Say) -> Incident:
    # What rot has cut off is known of no disk; one that isn't rotten tells more for sure.
    best = max(disks, key=_Disk.rank)
    core = best.folded()
    now = core.configuration
    voters = [s.uuid for s in servers_with(now, ROLE_COMMIT)]
    whole = [d for d in disks if d.uuid in voters and not d.commit.unknown_from]
    ordered: dict[BatchKey, int] = {}
    for disk in disks:
        ordered.update(disk.numbers)
    ordered.update(best.ordered())
    place.mkdir(parents=True, exist_ok=True)
    copies, lost = [], []
    for group, rows in core.groups.items():
        if group == CELL or rows.is_removed:
            continue
        retained = core.retained_of(group) or Retained()
        copier = _GroupRescue(disks, group, rows.name, retained, ordered)
        copies.append(copier.write(place / str(group), rows.head))
        lost.append(LostIn(rows.name, rows.head, copier.lost))
        say(f"{rows.name}: up to {rows.head}, lost {sum(b - a + 1 for a, b in copier.lost)}")
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    incident = Incident(
        plan.cluster, made, now.number, [d.survivor() for d in disks],
        best in whole and len(whole) > len(voters) - now.k_commit, lost,
    )  # fmt: skip
    _put(place / INCIDENT, incident)
    _put(place / LIST, Copy.made(plan.cluster, made, copies))
    check(place)
    return incident


def _put(path: Path, value: msgspec.Struct) -> None:
    write_durably(path, msgspec.json.format(msgspec.json.encode(value), indent=1))


class _GroupRescue:
    """One group, from all disks."""

    def __init__(
        self,
        disks: list[_Disk],
        group: int,
        name: str,
        retained: Retained,
        ordered: dict[BatchKey, int],
    ) -> None:
        self._disks = disks
        self._group = group
        self._name = name
        self._retained = retained
        self.lost: list[Lost] = []
        self._found: dict[int, tuple[_Disk, BatchKey, int]] = {}
        for disk in disks:
            for key, count in disk.counts.items():
                number = ordered.get(key, 0)
                if key[0] == group and number:
                    self._found.setdefault(number, (disk, key, count))

    def write(self, place: Path, head: int) -> GroupCopy:
        place.mkdir()
        base = self._copy_checkpoint(place)
        writer = CopyWriter(place, self._group, self._name, self._retained.keep, base)
        for number_first, batch in self._batches(base, head):
            writer.add(number_first, batch)
        return writer.finish(head)

    def _copy_checkpoint(self, place: Path) -> int:
        """The newest state that is on one of the disks, whole; or where messages begin."""
        from samcast.checkpoint.blocks import load_checkpoint, write_checkpoint

        for advertised in reversed(self._retained.checkpoints):
            for disk in self._disks:
                folder = disk.node.folder / "checkpoints"
                source = place_of(folder, self._group, advertised.number)
                if not source.exists():
                    continue
                try:
                    table = load_checkpoint(source)[1]
                except DiskError:
                    continue
                keep = self._retained.keep
                about = (RESTORED, self._name, keep.fold, keep.fold_version)
                write_checkpoint(place / CHECKPOINT, table, about)
                return advertised.number
        return self._retained.collected

    def _batches(self, base: int, head: int) -> Iterator[tuple[int, Batch]]:
        next_number = base + 1
        for number in sorted(self._found):
            disk, key, count = self._found[number]
            if number + count <= next_number or number > head:
                continue
            payload = disk.data.read(key) or self._elsewhere(key)
            if payload is None:
                continue
            if number > next_number:
                yield from self._fill(next_number, number - 1)
            yield number, decode_batch(payload)
            next_number = number + count
        if next_number <= head:
            yield from self._fill(next_number, head)

    def _elsewhere(self, key: BatchKey) -> bytes | None:
        """Another disk's copy of what has rotted on the first one."""
        for disk in self._disks:
            payload = disk.data.read(key) if key in disk.counts else None
            if payload is not None:
                return payload
        return None

    def _fill(self, first: int, last: int) -> Iterator[tuple[int, Batch]]:
        self.lost.append((first, last))
        for at in range(first, last + 1, FILLER_MESSAGES):
            count = min(FILLER_MESSAGES, last + 1 - at)
            columns = columns_from_cells([b""] * count, None, [LOST] * count)
            sender = unnamed_sender(bytes(16))
            yield at, make_batch(
                group=self._group, sender=sender, incarnation=1, counter_first=at, count=count,
                birth=0, confirmed_below=0, seen=0, sent_ms=0, configuration=1, columns=columns,
            )  # fmt: skip
