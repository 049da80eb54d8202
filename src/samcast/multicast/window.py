"""How much may be on its way to the group: data servers tell how far they have heard, and a sender
of payloads waits when the slowest of them is a window behind.

Without it bursts overrun receivers' sockets, and what is lost there is sent again. Whoever makes no
progress for a while isn't waited for: it will ask for what it lacks.
"""

from bisect import bisect_right

from samcast.machine.ports import NodeId
from samcast.multicast.hearing import TELL_BYTES

WINDOW_BYTES = 2 * 1024 * 1024
PATIENCE_MS = 50
KEPT = 8192  # frames of which we know how many bytes came before


class Window:
    """Of one sender, towards all data servers that it is connected with."""

    def __init__(self, window_bytes: int = WINDOW_BYTES) -> None:
        self._window_bytes = window_bytes
        self._sequences: list[int] = []  # rising
        self._ends: list[int] = []  # bytes sent up to and with each
        self._sent = 0
        self._heard: dict[NodeId, int] = {}  # bytes
        self._moved_ms: dict[NodeId, int] = {}

    def expect(self, node: NodeId, now_ms: int) -> None:
        """It hears us from now on."""
        self._heard[node] = self._sent
        self._moved_ms[node] = now_ms

    def sent(self, sequence: int, size: int, now_ms: int) -> None:
        """One more frame is on its way."""
        for node, heard in self._heard.items():
            if self._sent - heard <= TELL_BYTES:  # It may know all, and wasn't asked to say so.
                self._moved_ms[node] = now_ms
        self._sent += size
        self._sequences.append(sequence)
        self._ends.append(self._sent)
        if len(self._sequences) > 2 * KEPT:
            del self._sequences[:KEPT], self._ends[:KEPT]

    def heard(self, node: NodeId, sequence: int, now_ms: int) -> None:
        """A node has all up to this frame; what it says of frames that were never sent is void."""
        at = bisect_right(self._sequences, sequence) - 1
        if at >= 0 and self._ends[at] > self._heard.get(node, -1):
            self._heard[node] = self._ends[at]
            self._moved_ms[node] = now_ms

    def forget(self, node: NodeId) -> None:
        """It is gone, or begins anew."""
        self._heard.pop(node, None)
        self._moved_ms.pop(node, None)

    def room(self, now_ms: int) -> int:
        """How many bytes may be sent now; at most nothing where somebody is a window behind."""
        awaited = [heard for node, heard in self._heard.items()
                   if now_ms - self._moved_ms[node] < PATIENCE_MS]  # fmt: skip
        if not awaited:
            return self._window_bytes
        return self._window_bytes - (self._sent - min(awaited))
