"""The archive as a Delta table, too: a log in `messages/_delta_log` that names its files, for tools
that speak Delta.

The index is what counts, and this log follows it: whatever it lacks after an interruption is
entered when the next part is, or when a job begins. How far it goes is in the log itself, so
nothing is entered twice.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from samcast.archive.index import MESSAGES, Archive, File, Part
from samcast.errors import ConfigError, DiskError

if TYPE_CHECKING:
    import deltalake

LOG = "_delta_log"


def has_log(archive: Archive) -> bool:
    """Whether somebody has wanted one."""
    return (archive.folder / MESSAGES / LOG).exists()


def follow(archive: Archive) -> None:
    """Enter what the log lacks."""
    delta = _library()
    known = _known(archive, _table(archive))
    for part in archive.parts:
        if part.end - 1 > known:
            _enter(delta, archive, _table(archive), part)


def check(archive: Archive) -> None:
    """A `DiskError` if the log names other files than the index, as far as it goes."""
    table = _table(archive)
    known = _known(archive, table)
    wanted = {
        path for part in archive.parts if part.end - 1 <= known for path, _ in _paths(archive, part)
    }
    found = set(_files(table)) if table is not None else set()
    if found != wanted:
        one = min(found ^ wanted)
        what = "lacks" if one in wanted else "names"
        raise DiskError(
            f"{archive.folder / MESSAGES / LOG} {what} {one}, other than the archive's index;"
            " remove that folder, and run the job with --delta to have it made anew"
        )


def _library() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ModuleNotFoundError:
        raise ConfigError(
            "this archive has a log for Delta, or is to have one: pip install 'samcast[delta]'"
        ) from None
    return deltalake


def _table(archive: Archive) -> "deltalake.DeltaTable | None":
    if not has_log(archive):
        return None
    delta = _library()
    try:
        found: deltalake.DeltaTable = delta.DeltaTable(archive.folder / MESSAGES)
    except delta.exceptions.TableNotFoundError:
        return None  # A job ended before its first entry was made.
    except Exception as error:
        raise DiskError(
            f"{archive.folder / MESSAGES / LOG} can't be read: {error}; remove that folder, and run"
            " the job with --delta to have it made anew"
        ) from error
    return found


def _known(archive: Archive, table: "deltalake.DeltaTable | None") -> int:
    """The last message that the log knows."""
    return (table.transaction_version(archive.about.id) or 0) if table is not None else 0


def _files(table: "deltalake.DeltaTable") -> list[str]:
    actions = table.get_add_actions(flatten=True)
    return [str(path) for path in actions.column("path").to_pylist()]


def _paths(archive: Archive, part: Part) -> Iterator[tuple[str, File]]:
    folder = archive.place_of(part)
    for file in part.files:
        yield f"{folder.name}/{file.name}", file


def _enter(delta: Any, archive: Archive, table: "deltalake.DeltaTable | None", part: Part) -> None:
    import pyarrow.parquet as pq

    place = archive.folder / MESSAGES
    actions = [
        delta.transaction.AddAction(
            path, file.size, {}, int((place / path).stat().st_mtime * 1000), True, _stats(file)
        )
        for path, file in _paths(archive, part)
    ]
    schema = pq.read_schema(place / actions[0].path).remove_metadata()
    once = delta.CommitProperties(
        app_transactions=[delta.Transaction(archive.about.id, part.end - 1)]
    )
    if table is None:
        delta.transaction.create_table_with_add_actions(
            str(place), delta.Schema.from_arrow(schema), actions, commit_properties=once
        )
    else:
        table.create_write_transaction(
            actions, "append", delta.Schema.from_arrow(schema), commit_properties=once
        )


def _stats(file: File) -> str:
    return json.dumps(
        {
            "numRecords": file.end - file.first,
            "minValues": {"number": file.first},
            "maxValues": {"number": file.end - 1},
            "nullCount": {"number": 0},
        }
    )
