"""Options of the Spark format `samcast`, checked in full when a query is planned.

They come as text, whatever a user wrote; every complaint names the option, what it is and what it
may be.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from samcast.errors import ConfigError

ROWS_PER_BATCH = 32_768  # of an Arrow record batch: large enough to be fast, small in memory
ROWS_PER_TRIGGER = 1_000_000
LEASE_SECONDS = 24 * 3600
NEWEST = "newest"
OLDEST = "oldest"
FOR_READING = ("cluster", "group", "table", "start", "end", "rows_per_batch", "rows_per_trigger",
               "partitions", "lease", "lease_seconds", "archive", "columns")  # fmt: skip
COLUMNS = ("number", "destination", "sent", "sender", "counter", "key", "headers", "body")
FOR_WRITING = ("cluster", "group", "table", "name", "batch", "create", "timeout")
SPARKS_OWN = ("path", "checkpointlocation", "queryname")
TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, and how."""

    cluster: str  # "": as `samcast.connect()` finds it
    group: str  # one of these two
    table: str
    start: int | str  # a number, or where
    end: int | None  # the first number that isn't read any more; None: what there is
    rows_per_batch: int
    rows_per_trigger: int
    partitions: int  # 0: as many as there are cores
    lease: str  # "": one of its own, which its offsets name
    lease_seconds: int
    archive: str = ""  # a folder, for what is gone from the cluster
    columns: tuple[str, ...] = COLUMNS  # of a group, in this order


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where to write, and under which name."""

    cluster: str
    group: str  # one of these two
    table: str
    name: str  # "": the query's id
    batch: int | None  # of a write with a name: which one; None: as Spark says
    create: bool
    timeout: int


def read_options(said: Mapping[str, str]) -> ReadOptions:
    """All of them, or one sentence about the first that is wrong."""
    lower = _known(said, FOR_READING, "reads")
    group, table = _group_or_table(lower, "to be read")
    start, end = _start(lower.get("start", OLDEST)), lower.get("end")
    last = None if end is None else _number("end", end, 1)
    if last is not None and isinstance(start, int) and last < start:
        raise ConfigError(f"option end is {last}, before start, which is {start}")
    return ReadOptions(
        cluster=lower.get("cluster", ""),
        group=group,
        table=table,
        start=start,
        end=last,
        rows_per_batch=_number("rows_per_batch", lower.get("rows_per_batch", ROWS_PER_BATCH), 1),
        rows_per_trigger=_number(
            "rows_per_trigger", lower.get("rows_per_trigger", ROWS_PER_TRIGGER), 1
        ),
        partitions=_number("partitions", lower.get("partitions", 0), 0),
        lease=lower.get("lease", ""),
        lease_seconds=_number("lease_seconds", lower.get("lease_seconds", LEASE_SECONDS), 1),
        archive=lower.get("archive", ""),
        columns=_columns(lower.get("columns"), table),
    )


def _columns(said: str | None, table: str) -> tuple[str, ...]:
    """Spark doesn't tell a source in Python which columns a query needs, so a user may."""
    if said is None:
        return COLUMNS
    if table:
        raise ConfigError("option columns is for groups; a table has just key and value")
    columns = tuple(part.strip().lower() for part in said.split(","))
    for column in columns:
        if column not in COLUMNS or columns.count(column) > 1:
            raise ConfigError(
                f"option columns is {said!r}; it must be some of {', '.join(COLUMNS)}, each once"
            )
    return columns


def write_options(said: Mapping[str, str]) -> WriteOptions:
    """The same for writing."""
    lower = _known(said, FOR_WRITING, "writes")
    group, table = _group_or_table(lower, "to be written")
    create = lower.get("create", "false").lower()
    if create not in ("true", "false"):
        raise ConfigError(f"option create is {create!r}; it must be true or false")
    return WriteOptions(
        cluster=lower.get("cluster", ""),
        group=group,
        table=table,
        name=lower.get("name", ""),
        batch=_number("batch", lower["batch"], 0) if "batch" in lower else None,
        create=create == "true",
        timeout=_number("timeout", lower.get("timeout", TIMEOUT_S), 1),
    )


def _known(said: Mapping[str, str], known: tuple[str, ...], does: str) -> dict[str, str]:
    lower = {key.lower(): value for key, value in said.items()}
    for key in lower:
        if key not in known and key not in SPARKS_OWN:
            there = ", ".join(known)
            raise ConfigError(f"option {key!r} is none that samcast {does} with; there are {there}")
    return lower


def _group_or_table(lower: Mapping[str, str], what: str) -> tuple[str, str]:
    table = lower.get("table", "")
    group = lower.get("group") or ("" if table else lower.get("path", ""))
    if group and table:
        raise ConfigError('options "group" and "table" are both there: name one of them')
    if not group and not table:
        raise ConfigError(f'option "group" (or "table") is missing: which one is {what}?')
    return group, table


def _start(said: str) -> int | str:
    if said in (OLDEST, NEWEST):
        return said
    if not said.isdecimal() or int(said) < 1:
        raise ConfigError(
            f"option start is {said!r}; it must be a number from 1 on, {OLDEST!r} or {NEWEST!r}"
        )
    return int(said)


def _number(key: str, said: str | int, least: int) -> int:
    text = str(said)
    if not text.isdecimal() or not least <= int(text) < 2**62:
        raise ConfigError(f"option {key} is {text!r}; it must be a number from {least} on")
    return int(text)
