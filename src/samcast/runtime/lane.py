"""A lane: one multicast group with all that is sent and heard there, for one or several channels.

Lanes are apart in every way: each has a sequence of its own, and names the cluster by a number of
its own, so that what is meant for one never counts in another.
"""

import hashlib
import socket
from collections import deque

from samcast.machine.ports import NodeId
from samcast.multicast.hearing import Hearing
from samcast.multicast.pace import Pace
from samcast.multicast.recent import Again, Recent
from samcast.multicast.window import Window
from samcast.runtime.chance import SystemChance
from samcast.runtime.cluster_file import ClusterPlan
from samcast.runtime.group_socket import Place, Speaker
from samcast.wire.datagram import DATAGRAM_HEADER_BYTES, Envelope, Question, Source

QUIET_MS = (10, 40)  # after our last frame: then we say that it was the last, each time once
LIGHT_BYTES = 8 * 1024  # what is smaller doesn't wait: heartbeats and the order must not be late
WAITING_BYTES_MAX = 32 * 1024 * 1024
BUNCH = 42  # datagrams between two looks at the pace: one call of the kernel
IP_HEADERS_BYTES = 28


class Lane:
    """One node's end of one group."""

    def __init__(self, group: Place, plan: ClusterPlan, source: Source) -> None:
        self.group = group
        name = f"{plan.cluster} {plan.digest()}"
        size = plan.datagram_bytes - IP_HEADERS_BYTES - DATAGRAM_HEADER_BYTES
        digest = hashlib.sha256(f"{name} {group[0]}:{group[1]}".encode()).digest()
        self.cluster = int.from_bytes(digest[:8], "little") >> 1
        self.piece_bytes = size
        self.envelope = Envelope(self.cluster, source)
        self.recent = Recent(self.envelope, size, parity_percent=plan.parity_percent)
        self.hearing = Hearing(SystemChance())
        self.ear: socket.socket | None = None  # of a node that is on one of its channels
        self._window = Window()
        self._pace = Pace(plan.pace_mb_per_s * 1_000_000)
        self._leaving: deque[bytes] = deque()  # of a large frame, as fast as the pace allows
        self._leaving_sequence = 0
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._sent_ms = 0
        self._tells = len(QUIET_MS)  # how often we have said which frame was the last

    def send(self, frame: bytes, speaker: Speaker, now_ms: int) -> bool:
        """Now, or when those who hear us have caught up; False if too much waits already."""
        if len(frame) <= LIGHT_BYTES:
            speaker.put(self._cut(frame, now_ms), self.group)
            return True
        if self._waiting_bytes + len(frame) > WAITING_BYTES_MAX:
            return False
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)
        self.send_waiting(speaker, now_ms)
        return True

    def _cut(self, frame: bytes, now_ms: int) -> list[bytes]:
        datagrams = self.recent.send(frame)
        self._window.sent(self.recent.sequence, len(frame), now_ms)
        self._sent_ms, self._tells = now_ms, 0
        return datagrams

    def send_waiting(self, speaker: Speaker, now_ms: int) -> None:
        """As far as there is room."""
        while self._leaving or (self._waiting and self._window.room(now_ms) > 0):
            if not self._leaving:
                frame = self._waiting.popleft()
                self._waiting_bytes -= len(frame)
                self._leaving.extend(self._cut(frame, now_ms))
                self._leaving_sequence = self.recent.sequence
            if not self._pace.room(now_ms):
                return
            together = self._pace.together(len(self._leaving[0]), BUNCH)
            bunch = [self._leaving.popleft() for _ in range(min(together, len(self._leaving)))]
            speaker.put(bunch, self.group)
            self._pace.sent(sum(map(len, bunch)))
            self._sent_ms = now_ms

    def again(self, asker: NodeId, question: Question, now_ms: int) -> Again:
        """What of the asked pieces to send again; those that have not left yet will come."""
        return self.recent.answer(
            asker, question.ranges, now_ms, (self._leaving_sequence, len(self._leaving))
        )

    def on_heard(self, node: NodeId, sequence: int, speaker: Speaker, now_ms: int) -> None:
        """A node tells how far it has heard us."""
        self._window.heard(node, sequence, now_ms)
        self.send_waiting(speaker, now_ms)

    def expect(self, node: NodeId, life: int, now_ms: int) -> bool:
        """A node has told which life it is in; whether that is news."""
        self._window.expect(node, now_ms)
        return self.hearing.expect(node, life)

    def forget(self, node: NodeId) -> None:
        """It isn't connected any more: nobody waits for it."""
        self._window.forget(node)

    def tell_newest(self, speaker: Speaker, now_ms: int) -> None:
        """Say which frame was the last, for those who lack just that."""
        if self._leaving:
            return
        if self._tells < len(QUIET_MS) and now_ms - self._sent_ms >= QUIET_MS[self._tells]:
            self._tells += 1
            speaker.put([self.envelope.newest(self.recent.sequence)], self.group)

    @property
    def is_busy(self) -> bool:
        """Whether there will be something to do without anything coming in."""
        is_sending = self._tells < len(QUIET_MS) or self._waiting or self._leaving
        return bool(is_sending or self.hearing.is_lacking)
