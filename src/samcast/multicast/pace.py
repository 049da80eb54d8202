"""How fast a sender of payloads may go, where a network loses what comes faster (GRP-25).

A bucket that fills at the chosen rate and holds what flows in a few milliseconds, so that datagrams
leave little by little instead of a whole batch at once.
"""

BURST_MS = 5
TOGETHER_MS = 2  # half of what receivers wait before they ask


class Pace:
    """So many bytes per second; 0: as fast as it goes."""

    def __init__(self, bytes_per_s: int = 0) -> None:
        self._per_ms = bytes_per_s / 1000
        self._left = self._per_ms * BURST_MS
        self._at_ms = 0

    def room(self, now_ms: int) -> bool:
        """Whether a datagram may leave now."""
        if not self._per_ms:
            return True
        filled = self._left + (now_ms - self._at_ms) * self._per_ms
        self._left = min(filled, self._per_ms * BURST_MS)
        self._at_ms = now_ms
        return self._left > 0

    def together(self, size: int, most: int) -> int:
        """How many datagrams of a size may leave in one go."""
        if not self._per_ms:
            return most
        return max(1, min(most, int(self._per_ms * TOGETHER_MS / size)))

    def sent(self, size: int) -> None:
        """These bytes have left; what was too much is made up for by waiting."""
        if self._per_ms:
            self._left -= size
