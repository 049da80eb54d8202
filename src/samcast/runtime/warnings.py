"""Warnings of roles in a node's log: the first of each kind at once, others now and then. Whoever
makes a mistake a thousand times a second gets no thousand lines."""

import time
from collections.abc import Callable

from samcast.machine.ports import Warn

PAUSE_S = 60.0  # between two lines of one kind


class Warnings:
    """Of one node."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._said_s: dict[str, float] = {}  # by code: when last
        self._unsaid: dict[str, int] = {}

    def on_warn(self, warn: Warn) -> None:
        """Say it, or count it for the next time."""
        now = time.monotonic()
        if now - self._said_s.get(warn.code, -PAUSE_S) < PAUSE_S:
            self._unsaid[warn.code] = self._unsaid.get(warn.code, 0) + 1
            return
        unsaid = self._unsaid.pop(warn.code, 0)
        more = f" ({unsaid} more of this kind in between)" if unsaid else ""
        self._said_s[warn.code] = now
        self._say(warn.code, f"{warn.code}: {warn.detail}{more}", unsaid=unsaid)
