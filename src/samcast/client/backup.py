"""A backup of a running cluster: all its groups, each up to the number that it had at one place of
the order, checked as it is written; and a new cluster made of one.

A group is its newest checkpoint, if it has any, and the messages after it. What belongs to the
cluster and not to its messages stays behind: who sent what last (so nobody recognises what a sender
repeats across a restore), leases, and the cluster's identity.
"""

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from samcast.checkpoint.places import RESTORED, place_of
from samcast.client.blocking import TABLES, Client, Group, connect
from samcast.client.engine import refused
from samcast.client.inbox import messages_from
from samcast.client.joining import fetch_table
from samcast.client.keeping import bounded
from samcast.client.lease import Lease
from samcast.errors import CollectedError, DiskError, SamcastError
from samcast.group.table import Table
from samcast.runtime.folder import write_durably
from samcast.runtime.local_cluster import LocalCluster
from samcast.runtime.os_folder import sync_folder
from samcast.wire.batch import Batch, decode_batch, encode_batch
from samcast.wire.errors import WireError
from samcast.wire.group import OutcomeKind
from samcast.wire.order import Keep
from samcast.wire.retention import BeginRequest, Checkpoints
from samcast.wire.segment import encode_record, read_record, record_bytes

LIST = "backup.json"
INCIDENT = "incident.json"  # where the backup was made of what a lost quorum has left
MESSAGES = "messages"
CHECKPOINT = "checkpoint"
FORMAT = 1
KIND = 1
GENERATION = 1
NUMBER_BYTES = 8
LEASE_S = 3600.0
RENEW_S = 300.0
WAIT_S = 600.0
HEADER_BYTES = record_bytes(0)
LOOK_S = 0.2
TRIES = 5

Say = Callable[[str], None]


class GroupCopy(msgspec.Struct, frozen=True):
    """One group of a backup."""

    id: int
    name: str
    keep: Keep
    base: int  # messages up to here are in the checkpoint, or were gone
    number: int  # the last one that is in it
    hash: str  # of the messages
    state: str = ""  # of the table at that number, by its content


class Copy(msgspec.Struct, frozen=True):
    """What a backup says of itself."""

    format: int
    cluster: str
    made_at: str
    groups: list[GroupCopy]

    @classmethod
    def made(cls, cluster: str, made_at: str, groups: list[GroupCopy]) -> "Copy":
        """In the format of this version."""
        return cls(FORMAT, cluster, made_at, groups)


# making


def back_up(client: Client, folder: Path, say: Say) -> Copy:
    """Write a backup into a folder that isn't there yet, or is empty."""
    if folder.exists() and any(folder.iterdir()):
        raise DiskError(f"{folder} is not empty; a backup goes into a folder of its own")
    made_folders = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    # First all is held, then the heads are taken: nothing of it goes meanwhile.
    held = {name: _hold(client.group(name)) for name in client.groups()}
    status = _status_with(client, {name: lease.number for name, (lease, _) in held.items()})
    renewing = Renewing([lease for lease, _ in held.values()])
    copies = []
    for facts in status["groups"]:
        if facts["name"] not in held:
            continue  # It was made just now.
        group = client.group(str(facts["name"]))
        there = held[group.name][1]
        place = folder / str(facts["id"])
        copies.append(_copy_group(group, there, int(facts["head"]), place, renewing))
        say(f"{group.name}: up to {copies[-1].number}")
        renewing.look()
    for lease, _ in held.values():
        lease.release()
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    copy = Copy.made(str(status["cluster"]), made, copies)
    # The list stands only where all that it lists does, whenever the power fails.
    for one in (folder, *(one.parent for one in made_folders)):
        sync_folder(one)
    write_durably(folder / LIST, msgspec.json.format(msgspec.json.encode(copy), indent=1))
    check(folder)
    return copy


class Renewing:
    """The leases of a backup, renewed in time by whoever works at it, however long that takes."""

    def __init__(self, leases: list[Lease]) -> None:
        self._leases = leases
        self._due = time.monotonic() + RENEW_S

    def look(self) -> None:
        """Called again and again."""
        if time.monotonic() >= self._due:
            for lease in self._leases:
                lease.renew()
            self._due = time.monotonic() + RENEW_S


def _hold(group: Group) -> tuple[Lease, Checkpoints]:
    """Have all that there is stay, and say what that is."""
    name = f"backup-{secrets.token_hex(8)}"
    for left in reversed(range(TRIES)):
        try:
            lease = group.lease(name, group.oldest() - 1, ttl=LEASE_S)
        except CollectedError:  # Some of it went in between.
            if not left:
                raise
            continue
        there = group.checkpoints()
        if there.collected == lease.number:
            return lease, there
        lease.release()
    raise SamcastError(f"group {group.name!r} is collected faster than it can be held")


def _status_with(client: Client, numbers: dict[str, int]) -> dict[str, Any]:
    """Heads of all groups at one place of the order that is behind all the leases."""
    limit = time.monotonic() + WAIT_S
    wanted = {name: max(number, client.group(name).head()) for name, number in numbers.items()}
    while time.monotonic() < limit:
        status: dict[str, Any] = client.status()
        heads = {facts["name"]: facts["head"] for facts in status.get("groups", [])}
        if all(heads.get(name, -1) >= number for name, number in wanted.items()):
            return status
        time.sleep(LOOK_S)
    raise SamcastError("the node that we are connected to doesn't catch up, or keeps no order")


def _copy_group(
    group: Group, there: Checkpoints, head: int, place: Path, renewing: Renewing
) -> GroupCopy:
    place.mkdir()
    base = there.collected
    if there.checkpoints:
        fetched = fetch_table(
            group.engine, group.id, there.checkpoints[-1], lambda rows, of: renewing.look()
        )
        _write_checkpoint(place / CHECKPOINT, fetched, group, there.keep)
        base = there.checkpoints[-1].number
    elif there.keep.fold == "table" and base:
        raise SamcastError(f"group {group.name!r} has neither its first messages nor a checkpoint")
    writer = CopyWriter(place, group.id, group.name, there.keep, base)
    for number_first, batch in _batches(group, base, head):
        writer.add(number_first, batch)
        renewing.look()
    return writer.finish(head)


class CopyWriter:
    """Writes the messages of one group behind its base, and remembers what they come to."""

    def __init__(self, place: Path, group: int, name: str, keep: Keep, base: int) -> None:
        self._place = place
        self._about = (group, name, keep)
        self._base = base
        self._table = _table_of(place) if keep.fold == "table" else None
        self._digest = hashlib.blake2b(digest_size=32)
        self._file = (place / MESSAGES).open("wb")

    def add(self, number_first: int, batch: Batch) -> None:
        """The next batch."""
        body = number_first.to_bytes(NUMBER_BYTES, "little") + encode_batch(batch)
        at = self._file.tell()
        self._file.write(encode_record(KIND, body, generation=GENERATION, offset=at))
        _note(self._digest, self._table, number_first, batch, self._base)

    def finish(self, head: int) -> GroupCopy:
        """All is there, and durable."""
        self._file.flush()
        self._file.close()
        _sync_all(self._place)
        state = self._table.content_hash() if self._table is not None else ""
        number = max(self._base, head)
        return GroupCopy(*self._about, self._base, number, self._digest.hexdigest(), state)


def _sync_all(place: Path) -> None:
    """Files, and the names under which they stand."""
    for folder, _, names in os.walk(place):
        for name in names:
            with (Path(folder) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(folder))


def _write_checkpoint(place: Path, table: Table, group: Group, keep: Keep) -> None:
    from samcast.checkpoint.blocks import write_checkpoint

    write_checkpoint(place, table, (RESTORED, group.name, keep.fold, keep.fold_version))


def _batches(group: Group, base: int, head: int) -> Iterator[tuple[int, Batch]]:
    """All that hold a message above one number and up to another."""
    if base >= head:
        return
    for number_first, batch in group.read_batches(base + 1):
        yield number_first, batch
        if number_first + batch.count > head:
            return


def _note(
    digest: "hashlib.blake2b", table: Table | None, number_first: int, batch: Batch, base: int
) -> None:
    for message in messages_from(number_first, batch):
        if message.number <= base:
            continue
        for cell in (message.key, message.headers, message.body):
            digest.update(len(cell).to_bytes(8, "little"))
            digest.update(cell)
        if table is not None:
            table.apply(message.number, message.body)


# reading


def read_copy(folder: Path) -> Copy:
    """What a backup says of itself; a `DiskError` if it isn't one."""
    try:
        copy = msgspec.json.decode((folder / LIST).read_bytes(), type=Copy)
    except FileNotFoundError:
        raise DiskError(f"{folder} is no backup, or one that was not finished: no {LIST}") from None
    except msgspec.DecodeError as error:
        raise DiskError(f"{folder / LIST} can't be read: {error}") from None
    if copy.format != FORMAT:
        raise DiskError(f"{folder} has format {copy.format}; this version reads {FORMAT}")
    return copy


def check(folder: Path) -> Copy:
    """Read all of a backup; a `DiskError` says what is damaged."""
    copy = read_copy(folder)
    for group in copy.groups:
        place = folder / str(group.id)
        digest = hashlib.blake2b(digest_size=32)
        table = _table_of(place) if group.keep.fold == "table" else None
        for number_first, batch in _stored(place / MESSAGES):
            _note(digest, table, number_first, batch, group.base)
        is_same = table is None or table.content_hash() == group.state
        if digest.hexdigest() != group.hash or not is_same:
            raise DiskError(f"{place} is damaged: group {group.name!r} isn't what was backed up")
    return copy


def _table_of(place: Path) -> Table:
    from samcast.checkpoint.blocks import load_checkpoint

    if not (place / CHECKPOINT).exists():
        return Table()
    return load_checkpoint(place / CHECKPOINT)[1]


def _stored(path: Path) -> Iterator[tuple[int, Batch]]:
    size = path.stat().st_size
    with path.open("rb") as file:
        at = 0
        while at < size:
            head = file.read(HEADER_BYTES)
            length = record_bytes(int.from_bytes(head[8:12], "little"))
            record = head + file.read(max(0, length - HEADER_BYTES))
            found = read_record(record, generation=GENERATION, offset=at)
            if found is None:
                raise DiskError(f"{path} is damaged at byte {at}")
            try:
                batch = decode_batch(found[1][NUMBER_BYTES:])
            except WireError as error:
                raise DiskError(f"{path} at byte {at}: {error}") from None
            yield int.from_bytes(found[1][:NUMBER_BYTES], "little"), batch
            at += length


# restoring


def restore(backup: Path, folder: Path, say: Say, nodes: int = 3) -> Copy:
    """Make a new cluster in a folder; it is left stopped. What is there is never written over."""
    copy = check(backup)
    cluster = LocalCluster(folder)
    if folder.exists() and any(folder.iterdir()):
        raise DiskError(f"{folder} is not empty; restore into a folder of its own")
    plan = cluster.make(nodes)
    cluster.start_all()
    try:
        cluster.await_ready()
        with connect(cluster.address) as client:
            for group in copy.groups:
                made = client.group(group.name)
                if group.base:
                    begin_at(made, group.base)
                for node in plan.nodes:
                    _place_checkpoint(backup / str(group.id), node.folder, made.id, group.base)
                made.set_keep(bounded(group.keep, 0, 0, 0, False))
                _send_again(made, backup / str(group.id) / MESSAGES, group)
                say(f"{group.name}: up to {group.number}")
            os.sync()  # the files of checkpoints, too
            for group in copy.groups:
                _compare(client, group)
            for group in copy.groups:  # Only now may anything go.
                client.group(group.name).set_keep(group.keep)
    finally:
        cluster.stop_all()
    if (backup / INCIDENT).exists():  # It stays with what came of it.
        shutil.copy(backup / INCIDENT, folder / INCIDENT)
    return copy


def begin_at(group: Group, number: int) -> None:
    """Have the numbers of an empty group go on behind one."""
    request = BeginRequest(group.id, number)
    outcome = group.engine.call(group.engine.propose(request), WAIT_S)
    if outcome.kind is not OutcomeKind.DONE:
        raise refused(f"group {group.name!r}", outcome)


def _place_checkpoint(source: Path, node: Path, group: int, number: int) -> None:
    if (source / CHECKPOINT).exists():
        target = place_of(node / "checkpoints", group, number)
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.writing")
        shutil.copytree(source / CHECKPOINT, beside)
        beside.rename(target)


def _send_again(group: Group, path: Path, copy: GroupCopy) -> None:
    """By one sender, so the numbers are the same."""
    for number_first, batch in _stored(path):
        messages = messages_from(number_first, batch)
        if copy.base < number_first and messages[-1].number <= copy.number:
            group.send_batch(batch)
            continue
        for message in messages:  # only a part of it belongs here
            if copy.base < message.number <= copy.number:
                group.send(message.body, message.key, message.headers)
    group.flush(WAIT_S)


def _compare(client: Client, copy: GroupCopy) -> None:
    group = client.group(copy.name)
    if group.head() < copy.number:
        raise SamcastError(f"group {copy.name!r} was restored up to {group.head()} only")
    digest = hashlib.blake2b(digest_size=32)
    for number_first, batch in _batches(group, copy.base, copy.number):
        _note(digest, None, number_first, batch, copy.base)
    if digest.hexdigest() != copy.hash or _state_of(client, group, copy) != copy.state:
        raise SamcastError(f"group {copy.name!r} isn't what was backed up")


def _state_of(client: Client, group: Group, copy: GroupCopy) -> str:
    """The content of a table, once the new cluster has its checkpoint."""
    if copy.keep.fold != "table" or not copy.name.startswith(TABLES):
        return copy.state
    limit = time.monotonic() + WAIT_S
    while copy.base and not group.checkpoints().checkpoints:
        if time.monotonic() > limit:
            raise SamcastError(f"the new cluster didn't take over the checkpoint of {copy.name!r}")
        time.sleep(LOOK_S)
    table = client.table(copy.name.removeprefix(TABLES))
    table.wait_for(copy.number, WAIT_S)
    return table.content_hash()
