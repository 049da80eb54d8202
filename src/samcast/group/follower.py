"""Following the committed log from outside the commit servers: a contiguous prefix, never a
guess.

A follower folds entries that it *knows* to be committed: they came in a `Commit` or an
`OrderReply`, or they were overheard in a submit of the same epoch as a later claim that covers
them. A bare index commits nothing: another epoch may have put something else there. Holes are
asked for, the servers in turn; where the entries are gone, the core snapshot is fetched in
pieces.
"""

from heapq import heappop, heappush

import msgspec

from samcast.group.core import Core
from samcast.group.settings import GroupSettings
from samcast.machine.ports import Effect, NodeId, Send, Warn
from samcast.machine.quorum import servers_with
from samcast.wire.group import (
    Commit,
    CommitSubmit,
    Heartbeat,
    OrderReply,
    OrderRequest,
    SnapshotReply,
    SnapshotRequest,
)
from samcast.wire.order import EPOCH_NONE, ROLE_COMMIT, AnyEntry, Configuration, Epoch

SNAPSHOT_BYTES_MAX = 1 << 30  # more than any cell's core state; a claim above it is nonsense


class Follower:
    """A core state that follows what is committed."""

    def __init__(self, node: NodeId, initial: Configuration, settings: GroupSettings) -> None:
        self._node = node
        self._settings = settings
        self.core = Core(initial, settings)
        self.told = initial  # by others, when our own fold is still behind
        self.epoch: Epoch = EPOCH_NONE  # newest that was heard of
        self._led: Epoch = EPOCH_NONE  # newest of a sequencer that was heard itself
        self.claimed = 0  # highest index that is known to be committed
        self._ahead: dict[int, AnyEntry] = {}  # committed entries behind a hole
        self._overheard: dict[int, AnyEntry] = {}  # submitted by `_overheard_epoch`, not committed
        self._overheard_order: list[int] = []  # a heap of their indexes
        self._overheard_epoch: Epoch = EPOCH_NONE
        self._turn = node  # which commit server is asked next
        self._ask_due_ms = 0
        self._ask_wait_ms = settings.retry_ms
        self._asked_ms = -settings.retry_ms
        self._is_hurried = False
        self._heard_ms = 0
        self._snapshot_index = 0
        self._snapshot = bytearray()
        self._snapshot_asked = 0  # what we had when we last repeated a question

    def on_claim(
        self,
        message: Commit | Heartbeat | OrderReply,
        now_ms: int,
        committed: list[tuple[int, AnyEntry]],
    ) -> None:
        """Take a statement of what is committed; newly folded (index, entry) go to `committed`."""
        self._heard_ms = now_ms
        if message.epoch > self.epoch:
            self.epoch = message.epoch
        self.claimed = max(self.claimed, message.committed)
        if not isinstance(message, OrderReply):
            self._led = max(self._led, message.epoch)
        if not isinstance(message, Heartbeat):
            sure = max(0, message.committed + 1 - message.index_first)
            self._take(message.index_first, message.entries[:sure])
        if message.epoch == self._overheard_epoch:
            self._promote(message.committed)
        self._fold(committed)

    def on_submit(
        self, submit: CommitSubmit, now_ms: int, committed: list[tuple[int, AnyEntry]]
    ) -> None:
        """Remember what is only proposed; it counts when a claim of its epoch covers it."""
        self._heard_ms = now_ms
        if submit.epoch < self._overheard_epoch:
            return
        if submit.epoch > self._overheard_epoch:
            self._overheard.clear()
            self._overheard_order.clear()
            self._overheard_epoch = submit.epoch
        self.epoch = max(self.epoch, submit.epoch)
        self._led = max(self._led, submit.epoch)
        self.claimed = max(self.claimed, submit.committed)
        room = self._settings.entries_per_message_max
        for index, entry in enumerate(submit.entries, submit.index_first):
            if index > self.core.index and len(self._overheard) < room:
                if index not in self._overheard:
                    heappush(self._overheard_order, index)
                self._overheard[index] = entry
        self._promote(submit.committed)
        self._fold(committed)

    def _promote(self, index_max: int) -> None:
        order = self._overheard_order
        while order and order[0] <= index_max:
            index = heappop(order)
            entry = self._overheard.pop(index)
            if index > self.core.index:
                self._ahead.setdefault(index, entry)

    def _take(self, index_first: int, entries: tuple[AnyEntry, ...]) -> None:
        have = self.core.index
        room = self._settings.entries_per_message_max
        is_next = index_first <= have + 1  # folded at once, so it takes no room
        for index, entry in enumerate(entries, index_first):
            if index > have and (is_next or len(self._ahead) < room):
                self._ahead[index] = entry

    def _fold(self, committed: list[tuple[int, AnyEntry]]) -> None:
        core, ahead = self.core, self._ahead
        while (entry := ahead.pop(core.index + 1, None)) is not None:
            if core.apply(entry):  # What the rules refuse has no effect anywhere.
                committed.append((core.index, entry))

    @property
    def is_behind(self) -> bool:
        """Something is known to be committed that isn't folded yet."""
        return self.core.index < self.claimed

    @property
    def is_current(self) -> bool:
        """Whether our fold holds all that was confirmed before we started, by the first entry of a
        sequencer that we have heard since: before that we don't know what there is."""
        has_begun = self._led != EPOCH_NONE and self.core.epoch >= self._led
        return has_begun and not self.is_behind

    def has_heard_since(self, since_ms: int) -> bool:
        """Whether all is folded that is known to be committed, and somebody who may know more has
        spoken since. No proof: who spoke may have been behind, too."""
        return not self.is_behind and self._heard_ms > since_ms

    def due_ms(self) -> int:
        """When to ask next: soon after a hole was seen, else when it has been silent for long."""
        if self.is_behind or self.core.index == 0 or self._is_hurried:
            return self._ask_due_ms
        return max(self._ask_due_ms, self._heard_ms + self._settings.suspect_ms)

    def hurry(self, now_ms: int) -> None:
        """Somebody seems to know more than we do: ask soon, whether we know that we are behind or
        not."""
        self._is_hurried = True
        self._ask_wait_ms = self._settings.retry_ms
        again_ms = self._asked_ms + self._settings.retry_ms
        self._ask_due_ms = min(self._ask_due_ms, max(now_ms, again_ms))

    def on_tick(self, now_ms: int, out: list[Effect]) -> None:
        """Ask for a hole, or, after silence, whether there is anything new."""
        if now_ms < self.due_ms():
            return
        self._ask_wait_ms = min(2 * self._ask_wait_ms, self._settings.retry_max_ms)
        self._ask_due_ms = now_ms + self._ask_wait_ms
        self._asked_ms = now_ms
        self._is_hurried = False
        server = self.next_server()
        is_moving = len(self._snapshot) > self._snapshot_asked
        self._snapshot_asked = len(self._snapshot)
        if self._snapshot_index and is_moving:
            out.append(Send(server, SnapshotRequest(self._snapshot_index, len(self._snapshot))))
        else:
            self._snapshot_index = 0  # Nobody has that one any more, or the answer was lost.
            out.append(Send(server, OrderRequest(self.core.index + 1)))

    @property
    def configuration(self) -> Configuration:
        """The latest that we know of: those of older ones may all be gone."""
        folded = self.core.configuration
        return folded if folded.number >= self.told.number else self.told

    def next_server(self) -> NodeId:
        """Commit servers in turn, so that one with a hole stalls nobody."""
        servers = servers_with(self.configuration, ROLE_COMMIT)
        self._turn += 1
        return servers[self._turn % len(servers)].node

    def on_order_reply(
        self,
        sender: NodeId,
        reply: OrderReply,
        now_ms: int,
        committed: list[tuple[int, AnyEntry]],
        out: list[Effect],
    ) -> None:
        """Fold what was asked for; go on asking while there is more."""
        before = self.core.index
        self.on_claim(reply, now_ms, committed)
        if self.core.index > before:
            self._ask_wait_ms = self._settings.retry_ms
            if self.is_behind:
                self._ask_due_ms = now_ms + self._ask_wait_ms
                out.append(Send(sender, OrderRequest(self.core.index + 1)))
        elif reply.low_water > self.core.index and not self._snapshot_index:
            self._snapshot_index = reply.low_water
            self._snapshot.clear()
            # A later one would skip entries that are still there, and with them the numbers of
            # payloads that we may hold.
            out.append(Send(sender, SnapshotRequest(reply.low_water, 0)))

    def on_snapshot_reply(
        self, sender: NodeId, reply: SnapshotReply, now_ms: int, out: list[Effect]
    ) -> bool:
        """Gather a core snapshot; True when it has replaced the state."""
        if not self._snapshot_index or reply.index <= self.core.index:
            self._snapshot_index = 0
            return False
        if reply.total > SNAPSHOT_BYTES_MAX or not reply.data:
            out.append(Warn("snapshot-size", f"{sender} says its snapshot has {reply.total} bytes"))
            return False
        if reply.index != self._snapshot_index or reply.offset != len(self._snapshot):
            return False  # A piece of another one, or repeated.
        self._snapshot += reply.data
        if len(self._snapshot) < reply.total:
            self._ask_due_ms = now_ms + self._settings.retry_ms
            out.append(Send(sender, SnapshotRequest(reply.index, len(self._snapshot))))
            return False
        state = bytes(self._snapshot)
        asked, self._snapshot_index = self._snapshot_index, 0
        self._snapshot.clear()
        try:
            core = Core.decode(state, self._settings)
        except msgspec.DecodeError as error:
            out.append(Warn("snapshot-malformed", f"{sender}: {error}"))
            return False
        if core.index != asked:
            out.append(Warn("snapshot-other", f"{sender} sent index {core.index}, not {asked}"))
            return False
        self.core = core
        self._ahead = {i: e for i, e in self._ahead.items() if i > core.index}
        self._overheard = {i: e for i, e in self._overheard.items() if i > core.index}
        self._overheard_order = sorted(self._overheard)
        self._ask_due_ms = now_ms
        return True
