"""What a commit server answers from its committed prefix: order, numbers, heads, proposals
(GRP-09).
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from samcast.group.core import Core
from samcast.machine.ports import Effect, NodeId, Send
from samcast.wire.group import (
    AnyRequest,
    GroupRemovalRequest,
    Head,
    HeadRequest,
    LogReply,
    LogRequest,
    NumberReply,
    NumberRequest,
    OpenRequest,
    OrderReply,
    OrderRequest,
    Propose,
    SenderRemovalRequest,
    SnapshotReply,
    SnapshotRequest,
    Span,
)
from samcast.wire.names import NAMES_PER_REPLY_MAX, Named, Names, NamesRequest
from samcast.wire.order import (
    CELL,
    EPOCH_NONE,
    AnyEntry,
    DecisionEntry,
    GroupRemovedEntry,
    KeepEntry,
    LeaseEntry,
    OpenEntry,
    RunEntry,
    SenderRemovedEntry,
)
from samcast.wire.retention import Checkpoints, CheckpointsRequest, KeepRequest, LeaseRequest

if TYPE_CHECKING:
    from samcast.group.commit_server import CommitServer

WAITING_MAX = 10_000  # proposals whose proposer hears at once; others ask again
SNAPSHOT_PIECE_BYTES = 48 * 1024


class NumberIndex:
    """Which committed entry holds a number of one group."""

    __slots__ = ("_entries", "_firsts", "_indexes")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._entries: list[AnyEntry] = []
        self._indexes: list[int] = []

    def add(self, number_first: int, entry: AnyEntry, index: int) -> None:
        """The next entry of the group."""
        self._firsts.append(number_first)
        self._entries.append(entry)
        self._indexes.append(index)

    def forget_up_to(self, index: int) -> None:
        """Entries at or below an index are gone."""
        at = bisect_right(self._indexes, index)
        del self._firsts[:at], self._entries[:at], self._indexes[:at]

    def find(self, first: int, count: int, most: int) -> tuple[list[tuple[int, AnyEntry]], int]:
        """Entries that cover the span, by index, and how many of its first numbers are gone."""
        if not self._firsts or first + count <= self._firsts[0]:
            return [], count
        gone = max(0, self._firsts[0] - first)
        at = max(0, bisect_right(self._firsts, first + gone) - 1)
        end = bisect_right(self._firsts, first + count - 1)
        end = min(end, at + most)
        return list(zip(self._indexes[at:end], self._entries[at:end], strict=True)), gone


class OrderQueries:
    """Questions to a commit server."""

    def __init__(self, server: "CommitServer") -> None:
        self._server = server
        self.claimed = 0  # the highest index that we have heard to be committed
        self._numbers: dict[int, NumberIndex] = {}
        self._waiting: dict[object, dict[int, tuple[NodeId, AnyRequest]]] = {}
        self._waiting_count = 0

    @property
    def is_current(self) -> bool:
        """Whether our fold holds all that was confirmed before we started. It does once it has come
        to the first entry of a sequencer that we have heard since, and to all that this one has
        told us of; until then we don't know what there is, and say nothing of what is not."""
        server = self._server
        epoch = server.election.leader_epoch
        has_begun = epoch != EPOCH_NONE and server.core.epoch >= epoch
        return has_begun and server.core.index >= self.claimed

    def note(
        self, index: int, entry: AnyEntry, core: Core, is_effective: bool, out: list[Effect]
    ) -> None:
        """An entry was folded; one without effect may still be what somebody waits for."""
        if type(entry) is RunEntry:
            if is_effective:
                self._index_of(entry.group).add(entry.number_first, entry, index)
            return
        if type(entry) is DecisionEntry and is_effective:
            for part in entry.parts:
                self._index_of(part.group).add(part.number_first, entry, index)
        self._answer_waiting(entry, core, out)

    def _index_of(self, group: int) -> NumberIndex:
        numbers = self._numbers.get(group)
        if numbers is None:
            numbers = self._numbers[group] = NumberIndex()
        return numbers

    def forget_below(self, base: int) -> None:
        """The log starts above `base` now."""
        for numbers in self._numbers.values():
            numbers.forget_up_to(base)

    # order

    def on_log_request(self, sender: NodeId, request: LogRequest, out: list[Effect]) -> None:
        """A candidate takes our log; only the one we promised, and only while we do."""
        server = self._server
        if request.epoch != server.promised or server.vote_durable != request.epoch:
            return
        if request.index_first <= server.log.base or server.unknown_from:
            return
        most, bytes_max = server.settings.entries_per_message_max, server.settings.order_bytes_max
        entries = tuple(server.log.slice(request.index_first, most, bytes_max))
        reply = LogReply(request.epoch, request.index_first, entries, server.log.base)
        out.append(Send(sender, reply))

    def on_order_request(self, sender: NodeId, request: OrderRequest, out: list[Effect]) -> None:
        """A follower wants committed entries."""
        server = self._server
        core, log, first = server.core, server.log, max(1, request.index_first)
        entries: tuple[AnyEntry, ...] = ()
        if log.base < first <= core.index:
            most = min(server.settings.entries_per_message_max, core.index - first + 1)
            entries = tuple(log.slice(first, most, server.settings.order_bytes_max))
        reply = OrderReply(
            server.configuration.number,
            core.epoch,
            first,
            entries,
            core.index,
            core.hash,
            min(log.base, core.truncated),  # what only we have lost, others still have
        )
        out.append(Send(sender, reply))

    def handlers(self) -> dict[type, Callable[[NodeId, Any, list[Effect]], None]]:
        """What anybody may ask."""
        return {
            NumberRequest: self.on_number_request,
            HeadRequest: self.on_head_request,
            CheckpointsRequest: self.on_checkpoints_request,
            NamesRequest: self.on_names_request,
        }

    def on_number_request(self, sender: NodeId, request: NumberRequest, out: list[Effect]) -> None:
        """A member wants to know which ids have these numbers."""
        server = self._server
        found: dict[int, AnyEntry] = {}
        gone: list[Span] = []
        most, room = server.settings.entries_per_message_max, server.settings.order_bytes_max
        for group, first, count in request.spans[: server.settings.spans_per_request_max]:
            if group == CELL:
                continue
            head = server.core.head(group)
            count = min(count, head + 1 - first)
            if first < 1 or count < 1:
                continue
            entries, lost = self._index_of(group).find(first, count, most - len(found))
            if lost:
                gone.append((group, first, lost))
            for index, entry in entries:
                room -= server.log.size_at(index)
                if found and room < 0:
                    break  # It asks again for what it still lacks.
                found[len(found)] = entry
        if found or gone:
            out.append(Send(sender, NumberReply(tuple(found.values()), tuple(gone))))

    def on_head_request(self, sender: NodeId, request: HeadRequest, out: list[Effect]) -> None:
        """How far is a group? From committed state, so it never runs ahead."""
        core = self._server.core
        if self.is_current and core.has_heard_of(request.group):
            out.append(Send(sender, Head(request.group, core.head(request.group))))

    def on_checkpoints_request(
        self, sender: NodeId, request: CheckpointsRequest, out: list[Effect]
    ) -> None:
        """What is there to begin with, and from where on."""
        retained = self._server.core.retained_of(request.group)
        if retained is not None and self.is_current:
            kept = (retained.collected, retained.keep, tuple(retained.checkpoints))
            known = (self._server.core.head(request.group), tuple(retained.intervals))
            out.append(Send(sender, Checkpoints(request.group, *kept, *known)))

    def on_names_request(self, sender: NodeId, request: NamesRequest, out: list[Effect]) -> None:
        """Who has a name, by id, so many at a time."""
        core = self._server.core
        rows = core.groups.get(request.scope)
        if rows is None or not self.is_current:
            return
        named, anonymous = rows.named, rows.anonymous
        found = sorted(name for name in named if name > request.above)
        names = tuple(
            Named(name, r.label, r.incarnation, r.next - 1, r.last, name in anonymous)
            for name, r in ((name, named[name]) for name in found[:NAMES_PER_REPLY_MAX])
        )
        is_more = len(found) > NAMES_PER_REPLY_MAX
        said = Names(request.scope, request.above, names, is_more, core.named_max)
        out.append(Send(sender, said))

    def on_snapshot_request(
        self, sender: NodeId, request: SnapshotRequest, out: list[Effect]
    ) -> None:
        """A piece of a core snapshot."""
        snapshot = self._server.snapshots.get(request.index)
        if snapshot is None:
            return
        index, state = snapshot
        if request.offset > len(state):
            return
        piece = state[request.offset : request.offset + SNAPSHOT_PIECE_BYTES]
        out.append(Send(sender, SnapshotReply(index, request.offset, len(state), piece)))

    # proposals

    def on_propose(self, sender: NodeId, propose: Propose, out: list[Effect]) -> None:
        """Answer from committed state if that is certain, else bring it to the sequencer."""
        server = self._server
        origin = propose.origin or sender
        outcome = server.core.outcome(propose.nonce, propose.request)
        if outcome is not None and self.is_current:
            out.append(Send(origin, outcome))
            return
        if server.sequencer is not None:
            self._wait(origin, propose)
            server.sequencer.on_propose(propose.request, out)
        elif not propose.origin:
            leader = server.election.leader
            if leader is not None and leader != server.node:
                out.append(Send(leader, Propose(propose.nonce, propose.request, origin)))

    def _wait(self, origin: NodeId, propose: Propose) -> None:
        if self._waiting_count >= WAITING_MAX:
            self._waiting.clear()
            self._waiting_count = 0
        waiting = self._waiting.setdefault(_subject(propose.request), {})
        if propose.nonce not in waiting:
            self._waiting_count += 1
        waiting[propose.nonce] = (origin, propose.request)

    def _answer_waiting(self, entry: AnyEntry, core: Core, out: list[Effect]) -> None:
        subject = _subject(entry)
        waiting = self._waiting.get(subject)
        if not waiting:
            return
        for nonce, (origin, request) in list(waiting.items()):
            outcome = core.outcome(nonce, request, is_settled=_settles(entry, request))
            if outcome is not None:
                out.append(Send(origin, outcome))
                del waiting[nonce]
                self._waiting_count -= 1
        if not waiting:
            del self._waiting[subject]


def _settles(entry: AnyEntry, request: AnyRequest) -> bool:
    """Whether this is the entry that the request asked for."""
    if type(request) is OpenRequest and type(entry) is OpenEntry:
        return (
            (entry.scope, entry.sender) == (request.scope, request.sender)
            and (entry.nonce, entry.incarnation) == (request.nonce, request.incarnation)
            and (entry.after, entry.birth) == (request.after, request.birth)
        )
    if type(request) is SenderRemovalRequest and type(entry) is SenderRemovedEntry:
        is_same_name = (entry.scope, entry.sender) == (request.scope, request.sender)
        return is_same_name and entry.below == request.below
    if type(request) is KeepRequest and type(entry) is KeepEntry:
        return (entry.keep, entry.before) == (request.keep, request.before)
    if type(request) is LeaseRequest and type(entry) is LeaseEntry:
        return (entry.group, entry.nonce) == (request.group, request.nonce)
    if type(request) is GroupRemovalRequest and type(entry) is GroupRemovedEntry:
        return entry.group == request.group
    return False


def _subject(thing: object) -> object:
    """What a proposal and the entry that settles it have in common."""
    for field in ("owner", "sender", "name", "group"):
        value = getattr(thing, field, None)
        if value is not None:
            return value
    return None
