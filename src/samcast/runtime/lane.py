"""A lane: one multicast group with all that is sent and heard there, for one or several channels.

Lanes are apart in every way: each has a sequence of its own, and names the cluster by a number of
its own, so that what is meant for one never counts in another.
"""

import hashlib
import socket
from collections import deque

from samcast.machine.ports import NodeId
from samcast.multicast.hearing import Hearing
from samcast.multicast.recent import Recent
from samcast.multicast.window import Window
from samcast.runtime.chance import SystemChance
from samcast.runtime.group_socket import Place, Speaker
from samcast.wire.datagram import Envelope, Source

QUIET_MS = (10, 40)  # after our last frame: then we say that it was the last, each time once
LIGHT_BYTES = 8 * 1024  # what is smaller doesn't wait: heartbeats and the order must not be late
WAITING_BYTES_MAX = 32 * 1024 * 1024


class Lane:
    """One node's end of one group."""

    def __init__(self, group: Place, name: str, source: Source, size: int, parity: int) -> None:
        self.group = group
        digest = hashlib.sha256(f"{name} {group[0]}:{group[1]}".encode()).digest()
        self.cluster = int.from_bytes(digest[:8], "little") >> 1
        self.envelope = Envelope(self.cluster, source)
        self.recent = Recent(self.envelope, size, parity_percent=parity)
        self.hearing = Hearing(SystemChance())
        self.ear: socket.socket | None = None  # of a node that is on one of its channels
        self._window = Window()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._sent_ms = 0
        self._tells = len(QUIET_MS)  # how often we have said which frame was the last

    def send(self, frame: bytes, speaker: Speaker, now_ms: int) -> bool:
        """Now, or when those who hear us have caught up; False if too much waits already."""
        is_heavy = len(frame) > LIGHT_BYTES
        if is_heavy and (self._waiting or self._window.room(now_ms) <= 0):
            if self._waiting_bytes + len(frame) > WAITING_BYTES_MAX:
                return False
            self._waiting.append(frame)
            self._waiting_bytes += len(frame)
            return True
        self._send_now(frame, speaker, now_ms)
        return True

    def _send_now(self, frame: bytes, speaker: Speaker, now_ms: int) -> None:
        speaker.put(self.recent.send(frame), self.group)
        self._window.sent(self.recent.sequence, len(frame), now_ms)
        self._sent_ms, self._tells = now_ms, 0

    def send_waiting(self, speaker: Speaker, now_ms: int) -> None:
        """As far as there is room."""
        while self._waiting and self._window.room(now_ms) > 0:
            frame = self._waiting.popleft()
            self._waiting_bytes -= len(frame)
            self._send_now(frame, speaker, now_ms)

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
        if self._tells < len(QUIET_MS) and now_ms - self._sent_ms >= QUIET_MS[self._tells]:
            self._tells += 1
            speaker.put([self.envelope.newest(self.recent.sequence)], self.group)

    @property
    def is_busy(self) -> bool:
        """Whether there will be something to do without anything coming in."""
        return bool(self._tells < len(QUIET_MS) or self._waiting or self.hearing.is_lacking)
