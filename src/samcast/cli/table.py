"""`samcast table`: what a replicated table holds."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from samcast.cli.patience import patience
from samcast.cli.where import CLUSTER, DIR, address_of
from samcast.errors import RefusedError


def run(
    name: str,
    key: Annotated[str | None, typer.Argument(help="Only this one.")] = None,
    as_of: Annotated[int | None, typer.Option(help="As it was at this number.", min=0)] = None,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Print a table as `key<TAB>value`, in the order of keys; with a key, its value."""
    from rich.console import Console
    from rich.progress import Progress

    from samcast.client.blocking import TABLES, connect

    console = Console(stderr=True)
    with connect(address_of(cluster, folder)) as client:
        with patience(), Progress(console=console, transient=True) as bar:
            client.group(TABLES + name, create=False)
            task = bar.add_task("rows", total=None, visible=False)
            table = client.table(
                name,
                progress=lambda here, of: bar.update(task, completed=here, total=of, visible=True),
            )
            shown = table if as_of is None else table.as_of(as_of)
        if key is not None:
            value = shown.get(key)
            if value is None:
                raise RefusedError(f"table {name!r} has no key {key!r}")
            sys.stdout.buffer.write(value + b"\n")
            return
        for found, value in shown.items():
            sys.stdout.buffer.write(found + b"\t" + value + b"\n")
        sys.stdout.buffer.flush()
