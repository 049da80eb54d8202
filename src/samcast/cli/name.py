"""`samcast name`: lists the names that are in use, and removes one."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from samcast.cli.patience import patience
from samcast.cli.where import CLUSTER, DIR, address_of

app = typer.Typer(
    help="List and remove names of transactions and of senders.", no_args_is_help=True
)
GROUP = Annotated[
    str | None, typer.Option("--group", help="Of this group's senders, not of transactions.")
]


@app.command("list")
def show(
    group: GROUP = None,
    anonymous: Annotated[
        bool, typer.Option("--all", help="Those that go by themselves, too.")
    ] = False,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list.")] = False,
) -> None:
    """All names, what they are of, and when they were last used: by the number of the last message,
    or the index of the log."""
    from samcast.client.blocking import connect
    from samcast.client.naming import ANONYMOUS, names_in_use

    with connect(address_of(cluster, folder)) as client, patience():
        found = names_in_use(client, group)
    shown = [one for one in found if anonymous or one.kind != ANONYMOUS]
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in shown]))
        return
    for one in shown:
        where = f"group {one.group}" if one.group else "cluster"
        typer.echo(f"{one.name}\t{one.kind}\t{where}\t{one.done} done\tlast at {one.last}")
    if left := len(found) - len(shown):
        typer.echo(f"and {left} without a name, which go by themselves (--all shows them)")


@app.command("remove")
def remove(
    name: str,
    group: GROUP = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Give a name up. Its messages stay; whoever uses it later begins anew."""
    from samcast.client.blocking import connect
    from samcast.client.naming import remove_name

    if not yes:
        typer.echo(
            f"What was sent under {name!r} stays. Whoever uses the name now is stopped, and what it"
            " has under way may or may not take effect. A later use begins anew: nobody will know"
            " any more what was done under it, so what is repeated then happens again."
        )
        typer.confirm("Remove it?", abort=True)
    with connect(address_of(cluster, folder)) as client, patience():
        remove_name(client, name, group)
    typer.echo(f"{name} is removed")
