"""The core state: a fold of the order's entries alone, equal wherever the same prefix was folded.

It holds the configuration, the groups with their sender rows and floors, and the chain hash. Commit
servers write it as a snapshot so that old entries may go; the sequencer runs a second copy over its
whole log to decide what comes next; data servers run one to know what may be dropped.

`apply` never fails: an entry that the rules refuse is a no-op, the same one everywhere.
"""

from collections.abc import Callable, Iterator
from typing import Any

from samcast.group.core_state import decode_state
from samcast.group.outcomes import outcome_of
from samcast.group.retained import Retained
from samcast.group.rows import Admission, GroupRows, Row
from samcast.group.settings import GroupSettings
from samcast.limits import BATCH_MESSAGES_MAX
from samcast.machine.change import replaced_by
from samcast.machine.quorum import is_sound
from samcast.wire.group import (
    AbortRequest,
    AnswerKind,
    AnyRequest,
    Asked,
    DecisionRequest,
    OpenRequest,
    Outcome,
    Span,
)
from samcast.wire.order import (
    CELL,
    EPOCH_NONE,
    HASH_NONE,
    INCARNATION_MAX,
    AbortEntry,
    AnyEntry,
    BeginEntry,
    CheckpointEntry,
    CollectEntry,
    ConfigEntry,
    Configuration,
    DecisionEntry,
    Entry,
    Epoch,
    EpochEntry,
    GroupEntry,
    GroupRemovedEntry,
    KeepEntry,
    LeaseEntry,
    LeaseLapsedEntry,
    OpenEntry,
    Place,
    RunEntry,
    SenderRemovedEntry,
    StageRef,
    TruncateEntry,
    chain_hash,
    is_named,
    named_sender,
)
from samcast.wire.pieces import Many, Parts, in_pieces


class Core:
    """The fold of a prefix of the log."""

    def __init__(self, configuration: Configuration, settings: GroupSettings) -> None:
        self._settings = settings
        self.configuration = configuration
        self.index = 0
        self.hash = HASH_NONE
        self.epoch: Epoch = EPOCH_NONE
        self.truncated = 0  # entries up to here may go
        self.group_next = 1
        cell = GroupRows("", settings.cell_lifetime, 1, settings.sender_runs_max)
        self.groups: dict[int, GroupRows] = {CELL: cell}
        self.group_ids: dict[str, int] = {}
        self.settled = 0  # the configuration in which the latest epoch was elected
        self.places: dict[int, Place] = {}  # of servers that came later
        self.replaced: list[tuple[int, int]] = []  # node and uuid of disks that lost their place
        self.retained: dict[int, Retained] = {}  # groups that anything was ever said about
        self._senders_most = 0  # at least as many as there are unnamed senders
        self._folds: dict[type[Entry], Callable[[Any], bool]] = {
            RunEntry: self._fold_run,
            EpochEntry: self._fold_epoch,
            OpenEntry: self._fold_open,
            DecisionEntry: self._fold_decision,
            AbortEntry: self._fold_abort,
            GroupEntry: self._fold_group,
            GroupRemovedEntry: self._fold_group_removed,
            SenderRemovedEntry: self._fold_sender_removed,
            ConfigEntry: self._fold_config,
            TruncateEntry: self._fold_truncate,
            CheckpointEntry: self._fold_checkpoint,
            CollectEntry: self._fold_collect,
            KeepEntry: self._fold_keep,
            LeaseEntry: self._fold_lease,
            LeaseLapsedEntry: self._fold_lease_lapsed,
            BeginEntry: self._fold_begin,
        }

    def apply(self, entry: AnyEntry, entry_hash: bytes | None = None) -> bool:
        """Fold the next entry in; False if the rules make it a no-op."""
        self.index += 1
        self.hash = chain_hash(self.hash, entry) if entry_hash is None else entry_hash
        effective = self._folds[type(entry)](entry)
        cell = self.groups[CELL]
        cell.head = self.index
        cell.raise_floors()
        return effective

    def admission(
        self, group: int, sender: bytes, incarnation: int, counter_first: int, birth: int
    ) -> Admission:
        """Whether a run is next in line here."""
        rows = self.groups.get(group)
        if rows is None or group == CELL:
            return Admission.NEVER  # Nobody can have known a group that isn't there yet.
        return rows.admission(sender, incarnation, counter_first, birth)

    def answer(self, asked: Asked) -> tuple[AnswerKind, int] | None:
        """What is certain about a run; sound only where this fold is of a committed prefix."""
        rows = self.groups.get(asked.group)
        if rows is None or asked.group == CELL:
            is_gone = asked.group < self.group_next
            return (AnswerKind.NO_GROUP, 0) if is_gone else None
        return rows.answer(asked)

    def head(self, group: int) -> int:
        """Highest number of a group, 0 if it isn't there."""
        rows = self.groups.get(group)
        return rows.head if rows is not None else 0

    def has_heard_of(self, group: int) -> bool:
        """Whether it is there, or was; one that this prefix doesn't know may be further on."""
        return group < self.group_next

    # folding

    def _fold_run(self, entry: RunEntry) -> bool:
        rows = self.groups.get(entry.group)
        if rows is None or entry.group == CELL:
            return False
        before = len(rows.unnamed)
        is_numbered = rows.number(entry)
        if len(rows.unnamed) > before:
            self._bound_senders(rows)
        return is_numbered

    def _bound_senders(self, rows: GroupRows) -> None:
        """A group has one sender more. Where there are too many in all its oldest goes, unless it
        has no more than its share: so nobody's many senders are at the cost of a small group."""
        self._senders_most += 1
        most = self._settings.cell_senders_max
        if self._senders_most <= most:
            return
        self._senders_most = sum(len(others.unnamed) for others in self.groups.values())
        share = max(1, most // len(self.groups))
        if self._senders_most > most and len(rows.unnamed) > share:
            rows.forget_first()

    def _fold_epoch(self, entry: EpochEntry) -> bool:
        self.epoch = entry.epoch
        self.settled = self.configuration.number
        return True

    def can_open(self, request: OpenEntry | OpenRequest) -> bool:
        """The rule for OPEN: above the row, after what it says, and not from a life before."""
        rows = self.groups.get(request.scope)
        if rows is None or rows.is_removed or not is_named(request.sender):
            return False
        if not 1 <= request.incarnation <= INCARNATION_MAX:
            return False
        row = rows.named.get(request.sender)
        if row is None:
            return self._can_begin(rows, request)
        is_above = request.incarnation > row.incarnation and request.after in (0, row.incarnation)
        return is_above and request.nonce not in row.past

    def _can_begin(self, rows: GroupRows, request: OpenEntry | OpenRequest) -> bool:
        """The same for a name that nobody has."""
        sender = request.sender
        if request.after or rows.is_given_up(sender, request.birth):
            return False
        if request.incarnation <= rows.incarnation_below(sender, request.is_anonymous):
            return False
        # Those whose name nobody uses again make room by themselves.
        is_roomy = request.is_anonymous or rows.chosen < self._settings.named_max
        return is_roomy and (request.scope == CELL or not request.is_anonymous)

    def _fold_open(self, entry: OpenEntry) -> bool:
        if not self.can_open(entry):
            return False
        rows, sender = self.groups[entry.scope], entry.sender
        if sender not in rows.named:
            rows.dig_up(sender)
            rows.named[sender] = Row(entry.incarnation)
            if entry.is_anonymous:
                rows.anonymous[sender] = None
        row = rows.own(sender)
        row.open(entry.incarnation, entry.nonce)
        if entry.label and sender not in rows.anonymous and named_sender(entry.label) == sender:
            row.label = entry.label
        if entry.scope == CELL:
            rows.use(sender, self.index)
            rows.evict_anonymous(self._settings.anonymous_max)
        return True

    @property
    def named_max(self) -> int:
        """Names that users may choose in one group, or in the cell."""
        return self._settings.named_max

    def can_decide(self, request: DecisionEntry | DecisionRequest) -> bool:
        """A decision is of its owner's incarnation and later than the last one. Its owner may pass
        over some: an empty batch of a stream needs no decision."""
        row = self.groups[CELL].named.get(request.owner)
        if row is None or row.is_ended:
            return False
        return row.incarnation == request.incarnation and row.next <= request.tx

    def is_sound_decision(self, parts: tuple[tuple[int, tuple[StageRef, ...]], ...]) -> bool:
        """Each group once, each stage once, no stage without messages, and not too many."""
        groups = [group for group, _ in parts]
        refs = [ref for _, stages in parts for ref in stages]
        if not groups or CELL in groups or len(dict.fromkeys(groups)) != len(groups):
            return False
        if not all(stages for _, stages in parts):
            return False
        if len(refs) > self._settings.decision_stages_max:
            return False
        names = [(group, ref.stage) for group, stages in parts for ref in stages]
        if len(dict.fromkeys(names)) != len(names):
            return False
        return all(ref.stage >= 1 and 1 <= ref.count <= BATCH_MESSAGES_MAX for ref in refs)

    def _fold_decision(self, entry: DecisionEntry) -> bool:
        named = tuple((part.group, part.stages) for part in entry.parts)
        if not self.can_decide(entry) or not self.is_sound_decision(named):
            return False
        for part in entry.parts:
            rows = self.groups.get(part.group)
            if rows is None or rows.is_removed or part.group == CELL:
                return False
            if part.number_first != rows.head + 1:
                return False
        spans: list[Span] = []
        for part in entry.parts:
            rows = self.groups[part.group]
            count = sum(stage.count for stage in part.stages)
            rows.head += count
            rows.raise_floors()
            spans.append((part.group, part.number_first, count))
        cell = self.groups[CELL]
        cell.use(entry.owner, self.index)
        row = cell.own(entry.owner)
        row.next = entry.tx + 1
        row.decided[entry.tx] = tuple(spans)
        # Whose name nobody uses again goes on only when it has heard of the last one.
        most = 1 if entry.owner in cell.anonymous else self._settings.sender_runs_max
        while len(row.decided) > most:
            del row.decided[next(iter(row.decided))]
        return True

    def can_abort(self, request: AbortEntry | AbortRequest) -> bool:
        """An ABORT that still matters: its incarnation is in force and the tx undecided."""
        row = self.groups[CELL].named.get(request.owner)
        if row is None or row.is_ended or row.incarnation != request.incarnation:
            return False
        return row.next <= request.tx

    def _fold_abort(self, entry: AbortEntry) -> bool:
        if not self.can_abort(entry):
            return False
        self.groups[CELL].own(entry.owner).is_ended = True
        return True

    def _fold_group(self, entry: GroupEntry) -> bool:
        if entry.group != self.group_next or entry.name in self.group_ids:
            return False
        self.groups[entry.group] = GroupRows(
            entry.name, entry.lifetime, entry.senders_max, self._settings.sender_runs_max
        )
        self.group_ids[entry.name] = entry.group
        self.group_next += 1
        return True

    def _fold_group_removed(self, entry: GroupRemovedEntry) -> bool:
        rows = self.groups.get(entry.group)
        if rows is None or rows.is_removed or entry.group == CELL:
            return False
        rows.is_removed = True
        rows.unnamed.clear()
        rows.named.clear()
        self.retained.pop(entry.group, None)
        del self.group_ids[rows.name]
        return True

    def _fold_sender_removed(self, entry: SenderRemovedEntry) -> bool:
        rows = self.groups.get(entry.scope)
        if rows is None or not rows.is_meant(entry.sender, entry.below):
            return False
        return rows.bury(entry.sender, self._settings.tombstones_max)

    def _fold_config(self, entry: ConfigEntry) -> bool:
        is_next = entry.configuration.number == self.configuration.number + 1
        if not is_next or not is_sound(entry.configuration):
            return False
        self.replaced = replaced_by(self.replaced, self.configuration, entry.configuration)
        self.configuration = entry.configuration
        places = {**self.places, **{place.node: place for place in entry.places}}
        listed = [server.node for server in entry.configuration.servers]
        self.places = {node: places[node] for node in listed if node in places}
        return True

    def _fold_truncate(self, entry: TruncateEntry) -> bool:
        if not self.truncated < entry.index < self.index:
            return False
        self.truncated = entry.index
        return True

    # what stays

    def collected(self, group: int) -> int:
        """Messages of a group up to this number may be gone."""
        retained = self.retained.get(group)
        return retained.collected if retained is not None else 0

    def retained_of(self, group: int) -> Retained | None:
        """What is said about a group's messages; None if there is no such group."""
        rows = self.groups.get(group)
        if rows is None or rows.is_removed or group == CELL:
            return None
        return self.retained.get(group) or Retained()

    def _fold_checkpoint(self, entry: CheckpointEntry) -> bool:
        retained = self.retained_of(entry.group)
        if retained is None or not retained.can_advertise(entry.checkpoint, self.head(entry.group)):
            return False
        retained.advertise(entry.checkpoint)
        return True

    def _fold_collect(self, entry: CollectEntry) -> bool:
        retained = self.retained_of(entry.group)
        if retained is None or not retained.can_collect(entry.number, self.head(entry.group)):
            return False
        self.retained[entry.group] = retained
        retained.collected = entry.number
        return True

    def _fold_keep(self, entry: KeepEntry) -> bool:
        retained = self.retained_of(entry.group)
        if retained is None or entry.before not in (None, retained.keep):
            return False  # Somebody else was first.
        self.retained[entry.group] = retained
        retained.set_keep(entry.keep, self.head(entry.group))
        return True

    def _fold_lease(self, entry: LeaseEntry) -> bool:
        retained = self.retained_of(entry.group)
        wanted = (entry.name, entry.number, entry.ttl_ms)
        if retained is None or not retained.can_lease(*wanted):
            return False
        self.retained[entry.group] = retained
        retained.lease(*wanted, entry.nonce)
        return True

    def _fold_lease_lapsed(self, entry: LeaseLapsedEntry) -> bool:
        retained = self.retained_of(entry.group)
        lease = retained.leases.get(entry.name) if retained is not None else None
        if retained is None or lease is None or lease[2] != entry.nonce:
            return False  # It was renewed in the meantime.
        del retained.leases[entry.name]
        return True

    def _fold_begin(self, entry: BeginEntry) -> bool:
        retained = self.retained_of(entry.group)
        rows = self.groups.get(entry.group)
        if retained is None or rows is None or rows.head:
            return False
        self.retained[entry.group] = retained
        rows.head = retained.collected = entry.number
        rows.raise_floors()
        return True

    def outcome(
        self, nonce: int, request: AnyRequest, *, is_settled: bool = False
    ) -> Outcome | None:
        """What became of a proposal; None: it may still take effect, let the sequencer see it.

        `is_settled`: its own entry was folded just now.
        """
        return outcome_of(self, nonce, request, is_settled)

    def may_drop_stage(self, owner: bytes, incarnation: int, tx: int, birth: int) -> bool:
        """Whether an undecided stage can never be decided (this fold being a committed prefix)."""
        cell = self.groups[CELL]
        row = cell.named.get(owner)
        if row is None:
            return owner in cell.tombstones or birth < cell.memory_floor
        if row.incarnation != incarnation:
            return row.incarnation > incarnation
        return row.is_ended or row.next > tx

    # snapshots

    def encode(self) -> bytes:
        """The whole state; equal states give equal bytes."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """The same bytes, about a row at a time. The state must not change meanwhile."""
        groups, retained = self.groups, self.retained
        return in_pieces(
            Parts(
                [
                    self.index,
                    self.hash,
                    self.epoch,
                    self.truncated,
                    self.group_next,
                    self.configuration,
                    Many(len(groups), (Parts((g, rows.pieces())) for g, rows in groups.items())),
                    Many(len(retained), ((g, r.state()) for g, r in retained.items())),
                    list(self.places.values()),
                    self.settled,
                    [(g, r.intervals) for g, r in self.retained.items() if r.intervals],
                    self.replaced,
                    [(g, naming) for g, r in groups.items() if (naming := r.naming())],
                ]
            )
        )

    def size(self) -> int:
        """About how many pieces there are."""
        rows = self.groups.values()
        lists = sum(len(r.unnamed) + len(r.named) + len(r.tombstones) for r in rows)
        return lists + 16 * (1 + len(rows)) + len(self.retained)

    @classmethod
    def decode(cls, data: bytes, settings: GroupSettings) -> "Core":
        """The state again. The bytes must have been checked by their hash or checksum."""
        state = decode_state(data)
        groups = state.groups
        core = cls(state.configuration, settings)
        core.index, core.hash, core.epoch = state.index, state.hash, state.epoch
        core.truncated, core.group_next = state.truncated, state.group_next
        runs_max = settings.sender_runs_max
        core.groups = {g: GroupRows.of_state(rows, runs_max) for g, rows in groups}
        core.retained = {g: Retained.of_state(retained) for g, retained in state.retained}
        core.places = {place.node: place for place in state.places}
        core.settled, core.replaced = state.settled, state.replaced
        for group, intervals in state.intervals:
            if group in core.retained:
                core.retained[group].intervals = intervals
        core._senders_most = sum(len(rows.unnamed) for rows in core.groups.values())
        for group, naming in state.naming:
            if group in core.groups:
                core.groups[group].set_naming(naming)
        core.group_ids = {
            r.name: g for g, r in core.groups.items() if g != CELL and not r.is_removed
        }
        return core

    def copy(self) -> "Core":
        """An independent state, equal to this one. It costs little: rows are shared until somebody
        changes them."""
        core = Core(self.configuration, self._settings)
        core.index, core.hash, core.epoch = self.index, self.hash, self.epoch
        core.truncated, core.group_next = self.truncated, self.group_next
        core.groups = {group: rows.copy() for group, rows in self.groups.items()}
        core.group_ids = self.group_ids.copy()
        core.retained = {group: retained.copy() for group, retained in self.retained.items()}
        core.places, core.settled = self.places.copy(), self.settled
        core.replaced = self.replaced.copy()
        core._senders_most = self._senders_most
        return core
