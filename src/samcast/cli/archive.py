"""`samcast archive`: what `samcast pipeline archive` has written, looked at and used."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from samcast.cli.where import CLUSTER, DIR, address_of

app = typer.Typer(help="Check archives of groups, and make groups of them.", no_args_is_help=True)
PLACE = Annotated[Path, typer.Argument(help="The archive's folder.")]


@app.command("verify")
def verify(place: PLACE) -> None:
    """Read every file of an archive and compare it with what was written."""
    from samcast.archive.verifying import verify as verify_files

    with Bar("verified", "bytes") as bar:
        found = verify_files(place, bar.show, lambda text: typer.echo(text, err=True))
    typer.echo(
        f"{place}: messages {found.first} to {found.last} of {found.group!r} in {found.files}"
        f" files, {found.size:,} bytes; all as they were written"
    )


@app.command("restore")
def restore(place: PLACE, cluster: CLUSTER = None, folder: DIR = Path(".samcast")) -> None:
    """Make a group of its archive in a cluster that has no such group: same numbers, same content.
    If it is interrupted, say it again."""
    from samcast.archive.index import open_archive
    from samcast.client.blocking import connect
    from samcast.client.replay import replay

    archive = open_archive(place)
    with connect(address_of(cluster, folder)) as client, Bar("sent", "messages") as bar:
        group = replay(client, archive, bar.show)
    typer.echo(f"{group.name}: messages {archive.first} to {archive.end - 1} are there again")


class Bar:
    """How far it is, for people."""

    def __init__(self, what: str, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._bars = Progress(
            TextColumn(f"{what} {{task.completed:,}} of {{task.total:,}} {unit}"), BarColumn(),
            console=Console(stderr=True), disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self._task: Any = self._bars.add_task(what, total=1)

    def __enter__(self) -> "Bar":
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def show(self, done: int, total: int) -> None:
        """Draw it."""
        self._bars.update(self._task, completed=done, total=total)
