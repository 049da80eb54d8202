"""Consolidation: folding a group's messages into the next checkpoint, outside the servers.

What there is to do is planned here: from which checkpoint, up to which number, and who is to get
the result. It counts as the report of whoever takes it, no more: others must come to the same.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from samcast.checkpoint.blocks import About, BlockList
from samcast.checkpoint.folds import fold_of
from samcast.client.blocking import Client, Group
from samcast.client.handing import states_of
from samcast.client.joining import Fetch, patiently
from samcast.client.lease import Lease
from samcast.errors import CollectedError, ConfigError, WaitTimeoutError
from samcast.machine.quorum import servers_with
from samcast.pipeline.reading import all_nodes
from samcast.wire.handing import States
from samcast.wire.order import ROLE_CHECKPOINT, Checkpoint

LEASE_S = 3600.0
TRIES = 5
JOB_MAX = 2**62

Progress = Callable[[str, int, int], None]  # what is done, how much of it, of how much


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asks for."""

    at: int = 0  # the number; 0: where servers are, or the newest
    is_handed_in: bool = True
    stops_at_bad: bool = False
    aside: Path | None = None  # a file for what the fold can't take


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job does; its tasks know it, too."""

    cluster: str  # addresses
    group: int
    about: About
    base: Checkpoint | None
    listed: bytes  # the list of its blocks
    number: int
    servers: tuple[int, ...]  # who gets it
    job: int

    @property
    def name(self) -> str:
        """Of the group."""
        return self.about[1]

    @property
    def first(self) -> int:
        """The first message behind the checkpoint."""
        return self.base.number + 1 if self.base is not None else 1


@dataclass(frozen=True, slots=True)
class Folded:
    """What an engine has come to."""

    listed: BlockList
    refused: int  # messages that the fold couldn't take
    refused_first: int


@contextmanager
def planned(client: Client, group: Group, wanted: Wanted) -> Iterator[Plan]:
    """What to do; the messages that it needs stay meanwhile."""
    keep = group.checkpoints().keep
    if not keep.fold:
        raise ConfigError(
            f"group {group.name!r} has no fold, so there is nothing to consolidate: give it one"
            f" with `samcast group fold {group.name} latest`"
        )
    states = states_by_server(client, group)
    number = _number(group, states, wanted.at)
    fold_of(keep.fold, keep.fold_version)  # It must be installed here, too.
    about = (str(client.status()["cluster"]), group.name, keep.fold, keep.fold_version)
    copies = client.engine.configuration.k_checkpoint if keep.by_jobs else 1
    lacking = [node for node, one in states.items() if _newest(one) < number]
    # Where servers fold, a job only joins those who have come to this number by themselves.
    held = {one.number for found in states.values() for one in found.checkpoints}
    is_wanted = keep.by_jobs or number in held
    servers = tuple(lacking[:copies]) if wanted.is_handed_in and is_wanted else ()
    job = 1 + secrets.randbelow(JOB_MAX)
    lease, base = _held(group, number)
    with lease.kept():
        listed = _list_of(client, group, base) if base is not None else b""
        yield Plan(all_nodes(client), group.id, about, base, listed, number, servers, job)


def _list_of(client: Client, group: Group, base: Checkpoint) -> bytes:
    def fetch() -> bytes:
        with Fetch(client.engine, group.id, base) as fetched:
            fetched.list()
            return fetched.listed

    return patiently(fetch)


def states_by_server(client: Client, group: Group) -> dict[int, States]:
    """What each checkpoint server holds by the group's fold, of those that answer."""
    keep = group.checkpoints().keep
    found: dict[int, States] = {}
    for server in servers_with(client.engine.configuration, ROLE_CHECKPOINT):
        try:
            states = states_of(client.engine, server.node, group.id)
        except WaitTimeoutError:
            continue  # It is down, perhaps; then it is no help either.
        if (states.fold, states.fold_version) != (keep.fold, keep.fold_version):
            states = States(group.id, keep.fold, keep.fold_version, ())  # Those before are void.
        found[server.node] = states
    return found


def _newest(states: States) -> int:
    return states.checkpoints[-1].number if states.checkpoints else 0


def _number(group: Group, states: dict[int, States], at: int) -> int:
    head = group.head()
    if at > head:
        raise ConfigError(f"group {group.name!r} ends with {head}; there is no {at} yet")
    there = group.checkpoints()
    if at or there.keep.by_jobs:
        return at or head
    # Where somebody else is already: a state counts when others have come to the same.
    found = max([_newest(one) for one in states.values()], default=0)
    return found or head


def _held(group: Group, number: int) -> tuple[Lease, Checkpoint | None]:
    """The checkpoint to begin with, and a lease on all messages behind it."""
    if not number:
        raise ConfigError(f"group {group.name!r} has no messages yet")
    for left in reversed(range(TRIES)):
        there = group.checkpoints()
        before = [found for found in there.checkpoints if found.number < number]
        base = before[-1] if before else None
        begun = base.number if base is not None else 0
        if begun < there.collected:
            raise CollectedError(
                f"messages up to {there.collected} of group {group.name!r} are gone, and no"
                f" checkpoint before {number} is there to begin with; take a later one (--at)"
            )
        try:
            name = f"consolidate-{secrets.token_hex(8)}"
            return group.lease(name, begun, ttl=LEASE_S), base
        except CollectedError:  # Some of it went in between.
            if not left:
                raise
    raise AssertionError
