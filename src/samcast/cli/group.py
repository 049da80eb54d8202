"""`samcast group`: makes and lists groups."""

import json
from pathlib import Path
from typing import Annotated

import typer

from samcast.cli.patience import patience
from samcast.cli.where import CLUSTER, DIR, address_of

app = typer.Typer(help="Make and list groups.", no_args_is_help=True)


@app.command("create")
def create(name: str, cluster: CLUSTER = None, folder: DIR = Path(".samcast")) -> None:
    """Make a group; nothing happens if it is there."""
    from samcast.client.blocking import connect

    with connect(address_of(cluster, folder)) as client, patience():
        typer.echo(f"{name} has id {client.group(name).id}")


@app.command("list")
def show(
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list.")] = False,
) -> None:
    """All groups and their newest numbers, as the first node that answers knows them."""
    from samcast.client.blocking import connect

    with connect(address_of(cluster, folder)) as client:
        groups = client.status().get("groups", [])
    assert isinstance(groups, list)
    if as_json:
        typer.echo(json.dumps(groups))
        return
    for group in groups:
        typer.echo(f"{group['name']}\t{group['head']}")
