"""Folds as merges: the same state whatever is put together with what, and wherever."""

import random
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from samcast.checkpoint import columns
from samcast.checkpoint.applying import Applying, fold_in
from samcast.checkpoint.columns import Columns
from samcast.checkpoint.folds import AppendFold, Fold, LatestFold, TableFold
from samcast.checkpoint.rows import MESSAGES
from samcast.errors import FoldError
from samcast.group.table import INTERVAL, Table, next_due
from samcast.testing.folds import check_fold
from samcast.wire.batch import Batch, Message, columns_from_messages, make_batch
from samcast.wire.table import Change, Put, encode_change

State = list[tuple[bytes, bytes, int]]


class SumFold:
    """Sums by key; a body that is no number can't be taken."""

    name = "sum"
    version = 1

    def rows(self, messages: pa.Table) -> pa.Table:
        is_number = pc.match_substring_regex(messages["body"], "^-?[0-9]{1,18}$")
        key = pc.if_else(is_number, messages["key"], pa.scalar(None, pa.large_binary()))
        return pa.table({"key": key, "value": messages["body"], "number": messages["number"]})

    def merge(self, rows: pa.Table) -> pa.Table:
        amounts = rows["value"].cast(pa.large_string()).cast(pa.int64())
        sums = pa.table({"key": rows["key"], "amount": amounts}).group_by("key")
        found = sums.aggregate([("amount", "sum")])
        return pa.table({"key": found["key"], "value": found["amount_sum"].cast(pa.string())})


class ForgettingFold(LatestFold):
    """The last body under each key; an empty one ends the key."""

    def rows(self, messages: pa.Table) -> pa.Table:
        rows = super().rows(messages)
        is_end = pc.equal(rows["value"], pa.scalar(b"", pa.large_binary()))
        value = pc.if_else(is_end, pa.scalar(None, pa.large_binary()), rows["value"])
        return rows.set_column(1, "value", value)


def sent(chance: random.Random, count: int) -> list[Message]:
    return [
        Message(chance.choice([b"%d" % chance.randrange(-50, 50), b"", b"seven"]),
                b"key-%d" % chance.randrange(12))
        for _ in range(count)
    ]  # fmt: skip


def as_table(messages: list[Message], first: int = 1) -> pa.Table:
    lists = [
        list(range(first, first + len(messages))),
        [0] * len(messages),
        [message.key for message in messages],
        [message.headers for message in messages],
        [message.body for message in messages],
    ]
    arrays = [pa.array(one, kind) for one, kind in zip(lists, MESSAGES.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=MESSAGES)


def as_batch(messages: list[Message]) -> Batch:
    cells = columns_from_messages(messages)
    return make_batch(
        group=1, sender=bytes(16), incarnation=0, counter_first=1, count=len(messages), birth=0,
        confirmed_below=1, seen=0, sent_ms=0, configuration=1, columns=cells,
    )  # fmt: skip


def rows_of_table(table: Table) -> State:
    found = [(key, table.get(key)) for key in table.keys()]  # noqa: SIM118 - not a dict
    return [(key, row.value, row.number) for key, row in found if row is not None]


def last_bodies(messages: list[Message]) -> State:
    last = {message.key: (message.body, number) for number, message in enumerate(messages, 1)}
    return sorted((key, *row) for key, row in last.items())


def ended(messages: list[Message]) -> State:
    return [row for row in last_bodies(messages) if row[1]]


def sums(messages: list[Message]) -> State:
    found: dict[bytes, tuple[int, int]] = {}
    for number, message in enumerate(messages, 1):
        if message.body not in (b"", b"seven"):
            found[message.key] = (found.get(message.key, (0,))[0] + int(message.body), number)
    return sorted((key, b"%d" % row[0], row[1]) for key, row in found.items())


def everything(messages: list[Message]) -> State:
    return [
        (number.to_bytes(8, "big"), message.body, number)
        for number, message in enumerate(messages, 1)
    ]


FOLDS: list[tuple[Fold, Callable[[list[Message]], State]]] = [
    (LatestFold(), last_bodies), (ForgettingFold(), ended), (SumFold(), sums),
    (AppendFold(), everything),
]  # fmt: skip


@pytest.mark.req("GRP-15", "PIP-04")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("fold", "expected"), FOLDS, ids=lambda one: getattr(one, "name", ""))
def test_all_engines_come_to_the_state_that_the_messages_make(
    monkeypatch: pytest.MonkeyPatch,
    fold: Fold,
    expected: Callable[[list[Message]], State],
    seed: int,
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(columns, "PORTION", chance.choice([1, 10, 1000]))
    messages = sent(chance, chance.randrange(1, 120))
    cuts = sorted(chance.sample(range(1, len(messages) + 1), min(5, len(messages))))
    server, column = Applying(fold, Table()), Columns(fold)
    first = 0
    for end in [*cuts, len(messages)]:
        if end > first:
            part = messages[first:end]
            server.take(first + 1, as_batch(part), end)
            column.take(as_table(part, first + 1))
            if chance.random() < 0.5:
                server.settle()
        first = end
    server.settle()
    assert rows_of_table(server.table) == expected(messages)
    assert (server.table.number, server.table.writes) == (len(messages), len(messages))
    found = column.rows().to_pydict()
    assert list(zip(found["key"], found["value"], found["number"], strict=True)) == expected(
        messages
    )


@pytest.mark.req("GRP-15", "PIP-04")
def test_what_a_fold_cant_take_is_counted_and_the_first_one_named() -> None:
    messages = [Message(b"1", b"a"), Message(b"one", b"a"), Message(b"2", b"a"), Message(b"", b"b")]
    server = Applying(SumFold(), Table())
    server.take(1, as_batch(messages), 4)
    server.settle()
    assert (server.refused, server.refused_first) == (2, 2)
    assert rows_of_table(server.table) == [(b"a", b"3", 3)]
    assert Columns(SumFold()).take(as_table(messages)) == [2, 4]
    table = Applying(TableFold(), Table())
    bodies = [encode_change(Change((Put(b"k", b"v"),))), b"no change"]
    table.take(1, as_batch([Message(body) for body in bodies]), 2)
    assert (table.refused, table.refused_first) == (1, 2)
    assert rows_of_table(table.table) == [(b"k", b"v", 1)]


class Wrong(LatestFold):
    """One that does whatever it is told."""

    def __init__(self, rows: Callable[[pa.Table], object], merge: Callable[[pa.Table], object]):
        self._rows, self._merge = rows, merge

    def rows(self, messages: pa.Table) -> pa.Table:
        return self._rows(super().rows(messages))

    def merge(self, rows: pa.Table) -> pa.Table:
        return self._merge(super().merge(rows))


def same(table: pa.Table) -> pa.Table:
    return table


def other_numbers(table: pa.Table) -> pa.Table:
    return table.set_column(2, "number", pc.add(table["number"], 1))


def fails(table: pa.Table) -> pa.Table:
    raise KeyError("colour")


@pytest.mark.req("GRP-15", "PIP-04")
@pytest.mark.parametrize(
    ("rows", "merge", "said"),
    [
        (fails, same, r"fold 'latest', messages 1 to 3: KeyError\('colour'\)"),
        (same, fails, "KeyError"),
        (lambda table: table.to_pylist(), same, "it gave a list, not an Arrow table"),
        (lambda table: table.drop_columns(["value"]), same, "no column value"),
        (other_numbers, same, "numbers of other messages"),
        (same, lambda table: table.slice(1), "one row for each key it was given: 2, and gave 1"),
        (same, lambda table: pa.concat_tables([table, table]), "and gave 4"),
        (lambda table: table.set_column(0, "key", table["number"]), same, "large_binary"),
    ],
)
def test_a_fold_that_gives_nonsense_is_named(
    rows: Callable[[pa.Table], object], merge: Callable[[pa.Table], object], said: str
) -> None:
    messages = as_table([Message(b"v", b"a"), Message(b"v", b"b"), Message(b"w", b"a")])
    with pytest.raises(FoldError, match=said):
        fold_in(Wrong(rows, merge), Table(), messages)


class ResettingFold(SumFold):
    """Sums since the last zero: what came before it is forgotten, but only if it is seen."""

    name = "resetting"

    def merge(self, rows: pa.Table) -> pa.Table:
        sums: dict[bytes, int] = {}
        for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
            sums[key] = sums.get(key, 0) + int(value) if int(value) else 0
        values = [b"%d" % total for total in sums.values()]
        return pa.table({"key": pa.array(sums, pa.binary()), "value": pa.array(values)})


@pytest.mark.req("GRP-15", "PIP-04")
def test_a_fold_can_be_tried_before_a_cluster_relies_on_it() -> None:
    messages = [(b"a", b"3"), (b"b", b"4"), (b"a", b"0"), (b"a", b"5"), (b"a", b"-5"), (b"a", b"2")]
    assert check_fold(SumFold(), messages) == {b"a": b"5", b"b": b"4"}
    with pytest.raises(FoldError, match="'resetting' is not associative: key b'a' is"):
        check_fold(ResettingFold(), messages)


@pytest.mark.req("GRP-15")
def test_where_a_checkpoint_may_be_due_next() -> None:
    assert next_due([(0, 10)], 1, 100) == (10, 10)
    assert next_due([(0, 10)], 10, 100) == (10, 10)
    assert next_due([(0, 10)], 11, 15) == (15, 0)
    assert next_due([(0, 10), (12, 5)], 11, 100) == (15, 5)  # from behind 12 on
    assert next_due([(0, 10), (12, 100)], 11, 90) == (90, 0)
    assert next_due([(0, 10), (20, 7)], 19, 100) == (20, 10)  # at 20 the old one counts
    assert next_due([], 1, 2 * INTERVAL) == (INTERVAL, INTERVAL)
