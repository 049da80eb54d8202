"""What a table says of its own conditional writes, against a naive model: readers are made to skip
messages by checkpoints, their own among them."""

import itertools
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from samcast.client import table as module
from samcast.client.recipes import Lock
from samcast.client.table import ReplicatedTable
from samcast.errors import (
    CheckpointAbsentError,
    ClientError,
    CollectedError,
    NotConnectedError,
    OutcomeUnknownError,
    WaitTimeoutError,
)
from samcast.group.table import Table
from samcast.wire.batch import Batch, Message, columns_from_messages, make_batch
from samcast.wire.order import Checkpoint, Keep, unnamed_sender
from samcast.wire.retention import Checkpoints
from samcast.wire.table import Change, Put, decode_change, encode_change

KEYS = (b"a", b"b", b"c")
SENDER = unnamed_sender(bytes(16))


def batch_of(body: bytes) -> Batch:
    return make_batch(
        group=1, sender=SENDER, incarnation=1, counter_first=1, count=1, birth=0, confirmed_below=0,
        seen=0, sent_ms=0, configuration=1, columns=columns_from_messages([Message(body)]),
    )  # fmt: skip


class Log:
    """A group's messages, for all tables of a test."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.grown = threading.Condition()
        self.is_over = False

    def add(self, body: bytes) -> int:
        with self.grown:
            self.bodies.append(body)
            self.grown.notify_all()
            return len(self.bodies)

    def end(self) -> None:
        with self.grown:
            self.is_over = True
            self.grown.notify_all()

    def table_at(self, number: int) -> Table:
        table = Table()
        for at, body in enumerate(self.bodies[:number], 1):
            table.apply(at, body)
        return table

    def effective(self) -> set[int]:
        """Which messages took effect, as simply as that can be said."""
        rows: dict[bytes, tuple[int, int]] = {}  # number and end
        clock_ms, found = 0, set()
        for number, body in enumerate(self.bodies, 1):
            change = decode_change(body)
            clock_ms = max(clock_ms, change.clock_ms)
            rows = {k: row for k, row in rows.items() if not row[1] or row[1] > clock_ms}
            if any(rows.get(c.key, (0, 0))[0] != c.number for c in change.checks):
                continue
            found.add(number)
            for write in change.writes:
                rows.pop(write.key, None)
                if isinstance(write, Put):
                    ends = clock_ms + write.ttl_ms if write.ttl_ms else 0
                    rows[write.key] = (number, ends)
        return found


class Sent:
    """A receipt of what is in the log."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.is_confirmed = True

    def number(self, timeout: float | None = None) -> int:
        return self._number


class GroupOf:
    """A group as a table uses it; its reader skips what is there now and then, if `skips` says so,
    or all that comes while it is held."""

    name, id, engine = "table/t", 1, SimpleNamespace(is_closed=False)

    def __init__(self, log: Log, skips: random.Random | None = None) -> None:
        self.log = log
        self.sent: list[int] = []
        self._skips = skips
        self._is_held = self._is_to_skip = False

    def hold(self) -> None:
        with self.log.grown:
            self._is_held = True

    def skip(self) -> None:
        with self.log.grown:
            self._is_held, self._is_to_skip = False, True
            self.log.grown.notify_all()

    def send(self, body: bytes) -> Sent:
        number = self.log.add(body)
        self.sent.append(number)
        return Sent(number)

    def checkpoints(self) -> Checkpoints:
        head = len(self.log.bodies)
        there = (Checkpoint(head, 0, 0, bytes(32)),) if head else ()
        return Checkpoints(1, head, Keep(0, 0, 0, "table", 1, 10), there, head)

    def read_batches(self, first: int) -> Iterator[tuple[int, Batch]]:
        log = self.log
        while True:
            with log.grown:
                while not log.is_over and (len(log.bodies) < first or self._is_held):
                    log.grown.wait()
                if log.is_over:
                    raise OutcomeUnknownError("the test is over")
                body = log.bodies[first - 1]
                is_to_skip, self._is_to_skip = self._is_to_skip, False
            if is_to_skip or (self._skips is not None and self._skips.random() < 0.3):
                raise CollectedError("skipped")
            yield first, batch_of(body)
            first += 1


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    made = Log()

    def fetch_table(_: Any, __: int, checkpoint: Checkpoint, ___: Any = None) -> Table:
        return made.table_at(checkpoint.number)

    monkeypatch.setattr(module, "fetch_table", fetch_table)
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    yield made
    made.end()


def table_on(log: Log, skips: random.Random | None = None) -> tuple[ReplicatedTable, GroupOf]:
    group = GroupOf(log, skips)
    return ReplicatedTable(group, "t"), group  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_done_is_never_said_of_what_had_no_effect_nor_the_opposite(log: Log, seed: int) -> None:
    said: list[tuple[int | None, list[int]]] = []

    def work(turn: int) -> None:
        chance = random.Random(f"{seed} {turn}")
        table, group = table_on(log, random.Random(f"skips {seed} {turn}"))
        for at in range(60):
            key = chance.choice(KEYS)
            row = table.row(key)
            expected = row.value if row is not None and chance.random() < 0.9 else None
            value = None if chance.random() < 0.2 else b"%d-%d" % (turn, at)
            ttl = chance.choice([None, None, 0.001])
            before = len(group.sent)
            number: int | None
            try:
                number = table.compare_and_set(key, expected, value, ttl=ttl)
            except OutcomeUnknownError:
                number = None
            said.append((number, group.sent[before:]))

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(work, turn) for turn in range(3)]:
            done.result()
    effective = log.effective()
    checked = [decode_change(body).checks != () for body in log.bodies]
    for number, sent in said:
        if number is not None:
            took = [n for n in sent if n in effective and checked[n - 1]]
            assert took == ([number] if number else [])
    numbers = [number for number, _ in said]
    assert None in numbers
    assert 0 in numbers
    assert any(numbers)


def skipped(group: GroupOf, call: Any, meanwhile: Any, log: Log) -> Any:
    """Call something whose message is skipped by its own reader, together with what is sent before
    and after it."""
    group.hold()
    before, after = meanwhile
    if before is not None:
        log.add(before)
    at = len(log.bodies)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(call)
        with log.grown:
            assert log.grown.wait_for(lambda: len(log.bodies) > at, 10)
        if after is not None:
            log.add(after)
        group.skip()
        return done.result(30)


def put(key: bytes, value: bytes, ttl_ms: int = 0) -> bytes:
    return encode_change(Change((Put(key, value, ttl_ms),)))


def test_an_outcome_that_was_skipped_is_unknown(log: Log) -> None:
    table, group = table_on(log)
    table.put("k", "old").number()
    table.sync()
    with pytest.raises(OutcomeUnknownError, match=r"past message 4.*Read the key"):
        skipped(
            group, lambda: table.compare_and_set("k", b"old", b"mine"), (put(b"k", b"x"), None), log
        )
    assert table.get("k") == b"x"
    # What shows in the table is done, whoever has seen it.
    assert skipped(group, lambda: table.compare_and_set("k", b"x", b"mine"), (None, None), log) == 5
    with pytest.raises(OutcomeUnknownError):
        skipped(
            group, lambda: table.compare_and_set("k", b"mine", b"2"), (None, put(b"k", b"x")), log
        )


def test_a_batch_whose_outcome_was_skipped_is_unknown(log: Log) -> None:
    table, group = table_on(log)

    def work() -> int:
        with table.batch() as writes:
            writes.check("k", 0)
            writes.delete("other")
        return writes.number

    table.sync()
    with pytest.raises(OutcomeUnknownError):
        skipped(group, work, (put(b"k", b"x"), None), log)
    assert not table._awaited


def test_a_check_that_fails_has_no_effect_though_something_ends_with_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(1000, 10)
    monkeypatch.setattr(module, "_clock_ms", lambda: next(clock))
    table, _ = table_on(log)
    table.put("k", "there").number()
    table.put("ending", "x", ttl=0.005).number()
    with table.batch() as writes:
        writes.check("k", 99)
        writes.put("other", "x")
    assert writes.number == 0
    assert table.items() == [(b"k", b"there")]


def test_a_lock_is_held_by_who_sees_it_after_a_skip(log: Log) -> None:
    table, group = table_on(log)
    table.sync()
    lock = Lock(table, "l")
    assert skipped(group, lambda: lock.acquire(30), (None, None), log) == 2
    skipped(group, lock.release, (None, None), log)
    table.sync()
    assert table.get("l") is None
    theirs = put(b"l", b"somebody else's")
    with pytest.raises(WaitTimeoutError, match="is held by another"):
        skipped(group, lambda: lock.acquire(0.1), (theirs, None), log)
    assert lock.number == 0


def test_a_table_that_chases_checkpoints_goes_on_as_long_as_something_comes(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.add(put(b"k", b"there"))
    left = [CheckpointAbsentError("superseded"), NotConnectedError("silent")] * 5
    fetched: Any = vars(module)["fetch_table"]

    def chasing(engine: Any, group: int, checkpoint: Checkpoint, progress: Any) -> Table:
        if left:
            raise left.pop()
        return fetched(engine, group, checkpoint)  # type: ignore[no-any-return]

    monkeypatch.setattr(module, "fetch_table", chasing)
    table, _ = table_on(log)
    table.wait_for(1)
    assert table.get("k") == b"there"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (CheckpointAbsentError("no server has it"), "nothing of any checkpoint has come.*has it"),
        (ClientError("pip install"), "pip install"),
    ],
)
def test_a_table_that_gets_nothing_says_so(
    log: Log, monkeypatch: pytest.MonkeyPatch, error: ClientError, told: str
) -> None:
    log.add(put(b"k", b"there"))

    def fails(*_: Any) -> Table:
        raise error

    monkeypatch.setattr(module, "fetch_table", fails)
    monkeypatch.setattr(module, "STALLED_S", 0.0)
    table, _ = table_on(log)
    with pytest.raises(ClientError, match=told):
        table.wait_for(1)
