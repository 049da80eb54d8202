"""One transaction of many processes: each stages its part, one of them decides for all.

They agree on a name and a *run*, a token that tells this attempt at the whole work from others.
Whoever opens the name first in a run takes it from the run before, which is fenced for good.
Transactions of a name are numbered by its users, from 1 on, rising; one that is decided stays so,
and to decide it again has no effect.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from samcast.client.ending import Ended
from samcast.client.engine import Engine, wall_ms
from samcast.client.outbox import blocked_by, too_many_names
from samcast.client.transaction import forgotten
from samcast.errors import (
    ClientError,
    ConfigError,
    FencedError,
    OutcomeUnknownError,
    RefusedError,
    WaitTimeoutError,
)
from samcast.group.settings import GroupSettings
from samcast.group.stager import Place, Stage, StageHeld, Stager, StagingOver
from samcast.wire.group import (
    AbortRequest,
    AnyRequest,
    DecisionRequest,
    OpenRequest,
    Outcome,
    OutcomeKind,
    SenderRemovalRequest,
)
from samcast.wire.order import CELL, StageRef, named_sender

OPEN_S = 60.0
ABORT_S = 10.0
HELD_S = 120.0  # before a stage is given up
UNDER_WAY_BYTES = 32 * 1024 * 1024
STAGES_MAX = GroupSettings().decision_stages_max
TASK_STAGES_MAX = 4096  # numbers that one process may give
TASKS = 2**20

Parts = tuple[tuple[int, tuple[StageRef, ...]], ...]  # by group


@dataclass(frozen=True, slots=True)
class Opened:
    """The name is this run's."""

    name: str
    incarnation: int
    tx_next: int  # transactions below it were decided
    birth: int
    seen: int = 0  # an index at which it was


def open_run(
    engine: Engine, name: str, run: str, tx: int, anonymous_since: int | None = None
) -> Opened:
    """Take the name for this run, or find that it has it; a `FencedError` if a later one does, or
    if others are beyond this transaction: then it is not we who are to go on.

    A name that was made for this work alone comes with the cell's index of that time: whoever comes
    so late that the cluster has forgotten it must not begin it anew."""
    owner, nonce = named_sender(name), _nonce(run)
    is_anonymous = anonymous_since is not None
    birth = engine.call(engine.head(CELL), OPEN_S) if anonymous_since is None else anonymous_since
    label = "" if is_anonymous else name
    incarnation, after = 1, 0
    limit = time.monotonic() + OPEN_S
    while time.monotonic() < limit:
        who = (CELL, owner, incarnation, after, birth, nonce)
        request = OpenRequest(*who, label, is_anonymous)
        outcome = _outcome(engine, request, OPEN_S, f"the name {name!r} could not be opened")
        if outcome.kind is OutcomeKind.OPENED:
            if tx + 1 < outcome.value:
                raise stale(name, tx, outcome.value)
            since = outcome.next or max(birth, outcome.head)
            return Opened(name, incarnation, outcome.value, since, outcome.head)
        if outcome.kind is not OutcomeKind.FENCED:
            raise _refused(name, outcome)
        if outcome.value < incarnation:  # not because of its number, so because of who we are
            raise fenced(name)
        if tx + 1 < outcome.next:
            raise stale(name, tx, outcome.next)
        if not is_anonymous:
            birth = max(birth, outcome.head)  # A server that knows less can't answer that.
        # First ask whether that one is ours, then take it over, from whoever has it.
        is_asked = outcome.value == incarnation
        is_taken = is_asked and outcome.next > 0
        incarnation, after = outcome.value + is_asked, outcome.value if is_taken else 0
    raise WaitTimeoutError(f"the name {name!r} changed hands all the time for {OPEN_S:.0f} s")


def fenced(name: str) -> FencedError:
    """The error for who comes too late."""
    return FencedError(
        f"{name!r} has been taken over by another run that started later, so this one may not write"
        " any more; two with the same name (for Spark: the same checkpoint folder) can't run at"
        " once: stop one of them"
    )


def stale(name: str, tx: int, tx_next: int) -> FencedError:
    """The error for who comes with something that is long past. Only the last transaction may be
    repeated: what an old one holds need not be what was decided then."""
    return FencedError(
        f"{name!r} is at transaction {tx_next}, so {tx} may not be written again: another run with"
        " the same name (for Spark: the same checkpoint folder) has gone on, or the folder is an"
        " old copy; stop the other one, or begin anew with another folder and option `start`"
    )


class Staging:
    """What one process adds to a transaction. Not for several threads."""

    def __init__(self, engine: Engine, opened: Opened, tx: int, task: int) -> None:
        self._engine = engine
        self._name = opened.name
        self._first = (task % TASKS) * TASK_STAGES_MAX + 1
        self._count = 0
        place = Place(named_sender(opened.name), opened.incarnation, tx, opened.birth, self._first)
        self._stager = Stager(0, engine.configuration, place, wall_ms())
        self._changed = threading.Condition()
        self._under_way = 0
        self._refs: list[tuple[int, StageRef]] = []
        self._is_over = False
        self._error: ClientError | None = None
        self._at = engine.call(engine.add_role(self._stager, self._on_effect))

    def stage(self, group: int, columns: bytes, count: int) -> None:
        """Add messages; waits while too much is under way."""
        if self._count == TASK_STAGES_MAX:
            raise ConfigError(f"a task has at most {TASK_STAGES_MAX} stages; use more partitions")
        self._await(UNDER_WAY_BYTES)
        self._count += 1
        with self._changed:
            self._under_way += len(columns)
        self._engine.post(self._at, Stage(group, columns, count))

    def finish(self) -> Parts:
        """All stages, once enough data servers have them on their disks."""
        self._await(0)
        refs: dict[int, list[StageRef]] = {}
        for group, ref in sorted(self._refs, key=lambda held: held[1].stage):
            refs.setdefault(group, []).append(ref)
        return tuple((group, tuple(stages)) for group, stages in refs.items())

    def close(self) -> None:
        """Stop asking."""
        if not self._engine.is_closed:
            self._engine.call(self._engine.remove_role(self._at))

    def _await(self, most: int) -> None:
        with self._changed:
            while self._under_way > most and not self._is_over and self._error is None:
                before = self._under_way
                if not self._changed.wait(HELD_S) and self._under_way == before:
                    raise WaitTimeoutError(
                        f"{before} bytes were not on the disks of enough nodes within {HELD_S:.0f}"
                        " s: are enough of them up, and have they room (`samcast doctor`)?"
                        f"{blocked_by(self._stager.blocked)}"
                    )
            if self._is_over:
                raise fenced(self._name)
            if self._error is not None:
                raise self._error

    def _on_effect(self, effect: Any) -> None:
        with self._changed:
            if isinstance(effect, StageHeld):
                self._refs.append((effect.group, effect.ref))
                self._under_way -= effect.size
            elif isinstance(effect, StagingOver):
                self._is_over = True
            elif isinstance(effect, Ended):
                self._error = effect.error
            self._changed.notify_all()


def decide(
    engine: Engine,
    name: str,
    incarnation: int,
    tx: int,
    parts: Parts,
    timeout: float,
    seen: int = 0,
) -> dict[int, int]:
    """Have all of these messages take effect, at once; the first number in each group, where it is
    still known. The same again if that was done before. `seen` is as the name was opened."""
    stages = sum(len(refs) for _, refs in parts)
    if stages > STAGES_MAX:
        raise ConfigError(
            f"{stages} stages, and one transaction has at most {STAGES_MAX}: have fewer partitions"
            " (`df.coalesce(...)`), or fewer rows in a batch"
        )
    request = DecisionRequest(named_sender(name), incarnation, tx, parts, seen)
    outcome = _outcome(engine, request, timeout, f"transaction {tx} of {name!r} was not decided")
    if outcome.kind is OutcomeKind.FENCED:
        raise fenced(name)
    if outcome.kind not in (OutcomeKind.DECIDED, OutcomeKind.CONFIRMED):
        raise _refused(name, outcome)
    return {group: first for group, first, _ in outcome.spans}


def decide_or_abort(
    engine: Engine,
    name: str,
    incarnation: int,
    tx: int,
    parts: Parts,
    timeout: float,
    seen: int = 0,
) -> None:
    """Have all of these messages take effect. Whoever hears nothing in time tries to take it back,
    and so learns what has come of it: an error says whether they are there."""
    try:
        decide(engine, name, incarnation, tx, parts, timeout, seen)
    except WaitTimeoutError as late:
        try:
            is_aborted = abort(engine, name, incarnation, tx, ABORT_S)
        except ClientError:
            raise OutcomeUnknownError(
                f"{late}; it may or may not have taken effect: look before you write again"
            ) from late
        if is_aborted:
            raise WaitTimeoutError(
                f"{late}; it was taken back, and nothing of it is there"
            ) from late


def abort(engine: Engine, name: str, incarnation: int, tx: int, timeout: float) -> bool:
    """Have what was staged forgotten; False if it had been decided before. Who can't know, since
    others have the name by now, gets an error."""
    request = AbortRequest(named_sender(name), incarnation, tx)
    outcome = _outcome(engine, request, timeout, f"transaction {tx} of {name!r} was not aborted")
    if outcome.kind is OutcomeKind.FENCED:
        raise fenced(name)
    if outcome.kind not in (OutcomeKind.DONE, OutcomeKind.DECIDED, OutcomeKind.CONFIRMED):
        raise _refused(name, outcome)
    return outcome.kind is OutcomeKind.DONE


def forget(engine: Engine, name: str, timeout: float) -> None:
    """A name that was made up for one run, so that it doesn't matter which incarnation has it: a
    late copy of this finds nobody else's."""
    request = SenderRemovalRequest(CELL, named_sender(name))
    _outcome(engine, request, timeout, f"the name {name!r} was not removed")


def joined(parts: Sequence[Parts]) -> Parts:
    """The stages of several processes, in this order."""
    refs: dict[int, list[StageRef]] = {}
    for part in parts:
        for group, stages in part:
            refs.setdefault(group, []).extend(stages)
    return tuple((group, tuple(stages)) for group, stages in refs.items())


def _nonce(run: str) -> int:
    return 1 + int.from_bytes(blake2b(run.encode(), digest_size=8).digest(), "little") % 2**62


def _outcome(engine: Engine, request: AnyRequest, timeout: float, what: str) -> Outcome:
    try:
        return engine.call(engine.propose(request), timeout)
    except TimeoutError:
        raise WaitTimeoutError(
            f"{what} within {timeout:.0f} s: are enough nodes up (`samcast doctor`)?"
        ) from None


def _refused(name: str, outcome: Outcome) -> ClientError:
    if outcome.kind is OutcomeKind.REFUSED and outcome.value:
        return too_many_names(name, outcome.value, "this cluster")
    if outcome.kind is OutcomeKind.REMOVED:
        return forgotten(name)
    if outcome.kind is OutcomeKind.EXPIRED:
        return RefusedError(
            f"the name {name!r} was removed or forgotten, so nothing of this took effect; run it"
            " again"
        )
    return RefusedError(f"transactions of {name!r}: {outcome.kind.name.lower()}")
