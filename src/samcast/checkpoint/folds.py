"""Folds by name and version: what makes a state of a group's messages.

They are installed code and never come over the wire: three are built in, others are found among
the entry points `samcast.folds`, each a callable that makes a `Fold`.
"""

from importlib.metadata import entry_points
from typing import Protocol

from samcast.errors import ConfigError
from samcast.group.table import Table

ENTRY_POINTS = "samcast.folds"
KEY_BYTES = 8


class Fold(Protocol):
    """Makes rows of messages. It must come to the same rows wherever it runs: no clock, no chance,
    nothing but what it has been given."""

    name: str
    version: int

    def apply(self, table: Table, number: int, key: bytes, body: bytes) -> None:
        """Fold one message in; numbers rise, and the table's must be this one afterwards."""
        ...


class TableFold:
    """The changes of a replicated table."""

    name = "table"
    version = 1

    def apply(self, table: Table, number: int, key: bytes, body: bytes) -> None:
        """By the table's own rules."""
        table.apply(number, body)


class LatestFold:
    """The last body under each key."""

    name = "latest"
    version = 1

    def apply(self, table: Table, number: int, key: bytes, body: bytes) -> None:
        """It replaces the one before."""
        table.put(number, key, body)


class AppendFold:
    """All bodies, in their order."""

    name = "append"
    version = 1

    def apply(self, table: Table, number: int, key: bytes, body: bytes) -> None:
        """Under its number, so that it stays where it is."""
        table.put(number, number.to_bytes(KEY_BYTES, "big"), body)


BUILT_IN: dict[str, type[TableFold | LatestFold | AppendFold]] = {
    "table": TableFold, "latest": LatestFold, "append": AppendFold,
}  # fmt: skip


def fold_of(name: str, version: int) -> Fold:
    """An installed fold; a `ConfigError` says what there is."""
    built_in = BUILT_IN.get(name)
    found: Fold | None = built_in() if built_in is not None else None
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
