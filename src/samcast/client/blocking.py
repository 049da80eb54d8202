"""The client for programs that wait: `samcast.connect()`."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from samcast.client import leaving
from samcast.client.engine import Engine, addresses_of, refused
from samcast.client.finding import find_address
from samcast.client.inbox import Message, messages_from
from samcast.client.joining import Progress, nobody_looks
from samcast.client.keeping import bounded, folded, unfolded
from samcast.client.lease import LEASE_S, Lease, bound
from samcast.client.outbox import MESSAGE_BYTES_MAX, Outbox, Receipt
from samcast.client.recording import Recorder
from samcast.client.table import CHECKPOINT_EVERY, ReplicatedTable
from samcast.client.transaction import COMMIT_S, Transaction, Transactions
from samcast.errors import ConfigError, NotConnectedError, RefusedError, WaitTimeoutError
from samcast.wire.arrow import columns_from_arrow
from samcast.wire.batch import Batch
from samcast.wire.group import GroupRequest, OutcomeKind
from samcast.wire.order import Keep
from samcast.wire.retention import Checkpoints, KeepRequest

if TYPE_CHECKING:
    import pyarrow

KEEP_TRIES = 10
LIFETIME = 10_000_000  # numbers for which a repeated message is still recognised
SENDERS_MAX = 100_000  # unnamed senders of a group that are remembered
OPEN_S = 30.0
OPEN_TABLE_S = 3600.0  # a large one takes its time
CLOSE_S = 30.0
HEAR_S = 5.0
HEAR_PAUSE_S = 0.02
NAME_BYTES_MAX = 200
MANY = 4096  # messages that `send_many` packs at a time
MANY_BYTES = 1024 * 1024  # or so many bytes: larger batches gain nothing, and fill windows

OLDEST: Literal["oldest"] = "oldest"
Start = int | None | Literal["oldest"]  # where to begin to read

TABLES = "table/"  # groups that hold the changes of tables


def check_name(name: object, what: str) -> str:
    """A name that a user has chosen."""
    if not isinstance(name, str):
        raise ConfigError(f"{what} is a str, not {type(name).__name__}")
    if not name.isprintable():
        raise ConfigError(f"{what} has no control characters; {name[:40]!r} has")
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        raise ConfigError(
            f"{what} has 1 to {NAME_BYTES_MAX} bytes; {name[:40]!r} has {len(name.encode())}"
        )
    return name


def check_count(count: object) -> None:
    """How many messages a reader wants; None: all that ever come."""
    if count is not None and (not isinstance(count, int) or count < 0):
        raise ConfigError(f"a count is a number from 0 on, not {count!r}")


def connect(
    address: str | None = None,
    *,
    folder: str | Path = "",
    cluster: str = "",
    multicast: bool = False,
) -> "Client":
    """Connect to a cluster by the address of any of its nodes, or of several (`a:1,b:2`). With
    `multicast`, readers hear what nodes say to all instead of having it sent to each of them."""
    addresses = addresses_of(find_address(address, folder))
    return Client(Engine(addresses, cluster, multicast=multicast))


def as_bytes(value: bytes | str | bytearray | memoryview, what: str = "a body") -> bytes:
    """What users give, as bytes; bounded."""
    if type(value) is not bytes:
        if isinstance(value, str):
            value = value.encode()
        elif isinstance(value, bytes | bytearray | memoryview):
            value = bytes(value)
        else:
            raise TypeError(f"{what} is bytes or str, not {type(value).__name__}")
    if len(value) > MESSAGE_BYTES_MAX:
        raise ConfigError(
            f"{what} of {len(value)} bytes is above the {MESSAGE_BYTES_MAX} that a message may"
            " have; cut it into several, in one transaction if they belong together"
        )
    return value


class Client:
    """A connection to a cluster. Threads may share it; a forked child must make its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._groups: dict[str, Group] = {}
        self._tables: dict[str, ReplicatedTable] = {}
        self._own: Transactions | None = None  # for those without a name of their own
        self._lock = threading.Lock()

    def group(self, name: str, *, create: bool = True) -> "Group":
        """A group by its name; it is made if it isn't there, unless you don't want that."""
        self._engine.check()
        check_name(name, "a group's name")
        with self._lock:
            found = self._groups.get(name)
        if found is not None:
            return found
        if not create and name not in self.groups():
            there = ", ".join(sorted(self.groups())[:10]) or "none"
            raise RefusedError(f"there is no group {name!r} here; there are: {there}")
        work = self._engine.propose(GroupRequest(name, LIFETIME, SENDERS_MAX))
        try:
            outcome = self._engine.call(work, OPEN_S)
        except TimeoutError:
            raise WaitTimeoutError(
                f"group {name!r} could not be opened within {OPEN_S:.0f} s: too few nodes are up"
            ) from None
        if outcome.kind is not OutcomeKind.GROUP:
            raise refused(f"group {name!r}", outcome)
        with self._lock:
            return self._groups.setdefault(name, Group(self._engine, name, outcome.value))

    def table(
        self,
        name: str,
        *,
        wait: bool = True,
        progress: Progress = nobody_looks,
        checkpoint_every: int = CHECKPOINT_EVERY,
    ) -> ReplicatedTable:
        """A table that every process that opens it holds, all of them alike; made if it isn't
        there. Waits until what it holds by now is here, unless you don't want that; `progress` is
        called with the rows that are here and with all of them. A table that is made gets a
        checkpoint after so many changes, or later, as it grows."""
        bound(checkpoint_every, "checkpoint_every")
        group = self.group(TABLES + check_name(name, "a table's name"))
        with self._lock:
            found = self._tables.get(name)
            if found is None or found.has_failed:
                found = self._tables[name] = ReplicatedTable(
                    group, name, progress, checkpoint_every
                )
        if wait:
            found.wait_for(group.head(), OPEN_TABLE_S)
        return found

    def transactions(self, name: str) -> "Transactions":
        """All-or-nothing sends into groups of this cluster, under a name of your choice."""
        return Transactions(self._engine, name)

    def transaction(self, name: str = "", timeout: float | None = COMMIT_S) -> "Transaction":
        """One transaction: `with client.transaction() as tx: tx.send(group, body)`. Its end waits
        so long; a `WaitTimeoutError` means that it may still take effect."""
        self._engine.check()
        if name:
            return self.transactions(name).begin(timeout)
        with self._lock:
            if self._own is None:
                self._own = Transactions(self._engine)
        return self._own.begin(timeout)

    def groups(self) -> dict[str, int]:
        """The groups that our node knows of, with the number of each one's newest message."""
        listed = self.current_status().get("groups", [])
        assert isinstance(listed, list)
        return {str(group["name"]): int(group["head"]) for group in listed}

    def current_status(self) -> dict[str, object]:
        """As `status`, once our node knows what there is: one that has just started is given some
        time to hear of it, and an error says that it hasn't."""
        limit = time.monotonic() + HEAR_S
        while not (said := self.status()).get("is_current", True):
            if time.monotonic() > limit:
                raise WaitTimeoutError(
                    f"node {said['name']} has not heard since its start what there is: too few"
                    " nodes are up (`samcast doctor`), or it is cut off; try again, or another one"
                )
            time.sleep(HEAR_PAUSE_S)
        return said

    def status(self) -> dict[str, object]:
        """How the node that we are connected to is."""
        said: dict[str, object] = msgspec.json.decode(self._engine.call(self._engine.status(), 5))
        return said

    @property
    def engine(self) -> Engine:
        """What runs it."""
        return self._engine

    @property
    def nodes(self) -> list[tuple[str, str, int]]:
        """Name, host and port of each node of the cluster."""
        return self._engine.peers

    def close(self, timeout: float = CLOSE_S) -> None:
        """Wait for what is under way, then end the connection; an error if not all was confirmed,
        but it is closed all the same."""
        if self._engine.is_closed:
            return
        try:
            self._engine.flush(timeout)
            if self._own is not None:  # Nobody will ever use this name again.
                self._own.give_up()
        finally:
            self._end()

    def _end(self) -> None:
        self._engine.close()
        for table in self._tables.values():
            table.close()

    def __enter__(self) -> "Client":
        self._engine.check()
        return self

    def __repr__(self) -> str:
        state = "closed" if self._engine.is_closed else "connected to"
        names = ",".join(name for name, _, _ in self.nodes)
        return f"<samcast client {state} {names}>"

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, SystemExit):
            self.close()
        elif not self._engine.is_closed:
            try:
                leaving.leave(self._engine, error)
            finally:
                self._end()


class Sending:
    """What one sender sends; made by `Group`."""

    def __init__(self, engine: Engine, group: int, name: str) -> None:
        self._engine = engine
        self._outbox: Outbox = engine.call(engine.open_sender(group, name))
        self._put = self._outbox.put

    @property
    def engine(self) -> Engine:
        """What runs it."""
        return self._engine

    @property
    def has_room(self) -> bool:
        """Whether `send` returns at once."""
        return self._outbox.has_room

    def _await_open(self, name: str) -> None:
        if not self._outbox.opened.wait(OPEN_S):
            raise WaitTimeoutError(f"the name {name!r} could not be opened within {OPEN_S:.0f} s")
        if self._outbox.stopped is not None:
            raise self._outbox.stopped

    def send(
        self, body: bytes | str, key: bytes | str = b"", headers: bytes | str = b""
    ) -> Receipt:
        """Send a message. Returns at once unless too much is under way; the receipt's `number()`
        waits for the confirmation."""
        if type(body) is not bytes or len(body) > MESSAGE_BYTES_MAX:
            body = as_bytes(body)
        if key or headers:
            return self._put(body, as_bytes(key, "a key"), as_bytes(headers, "headers"))
        return self._put(body)

    def send_many(self, bodies: Iterable[bytes | str]) -> Receipt | None:
        """Send many messages; the receipt of the last one, None if there was none."""
        if isinstance(bodies, str | bytes | bytearray | memoryview):
            raise TypeError("send_many takes many bodies; for a single one there is send")
        last: Receipt | None = None
        gathered: list[bytes] = []
        size = 0
        for body in bodies:
            if type(body) is not bytes:
                body = as_bytes(body)
            gathered.append(body)
            size += len(body)
            if len(gathered) >= MANY or size >= MANY_BYTES:
                last = self._outbox.put_many(gathered, size)
                gathered, size = [], 0
        return self._outbox.put_many(gathered, size) if gathered else last

    def send_batch(self, batch: Batch) -> Receipt:
        """Send what a batch that was read holds, as it is; the receipt of its last message."""
        return self._outbox.put_columns(batch.columns, batch.count).of(batch.count - 1)

    def send_arrow(self, rows: "pyarrow.RecordBatch") -> Receipt:
        """Send a record batch with a column `body`, and `key` and `headers` if it has them; the
        receipt of its last row."""
        if not hasattr(rows, "num_rows"):
            raise TypeError(
                f"send_arrow takes a pyarrow.RecordBatch (pip install samcast[arrow]), not"
                f" {type(rows).__name__}"
            )
        first = self._outbox.put_columns(columns_from_arrow(rows), rows.num_rows)
        return first.of(rows.num_rows - 1)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent is confirmed."""
        self._outbox.flush(timeout)


class NamedSender(Sending):
    """A sender that outlives its process: after a crash, go on with message `sent_before + 1`."""

    def __init__(self, engine: Engine, group: int, name: str) -> None:
        super().__init__(engine, group, name)
        self._await_open(name)

    @property
    def sent_before(self) -> int:
        """Messages of this name that are in the group since before this process opened it."""
        return self._outbox.sent_before


class Group(Sending):
    """A group: everybody who reads it sees the same messages under the same numbers."""

    def __init__(self, engine: Engine, name: str, number: int) -> None:
        super().__init__(engine, number, "")
        self.name = name
        self.id = number

    def __repr__(self) -> str:
        return f"<samcast group {self.name!r}>"

    def sender(self, name: str) -> NamedSender:
        """A named sender: its messages are numbered once, whatever crashes and is sent again."""
        check_name(name, "a sender's name")
        return NamedSender(self._engine, self.id, name)

    def head(self) -> int:
        """The number of the newest message."""
        try:
            return self._engine.call(self._engine.head(self.id), OPEN_S)
        except TimeoutError:
            raise self._untold() from None

    def oldest(self) -> int:
        """The number of the oldest message that is still there."""
        return self.checkpoints().collected + 1

    def checkpoints(self) -> Checkpoints:
        """What is advertised of this group's states, and from where on its messages are there."""
        try:
            return self._engine.call(self._engine.checkpoints(self.id), OPEN_S)
        except TimeoutError:
            raise self._untold() from None

    def _untold(self) -> WaitTimeoutError:
        return WaitTimeoutError(
            f"no node told within {OPEN_S:.0f} s what there is of {self.name!r}"
        )

    def keep(
        self,
        *,
        count: int | None = None,
        size: int | None = None,
        age: float | None = None,
        checkpointed: bool = False,
    ) -> None:
        """From now on keep the newest messages only: so many, so many bytes, so many seconds old,
        whichever is least; with nothing said, all of them for ever. `checkpointed`: those that are
        not in two checkpoints. Of a group with a fold these stay in any case."""
        wanted = (bound(count, "count"), bound(size, "size"), bound(age, "age", 1000))
        self.change_keep(lambda keep: bounded(keep, *wanted, checkpointed))

    def fold(
        self, fold: str | None, version: int = 1, *, every: int = 0, by_jobs: bool = False
    ) -> None:
        """Have checkpoints made by an installed fold, every so many messages (0: as is usual), or,
        by None, no more. No message goes by it, but checkpoints of another fold are void."""
        if fold != "table" and self.name.startswith(TABLES):
            raise ConfigError(f"{self.name!r} is a table, which is what its fold makes of it")
        said = (version, every, by_jobs)
        self.change_keep(lambda keep: folded(keep, fold, *said) if fold else unfolded(keep))

    def change_keep(self, changed: Callable[[Keep], Keep]) -> None:
        """The same for any of the settings, from what they are; nobody else's change is undone."""
        for _ in range(KEEP_TRIES):
            before = self.checkpoints().keep
            keep = changed(before)
            if keep == before:
                return
            request = KeepRequest(self.id, keep, before)
            outcome = self._engine.call(self._engine.propose(request), OPEN_S)
            if outcome.kind is OutcomeKind.DONE:
                return
        raise RefusedError(
            f"group {self.name!r}: others change what stays of it at the same time; look at it"
            " (`samcast group keep`), and try again"
        )

    def set_keep(self, keep: Keep) -> None:
        """The same, whatever it was before."""
        self.change_keep(lambda _: keep)

    def lease(self, name: str, number: int = 0, *, ttl: float = LEASE_S) -> "Lease":
        """Have all messages above a number stay until you `advance` or `release` the lease, or do
        neither for `ttl` seconds. The name makes it yours again after a restart."""
        check_name(name, "a lease's name")
        if ttl is None:
            raise ConfigError("ttl is None; a lease lasts for some seconds")
        return Lease(self._engine, self.id, name, number, bound(ttl, "ttl", 1000))

    def read(
        self,
        start: Start = OLDEST,
        *,
        count: int | None = None,
        timeout: float | None = None,
        archive: "str | Path | None" = None,
        record: "str | Path | None" = None,
    ) -> Iterator[Message]:
        """Messages from number `start` on ("oldest": all that there are; None: only new ones), for
        ever or so many, until none came for `timeout` seconds. What is gone here and was archived
        comes from the archive's folder. What was delivered is noted in the file `record`, for an
        audit."""
        check_count(count)
        if archive is not None and record is not None:
            raise ConfigError("what comes from an archive is not recorded: leave one of them out")
        if archive is not None:
            from samcast.client.history import read_through

            return read_through(self, Path(archive), start, count, timeout)
        first = self.first_of(start)
        begin = [first]
        batches = self._batches(begin, timeout)
        if record is not None:
            recorder = Recorder(Path(record), self._engine.identity, self.name)
            if not first and recorder.number_next:
                raise ConfigError(
                    f"{record} goes up to message {recorder.number_next - 1}: say from where on to"
                    f" read (start={recorder.number_next}), or name another record"
                )
            batches = recorder.recorded(batches)
        return self._messages(begin, count, batches)

    def read_batches(
        self, start: Start = OLDEST, *, timeout: float | None = None
    ) -> Iterator[tuple[int, Batch]]:
        """The same in batches: first number and content. The first one may begin before `start`, or
        before the oldest message: batches are whole."""
        return self._batches([self.first_of(start)], timeout)

    def first_of(self, start: Start) -> int:
        """Known when a reader is made, not when it is first used: `None` means now. 0: oldest."""
        if start is None:
            return self.head() + 1
        if start == OLDEST:
            return 0
        if not isinstance(start, int) or start < 1:
            raise ConfigError(
                f"numbers are from 1 on; you can't read from {start!r} (a number, 'oldest', or None"
                " for new messages)"
            )
        return start

    def _messages(
        self, begin: list[int], count: int | None, batches: Iterator[tuple[int, Batch]]
    ) -> Iterator[Message]:
        taken = 0
        while count is None or taken < count:
            if (found := next(batches, None)) is None:
                return
            number_first, batch = found
            messages = messages_from(number_first, batch)[max(0, begin[0] - number_first) :]
            messages = messages if count is None else messages[: count - taken]
            taken += len(messages)
            yield from messages

    def _batches(self, begin: list[int], timeout: float | None) -> Iterator[tuple[int, Batch]]:
        """From a number on; which one it is in the end (0: the oldest) is told in its place."""
        try:
            at, inbox = self._engine.call(self._engine.open_reader(self.id, begin[0]), OPEN_S)
        except TimeoutError:
            raise self._untold() from None
        try:
            while (runs := inbox.take(timeout)) is not None:
                begin[0] = inbox.first
                self._engine.wake(inbox.ask_for_more)
                yield from runs
            if not self._engine.is_connected:
                raise NotConnectedError(
                    f"no node answers, so nobody knows whether there is more in {self.name!r}"
                )
        finally:
            if not self._engine.is_closed:
                self._engine.call(self._engine.close_reader(at), OPEN_S)
