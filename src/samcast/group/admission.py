"""What a data server takes in, and from whom (SAFETY 2.4.2, 2.12.4; ADR 0033).

It stores a batch only if its own fold of the committed order knows where that belongs: the group,
the number that the sender says it knew, the name. What isn't known *yet* waits in memory until the
fold has moved; it is neither stored nor refused, for the fold may just be behind. What is known
has room within the shares of its sender and its client and within the bound for all. A run that
is next in line has a reserve beside these: it gets its number and goes, whatever else lies here.

Nothing here is ever final: who sent a batch is told why it wasn't taken, and repeats it.
"""

from typing import TYPE_CHECKING

from samcast.group.payloads import asked_of, key_of
from samcast.group.rows import Admission, answer_of
from samcast.group.storage import BatchKey
from samcast.group.waiting_room import WaitingRoom
from samcast.machine.ports import NEVER_MS, Effect, NodeId, Send, Warn
from samcast.wire.batch import Batch
from samcast.wire.blocked import Blocked, Reason
from samcast.wire.group import AnswerKind
from samcast.wire.order import CELL, is_named

if TYPE_CHECKING:
    from samcast.group.data_server import DataServer

LOOKS_MAX = 64  # at waiting batches in one turn
TOLD_MAX = 64  # batches that one client hears of in one turn
Bound = tuple[Reason, int]


class Admitting:
    """The door of one data server for batches."""

    def __init__(self, server: "DataServer") -> None:
        self._server = server
        self._settings = server.settings
        self.room = WaitingRoom(server.settings)
        self._looks = 0  # at so many waiting ones, since the fold has moved
        self._blocked: dict[NodeId, list[tuple[BatchKey, int, int]]] = {}

    def on_batch(self, sender: NodeId, batch: Batch, out: list[Effect]) -> None:
        """A client's batch, for the first time or again."""
        if batch.stage:
            self._on_stage(sender, key_of(batch), batch, out)
        else:
            self._on_run(sender, key_of(batch), batch, out)

    def _on_run(self, sender: NodeId, key: BatchKey, batch: Batch, out: list[Effect]) -> None:
        server = self._server
        asked = asked_of(batch)
        answer = server.follower.core.answer(asked)
        if answer is not None:
            server.answer(sender, answer_of(asked, *answer))
            is_lacking = answer[0] is AnswerKind.NUMBER and key not in server.numbered
            is_wanted = answer[1] + batch.count - 1 > server.follower.core.collected(batch.group)
            if is_lacking and is_wanted and not server.is_full:
                server.store_numbered(key, batch, answer[1], out)
            return
        if key in server.numbered:  # Our marks know more than our fold, which is still behind.
            is_same = server.numbered.digest_of(key) == batch.digest
            kind = AnswerKind.NUMBER if is_same else AnswerKind.CONFLICT
            number = server.numbered.number_of(key) if is_same else 0
            server.answer(sender, answer_of(asked, kind, number))
            return
        held = server.unnumbered.get(key)
        if held is not None:
            if held.digest != batch.digest:
                out.append(Warn("run-conflict", f"{sender}: {key} has two contents"))
                return
            held.origin = sender
            held.confirmed_below = max(held.confirmed_below, batch.confirmed_below)
            return
        if server.unnumbered.overlaps(key, batch.count):
            out.append(Warn("run-overlap", f"{sender}: {key} overlaps another run"))
            return
        if self.unknown(batch):
            self._wait(sender, key, batch)
            return
        bound = self._bound_of_run(sender, key)
        is_reserved = bound is not None and self._has_reserve(sender, batch)
        if bound is not None and not is_reserved:
            self._refuse(sender, key, bound, "data-full", out)
            return
        server.store(sender, key, batch, out, is_reserved=is_reserved)

    def _on_stage(self, sender: NodeId, key: BatchKey, batch: Batch, out: list[Effect]) -> None:
        server = self._server
        if key in server.numbered:
            return
        lacking_at = server.numbered.expects(key, batch.digest)
        if lacking_at and not server.is_full:
            server.store_numbered(key, batch, lacking_at, out)
            return
        if server.dropping.may_drop_stage(key, batch.birth):
            return
        held = server.unnumbered.get(key)
        if held is not None:
            if held.digest != batch.digest:
                out.append(Warn("stage-conflict", f"{sender}: {key} has two contents"))
            return
        if not is_named(batch.sender):
            out.append(Warn("stage-refused", f"{sender}: an owner without a name"))
            return
        if self.unknown(batch):
            self._wait(sender, key, batch)
            return
        bound = self.bound_of_stage(sender, key, len(batch.columns))
        if bound is not None:
            self._refuse(sender, key, bound, "stage-refused", out)
            return
        server.store(sender, key, batch, out)

    # what the fold knows

    def unknown(self, batch: Batch) -> Reason | None:
        """What our fold lacks to place a batch, if anything. Its sender has learned of the group,
        of the number and of the open name from what was committed before it sent."""
        core = self._server.follower.core
        rows = core.groups.get(batch.group)
        if batch.stage:
            owner = core.groups[CELL].named.get(batch.sender)
            if owner is None or owner.incarnation < batch.incarnation:
                return Reason.UNKNOWN_NAME
            is_there = rows is not None and not rows.is_removed and batch.group != CELL
            return None if is_there else Reason.UNKNOWN_GROUP
        if rows is None:
            return Reason.UNKNOWN_GROUP
        if batch.birth > rows.head:
            return Reason.BORN_AHEAD
        if is_named(batch.sender):
            row = rows.named.get(batch.sender)
            if row is None or row.incarnation < batch.incarnation:
                return Reason.UNKNOWN_NAME
        return None

    def _wait(self, client: NodeId, key: BatchKey, batch: Batch) -> None:
        self.room.put(key, batch, client, self._server.now_ms)
        self._server.follower.hurry(self._server.now_ms)

    def on_folded(self) -> None:
        """The fold has moved: what waits may be known by now."""
        self._looks = len(self.room)

    def on_drained(self, now_ms: int, out: list[Effect]) -> None:
        """End of a turn: look again at what waits, give up what is old, say what was refused."""
        for _ in range(min(self._looks, LOOKS_MAX, len(self.room))):
            waiting = self.room.first()
            key = key_of(waiting.batch)
            if self.unknown(waiting.batch):
                self.room.put_back(key)
            else:
                self.room.take(key)
                self.on_batch(waiting.client, waiting.batch, out)
        self._looks = min(max(0, self._looks - LOOKS_MAX), len(self.room))
        for key, old in self.room.take_old(now_ms - self._patience_ms):
            reason = self.unknown(old.batch)
            # Who is behind knows nothing of what isn't there.
            if reason is not None and self._server.follower.has_heard_since(old.since_ms):
                self._refuse(old.client, key, (reason, 0), "not-known", out)
        self._tell(out)

    def due_ms(self) -> int:
        """The next look."""
        if self._looks:
            return 0
        oldest_ms = self.room.oldest_ms()
        return oldest_ms + self._patience_ms if oldest_ms < NEVER_MS else NEVER_MS

    @property
    def _patience_ms(self) -> int:
        return 2 * self._settings.retry_max_ms

    # room

    def _bound_of_run(self, client: NodeId, key: BatchKey) -> Bound | None:
        """The bound that keeps a run out, if there is one."""
        settings, unnumbered = self._settings, self._server.unnumbered
        if self._server.is_full:
            return (Reason.DISK_FULL, 0)
        # Twice what a sender may have under way: some may be numbered and we behind.
        most = 2 * settings.sender_runs_max
        if unnumbered.runs_of(key) >= most:
            return (Reason.SENDER_RUNS, most)
        share = self.share_of_client(settings.held_runs_max)
        if unnumbered.usage.of_client(client).runs >= share:
            return (Reason.CLIENT_RUNS, share)
        if unnumbered.usage.total.runs >= settings.held_runs_max:
            return (Reason.ALL_RUNS, settings.held_runs_max)
        return None

    def _has_reserve(self, client: NodeId, batch: Batch) -> bool:
        """Whether a run is next in line, and there is room for such."""
        if self._server.is_full or not self.is_next(key_of(batch), batch.birth):
            return False
        usage, most = self._server.unnumbered.usage, self._settings.held_runs_reserve
        is_within = usage.of_client(client).reserved < self.share_of_client(most)
        return is_within and usage.total.reserved < most

    def is_next(self, key: BatchKey, birth: int) -> bool:
        """Whether nothing but its copies keeps a run from being numbered."""
        admission = self._server.follower.core.admission(*key[:4], birth)
        return not key[4] and admission is Admission.NUMBER

    def share_of_client(self, most: int) -> int:
        """What one client may take of what there is for all."""
        return self._settings.share(most)

    def bound_of_stage(self, client: NodeId, key: BatchKey, size: int) -> Bound | None:
        """The bound that keeps a stage out, if there is one."""
        settings, usage = self._settings, self._server.unnumbered.usage
        if self._server.is_full:
            return (Reason.DISK_FULL, 0)
        share, most = self.share_of_client(settings.held_stages_max), settings.staged_bytes_max
        theirs, owned = usage.of_client(client), usage.of_owner(key[1])
        if theirs.stages >= share:
            return (Reason.CLIENT_STAGES, share)
        if theirs.staged_bytes + size > most:
            return (Reason.CLIENT_BYTES, most)
        if owned.stages >= settings.share(settings.held_stages_max):
            return (Reason.OWNER_STAGES, share)
        if owned.staged_bytes + size > most:
            return (Reason.OWNER_BYTES, most)
        if usage.total.stages >= settings.held_stages_max:
            return (Reason.ALL_STAGES, settings.held_stages_max)
        return None

    def take_fetched(self, key: BatchKey, batch: Batch, out: list[Effect]) -> None:
        """A payload without a number that the sequencer asked us to fetch: it is on a disk, and so
        it has a reserve of its own here, and needs nobody's share."""
        server, settings = self._server, self._settings
        if key in server.unnumbered or server.is_full:
            return
        total = server.unnumbered.usage.total
        if batch.stage:
            has_room = total.stages < settings.held_stages_max + settings.held_runs_reserve
            if has_room and not server.dropping.may_drop_stage(key, batch.birth):
                server.store(0, key, batch, out)
            return
        if server.follower.core.answer(asked_of(batch)) is not None:
            return
        if server.unnumbered.overlaps(key, batch.count):
            return
        if total.runs < settings.held_runs_max + settings.held_runs_reserve:
            server.store(0, key, batch, out)
        elif total.reserved < settings.held_runs_reserve and self.is_next(key, batch.birth):
            server.store(0, key, batch, out, is_reserved=True)

    # what clients hear

    def _refuse(
        self, client: NodeId, key: BatchKey, bound: Bound, code: str, out: list[Effect]
    ) -> None:
        reason, most = bound
        out.append(Warn(code, f"{client}: {reason.name.lower()} {most or ''}".rstrip()))
        told = self._blocked.setdefault(client, [])
        if len(told) < TOLD_MAX:
            told.append((key, reason, most))

    def _tell(self, out: list[Effect]) -> None:
        for client, batches in self._blocked.items():
            out.append(Send(client, Blocked(tuple(batches))))
        self._blocked.clear()
