"""What becomes of proposals: answers from the core state, and only where that is certain."""

from typing import TYPE_CHECKING

from samcast.errors import ConfigError
from samcast.group.retained import LEASES_MAX
from samcast.machine.change import check_change
from samcast.wire.change import ChangeRequest
from samcast.wire.group import (
    AbortRequest,
    AnyRequest,
    DecisionRequest,
    GroupRemovalRequest,
    GroupRequest,
    OpenRequest,
    Outcome,
    OutcomeKind,
    SenderRemovalRequest,
)
from samcast.wire.order import CELL, INCARNATION_MAX, is_named
from samcast.wire.retention import BeginRequest, KeepRequest, LeaseRequest

if TYPE_CHECKING:
    from samcast.group.core import Core
    from samcast.group.rows import GroupRows


def outcome_of(core: "Core", nonce: int, request: AnyRequest, is_settled: bool) -> Outcome | None:
    """What became of a proposal; None: it may still take effect.

    `is_settled`: its own entry was folded just now.
    """
    if type(request) is OpenRequest:
        return open_outcome(core, nonce, request, is_settled)
    if type(request) is DecisionRequest:
        if not core.is_sound_decision(request.parts):
            return Outcome(nonce, OutcomeKind.REFUSED)
        return _tx_outcome(core, nonce, request)
    if type(request) is AbortRequest:
        outcome = _tx_outcome(core, nonce, request)
        is_done = outcome is not None and outcome.kind is OutcomeKind.ABORTED
        return Outcome(nonce, OutcomeKind.DONE) if is_done else outcome
    if type(request) is GroupRequest:
        group = core.group_ids.get(request.name)
        return None if group is None else Outcome(nonce, OutcomeKind.GROUP, group)
    if type(request) is BeginRequest:
        return _begin_outcome(core, nonce, request, is_settled)
    if type(request) is KeepRequest or type(request) is LeaseRequest:
        return _retention_outcome(core, nonce, request, is_settled)
    if type(request) is ChangeRequest:
        return _change_outcome(core, nonce, request)
    if type(request) is GroupRemovalRequest:
        return _group_removal_outcome(core, nonce, request, is_settled)
    assert type(request) is SenderRemovalRequest
    return _sender_removal_outcome(core, nonce, request, is_settled)


def _group_removal_outcome(
    core: "Core", nonce: int, request: GroupRemovalRequest, is_settled: bool
) -> Outcome | None:
    if request.group == CELL:
        return Outcome(nonce, OutcomeKind.REFUSED)
    rows = core.groups.get(request.group)
    is_done = rows.is_removed if rows else request.group < core.group_next
    return Outcome(nonce, OutcomeKind.DONE) if is_done or is_settled else None


def _sender_removal_outcome(
    core: "Core", nonce: int, request: SenderRemovalRequest, is_settled: bool
) -> Outcome | None:
    rows, sender = core.groups.get(request.scope), request.sender
    row = rows.named.get(sender) if rows is not None else None
    if rows is None or row is None:
        is_done = rows is not None and rows.is_buried(sender, request.below)
        return Outcome(nonce, OutcomeKind.DONE) if is_done or is_settled else None
    if not rows.is_meant(sender, request.below):  # What was meant is gone; another one has it.
        return Outcome(nonce, OutcomeKind.DONE, row.incarnation)
    # Settled and still there: too many were given up since the group moved.
    return Outcome(nonce, OutcomeKind.REFUSED) if is_settled else None


def _change_outcome(core: "Core", nonce: int, request: ChangeRequest) -> Outcome | None:
    now = core.configuration
    if now == request.configuration:
        # Not before somebody was elected in it: until then those who leave may still be needed.
        return Outcome(nonce, OutcomeKind.DONE) if core.settled == now.number else None
    try:
        check_change(now, request)
    except ConfigError:  # Whoever asks can tell why, by the same rules.
        is_ahead = request.configuration.number > now.number + 1
        return None if is_ahead else Outcome(nonce, OutcomeKind.REFUSED, now.number)
    return None


def _begin_outcome(
    core: "Core", nonce: int, request: BeginRequest, is_settled: bool
) -> Outcome | None:
    rows = core.groups.get(request.group)
    if rows is None:
        return None if request.group >= core.group_next else Outcome(nonce, OutcomeKind.REFUSED)
    if rows.head == request.number and core.collected(request.group) == request.number:
        return Outcome(nonce, OutcomeKind.DONE)
    return Outcome(nonce, OutcomeKind.REFUSED, rows.head) if rows.head or is_settled else None


def _retention_outcome(
    core: "Core", nonce: int, request: KeepRequest | LeaseRequest, is_settled: bool
) -> Outcome | None:
    retained = core.retained_of(request.group)
    if retained is None:
        is_gone = request.group < core.group_next
        return Outcome(nonce, OutcomeKind.REFUSED) if is_gone else None
    if type(request) is KeepRequest:
        if retained.keep == request.keep:
            return Outcome(nonce, OutcomeKind.DONE)
        return Outcome(nonce, OutcomeKind.REFUSED) if is_settled else None
    assert type(request) is LeaseRequest
    if not retained.can_lease(request.name, request.number, request.ttl_ms):
        if request.number < retained.collected:
            return Outcome(nonce, OutcomeKind.REFUSED, retained.collected)
        # Some may have lapsed by the time its turn comes, so only its place in the log tells.
        full = Outcome(nonce, OutcomeKind.REFUSED, retained.collected, head=LEASES_MAX)
        return full if is_settled else None
    lease = retained.leases.get(request.name)
    wanted = (request.number, request.ttl_ms, request.nonce) if request.ttl_ms else None
    return Outcome(nonce, OutcomeKind.DONE) if lease == wanted else None


def open_outcome(
    core: "Core", nonce: int, request: OpenRequest, is_settled: bool
) -> Outcome | None:
    rows = core.groups.get(request.scope)
    if rows is None or rows.is_removed:
        is_gone = request.scope < core.group_next
        return Outcome(nonce, OutcomeKind.REFUSED) if is_gone else None
    if not is_named(request.sender) or not 1 <= request.incarnation <= INCARNATION_MAX:
        return Outcome(nonce, OutcomeKind.REFUSED)
    if request.is_anonymous and request.scope != CELL:
        return Outcome(nonce, OutcomeKind.REFUSED)
    row = rows.named.get(request.sender)
    if row is None:
        return _outcome_of_beginning(core, nonce, request, is_settled)
    is_same = row.nonce == request.nonce and row.incarnation == request.incarnation
    # One that was ended by an ABORT is opened again, with the next incarnation.
    if is_same and (request.after or not row.is_ended):
        runs = tuple((c, *run) for c, run in row.runs.items())
        last = row.last if request.scope == CELL else 0
        return Outcome(nonce, OutcomeKind.OPENED, row.next, runs, (), rows.head, last)
    # Who goes on from an incarnation that isn't here yet has seen more of the log than this
    # prefix, unless this one is beyond all that it had seen.
    is_ahead = request.after > row.incarnation and rows.head <= request.birth
    if (is_ahead and not is_settled) or core.can_open(request):
        return None
    return Outcome(nonce, OutcomeKind.FENCED, row.incarnation, head=rows.head, next=row.next)


def _outcome_of_beginning(
    core: "Core", nonce: int, request: OpenRequest, is_settled: bool
) -> Outcome | None:
    """The same where nobody has the name."""
    rows = core.groups[request.scope]
    below = rows.incarnation_below(request.sender, request.is_anonymous)
    if below == INCARNATION_MAX:
        return Outcome(nonce, OutcomeKind.REMOVED)
    if rows.is_given_up(request.sender, request.birth):
        return Outcome(nonce, OutcomeKind.REMOVED, head=rows.head)
    if request.after:
        is_ahead = rows.head <= request.birth
        return None if is_ahead and not is_settled else Outcome(nonce, OutcomeKind.REMOVED)
    if request.incarnation <= below:
        return Outcome(nonce, OutcomeKind.FENCED, below, head=rows.head)
    # Settled and not there: there were too many names when its turn came.
    return Outcome(nonce, OutcomeKind.REFUSED, core.named_max) if is_settled else None


def _tx_outcome(
    core: "Core", nonce: int, request: DecisionRequest | AbortRequest
) -> Outcome | None:
    cell = core.groups[CELL]
    row = cell.named.get(request.owner)
    if row is None:
        return _outcome_without_row(cell, nonce, request)
    if request.incarnation < row.incarnation:
        return Outcome(nonce, OutcomeKind.FENCED, row.incarnation)
    if request.incarnation > row.incarnation:
        return None
    if request.tx < row.next:
        spans = row.decided.get(request.tx)
        if spans is None:
            return Outcome(nonce, OutcomeKind.CONFIRMED)
        return Outcome(nonce, OutcomeKind.DECIDED, 0, (), spans, cell.head)
    return Outcome(nonce, OutcomeKind.ABORTED) if row.is_ended else None


def _outcome_without_row(
    cell: "GroupRows", nonce: int, request: DecisionRequest | AbortRequest
) -> Outcome | None:
    """The owner's name was given up, or its row evicted, or it is not open yet as far as this state
    goes. A decision that was made raised the floor above its index when its row went."""
    seen = request.seen if type(request) is DecisionRequest else 0
    gone_at = cell.tombstones.get(request.owner)
    if gone_at is None and is_named(request.owner):
        if not seen or cell.head < seen:
            return None
        gone_at = cell.memory_floor - 1
    is_known = gone_at is not None and seen > 0 and gone_at <= seen
    return Outcome(nonce, OutcomeKind.EXPIRED if is_known else OutcomeKind.REMOVED)
