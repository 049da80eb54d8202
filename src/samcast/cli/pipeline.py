"""`samcast pipeline`: runs PySpark files."""

import json
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

    shown: dict[str, int] = {}

    def show(name: str, progress: dict[str, Any]) -> None:
        batch = int(progress.get("batchId", 0))
        if shown.get(name) == batch:
            return
        shown[name] = batch
        rows, rate = progress.get("numInputRows", 0), progress.get("processedRowsPerSecond") or 0
        ends = [source.get("endOffset") for source in progress.get("sources", [])]
        typer.echo(
            f"{name}: batch {batch}, {rows} rows, {float(rate):,.0f} rows/s, up to"
            f" {', '.join(map(_offset, ends)) or '-'}",
            err=True,
        )

    run_file(file, context.args, master, address_of(cluster, folder), show)


def _offset(end: Any) -> str:
    """As people write it."""
    if isinstance(end, str):
        try:
            end = json.loads(end)
        except ValueError:
            return str(end)
    return str(end["number"] - 1) if isinstance(end, dict) and "number" in end else str(end)
