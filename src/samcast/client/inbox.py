"""Messages coming in: a member's deliveries, kept until the user takes them, with a bound.

The node streams ahead of the user by a window of bytes; when the user falls behind, the stream
waits, and nobody else does. A client that hears the multicast group needs the stream only to catch
up: then it is *live*, until it falls behind again.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from samcast.errors import ClientError, CollectedError, NotConnectedError
from samcast.group.member import Deliver, Lost, Member
from samcast.machine.ports import Effect
from samcast.wire.batch import Batch, cells_of
from samcast.wire.group import Follow

WINDOW_BYTES = 8 * 1024 * 1024
WINDOW_RUNS = (2, 2048)
FIRST_RUNS = 4  # until we know how large they are
STUCK_S = 1.0
LIVE_STUCK_S = 0.3

Delivered = list[tuple[int, Batch]]


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as it was delivered."""

    number: int
    body: bytes
    key: bytes = b""
    headers: bytes = b""


def messages_from(number_first: int, batch: Batch) -> list[Message]:
    """The messages of a delivered batch, one by one."""
    numbers = range(number_first, number_first + batch.count)
    return list(map(Message, numbers, *cells_of(batch)))


def _gone(number: int) -> CollectedError:
    return CollectedError(
        f"messages up to {number} are gone, as the group's settings say; the oldest is"
        f" {number + 1}. A reader that must not miss any takes a lease (group.lease)"
    )


class Inbox:
    """What one reader has not taken yet."""

    def __init__(
        self,
        member: Member,
        follow: Callable[[Follow], None],
        is_hearing: Callable[[], bool] = lambda: False,
    ) -> None:
        self._member = member
        self._follow = follow
        self._is_hearing = is_hearing  # the group, where there is multicast
        self.is_live = False  # what is multicast is for us, and no stream is needed
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._runs: deque[tuple[int, Batch]] = deque()
        self._error: ClientError | None = None
        self._asked = 0  # runs that the stream may still bring
        self._heads_before = 0  # that the member had heard when the stream began
        self._bytes_per_run = WINDOW_BYTES / FIRST_RUNS
        self._moved_at = time.monotonic()
        self._calls: list[Callable[[], None]] = []

    @property
    def first(self) -> int:
        """The number to begin with, once something is here: what comes before it in the first run
        is gone, or not wanted."""
        return self._member.first

    # the client's thread

    def restart(self) -> None:
        """Have the stream begin anew where the member stands."""
        self.is_live = False
        self._heads_before = self._member.heads_heard
        self._asked = self._window()
        self._moved_at = time.monotonic()
        self._follow(Follow(self._member.group, self._member.number_next, self._asked))

    def _window(self) -> int:
        low, high = WINDOW_RUNS
        return max(low, min(high, int(WINDOW_BYTES / self._bytes_per_run)))

    def see_whether_stuck(self) -> None:
        """Called now and then: a stream may have been forgotten."""
        if not self._has_room():
            return
        if self.is_live and not self._is_hearing():
            self.restart()
        stuck_s = LIVE_STUCK_S if self.is_live else STUCK_S
        if self._is_behind() and time.monotonic() - self._moved_at > stuck_s:
            self.restart()
        self._go_live()

    def _is_behind(self) -> bool:
        return self._member.load()[0] > 0 or self._member.head >= self._member.number_next

    def _has_room(self) -> bool:
        return len(self._runs) < self._window()

    def _go_live(self) -> None:
        """All that there was is here: what comes now is heard, and the stream can end."""
        is_told = self._member.heads_heard > self._heads_before  # how far the stream goes
        is_through = is_told and self._has_room() and not self._is_behind()
        if not self.is_live and is_through and self._is_hearing():
            self.is_live = True
            self._asked = 0
            self._follow(Follow(self._member.group, self._member.number_next, 0))

    def on_effect(self, effect: Effect) -> None:
        """What the member delivers."""
        if type(effect) is Lost:
            self.stop(_gone(effect.number))
        if type(effect) is not Deliver or self._error is not None:
            return  # Nothing follows what is lost.
        size = sum(len(batch.columns) for _, batch in effect.runs) / len(effect.runs)
        # Large ones count at once, since they take the memory; small ones little by little.
        self._bytes_per_run = max(size, self._bytes_per_run + (size - self._bytes_per_run) / 4)
        self._moved_at = time.monotonic()
        with self._lock:
            self._runs.extend(effect.runs)
            self._asked -= len(effect.runs)
            self._arrived.notify_all()
            calls, self._calls = self._calls, []
        for call in calls:
            call()
        self.ask_for_more()
        self._go_live()

    def ask_for_more(self) -> None:
        """Let the stream go on as far as the window allows; without room, be silent."""
        self._member.is_paused = not self._has_room()
        if self._member.is_paused:
            self.is_live = False
        if self.is_live:
            return
        window = self._window()
        more = window - len(self._runs) - max(0, self._asked)
        if more * 2 >= window:
            self._asked = max(0, self._asked) + more
            self._follow(Follow(self._member.group, self._member.number_next, more, is_more=True))

    def stop(self, error: ClientError | None = None) -> None:
        """Nothing more comes."""
        with self._lock:
            self._error = error or NotConnectedError("the client was closed")
            self._arrived.notify_all()
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    def disown(self, error: ClientError) -> None:
        """In a forked child: whoever held our lock isn't here, nor who would bring anything."""
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._calls = []
        self._error = error

    # any thread

    def take(self, timeout_s: float | None) -> Delivered | None:
        """All that is there, after waiting for something; None if nothing came in time."""
        with self._lock:
            self._arrived.wait_for(lambda: self._runs or self._error, timeout_s)
            return self._take()

    def take_now(self) -> Delivered | None:
        """All that is there."""
        with self._lock:
            return self._take()

    def when_arrived(self, call: Callable[[], None]) -> None:
        """Have this called once when something is there, or nothing more can come."""
        with self._lock:
            if not self._runs and self._error is None:
                self._calls.append(call)
                return
        call()

    def _take(self) -> Delivered | None:
        if self._runs:
            taken = list(self._runs)
            self._runs.clear()
            return taken
        if self._error is not None:
            raise self._error
        return None
