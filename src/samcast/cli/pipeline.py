"""`samcast pipeline`: runs PySpark files."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from samcast.cli.where import CLUSTER, DIR, address_of

app = typer.Typer(help="Run PySpark files on groups and tables.", no_args_is_help=True)


@app.command("run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A plain PySpark file; what follows is for it.")],
    master: Annotated[
        str, typer.Option(help="local[*]: in this process; or spark://host:port and the like.")
    ] = "local[*]",
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Run a file with a Spark session that is ready for it, and show what its streams do."""
    from samcast.pipeline.running import run_file

    address = address_of(cluster, folder)
    if sys.stderr.isatty():
        with Bars() as bars:
            run_file(file, context.args, master, address, bars.show)
    else:
        run_file(file, context.args, master, address, Lines().show)


class Lines:
    """A line for each batch, for logs."""

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}

    def show(self, name: str, progress: dict[str, Any]) -> None:
        """Say what is new."""
        batch = int(progress.get("batchId", 0))
        if self._shown.get(name) == batch:
            return
        self._shown[name] = batch
        rows, rate = progress.get("numInputRows", 0), progress.get("processedRowsPerSecond") or 0
        ends = [source.get("endOffset") for source in progress.get("sources", [])]
        typer.echo(
            f"{name}: batch {batch}, {rows} rows, {float(rate):,.0f} rows/s, up to"
            f" {', '.join(map(_offset, ends)) or '-'}",
            err=True,
        )


class Bars:
    """A bar for each query, for people: how far it is of what there is."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"), console=Console(stderr=True),
        )  # fmt: skip
        self._tasks: dict[str, tuple[Any, int]] = {}  # and where it began

    def __enter__(self) -> "Bars":
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def show(self, name: str, progress: dict[str, Any]) -> None:
        """Draw what is known by now."""
        sources = progress.get("sources", [])
        ends = [_number(source.get("endOffset")) for source in sources]
        starts = [_number(source.get("startOffset")) for source in sources]
        latest = [_number(source.get("latestOffset")) for source in sources]
        if name not in self._tasks:
            task = self._bars.add_task(name, total=None, rate="")
            self._tasks[name] = (task, sum(starts))
        task, first = self._tasks[name]
        rate = float(progress.get("processedRowsPerSecond") or 0)
        total = max(sum(ends), sum(latest)) - first
        self._bars.update(
            task, completed=sum(ends) - first, total=total, rate=f"{rate:,.0f} rows/s"
        )


def _number(offset: Any) -> int:
    text = _offset(offset)
    return int(text) if text.isdecimal() else 0


def _offset(end: Any) -> str:
    """As people write it."""
    if isinstance(end, str):
        try:
            end = json.loads(end)
        except ValueError:
            return str(end)
    return str(end["number"] - 1) if isinstance(end, dict) and "number" in end else str(end)
