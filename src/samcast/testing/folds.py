"""Trying a fold of your own before a cluster relies on it.

    check_fold(Totals(), [(b"apples", b"3"), (b"pears", b"4"), (b"apples", b"5")])

Engines merge as much at a time as suits them, so a fold must come to the same state whatever is put
together with what. Here it is tried in many ways, and a `FoldError` says where two of them differ.
"""

import random
from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa

from samcast.checkpoint.applying import fold_in
from samcast.checkpoint.columns import Columns
from samcast.checkpoint.folds import Fold
from samcast.checkpoint.merging import living, merged, rows_of
from samcast.checkpoint.rows import MESSAGES
from samcast.errors import FoldError
from samcast.group.table import Table

State = dict[bytes, bytes]


def check_fold(fold: Fold, messages: Sequence[tuple[bytes, bytes]], tries: int = 100) -> State:
    """The state that messages, each a key and a body, come to; a `FoldError` if that depends on how
    they are put together."""
    table = _table(messages)
    expected = _at_once(fold, table)
    for seed in range(tries):
        cuts = _cuts(random.Random(seed), len(messages))
        for how in (_one_after_the_other, _apart):
            found = how(fold, table, cuts)
            if found != expected:
                raise _differing(fold, expected, found, cuts)
    return expected


def _table(messages: Sequence[tuple[bytes, bytes]]) -> pa.Table:
    count = len(messages)
    columns = {
        "number": range(1, count + 1),
        "sent_ms": [0] * count,
        "key": [key for key, _ in messages],
        "headers": [b""] * count,
        "body": [body for _, body in messages],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in MESSAGES]
    return pa.Table.from_arrays(arrays, schema=MESSAGES)


def _cuts(chance: random.Random, count: int) -> list[int]:
    inner = range(1, count)
    return [*sorted(chance.sample(inner, chance.randint(0, min(8, len(inner))))), count]


def _differing(fold: Fold, expected: State, found: State, cuts: Sequence[int]) -> FoldError:
    key = min(key for key in {*found, *expected} if found.get(key) != expected.get(key))
    return FoldError(
        f"fold {fold.name!r} is not associative: key {key!r} is {expected.get(key)!r} if all is"
        f" merged at once, and {found.get(key)!r} in portions that end with messages"
        f" {', '.join(map(str, cuts))}"
    )


def _at_once(fold: Fold, messages: pa.Table) -> State:
    state = Columns(fold)
    state.take(messages)
    return _state(state.rows())


def _one_after_the_other(fold: Fold, messages: pa.Table, cuts: Sequence[int]) -> State:
    """As a server does it."""
    table = Table()
    for first, end in pairwise([0, *cuts]):
        fold_in(fold, table, messages.slice(first, end - first))
    found = ((key, table.get(key)) for key in table.keys())  # noqa: SIM118 - not a dict
    return {key: row.value for key, row in found if row is not None}


def _apart(fold: Fold, messages: pa.Table, cuts: Sequence[int]) -> State:
    """As tasks of a job may do it, before anybody puts together what they have made."""
    portions = [messages.slice(first, end - first) for first, end in pairwise([0, *cuts])]
    parts = [merged(fold, rows_of(fold, portion)[0]) for portion in portions]
    return _state(living(merged(fold, pa.concat_tables(parts))))


def _state(rows: pa.Table) -> State:
    return dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
