"""Stages on their way to disks, a bounded number of bytes at a time (SAFETY 2.12, ADR 36).

A link drops what exceeds its bound, so whoever sends all of a large transaction at once, and all of
it again when no outcome comes, never gets beyond the stages that fit. Here the next stages leave as
data servers say that they have those before, and what they say they lack is all that is sent again.
Where that leads nowhere, since others may serve by now than those whom we ask, stages are sent to
whoever serves, again and again, as many bytes at a time.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from samcast.group.payloads import key_of
from samcast.machine.ports import Channel, Effect, Multicast, NodeId, Send
from samcast.machine.quorum import servers_with
from samcast.wire.batch import Batch
from samcast.wire.order import ROLE_DATA, Configuration
from samcast.wire.stages import StageKey, Stages, StagesRequest

ASK_MS = 8  # after a stage was sent; then longer and longer
ASK_MAX_MS = 100
ASKED_MAX = 1000  # stages in one question: fewer than a data server answers for at once


@dataclass(slots=True)
class Sent:
    """A stage under way."""

    batch: Batch
    again_ms: int  # between two transmissions to one server, doubled at each
    cast_ms: int  # when it was last sent to all
    holders: dict[NodeId, None] = field(default_factory=dict)
    sent_ms: dict[NodeId, int] = field(default_factory=dict)  # last; others: with the first one


class StageWindow:
    """The stages of one transaction, in their order."""

    def __init__(
        self,
        configuration: Configuration,
        channel: Channel,
        window_bytes: int,
        again_ms: tuple[int, int],
    ) -> None:
        self._take(configuration)
        self._channel = channel
        self._window_bytes = window_bytes
        self._again_ms = again_ms  # at first, and at most
        self._waiting: deque[Batch] = deque()
        self._sent: dict[StageKey, Sent] = {}
        self._under_way = 0  # bytes that were sent and are not on enough disks yet
        self._pressed_ms = 0
        self._ask_ms = 0
        self._wait_ms = ASK_MS

    def _take(self, configuration: Configuration) -> None:
        # Whom to ask; who answers counts, listed here or not.
        self._keepers = [server.node for server in servers_with(configuration, ROLE_DATA)]
        self._k_data = configuration.k_data

    @property
    def are_all_sent(self) -> bool:
        """Whether each stage has left once."""
        return not self._waiting

    @property
    def are_all_held(self) -> bool:
        """Whether each stage is on enough disks, as far as we have heard."""
        return not self._waiting and not self._under_way

    @property
    def due_ms(self) -> int:
        """The next question, while some are under way."""
        return self._ask_ms

    def add(self, batches: Iterable[Batch]) -> None:
        """More of them."""
        self._waiting.extend(batches)

    def forget(self, key: StageKey) -> None:
        """One that is on enough disks will never be asked for again."""
        del self._sent[key]

    def clear(self) -> None:
        """The transaction is over."""
        self._waiting.clear()
        self._sent.clear()
        self._under_way = 0

    def send(self, now_ms: int, out: list[Effect]) -> None:
        """What fits beside what is under way; one stage, however large, always does."""
        while self._waiting:
            size = len(self._waiting[0].columns)
            if self._under_way and self._under_way + size > self._window_bytes:
                return
            self._let_next_leave(now_ms, out)

    def _let_next_leave(self, now_ms: int, out: list[Effect]) -> None:
        batch = self._waiting.popleft()
        sent = self._sent[key_of(batch)] = Sent(batch, self._again_ms[0], now_ms)
        self._under_way += len(batch.columns)
        self._ask_soon(now_ms)
        self._cast(sent, now_ms, out)

    def _cast(self, sent: Sent, now_ms: int, out: list[Effect]) -> None:
        sent.cast_ms = now_ms
        sent.sent_ms = dict.fromkeys(self._keepers, now_ms)
        out.append(Multicast(self._channel, sent.batch))

    def press(self, now_ms: int, out: list[Effect]) -> None:
        """Where we have long waited in vain, others may serve than those whom we ask: whoever does
        gets what is lacking. The next stages leave, too, even if we never hear of a hold: the
        sequencer does. All that is no more than the window, or one stage if that is larger."""
        stale_ms = now_ms - self._again_ms[1]
        lacking = [sent for sent in self._sent.values() if len(sent.holders) < self._k_data]
        stale = [sent for sent in lacking if sent.cast_ms <= stale_ms]
        if not stale or self._pressed_ms > stale_ms:
            return
        self._pressed_ms = now_ms
        room = self._window_bytes
        while self._waiting:
            size = len(self._waiting[0].columns)
            if room < self._window_bytes and size > room - self._window_bytes // 2:
                break  # The rest is for those that have left already.
            room -= size
            self._let_next_leave(now_ms, out)
        # Those that were sent to all longest ago come first, so that each has its turn.
        for sent in sorted(stale, key=lambda sent: sent.cast_ms):
            size = len(sent.batch.columns)
            if room < self._window_bytes and size > room:
                return
            room -= size
            self._cast(sent, now_ms, out)

    def serve(self, configuration: Configuration) -> None:
        """Others serve from now on: only their disks count, so they are asked for all."""
        self._take(configuration)
        self.doubt()
        self._ask_ms, self._wait_ms = 0, ASK_MS

    def _ask_soon(self, now_ms: int) -> None:
        self._wait_ms = ASK_MS
        self._ask_ms = now_ms + ASK_MS

    def ask(self, now_ms: int, out: list[Effect]) -> None:
        """Ask each data server for what it hasn't said to hold, of all that isn't on enough."""
        self._ask_ms = now_ms + self._wait_ms
        self._wait_ms = min(2 * self._wait_ms, ASK_MAX_MS)
        lacking = [key for key, sent in self._sent.items() if len(sent.holders) < self._k_data]
        for server in self._keepers:
            wanted = [key for key in lacking if server not in self._sent[key].holders]
            for at in range(0, len(wanted), ASKED_MAX):
                keys = tuple(wanted[at : at + ASKED_MAX])
                digests = tuple(self._sent[key].batch.digest for key in keys)
                out.append(Send(server, StagesRequest(keys, digests)))

    def doubt(self) -> None:
        """What was held may have been lost since: nothing counts that isn't said again."""
        for sent in self._sent.values():
            sent.holders.clear()
        self._under_way = sum(len(sent.batch.columns) for sent in self._sent.values())

    def on_stages(
        self, server: NodeId, said: Stages, now_ms: int, out: list[Effect]
    ) -> list[StageKey]:
        """A data server tells what it has; which stages are on enough disks by that."""
        held = [key for key in said.durable if self._note(server, key)]
        if held:
            self._ask_soon(now_ms)
        self._send_again(server, said.unknown, now_ms, out)
        self.send(now_ms, out)
        return held

    def _note(self, server: NodeId, key: StageKey) -> bool:
        sent = self._sent.get(key)
        if sent is None or server in sent.holders:
            return False
        sent.holders[server] = None
        if len(sent.holders) != self._k_data:
            return False
        self._under_way -= len(sent.batch.columns)
        return True

    def _send_again(
        self, server: NodeId, unknown: tuple[StageKey, ...], now_ms: int, out: list[Effect]
    ) -> None:
        """To one who lacks them, within what may be under way to it."""
        lacking = [self._sent[key] for key in dict.fromkeys(unknown) if key in self._sent]
        overdue = [sent for sent in lacking if self._is_overdue(sent, server, now_ms)]
        if not overdue:
            return
        room = self._window_bytes - sum(
            len(sent.batch.columns)
            for sent in self._sent.values()
            if server not in sent.holders and not self._is_overdue(sent, server, now_ms)
        )
        is_first = room == self._window_bytes
        for sent in overdue:
            size = len(sent.batch.columns)
            if size <= room or is_first:
                room -= size
                is_first = False
                sent.again_ms = min(2 * sent.again_ms, self._again_ms[1])
                sent.sent_ms[server] = now_ms
                out.append(Send(server, sent.batch))

    @staticmethod
    def _is_overdue(sent: Sent, server: NodeId, now_ms: int) -> bool:
        return now_ms >= sent.sent_ms.get(server, 0) + sent.again_ms
