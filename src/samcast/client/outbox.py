"""Messages on their way out: packed into batches in the user's thread, sent by the client's.

A lone message leaves at once; while a batch is under way, what is sent meanwhile fills the next
one: nodes do much the same for each, and sync their disks for it. There is no future per message: a
receipt is a batch and a place in it.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from samcast.errors import (
    ClientError,
    FencedError,
    NotConnectedError,
    OutcomeUnknownError,
    RefusedError,
    TooManyNamesError,
    WaitTimeoutError,
)
from samcast.group.sender import Confirmed, Failed, Opened, Sender, Stopped, Submitted
from samcast.machine.ports import Effect
from samcast.wire.batch import columns_from_cells
from samcast.wire.blocked import Reason
from samcast.wire.errors import WireError
from samcast.wire.group import AnswerKind

BATCH_BYTES = 256 * 1024  # a batch is closed at this size; what nodes do for each is much the same
BATCH_MESSAGES = 8192
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
WAITING_BYTES_MAX = 16 * 1024 * 1024  # then `send` waits
FAILED_KEPT = 16
CLIENT_THREAD = "samcast"  # in which each client's loop runs, and callbacks are called

LOG = logging.getLogger("samcast")


def error_of(kind: AnswerKind) -> ClientError:
    """What an answer that isn't a number means for the user."""
    if kind is AnswerKind.FORGOTTEN:
        return OutcomeUnknownError(
            "the cluster no longer remembers these messages: they may or may not be in the group;"
            " look before you send them again"
        )
    if kind is AnswerKind.FENCED:
        return FencedError("another process has opened this sender's name; this one is over")
    if kind is AnswerKind.NO_GROUP:
        return RefusedError("the group doesn't exist any more; create it again")
    return RefusedError(f"the cluster refused these messages: {kind.name.lower()}")


def all_of(errors: list[ClientError]) -> ClientError:
    """One error that tells them all: the first, with the others as its notes."""
    first, *others = {str(error): error for error in errors}.values()
    if not others:
        return first
    error = type(first)(str(first))
    for other in others:
        error.add_note(str(other))
    return error


REASONS: dict[int, str] = {
    Reason.UNKNOWN_GROUP: "the cluster knows no such group: open it again by its name",
    Reason.BORN_AHEAD: "the cluster has fewer messages than this sender has heard of",
    Reason.UNKNOWN_NAME: "the cluster knows no such name: open it again",
    Reason.SENDER_RUNS: "{} batches of this sender wait for a number",
    Reason.CLIENT_RUNS: "{} batches of this client wait for a number, which is its share",
    Reason.ALL_RUNS: "{} batches of all clients wait for a number (held_runs_max)",
    Reason.CLIENT_STAGES: "{} stages of this client wait for a decision, which is its share",
    Reason.CLIENT_BYTES: "more than {} bytes of this client would wait for a decision",
    Reason.OWNER_STAGES: "{} stages of this name wait for a decision, which is its share",
    Reason.OWNER_BYTES: "more than {} bytes of this name would wait for a decision",
    Reason.ALL_STAGES: "{} stages of all clients wait for a decision (held_stages_max)",
    Reason.DISK_FULL: "a disk is full: make room there",
}


def blocked_by(blocked: tuple[int, int] | None) -> str:
    """What a data server said against taking a batch, for the end of a sentence."""
    if blocked is None:
        return ""
    reason, bound = blocked
    text = REASONS.get(reason, f"reason {reason}, bound {bound}")  # a later version's
    return f" (blocked: {text.format(bound)})"


def too_many_names(name: str, limit: int, scope: str) -> TooManyNamesError:
    """The error for who would be one more."""
    return TooManyNamesError(
        f"the name {name!r} is new, and {scope} has {limit} names, which is the most; `samcast name"
        " list` shows them, `samcast name remove NAME` makes room"
    )


def check_thread() -> None:
    """Who waits in the client's own thread, as in a callback, waits for himself."""
    if threading.current_thread().name == CLIENT_THREAD:
        raise RefusedError(
            "a callback of a client can't wait for that client: it runs in the thread that would"
            " have to go on; have another thread do it"
        )


class Packed:
    """A batch, from the first message put into it until its outcome is known."""

    __slots__ = ("_calls", "_lock", "_sender", "bodies", "count", "error", "headers", "is_done",
                 "is_told", "keys", "number_first", "size")  # fmt: skip

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.bodies: list[bytes] = []
        self.keys: list[bytes] | None = None
        self.headers: list[bytes] | None = None
        self.size = 0
        self.count = 0  # of messages, once it was handed over
        self.number_first = 0
        self.error: ClientError | None = None
        self.is_done = False
        self.is_told = False  # somebody has heard the error
        self._lock = threading.Lock()
        self._calls: list[Callable[[], None]] | None = None

    def settle(self, number_first: int, error: ClientError | None = None) -> None:
        """The outcome is known."""
        with self._lock:
            self.number_first, self.error, self.is_done = number_first, error, True
            calls, self._calls = self._calls, None
        for call in calls or ():
            try:
                call()
            except Exception:
                LOG.exception("what a receipt's when_done was to call has failed")

    def disown(self, error: ClientError) -> None:
        """In a forked child: nobody here will ever know its outcome, nor wait for it."""
        self._lock = threading.Lock()
        self._calls = None
        if not self.is_done:
            self.error, self.is_done = error, True

    @property
    def messages(self) -> int:
        """How many it holds."""
        if self.count or self.number_first < 0:
            return self.count or -self.number_first
        return len(self.bodies)

    def when_done(self, call: Callable[[], None]) -> None:
        """Have this called once, in whatever thread knows first."""
        with self._lock:
            if not self.is_done:
                self._calls = self._calls or []
                self._calls.append(call)
                return
        call()

    def wait(self, timeout_s: float | None) -> None:
        """Block until the outcome is known."""
        if not self.is_done:
            check_thread()
            known = threading.Event()
            self.when_done(known.set)
            if not known.wait(timeout_s):
                raise WaitTimeoutError(
                    f"not confirmed within {timeout_s} s; it may still be: wait again"
                    f"{blocked_by(self._sender.blocked)}"
                )
        if self.error is not None:
            self.is_told = True
            raise self.error


class Receipt:
    """One message on its way. `number()` waits until it is committed, and tells its number."""

    __slots__ = ("_packed", "_place")

    def __init__(self, packed: Packed, place: int) -> None:
        self._packed = packed
        self._place = place

    def __repr__(self) -> str:
        state = "confirmed" if self.is_confirmed else "failed" if self._packed.is_done else "sent"
        return f"<samcast receipt: {state}{f' as {self._number()}' if self.is_confirmed else ''}>"

    def of(self, place: int) -> "Receipt":
        """The receipt of another message of the same batch."""
        return Receipt(self._packed, place)

    @property
    def is_confirmed(self) -> bool:
        """Whether it is committed, as far as we know."""
        return self._packed.is_done and self._packed.error is None

    def when_done(self, call: Callable[[], None]) -> None:
        """Have this called once its outcome is known, in whatever thread knows first."""
        self._packed.when_done(call)

    def number(self, timeout: float | None = None) -> int:
        """The message's number; 0 if it is committed, but too old for its number to be kept."""
        self._packed.wait(timeout)
        return self._number()

    def _number(self) -> int:
        first = self._packed.number_first
        return first + self._place if first else 0


class Outbox:
    """What one sender has to send. `put` may be called from any thread."""

    def __init__(self, sender: Sender, wake: Callable[[Callable[[], None]], None]) -> None:
        self._sender = sender
        self._wake = wake
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._open = Packed(self._sender)
        self._ready: deque[Packed] = deque()
        self._under_way: dict[int, Packed] = {}
        self._token = 0
        self._bytes = 0  # not yet confirmed
        self._is_woken = False
        self._stopped: ClientError | None = None
        self._failed: deque[Packed] = deque(maxlen=FAILED_KEPT)  # for whoever asks by `flush`
        self.opened = threading.Event()
        self.sent_before = 0  # messages of this name that were numbered before we opened it
        self.post: Callable[[Submitted], None] = lambda event: None
        if not sender.is_named:
            self.opened.set()

    # any thread

    @property
    def has_room(self) -> bool:
        """Whether `put` returns at once."""
        return self._bytes <= WAITING_BYTES_MAX

    @property
    def under_way(self) -> int:
        """Batches that were sent and have no outcome yet."""
        return len(self._under_way)

    def put(self, body: bytes, key: bytes = b"", headers: bytes = b"") -> Receipt:
        """Send one message; waits only for room."""
        with self._lock:
            if self._bytes > WAITING_BYTES_MAX or self._stopped is not None:
                self._await_room()
            packed = self._open
            place = len(packed.bodies)
            packed.bodies.append(body)
            if key or headers or packed.keys is not None:
                self._put_rest(packed, place, key, headers)
            size = len(body) + len(key) + len(headers) + 4
            packed.size += size
            self._bytes += size
            if packed.size >= BATCH_BYTES or place + 1 >= BATCH_MESSAGES:
                self._close()
            must_wake = not self._is_woken
            self._is_woken = True
        if must_wake:
            self._wake(self.pump)
        return Receipt(packed, place)

    def put_many(self, bodies: list[bytes], size: int) -> Receipt:
        """Send some messages, of so many bytes, in one batch; the receipt of the last one."""
        if size >= BATCH_BYTES:
            return self.put_columns(columns_from_cells(bodies), len(bodies)).of(len(bodies) - 1)
        size += 4 * len(bodies)
        with self._lock:
            if self._bytes > WAITING_BYTES_MAX or self._stopped is not None:
                self._await_room()
            packed = self._open
            count = len(packed.bodies) + len(bodies)
            if packed.bodies and (packed.size + size > BATCH_BYTES or count > BATCH_MESSAGES):
                self._close()
                packed = self._open
            packed.bodies.extend(bodies)
            if packed.keys is not None and packed.headers is not None:
                packed.keys.extend([b""] * len(bodies))
                packed.headers.extend([b""] * len(bodies))
            packed.size += size
            self._bytes += size
            place = len(packed.bodies) - 1
            if packed.size >= BATCH_BYTES or place + 1 >= BATCH_MESSAGES:
                self._close()
            must_wake = not self._is_woken
            self._is_woken = True
        if must_wake:
            self._wake(self.pump)
        return Receipt(packed, place)

    def _close(self) -> None:
        """What comes goes into another batch."""
        self._ready.append(self._open)
        self._open = Packed(self._sender)

    @staticmethod
    def _put_rest(packed: Packed, place: int, key: bytes, headers: bytes) -> None:
        if packed.keys is None or packed.headers is None:
            packed.keys, packed.headers = [b""] * place, [b""] * place
        packed.keys.append(key)
        packed.headers.append(headers)

    def put_columns(self, columns: bytes, count: int) -> Receipt:
        """Send a batch that is already packed; the receipt is of its first message."""
        packed = Packed(self._sender)
        packed.bodies = [columns]
        packed.size = len(columns)
        packed.number_first = -count  # says that it is packed; replaced by the outcome
        with self._lock:
            if self._bytes > WAITING_BYTES_MAX or self._stopped is not None:
                self._await_room()
            if self._open.bodies:
                self._close()
            self._ready.append(packed)
            self._bytes += packed.size
            must_wake = not self._is_woken
            self._is_woken = True
        if must_wake:
            self._wake(self.pump)
        return Receipt(packed, 0)

    def _await_room(self) -> None:
        self._room.wait_for(lambda: self._bytes <= WAITING_BYTES_MAX or self._stopped is not None)
        if self._stopped is not None:
            raise self._stopped

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all that was put has an outcome; raise the first error that nobody has heard.
        A sender that was stopped says so every time."""
        self.settle_all(timeout_s)
        if self._stopped is not None:
            raise self._stopped

    def settle_all(self, timeout_s: float | None) -> None:
        """The same, but content with what has been heard before."""
        if not self.settle(timeout_s):
            raise WaitTimeoutError(
                f"{self.unconfirmed:,} messages are not confirmed after {timeout_s} s; they may"
                f" still be: wait again{blocked_by(self._sender.blocked)}"
            )
        errors = self.take_errors()
        if errors:
            raise all_of(errors)

    def settle(self, timeout_s: float | None) -> bool:
        """Wait until all that was put by now has an outcome; whether it has."""
        check_thread()
        limit = None if timeout_s is None else time.monotonic() + timeout_s
        for packed in self._waiting():
            is_done = threading.Event()
            packed.when_done(is_done.set)
            if not is_done.wait(None if limit is None else max(0.0, limit - time.monotonic())):
                return False
        return True

    def _waiting(self) -> list[Packed]:
        with self._lock:
            waiting = [*self._under_way.values(), *self._ready]
            return [*waiting, self._open] if self._open.bodies else waiting

    def take_errors(self) -> list[ClientError]:
        """What nobody has heard yet."""
        failed = [packed for packed in self._failed if not packed.is_told]
        self._failed.clear()
        for packed in failed:
            packed.is_told = True
        return [packed.error for packed in failed if packed.error is not None]

    @property
    def unconfirmed(self) -> int:
        """Messages without an outcome."""
        return sum(packed.messages for packed in self._waiting())

    @property
    def stopped(self) -> ClientError | None:
        """Why nothing can be sent any more, if that is so."""
        return self._stopped

    def disown(self, error: ClientError) -> None:
        """In a forked child: whoever held our lock isn't here, nor who would send."""
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._stopped = error
        for packed in [*self._under_way.values(), *self._ready, self._open]:
            packed.disown(error)
        self._under_way.clear()
        self._ready.clear()
        self._open = Packed(self._sender)
        self._failed.clear()

    # the client's thread

    def pump(self) -> None:
        """Hand batches to the sender: full ones, and another if none is under way."""
        with self._lock:
            self._is_woken = False
            batches = list(self._ready)
            self._ready.clear()
            if self._open.bodies and not self._under_way and not batches:
                batches.append(self._open)
                self._open = Packed(self._sender)
            first = self._token + 1
            self._token += len(batches)
            # At once: who flushes, or stops us, must find each batch somewhere.
            self._under_way.update(enumerate(batches, first))
        for token, packed in enumerate(batches, first):
            try:
                event = _submitted(token, packed)
            except WireError as error:
                self._settle(token, 0, RefusedError(str(error)))
            else:
                self.post(event)

    def on_effect(self, effect: Effect) -> None:
        """What the sender says."""
        if type(effect) is Confirmed:
            self._settle(effect.token, effect.number_first, None)
        elif type(effect) is Failed:
            self._settle(effect.token, 0, error_of(AnswerKind(effect.kind)))
        elif type(effect) is Opened:
            if not self.opened.is_set():
                self.sent_before = effect.counter_next - 1
                self.opened.set()
        elif type(effect) is Stopped:
            error = error_of(AnswerKind(effect.kind))
            if effect.limit:
                error = too_many_names(self._sender.label, effect.limit, "its group")
            self.stop(error)

    def _settle(self, token: int, number_first: int, error: ClientError | None) -> None:
        packed = self._under_way.get(token)
        if packed is None:
            return
        if error is not None:
            self._failed.append(packed)
        packed.settle(number_first, error)
        with self._lock:
            self._under_way.pop(token, None)
            was_full = self._bytes > WAITING_BYTES_MAX
            self._bytes -= packed.size
            if was_full and self._bytes <= WAITING_BYTES_MAX:
                self._room.notify_all()
            waits = bool(self._open.bodies) and not self._under_way
        if waits:
            self.pump()

    def stop(self, error: ClientError | None = None) -> None:
        """Nothing more can be sent; whatever waits hears why."""
        why = error or NotConnectedError("the client was closed before this was confirmed")
        with self._lock:
            self._stopped = self._stopped or why
            waiting = [*self._under_way.values(), *self._ready]
            if self._open.bodies:
                waiting.append(self._open)
            self._under_way.clear()
            self._ready.clear()
            self._open = Packed(self._sender)
            self._room.notify_all()
        self.opened.set()
        for packed in waiting:
            self._failed.append(packed)
            packed.settle(0, why)


def _submitted(token: int, packed: Packed) -> Submitted:
    """What the sender takes; the messages are let go."""
    packed.count = packed.messages
    if packed.number_first < 0:
        event = Submitted(token, packed.bodies[0], -packed.number_first)
        packed.number_first = 0
    else:
        columns = columns_from_cells(packed.bodies, packed.keys, packed.headers)
        event = Submitted(token, columns, len(packed.bodies))
    packed.bodies, packed.keys, packed.headers = [], None, None
    return event
