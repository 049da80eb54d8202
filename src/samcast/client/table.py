"""A replicated table: every process holds all of it, and nobody can make two of them differ.

Writes are messages of a group; each process folds them in as they come, so reads are local and
cost what a dict costs. How current they are is the reader's choice.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from samcast.client.inbox import messages_from
from samcast.client.joining import Progress, fetch_table, nobody_looks
from samcast.client.lease import check_number
from samcast.client.outbox import Receipt
from samcast.client.watch import Watch
from samcast.errors import (
    CheckpointAbsentError,
    ClientError,
    CollectedError,
    ConfigError,
    NotConnectedError,
    OutcomeUnknownError,
    WaitTimeoutError,
)
from samcast.group.table import Changed, Row, Table
from samcast.wire.order import Keep
from samcast.wire.retention import Checkpoints
from samcast.wire.table import KEY_BYTES_MAX, Change, Check, Delete, Put, encode_change

if TYPE_CHECKING:
    from samcast.client.blocking import Group

WAIT_S = 30.0
AGAIN_S = 0.2
TRIES = 3  # to fetch a checkpoint where that is only the faster way, or another way ends it
STALLED_S = 120.0  # without a block of any checkpoint, after which a table gives up
TWINS_MAX = 100  # equal changes of others that are told from ours while we wait
CHECKPOINT_EVERY = 50_000  # changes, or later

Text = bytes | str


class ReplicatedTable:
    """One table, as this process holds it. Threads may share it."""

    def __init__(
        self,
        group: "Group",
        name: str,
        progress: Progress = nobody_looks,
        checkpoint_every: int = CHECKPOINT_EVERY,
    ) -> None:
        self.name = name
        self._group = group
        self._progress = progress
        self._checkpoint_every = checkpoint_every
        self._moved = threading.Condition()
        self._table = Table()
        self._awaited: dict[bytes, Outcomes] = {}  # by the bodies of ours that are under way
        self._watches: list[Watch] = []
        self._moved_at = 0.0  # when something of a checkpoint came last
        self._problem: ClientError | None = None
        self._written: Receipt | None = None  # our newest, until it is seen here
        self._following = threading.Thread(target=self._follow, name=f"table {name}", daemon=True)
        self._following.start()

    def __repr__(self) -> str:
        return f"<samcast table {self.name!r}, {len(self)} keys at {self.number}>"

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, key: Text) -> bool:
        return self.row(key) is not None

    def __getitem__(self, key: Text) -> bytes:
        row = self.row(key)
        if row is None:
            raise KeyError(key)
        return row.value

    def __iter__(self) -> Iterator[bytes]:
        return iter([key for key, _ in self.items()])

    @property
    def has_failed(self) -> bool:
        """Whether it has stopped following."""
        return self._problem is not None

    @property
    def number(self) -> int:
        """Up to which message this process has folded them in."""
        return self._table.number

    def content_hash(self) -> str:
        """Equal in two processes that are at the same number."""
        with self._moved:
            return self._table.content_hash()

    def _follow(self) -> None:
        try:
            while True:
                self._begin()
                try:
                    self._read()
                except CollectedError:  # So far behind that only a checkpoint helps.
                    time.sleep(AGAIN_S)
        except ClientError as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 - told to whoever uses the table next
            self._end(ClientError(f"table {self.name!r} stopped following: {error!r}"))

    def _read(self) -> None:
        for number_first, batch in self._group.read_batches(self._table.number + 1):
            with self._moved:
                for message in messages_from(number_first, batch):
                    if message.number > self._table.number:
                        self._fold(message.number, message.body)
                self._moved.notify_all()

    def _begin(self) -> None:
        """With the newest checkpoint, if it is further than we are. One that is superseded while it
        is fetched is no reason to give up, however often: only if nothing comes at all."""
        misses = 0
        self._moved_at = time.monotonic()
        while True:
            there = self._group.checkpoints()
            if not there.keep.fold:
                self._group.change_keep(self._with_fold)
            is_needed = self._table.number < there.collected
            newest = there.checkpoints[-1] if there.checkpoints else None
            if newest is None or newest.number <= self._table.number:
                return
            try:
                table = fetch_table(self._group.engine, self._group.id, newest, self._on_rows)
            except ClientError as error:
                misses += 1
                if self._group.engine.is_closed:
                    raise
                if misses >= TRIES and not is_needed:
                    return  # All messages are there: they take longer, that is all.
                self._see_whether_stalled(error, misses)
                time.sleep(AGAIN_S)
                continue
            with self._moved:
                self._table = table
                for watch in self._watches:
                    watch.lose()
                self._moved.notify_all()
            return

    def _on_rows(self, rows: int, of: int) -> None:
        self._moved_at = time.monotonic()
        self._progress(rows, of)

    def _see_whether_stalled(self, error: ClientError, misses: int) -> None:
        if not isinstance(error, NotConnectedError | CheckpointAbsentError):
            if misses >= TRIES:
                raise error
        elif time.monotonic() - self._moved_at > STALLED_S:
            raise WaitTimeoutError(
                f"table {self.name!r}: its first messages are gone, and nothing of any checkpoint"
                f" has come for {STALLED_S:.0f} s ({misses} tries; the last: {error}); open it"
                " again when its checkpoint servers answer"
            ) from error

    def _with_fold(self, keep: Keep) -> Keep:
        if keep.fold:
            return keep
        bounds = (keep.count, keep.size, keep.age_ms)
        return Keep(*bounds, "table", 1, self._checkpoint_every)

    def close(self) -> None:
        """Called with its client: from now on it is of the past, and says so."""
        self._end(NotConnectedError("this client is closed; connect again"))

    def _end(self, problem: ClientError) -> None:
        with self._moved:
            self._problem = self._problem or problem
            self._moved.notify_all()

    def _fold(self, number: int, body: bytes) -> None:
        changed = self._table.apply(number, body)
        if self._awaited and body in self._awaited:
            self._awaited[body].note(number, self._table.effective == number)
        if changed is not None:
            for watch in self._watches:
                watch.add(changed)

    # reading

    def wait_for(self, number: int, timeout: float = WAIT_S) -> None:
        """Until this process has folded in the message of a number."""
        with self._moved:
            is_there = self._moved.wait_for(
                lambda: self._table.number >= number or self._problem is not None, timeout
            )
            if self._table.number >= number:
                return
            if self._problem is not None:
                raise self._problem
        if not is_there:
            raise WaitTimeoutError(
                f"table {self.name!r} is at {self.number} after {timeout:.0f} s, not at {number}"
            )

    def sync(self, timeout: float = WAIT_S) -> int:
        """Until all that was confirmed to anybody before this call is here; the number."""
        number = self._send(Change((), (), _clock_ms())).number(timeout)
        self.wait_for(number, timeout)
        return number

    def get(
        self, key: Text, default: bytes | None = None, *, at_least: int = 0, fresh: bool = False
    ) -> bytes | None:
        """A key's value as this process knows it; with `at_least`, not before that number is here;
        `fresh`: nothing older than this call."""
        row = self.row(key, at_least=at_least, fresh=fresh)
        return row.value if row is not None else default

    def row(self, key: Text, *, at_least: int = 0, fresh: bool = False) -> Row | None:
        """The same with the number that gave the value."""
        if self._problem is not None:
            raise self._problem
        if fresh:
            self.sync()
        elif at_least > self._table.number:
            self.wait_for(at_least)
        if self._written is not None:
            self._see_own_writes()
        return self._table.get(_key(key))

    def _see_own_writes(self) -> None:
        """What was confirmed to us is here before we read."""
        written = self._written
        if written is not None and written.is_confirmed:
            self.wait_for(written.number(0))
            self._written = None

    def items(self, first: Text = b"", end: Text | None = None) -> list[tuple[bytes, bytes]]:
        """Keys and values from `first` on, in order, below `end`; all of one number."""
        if self._problem is not None:
            raise self._problem
        self._see_own_writes()
        with self._moved:
            return _items(self._table, first, end)

    def as_of(self, number: int) -> "PastTable":
        """The table as it was at a number, from the group's messages."""
        check_number(number)
        newest = max(self.number, self._group.head())  # The cluster may know of more than we do.
        if not 0 <= number <= newest:
            raise ConfigError(
                f"table {self.name!r} has no message {number}; its newest is {newest}"
            )
        return PastTable(self._table_at(number))

    def _table_at(self, number: int) -> Table:
        """From the newest checkpoint up to there, or from the first message."""
        for _ in range(TRIES):
            with contextlib.suppress(CheckpointAbsentError):  # It was superseded meanwhile.
                return self._table_from(self._group.checkpoints(), number)
            time.sleep(AGAIN_S)
        return self._table_from(self._group.checkpoints(), number)

    def _table_from(self, there: Checkpoints, number: int) -> Table:
        before = [found for found in there.checkpoints if found.number <= number]
        if before:
            table = fetch_table(self._group.engine, self._group.id, before[-1])
        elif there.collected:
            oldest = there.checkpoints[0].number if there.checkpoints else there.collected + 1
            raise CollectedError(
                f"what table {self.name!r} was at {number} is gone; the oldest state is {oldest}"
            )
        else:
            table = Table()
        for message in self._group.read(table.number + 1, count=number - table.number):
            table.apply(message.number, message.body)
        return table

    def watch(self, key: Text | None = None) -> Watch:
        """Changes from now on, of one key or of all; a context manager and an iterator."""
        return Watch(self, None if key is None else _key(key))

    def changes(self, after: int, key: Text | None = None) -> Iterator[Changed]:
        """Changes after a number, of one key or of all, then as they come; for who was away. It
        keeps a table of its own, to tell which messages took effect."""
        wanted = None if key is None else _key(key)
        table = self._table_at(after)
        for message in self._group.read(table.number + 1):
            for changed in table.apply(message.number, message.body) or ():
                if wanted is None or changed.key == wanted:
                    yield changed

    # writing

    def _send(self, change: Change) -> Receipt:
        return self._send_body(encode_change(change))

    def _send_body(self, body: bytes) -> Receipt:
        self._written = self._group.send(body)
        return self._written

    def put(self, key: Text, value: Text, *, ttl: float | None = None) -> Receipt:
        """Set a key, for so many seconds if that is said; `.number()` waits until it is done."""
        return self._send(Change((_put(key, value, ttl),), (), _clock_ms()))

    def delete(self, key: Text) -> Receipt:
        """Remove a key."""
        return self._send(Change((Delete(_key(key)),), (), _clock_ms()))

    @contextlib.contextmanager
    def batch(self) -> Iterator["Writes"]:
        """Writes that take effect together, when the block is left without an error."""
        writes = Writes()
        yield writes
        if writes.made or writes.checks:
            writes.number = self._effect_of(
                Change(tuple(writes.made), tuple(writes.checks), _clock_ms())
            )

    def compare_and_set(
        self, key: Text, expected: Text | None, value: Text | None, *, ttl: float | None = None
    ) -> int:
        """Set a key, or remove it (None), if it holds what is expected (None: nothing); the number
        of the change, 0 if it held something else. An `OutcomeUnknownError` says neither."""
        name = _key(key)
        wanted = None if expected is None else _bytes(expected)
        write = Delete(name) if value is None else _put(name, value, ttl)
        is_fresh = False
        while True:
            row = self._table.get(name)
            if (row.value if row is not None else None) != wanted:
                if is_fresh:
                    return 0
                self.sync()
                is_fresh = True
                continue
            check = Check(name, row.number if row is not None else 0)
            number = self._effect_of(Change((write,), (check,), _clock_ms()))
            if number:
                return number
            is_fresh = True  # Waiting for the outcome has brought us all that was before it.

    def _effect_of(self, change: Change) -> int:
        """Send it, and see what it did: its number, 0 if it had no effect. What is folded in before
        we hear its number is known by its body, so nothing else needs to be remembered."""
        body = encode_change(change)
        with self._moved:
            outcomes = self._awaited.setdefault(body, Outcomes())
            outcomes.waiting += 1
        try:
            number = self._send_body(body).number(WAIT_S)
            self.wait_for(number)
            with self._moved:
                is_done = outcomes.known.get(number)
                if is_done is None and self._shows(change, number):
                    is_done = True
        finally:
            with self._moved:
                outcomes.waiting -= 1
                if not outcomes.waiting:
                    del self._awaited[body]
        if is_done is None:
            raise OutcomeUnknownError(
                f"table {self.name!r} was so far behind that it went on from a checkpoint, past"
                f" message {number}: nobody here has seen whether it took effect. Read the key"
                " (fresh=True) and decide by what it holds"
            )
        return number if is_done else 0

    def _shows(self, change: Change, number: int) -> bool:
        """Whether a value that the change has put is still there: then it took effect."""
        puts = [write.key for write in change.writes if isinstance(write, Put)]
        rows = [self._table.get(key) for key in puts]
        return any(row is not None and row.number == number for row in rows)

    # for watches

    def _add_watch(self, watch: Watch) -> None:
        with self._moved:
            self._watches.append(watch)

    def _remove_watch(self, watch: Watch) -> None:
        with self._moved:
            self._watches.remove(watch)

    def _wait_for_any(self, watch: Watch, timeout: float | None) -> None:
        with self._moved:
            self._moved.wait_for(lambda: watch.is_ready or self._problem is not None, timeout)

    def _next_of(self, watch: Watch, timeout: float | None) -> Changed | None:
        with self._moved:
            self._wait_for_any(watch, timeout)
            if watch.is_ready:
                return watch.take()
            if self._problem is not None:
                raise self._problem
            return None


class Outcomes:
    """What became of changes with one body, some of which are ours."""

    def __init__(self) -> None:
        self.waiting = 0  # threads
        self.known: dict[int, bool] = {}  # by number: whether it took effect

    def note(self, number: int, is_effective: bool) -> None:
        """One of them is folded in."""
        self.known[number] = is_effective
        if len(self.known) > TWINS_MAX:
            del self.known[next(iter(self.known))]


class PastTable:
    """What a table held at some number."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.number = table.number

    def __len__(self) -> int:
        return len(self._table)

    def get(self, key: Text, default: bytes | None = None) -> bytes | None:
        """A key's value then."""
        row = self.row(key)
        return row.value if row is not None else default

    def row(self, key: Text) -> Row | None:
        """The same with the number that gave it."""
        return self._table.get(_key(key))

    def items(self, first: Text = b"", end: Text | None = None) -> list[tuple[bytes, bytes]]:
        """Keys and values from `first` on, in order, below `end`."""
        return _items(self._table, first, end)

    def content_hash(self) -> str:
        """Equal for equal content."""
        return self._table.content_hash()


class Writes:
    """What a batch is to do."""

    def __init__(self) -> None:
        self.made: list[Put | Delete] = []
        self.checks: list[Check] = []
        self.number = 0  # once it is done; 0: a check didn't hold, so nothing was

    def put(self, key: Text, value: Text, *, ttl: float | None = None) -> None:
        """Set a key."""
        self.made.append(_put(key, value, ttl))

    def delete(self, key: Text) -> None:
        """Remove a key."""
        self.made.append(Delete(_key(key)))

    def check(self, key: Text, number: int) -> None:
        """Only if the key was last changed by this number (0: there is no such key)."""
        self.checks.append(Check(_key(key), check_number(number)))


def _items(table: Table, first: Text, end: Text | None) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    for key in table.keys(_bytes(first), None if end is None else _bytes(end)):
        row = table.get(key)
        assert row is not None
        found.append((key, row.value))
    return found


def _bytes(text: Text) -> bytes:
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, bytes):
        return text
    raise TypeError(f"keys and values are bytes or str, not {type(text).__name__}")


def _key(key: Text) -> bytes:
    name = _bytes(key)
    if len(name) > KEY_BYTES_MAX:
        raise ConfigError(f"a key of {len(name)} bytes; it has at most {KEY_BYTES_MAX}")
    return name


def _put(key: Text, value: Text, ttl: float | None) -> Put:
    if ttl is not None and (not isinstance(ttl, int | float) or not 0.001 <= ttl <= 1e9):
        raise ConfigError(f"ttl is {ttl!r} s; it must be at least a millisecond")
    return Put(_key(key), _bytes(value), 0 if ttl is None else int(ttl * 1000))


def _clock_ms() -> int:
    return int(time.time() * 1000)
