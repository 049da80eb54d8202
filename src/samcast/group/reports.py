"""What a data server reports to the sequencer, and the marks that outlive the order's entries.

A payload is reported once it is durable, again with a growing pause until it has a number, and at
once in each new epoch. What is next in line is repeated often, the rest ever more rarely until its
turn comes, for that may be never. When it is numbered, a mark beside it says so; `applied` is the
index up to which everything committed is held and marked, durably, which is what lets the order be
truncated.
"""

from collections import deque
from typing import TYPE_CHECKING

from samcast.group.storage import BatchKey, StoreMarks
from samcast.machine.ports import Effect, Send
from samcast.wire.group import DataReport, Reported
from samcast.wire.order import EPOCH_NONE, Epoch
from samcast.wire.records import MARK_BYTES, MarkRecord, encode_record

if TYPE_CHECKING:
    from samcast.group.data_server import DataServer


class Reports:
    """The reports and marks of one data server."""

    def __init__(self, server: "DataServer") -> None:
        self._server = server
        self._settings = server.settings
        self._due: dict[BatchKey, None] = {}  # to be reported at the end of the turn
        self._marks: list[tuple[BatchKey, int, bytes]] = []
        self._writing: deque[tuple[int, int]] = deque()  # token, index that is marked with it
        self._marking = 0  # the highest of these indexes
        self.applied = 0
        self._applied_told = 0
        self._tell_again_ms = 0  # what we said may have been lost, or said to somebody else
        self._epoch: Epoch = EPOCH_NONE

    def add(self, key: BatchKey) -> None:
        """Report this payload, if it is durable."""
        held = self._server.unnumbered.get(key)
        if held is not None and held.is_durable:
            self._due[key] = None

    def hurry(self, key: BatchKey) -> None:
        """Its turn has come: if it is here and was not reported for long, that is due now."""
        held = self._server.unnumbered.get(key)
        if held is not None and held.wait_ms > self._settings.retry_max_ms:
            held.wait_ms = 0
            self.add(key)

    def hurry_all(self) -> None:
        """Begin again with all of them."""
        for key in self._server.unnumbered.all():
            held = self._server.unnumbered.get(key)
            if held is not None:
                held.wait_ms = 0
                self.add(key)

    def forget(self, key: BatchKey) -> None:
        """It has a number, or is gone."""
        self._due.pop(key, None)

    def mark(self, key: BatchKey, number_first: int, digest: bytes) -> None:
        """Remember, durably, which number a payload got."""
        self._marks.append((key, number_first, digest))

    def on_stored(self, token: int) -> None:
        """Marks up to this token are durable."""
        while self._writing and self._writing[0][0] <= token:
            self.applied = max(self.applied, self._writing.popleft()[1])

    def on_lost(self) -> None:
        """A marked payload is gone from the disk: nothing up to any index is whole for now."""
        self.applied = self._marking = 0
        self._writing = deque((token, 0) for token, _ in self._writing)

    def on_drained(self, now_ms: int, out: list[Effect]) -> None:
        """End of a turn: what is due, what is new, what is marked."""
        server = self._server
        if server.follower.epoch > self._epoch:
            self._epoch = server.follower.epoch
            self.hurry_all()  # A new sequencer knows nothing of them.
        for key in server.unnumbered.due(now_ms):
            self.add(key)
        self._store_marks(out)
        self._send(now_ms, out)

    def _send(self, now_ms: int, out: list[Effect]) -> None:
        sequencer = self._epoch[1]
        is_told = self.applied == self._applied_told and now_ms < self._tell_again_ms
        if not sequencer or (not self._due and is_told):
            return
        self._tell_again_ms = now_ms + self._settings.retry_max_ms
        runs = [self._reported(key, now_ms) for key in self._due if key in self._server.unnumbered]
        self._due.clear()
        self._applied_told = self.applied
        number = self._server.follower.core.configuration.number
        most = self._settings.entries_per_message_max
        for at in range(0, max(1, len(runs)), most):
            chunk = tuple(runs[at : at + most])
            report = DataReport(number, self._epoch, self._server.uuid, self.applied, chunk)
            out.append(Send(sequencer, report))

    def _reported(self, key: BatchKey, now_ms: int) -> Reported:
        unnumbered = self._server.unnumbered
        held = unnumbered.get(key)
        assert held is not None
        first_wait_ms = 2 * self._settings.retry_ms
        wait_ms = max(2 * held.wait_ms, first_wait_ms)
        if wait_ms > self._settings.retry_max_ms:
            is_next = self._server.admitting.is_next(key, held.birth)
            most = self._settings.retry_max_ms if is_next else self._settings.report_max_ms
            wait_ms = min(wait_ms, most)
        held.wait_ms = wait_ms
        unnumbered.remind(key, held, now_ms + held.wait_ms)
        return Reported(*key[:4], held.count, held.birth, held.confirmed_below, held.digest, key[4])

    def _store_marks(self, out: list[Effect]) -> None:
        server = self._server
        index, is_whole = server.follower.core.index, server.numbered.is_whole
        if not self._marks and not (is_whole and index > max(self._marking, self.applied)):
            return
        marks = tuple((*key, number) for key, number, _ in self._marks)
        digests = b"".join([digest[:MARK_BYTES] for _, _, digest in self._marks])
        self._marks.clear()
        token = server.next_token()
        # Stores become durable in order, so a mark is never durable before its payload.
        marked = index if is_whole else self.applied
        self._marking = max(self._marking, marked)
        self._writing.append((token, marked))
        record = encode_record(MarkRecord(marks, marked, digests))
        out.append(StoreMarks(token, record))
