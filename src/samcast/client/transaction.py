"""All-or-nothing sends: messages are staged, then one decision gives all of them their numbers."""

import contextlib
import threading
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any

from samcast.client.ending import Ended
from samcast.client.engine import Engine
from samcast.client.outbox import error_of, too_many_names
from samcast.errors import (
    ClientError,
    ConfigError,
    OutcomeUnknownError,
    RefusedError,
    WaitTimeoutError,
)
from samcast.group.owner import Decided, Forgotten, OwnerOpened, OwnerStopped, Transacted
from samcast.wire.batch import columns_from_cells
from samcast.wire.group import AnswerKind, OutcomeKind, SenderRemovalRequest
from samcast.wire.order import CELL

if TYPE_CHECKING:
    from samcast.client.blocking import Group

OPEN_S = 30.0
STAGE_BYTES = 256 * 1024
STAGES_MAX = 1000
TRANSACTION_BYTES_MAX = 1024**3  # we hold all of it, and each reader its group's part, at once
COMMIT_S = 120.0  # for the whole of a large one, on slow disks


class Transactions:
    """Transactions under one name, one after the other. After a crash, whoever opens the name
    again hears how many took effect (`done_before`). Without a name they are this client's alone,
    and the cluster forgets them by itself."""

    def __init__(self, engine: Engine, name: str | None = None) -> None:
        if name is not None and (not isinstance(name, str) or not 1 <= len(name.encode()) <= 200):
            raise ConfigError(f"a name is a str of 1 to 200 bytes, not {str(name)[:40]!r}")
        self._engine = engine
        self._name = name or ""
        self._lock = threading.Lock()
        self._opened = threading.Event()
        self._waiting: dict[int, Transaction] = {}
        self._token = 0
        self._error: ClientError | None = None
        self.done_before = 0
        self._owner, self._post = engine.call(engine.open_owner(self._name, self._on_effect))
        engine.on_closed.append(self._on_closed)
        if not self._opened.wait(OPEN_S):
            what = f"the name {name!r}" if name else "a transaction"
            raise WaitTimeoutError(f"{what} could not be opened within {OPEN_S:.0f} s")
        if self._error is not None:
            raise self._error

    def give_up(self, timeout: float = 2.0) -> None:
        """Have the name forgotten; what took effect under it stays."""
        request = SenderRemovalRequest(CELL, self._owner.id, self._owner.opened)
        with contextlib.suppress(TimeoutError, ClientError):  # Then it stays: it costs a row.
            self._engine.call(self._engine.propose(request), timeout)

    def begin(self, timeout: float | None = COMMIT_S) -> "Transaction":
        """The next transaction; a `with` block waits so many seconds for it at its end."""
        return Transaction(self, timeout)

    def commit(
        self, transaction: "Transaction", stages: tuple[tuple[int, bytes, int], ...]
    ) -> None:
        """Have these take effect, all at once."""
        try:
            with self._lock:
                if self._error is not None:
                    raise self._error
                self._engine.check()
                self._token += 1
                token = self._token
                self._waiting[token] = transaction
            self._engine.wake(lambda: self._post(Transacted(token, stages)))
        except ClientError as error:  # Nothing was sent.
            transaction.settle((), error)

    def _on_effect(self, effect: Any) -> None:
        if isinstance(effect, OwnerOpened):
            if not self._opened.is_set():
                self.done_before = effect.tx_next - 1
                self._opened.set()
        elif isinstance(effect, Decided):
            waiting = self._waiting.pop(effect.token, None)
            if waiting is not None:
                waiting.settle(effect.spans, None)
        elif isinstance(effect, Forgotten):
            waiting = self._waiting.pop(effect.token, None)
            if waiting is not None:
                waiting.settle((), forgotten(self._name))
        elif isinstance(effect, OwnerStopped):
            self._on_stopped(effect)
        elif isinstance(effect, Ended):
            self._stop(effect.error)

    def _on_stopped(self, effect: OwnerStopped) -> None:
        kind = effect.kind
        who = f"transactions of {self._name!r}" if self._name else "transactions of this client"
        error: ClientError = RefusedError(f"{who}: {kind.name.lower()}")
        if kind is OutcomeKind.FENCED:
            error = error_of(AnswerKind.FENCED)
        elif kind in (OutcomeKind.REMOVED, OutcomeKind.EXPIRED):
            error = RefusedError(
                f"{who}: the name was removed, so nothing of this took effect; open it again to"
                " begin anew"
            )
        elif effect.limit:
            error = too_many_names(self._name, effect.limit, "this cluster")
        elif kind is OutcomeKind.REFUSED:
            error = RefusedError(
                f"{who}: refused; nobody can open this name any more, since it has the highest"
                " incarnation there is: use another name"
            )
        if kind is OutcomeKind.REMOVED:
            with self._lock:
                unknown = self._waiting.pop(effect.token, None)
            if unknown is not None:
                unknown.settle((), forgotten(self._name))
        self._stop(error)

    def _stop(self, error: ClientError) -> None:
        """Nothing more takes effect; whoever waits hears why."""
        with self._lock:
            self._error = self._error or error
        self._settle_all(self._error)
        self._opened.set()

    def _on_closed(self) -> None:
        self._settle_all(
            OutcomeUnknownError(
                "this client was closed before the transaction was decided, so it may or may not"
                " take effect; look at its groups, or use a name (client.transactions): who opens"
                " that again hears how many took effect"
            )
        )

    def _settle_all(self, error: ClientError) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.settle((), error)


def forgotten(name: str) -> OutcomeUnknownError:
    """The error for who asks after its row is gone."""
    who = f"the name {name!r} was removed" if name else "others have opened very many meanwhile"
    return OutcomeUnknownError(
        f"the cluster no longer remembers this transaction ({who}): it may or may not have taken"
        " effect, as a whole; look at its groups before you repeat it"
    )


class Transaction:
    """Messages that take effect together, on leaving the `with` block without an error."""

    def __init__(self, owner: Transactions, timeout: float | None = COMMIT_S) -> None:
        self._owner = owner
        self._timeout = timeout  # of the `with` block
        self._parts: list[tuple[int, list[bytes], int]] = []  # group, bodies, bytes
        self._bytes = 0
        self._done = threading.Event()
        self._spans: tuple[tuple[int, int, int], ...] = ()
        self._error: ClientError | None = None
        self._is_over = False

    def send(self, group: "Group", body: bytes | str) -> None:
        """Add a message; nobody sees it before all of them are committed."""
        from samcast.client.blocking import as_bytes  # It imports us.

        if self._is_over:
            raise ConfigError("this transaction is over; begin another one")
        data = as_bytes(body)
        if not hasattr(group, "id"):
            raise TypeError(
                f"a transaction sends to a group, as client.group() gives, not {group!r}"
            )
        if self._bytes + len(data) > TRANSACTION_BYTES_MAX:
            raise ConfigError(
                f"a transaction has at most {TRANSACTION_BYTES_MAX} bytes, and this message would"
                f" make it {self._bytes + len(data)}; split it"
            )
        if not self._parts or self._parts[-1][0] != group.id or self._parts[-1][2] > STAGE_BYTES:
            if len(self._parts) == STAGES_MAX:
                raise ConfigError(
                    f"a transaction has at most {STAGES_MAX} stages (messages in a row to the same"
                    f" group, until they are {STAGE_BYTES} bytes); send by group, or split it"
                )
            self._parts.append((group.id, [], 0))
        number, bodies, size = self._parts[-1]
        bodies.append(data)
        self._bytes += len(data)
        self._parts[-1] = (number, bodies, size + len(data))

    def commit(self, timeout: float | None = None) -> dict[int, int]:
        """Make it effective; the first number of its messages in each group, by the group's id."""
        if not self._parts:
            self._is_over = True
            return {}
        if not self._is_over:
            self._is_over = True
            self._owner.commit(self, self._staged())
        if not self._done.wait(timeout):
            raise WaitTimeoutError(
                f"not decided within {timeout} s; it may still take effect: commit() waits again"
            )
        if self._error is not None:
            raise self._error
        return {group: first for group, first, _ in self._spans}

    def _staged(self) -> tuple[tuple[int, bytes, int], ...]:
        """What is sent; bodies go as they are packed, so that a large one isn't held twice."""
        stages: list[tuple[int, bytes, int]] = []
        for at, (group, bodies, _) in enumerate(self._parts):
            stages.append((group, columns_from_cells(bodies), len(bodies)))
            self._parts[at] = (group, [], 0)
        return tuple(stages)

    def settle(self, spans: tuple[tuple[int, int, int], ...], error: ClientError | None) -> None:
        """The outcome is known."""
        self._spans, self._error = spans, error
        self._done.set()

    def __del__(self) -> None:
        if self._parts and not self._is_over:
            warnings.warn(
                "a transaction was dropped without commit(), so nothing of it was sent; use `with`",
                ResourceWarning,
                stacklevel=2,
            )

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.commit(self._timeout)
        self._is_over = True
