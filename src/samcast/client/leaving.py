"""Leaving a client, by whatever way: nothing that was given to `send` goes without an outcome, or
without a word that it has none.

A program that ends without closing its clients has them closed before Python takes itself apart: a
thread that were still in its loop then could end the process by a signal, though all was done. A
forked child leaves the clients of its parent alone.
"""

import atexit
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from samcast.client.outbox import LOG
from samcast.errors import ClientError, NotConnectedError, WaitTimeoutError

if TYPE_CHECKING:
    from samcast.client.engine import Engine

# For who leaves by an error, or without closing: many times what a fail-over takes, and not too
# long for somebody who has pressed Ctrl-C.
LEAVE_S = 3.0

_open: dict["Engine", None] = {}  # all of this process
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Left:
    """What has come of all that a client was to send."""

    messages: int  # without an outcome
    errors: list[ClientError]  # that nobody has heard

    def __bool__(self) -> bool:
        return bool(self.messages or self.errors)

    def all_errors(self, timeout_s: float) -> list[ClientError]:
        """The same as errors."""
        if not self.messages:
            return self.errors
        were = "message was" if self.messages == 1 else "messages were"
        late = WaitTimeoutError(
            f"{self.messages:,} {were} not confirmed within {timeout_s:g} s: they may or may not be"
            " in their groups"
        )
        return [*self.errors, late]

    def lines(self, timeout_s: float) -> list[str]:
        """The same for people."""
        return list(dict.fromkeys(str(error) for error in self.all_errors(timeout_s)))


def enter(engine: "Engine") -> None:
    """From now on it is closed at the end of the process, if nobody does so before."""
    with _lock:
        _open[engine] = None


def left(engine: "Engine") -> None:
    """It is closed."""
    with _lock:
        _open.pop(engine, None)


def leave(engine: "Engine", error: BaseException) -> None:
    """Its block was left by an error: some time for what is under way, then say what is left."""
    for line in engine.settle(LEAVE_S).lines(LEAVE_S):
        error.add_note(line)
        LOG.warning(line)


@atexit.register
def _close_all() -> None:
    limit = time.monotonic() + LEAVE_S
    for engine in list(_open):
        for line in engine.settle(max(0.0, limit - time.monotonic())).lines(LEAVE_S):
            LOG.warning(line)
        engine.close()


def _disown_all() -> None:
    """In a forked child: the threads of these clients are not here."""
    global _lock
    _lock = threading.Lock()
    error = NotConnectedError(
        "this client was made before a fork; connect again in the child process"
    )
    for engine in _open:
        engine.disown(error)
    _open.clear()


os.register_at_fork(after_in_child=_disown_all)
