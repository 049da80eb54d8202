"""Folds by name and version: what makes a state of a group's messages.

A fold says which rows messages make, and how rows of one key become one. That merge is associative,
so every engine puts together as much at a time as suits it, in one process or in many, and all come
to the same state.

Folds are installed code and never come over the wire: three are built in, others are found among
the entry points `samcast.folds`, each a callable that makes a `Fold`.
"""

import sys
from array import array
from importlib.metadata import entry_points
from typing import Protocol

import pyarrow as pa

from samcast.checkpoint.rows import last_of_each
from samcast.errors import ConfigError

ENTRY_POINTS = "samcast.folds"


class Fold(Protocol):
    """Makes rows of messages. It must come to the same rows wherever it runs: no clock, no chance,
    nothing but what it has been given.

    A fold with `replaces = True` says that the last row of a key is all that counts: then rows that
    are there already needn't be looked up."""

    name: str
    version: int

    def rows(self, messages: pa.Table) -> pa.Table:
        """The rows (`key`, `value`, `number`) that messages make (columns `number`, `sent_ms`,
        `key`, `headers`, `body`, in the order of numbers). A null value says that the key is gone;
        a null key, that the message is nothing that this fold can take."""
        ...

    def merge(self, rows: pa.Table) -> pa.Table:
        """One row (`key`, `value`) for each key of `rows`, which are in the order of keys and, for
        one key, of numbers. Associative: what a merge made may be among the rows of the next."""
        ...


class TableFold:
    """The changes of a replicated table. Their conditions ask for the state at their number, so
    they are no merge: the table's own rules fold them (`group.table`), one after the other."""

    name = "table"
    version = 1


class LatestFold:
    """The last body under each key."""

    name = "latest"
    version = 1
    replaces = True

    def rows(self, messages: pa.Table) -> pa.Table:
        """Messages as they are."""
        columns = [messages["key"], messages["body"], messages["number"]]
        return pa.Table.from_arrays(columns, names=["key", "value", "number"])

    def merge(self, rows: pa.Table) -> pa.Table:
        """The last one replaces those before."""
        return last_of_each(rows)


class AppendFold:
    """All bodies, in their order."""

    name = "append"
    version = 1
    replaces = True

    def rows(self, messages: pa.Table) -> pa.Table:
        """Under its number, so that each stays where it is."""
        keys = array("q", messages["number"].to_pylist())
        if sys.byteorder == "little":
            keys.byteswap()  # so that keys are in the order of numbers
        cells = pa.py_buffer(keys.tobytes())
        key = pa.Array.from_buffers(pa.binary(keys.itemsize), len(keys), [None, cells])
        columns = [key.cast(pa.large_binary()), messages["body"], messages["number"]]
        return pa.Table.from_arrays(columns, names=["key", "value", "number"])

    def merge(self, rows: pa.Table) -> pa.Table:
        """There is one of each."""
        return last_of_each(rows)


AnyFold = Fold | TableFold
BUILT_IN: dict[str, type[TableFold | LatestFold | AppendFold]] = {
    "table": TableFold, "latest": LatestFold, "append": AppendFold,
}  # fmt: skip


def fold_of(name: str, version: int) -> AnyFold:
    """An installed fold; a `ConfigError` says what there is."""
    built_in = BUILT_IN.get(name)
    found: AnyFold | None = built_in() if built_in is not None else None
    if found is None:
        for entry in entry_points(group=ENTRY_POINTS, name=name):
            found = entry.load()()
    if found is None:
        there = [*BUILT_IN, *sorted(entry.name for entry in entry_points(group=ENTRY_POINTS))]
        raise ConfigError(f"no fold {name!r} is installed here; there are {', '.join(there)}")
    if found.version != version:
        raise ConfigError(
            f"fold {name!r} is installed here in version {found.version}, the group wants {version}"
        )
    return found
