"""Numbering: what the sequencer appends next, from reports and proposals (GRP-02, 03, 04).

A run is numbered when `k_data` listed disks have reported it with equal content, in counter order
per sender, by the row rules of the log's own fold. Nothing here is durable and anything may be
forgotten: data servers repeat what isn't numbered.
"""

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import astuple

from samcast.group.rows import Admission
from samcast.limits import BATCH_MESSAGES_MAX
from samcast.machine.ports import Channel, Effect, Multicast, NodeId, Warn
from samcast.wire.group import (
    AbortRequest,
    AnyRequest,
    DecisionRequest,
    FetchPlease,
    GroupRemovalRequest,
    GroupRequest,
    OpenRequest,
    Reported,
    RunKey,
    SenderRemovalRequest,
)
from samcast.wire.order import (
    AbortEntry,
    AnyEntry,
    BeginEntry,
    DecisionEntry,
    GroupEntry,
    GroupRemovedEntry,
    KeepEntry,
    LeaseEntry,
    OpenEntry,
    Part,
    RunEntry,
    SenderRemovedEntry,
)
from samcast.wire.retention import BeginRequest, KeepRequest, LeaseRequest
from samcast.wire.stages import StageKey

if TYPE_CHECKING:
    from samcast.group.sequencer import Sequencer

Content = tuple[bytes, int, int]  # digest, count, birth
FETCHES_PER_TICK_MAX = 64
CONTENTS_MAX = 8  # that one id is reported with; more than one is somebody's mistake already
PRUNED_AT_ONCE_MAX = 16  # so few are gone through whenever nothing is next; more only now and then
Key = TypeVar("Key")


class Pending:
    """Who has reported one run or stage, per content."""

    __slots__ = ("asked_ms", "confirmed_below", "reporters", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.reporters: dict[Content, dict[NodeId, None]] = {}
        self.confirmed_below = 0
        self.since_ms = now_ms
        self.asked_ms = 0


class Ready:
    """Runs of one sender that wait for nothing but their turn."""

    __slots__ = ("prune_at", "runs")

    def __init__(self) -> None:
        self.runs: dict[int, RunEntry] = {}  # by counter
        self.prune_at = 0  # how many there must be before it is worth going through them again


class Numbering:
    """What has been reported and proposed in one epoch."""

    def __init__(self, sequencer: "Sequencer") -> None:
        self._sequencer = sequencer
        self._server = sequencer._server
        self._settings = sequencer._settings
        # Where the first is taken again and again, a plain dict would go over all that are gone.
        self._pending: OrderedDict[RunKey, Pending] = OrderedDict()
        self._ready: dict[tuple[int, bytes], Ready] = {}
        self._ready_count = 0
        self._touched: OrderedDict[tuple[int, bytes], None] = OrderedDict()
        self._stages: OrderedDict[StageKey, Pending] = OrderedDict()
        self._held: OrderedDict[StageKey, tuple[int, bytes]] = OrderedDict()
        self._decisions: dict[bytes, DecisionRequest] = {}
        self._ripe: OrderedDict[bytes, None] = OrderedDict()  # owners whose decision may be due

    # reports

    def on_reported(self, sender: NodeId, runs: tuple[Reported, ...], out: list[Effect]) -> None:
        """Count a data server's reports."""
        for run in runs:
            is_sound = 1 <= run.count <= BATCH_MESSAGES_MAX and 1 <= run.counter_first < 2**62
            if is_sound and run.stage:
                self._on_stage(sender, run)
            elif not is_sound:
                out.append(Warn("report-range", f"{sender}: {run.counter_first}+{run.count}"))
            else:
                self._on_run(sender, run)
        self.number_ready()

    def _on_run(self, sender: NodeId, run: Reported) -> None:
        tail = self._sequencer.tail
        admission = tail.admission(
            run.group, run.sender, run.incarnation, run.counter_first, run.birth
        )
        key = (run.group, run.sender, run.incarnation, run.counter_first)
        if admission is Admission.NEVER:
            self._pending.pop(key, None)
            return
        if self._is_ready(run):
            self._touched[(run.group, run.sender)] = None  # its turn may have come meanwhile
            return
        is_next = admission is Admission.NUMBER
        pending = self._pending.get(key) or self._admit_run(key, is_next=is_next)
        if pending is None:
            return
        if run.confirmed_below > pending.confirmed_below:
            pending.confirmed_below = run.confirmed_below
        content = self.content_of(run)
        if content not in pending.reporters and len(pending.reporters) >= CONTENTS_MAX:
            return
        reporters = pending.reporters.setdefault(content, {})
        reporters[sender] = None
        if len(reporters) >= self._sequencer.configuration.k_data:
            self._make_ready(key, run, pending, is_next=is_next)

    def _is_ready(self, run: Reported) -> bool:
        ready = self._ready.get((run.group, run.sender))
        entry = ready.runs.get(run.counter_first) if ready is not None else None
        return entry is not None and entry.incarnation == run.incarnation

    def _admit_run(self, key: RunKey, *, is_next: bool) -> Pending | None:
        """Room for one more run; what is next in line takes that of something that must wait."""
        if len(self._pending) >= self._settings.pending_runs_max:
            if not is_next:
                return None
            tail = self._sequencer.tail
            for other, item in islice(self._pending.items(), FETCHES_PER_TICK_MAX):
                birth = max(content[2] for content in item.reporters)
                if tail.admission(*other, birth) is not Admission.NUMBER:
                    del self._pending[other]
                    break
        return self._admit(self._pending, key)

    def _admit(self, pending: OrderedDict[Key, Pending], key: Key) -> Pending | None:
        """Room for one more. What is gathering reports goes only when it has had its time, or
        many newcomers would push each other out for ever."""
        now = self._server.now_ms
        if len(pending) >= self._settings.pending_runs_max:
            oldest = next(iter(pending))
            if pending[oldest].since_ms + 2 * self._settings.retry_max_ms > now:
                return None
            del pending[oldest]
        pending[key] = item = Pending(now)
        return item

    @staticmethod
    def content_of(run: Reported) -> Content:
        """A number is bound to content, not to an id alone."""
        return (run.digest, run.count, run.birth)

    def _make_ready(self, key: RunKey, run: Reported, pending: Pending, *, is_next: bool) -> None:
        subject = (run.group, run.sender)
        ready = self._ready.get(subject)
        if ready is None:
            ready = self._ready[subject] = Ready()
        if run.counter_first not in ready.runs:
            if self._ready_count >= self._settings.pending_runs_max and not is_next:
                return  # Reported again later; what is next in line needs no room.
            self._ready_count += 1
        ready.runs[run.counter_first] = RunEntry(
            run.group,
            run.sender,
            run.incarnation,
            run.counter_first,
            run.count,
            0,
            run.digest,
            run.birth,
            pending.confirmed_below,
        )
        del self._pending[key]
        self._touched[subject] = None

    def _on_stage(self, sender: NodeId, stage: Reported) -> None:
        tail = self._sequencer.tail
        owner, incarnation, tx = stage.sender, stage.incarnation, stage.counter_first
        if tail.may_drop_stage(owner, incarnation, tx, stage.birth):
            return
        key = (stage.group, owner, incarnation, tx, stage.stage)
        pending = self._stages.get(key) or self._admit(self._stages, key)
        if pending is None:
            return
        content = self.content_of(stage)
        if content not in pending.reporters and len(pending.reporters) >= CONTENTS_MAX:
            return
        reporters = pending.reporters.setdefault(content, {})
        reporters[sender] = None
        if len(reporters) >= self._sequencer.configuration.k_data:
            self._held[key] = (stage.count, stage.digest)
            if len(self._held) > self._settings.pending_runs_max:
                self._held.popitem(last=False)
            if owner in self._decisions:
                self._ripe[owner] = None

    # appending

    def number_ready(self) -> None:
        """Number all that is next in line: after each event, so that the order of events decides
        and not how they were grouped into turns; and when there is room again."""
        sequencer = self._sequencer
        if sequencer.is_held:
            return
        while self._touched and sequencer.has_room:
            self._number_sender(self._touched.popitem(last=False)[0])
        while self._ripe and sequencer.has_room:
            self._try_decide(self._ripe.popitem(last=False)[0])

    def _number_sender(self, subject: tuple[int, bytes]) -> None:
        """All ready runs of one sender that follow each other."""
        ready = self._ready.get(subject)
        sequencer, tail = self._sequencer, self._sequencer.tail
        while ready is not None and ready.runs:
            rows = tail.groups.get(subject[0])
            row = rows.row(subject[1]) if rows is not None else None
            entry = ready.runs.get(row.next if row is not None else 1)
            if entry is None:
                self._prune(ready)
                break
            if not sequencer.has_room:
                self._touched[subject] = None
                return
            admission = tail.admission(
                entry.group, entry.sender, entry.incarnation, entry.counter_first, entry.birth
            )
            if admission is Admission.HOLD:
                break
            self._forget_ready(ready, entry)
            if admission is Admission.NUMBER:
                sequencer.append(numbered(entry, tail.head(entry.group) + 1))
        if ready is not None and not ready.runs:
            del self._ready[subject]

    def _prune(self, ready: Ready) -> None:
        """Forget what was passed over and can't be numbered any more. Where many wait behind a
        gap, only when they have doubled since, so that a report doesn't cost a look at them all."""
        if len(ready.runs) < ready.prune_at:
            return
        tail = self._sequencer.tail
        for e in list(ready.runs.values()):
            admission = tail.admission(e.group, e.sender, e.incarnation, e.counter_first, e.birth)
            if admission is Admission.NEVER:
                self._forget_ready(ready, e)
        left = len(ready.runs)
        ready.prune_at = 2 * left if left > PRUNED_AT_ONCE_MAX else 0

    def _forget_ready(self, ready: Ready, entry: RunEntry) -> None:
        del ready.runs[entry.counter_first]
        self._ready_count -= 1
        key = (entry.group, entry.sender, entry.incarnation, entry.counter_first)
        self._pending.pop(key, None)

    # proposals

    def on_propose(self, request: AnyRequest, out: list[Effect]) -> None:
        """Append the entry that a proposal asks for, where it would take effect."""
        if type(request) is DecisionRequest:
            self._on_decision(request, out)
            return
        if type(request) is LeaseRequest:
            self._sequencer.retention.make_room(request.group, out)
        entry = self._entry_for(request)
        if entry is not None and self._sequencer.has_room:
            self._sequencer.append(entry)
        if type(request) is OpenRequest:
            self._touched[(request.scope, request.sender)] = None
        self.number_ready()

    def _entry_for(self, request: AnyRequest) -> AnyEntry | None:
        tail = self._sequencer.tail
        # What won't take effect is ordered too where only its place in the log tells that for sure.
        is_open_question = tail.outcome(0, request) is None
        if type(request) is OpenRequest:
            entry = OpenEntry(*astuple(request))
            is_wanted = is_open_question and request.scope in tail.groups
            return entry if tail.can_open(request) or is_wanted else None
        if type(request) is AbortRequest:
            abort = AbortEntry(request.owner, request.incarnation, request.tx)
            return abort if tail.can_abort(request) else None
        if type(request) is GroupRequest:
            if request.name in tail.group_ids:
                return None
            return GroupEntry(tail.group_next, request.name, request.lifetime, request.senders_max)
        if type(request) is GroupRemovalRequest:
            return GroupRemovedEntry(request.group) if is_open_question else None
        if type(request) is KeepRequest:
            keep = KeepEntry(*astuple(request))
            return keep if is_open_question and request.group in tail.groups else None
        if type(request) is BeginRequest:
            begin = BeginEntry(request.group, request.number)
            return begin if is_open_question and request.group in tail.groups else None
        if type(request) is LeaseRequest:
            lease = LeaseEntry(*astuple(request))
            return lease if is_open_question and request.group in tail.groups else None
        assert type(request) is SenderRemovalRequest
        return SenderRemovedEntry(*astuple(request)) if is_open_question else None

    def _on_decision(self, request: DecisionRequest, out: list[Effect]) -> None:
        if not self._sequencer.tail.is_sound_decision(request.parts):
            out.append(Warn("decision-parts", f"tx {request.tx}: twice, empty, or too many"))
            return
        tail = self._sequencer.tail
        if not tail.can_decide(request):
            return
        if len(self._decisions) > self._settings.named_max + self._settings.anonymous_max:
            # More than there are owners: some are gone.
            left = {owner: d for owner, d in self._decisions.items() if tail.can_decide(d)}
            self._decisions = left
        self._decisions[request.owner] = request
        self._ripe[request.owner] = None

    def _try_decide(self, owner: bytes) -> None:
        """Number a decision once every stage that it names is held on enough disks."""
        request = self._decisions.get(owner)
        if request is None:
            return
        sequencer, tail = self._sequencer, self._sequencer.tail
        if not tail.can_decide(request):
            del self._decisions[owner]
            return
        if not self.holds_all(request):
            return
        del self._decisions[owner]
        parts = tuple(Part(group, tail.head(group) + 1, refs) for group, refs in request.parts)
        groups = [tail.groups.get(part.group) for part in parts]
        if any(rows is None or rows.is_removed for rows in groups):
            return
        sequencer.append(DecisionEntry(owner, request.incarnation, request.tx, parts))
        for part in parts:
            for ref in part.stages:
                key = (part.group, owner, request.incarnation, request.tx, ref.stage)
                self._stages.pop(key, None)
                self._held.pop(key, None)

    def holds_all(self, request: DecisionRequest) -> bool:
        """Each named stage is on k_data listed disks, with the very content that is named."""
        return all(
            self._held.get((group, request.owner, request.incarnation, request.tx, ref.stage))
            == (ref.count, ref.digest)
            for group, refs in request.parts
            for ref in refs
        )

    # runs that too few have

    def on_tick(self, now_ms: int, out: list[Effect]) -> None:
        """Have data servers fetch from each other what stays below k_data."""
        self._forget_hopeless(now_ms)
        self._abort_abandoned(now_ms)
        runs = self._stale(self._pending, now_ms)
        stages = self._stale(self._stages, now_ms)
        by_holders: dict[tuple[NodeId, ...], tuple[list[RunKey], list[StageKey]]] = {}
        for run, holders in runs:
            by_holders.setdefault(holders, ([], []))[0].append(run)
        for stage, holders in stages:
            by_holders.setdefault(holders, ([], []))[1].append(stage)
        epoch = self._sequencer.epoch
        for holders, (run_keys, stage_keys) in by_holders.items():
            please = FetchPlease(epoch, tuple(run_keys), tuple(stage_keys), holders)
            out.append(Multicast(Channel.DATA, please))

    def _forget_hopeless(self, now_ms: int) -> None:
        """What can never be numbered any more must not take the turn of what can."""
        tail = self._sequencer.tail
        for key, item in list(islice(self._pending.items(), 4 * FETCHES_PER_TICK_MAX)):
            births = [content[2] for content in item.reporters]
            if tail.admission(*key, max(births)) is Admission.NEVER:
                del self._pending[key]
        for stage, item in list(islice(self._stages.items(), 4 * FETCHES_PER_TICK_MAX)):
            births = [content[2] for content in item.reporters]
            if tail.may_drop_stage(stage[1], stage[2], stage[3], max(births)):
                del self._stages[stage]
                self._held.pop(stage, None)

    def _abort_abandoned(self, now_ms: int) -> None:
        """Whoever staged these is gone; what is on the disks of its last life may go, too."""
        sequencer = self._sequencer
        for stage, item in islice(self._stages.items(), FETCHES_PER_TICK_MAX):
            if item.since_ms + self._settings.abandoned_ms > now_ms:
                return
            abort = AbortEntry(stage[1], stage[2], stage[3])
            if sequencer.may_order and sequencer.tail.can_abort(abort):
                sequencer.append(abort)

    def _stale(
        self, pending: dict[Key, Pending], now_ms: int
    ) -> list[tuple[Key, tuple[NodeId, ...]]]:
        wait_ms = self._settings.fetch_after_ms
        found: list[tuple[Key, tuple[NodeId, ...]]] = []
        for seen, (key, item) in enumerate(pending.items()):
            if item.since_ms + wait_ms > now_ms or seen >= 4 * FETCHES_PER_TICK_MAX:
                break
            if item.asked_ms + 4 * wait_ms > now_ms or len(found) >= FETCHES_PER_TICK_MAX:
                continue
            item.asked_ms = now_ms
            most = max(item.reporters.values(), key=len)
            if len(most) < self._sequencer.configuration.k_data:
                found.append((key, tuple(most)))
        return found


def numbered(entry: RunEntry, number_first: int) -> RunEntry:
    """The same run with the number it got."""
    return RunEntry(
        entry.group,
        entry.sender,
        entry.incarnation,
        entry.counter_first,
        entry.count,
        number_first,
        entry.digest,
        entry.birth,
        entry.confirmed_below,
    )
