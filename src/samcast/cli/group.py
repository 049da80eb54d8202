"""`samcast group`: makes and lists groups, and says what stays of them."""

import importlib.util
import json
from pathlib import Path
from typing import Annotated

import typer

from samcast.cli.patience import patience
from samcast.cli.where import CLUSTER, DIR, address_of
from samcast.errors import ConfigError

app = typer.Typer(help="Make and list groups; say what stays of them.", no_args_is_help=True)


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
        groups = client.current_status().get("groups", [])
    assert isinstance(groups, list)
    if as_json:
        typer.echo(json.dumps(groups))
        return
    for group in groups:
        typer.echo(f"{group['name']}\t{group['head']}")


@app.command("fold")
def fold(
    name: str,
    by: Annotated[str, typer.Argument(help="table, latest, append, or one that is installed.")],
    version: Annotated[int, typer.Option(help="Its version.", min=1)] = 1,
    every: Annotated[
        int, typer.Option(help="Messages between two checkpoints; 0: as is usual.", min=0)
    ] = 0,
    by_jobs: Annotated[
        bool,
        typer.Option("--by-jobs/--by-servers", help="`samcast pipeline consolidate` folds it."),
    ] = False,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Have checkpoints made of a group's messages; what is in two of them needn't stay.

    Servers fold the messages themselves, or, where a state is too large for one machine, jobs do.
    """
    from msgspec.structs import replace

    from samcast.client.blocking import connect

    with connect(address_of(cluster, folder)) as client, patience():
        settings = {"fold": by, "fold_version": version, "interval": every, "by_jobs": by_jobs}
        client.group(name).change_keep(lambda keep: replace(keep, **settings))
    who = "jobs" if by_jobs else "servers"
    typer.echo(f"{who} fold {name} by {by} (version {version})")
    _look_for(by, version)


def _look_for(fold: str, version: int) -> None:
    """Nodes are elsewhere, perhaps; but a slip of the pen is told."""
    if importlib.util.find_spec("pyarrow") is not None:
        from samcast.checkpoint.folds import fold_of

        try:
            fold_of(fold, version)
        except ConfigError as error:
            typer.echo(f"{error}; the nodes need it", err=True)


@app.command("keep")
def keep(
    name: str,
    count: Annotated[int | None, typer.Option(help="The newest messages, so many.", min=1)] = None,
    size: Annotated[int | None, typer.Option(help="The newest messages, bytes.", min=1)] = None,
    age: Annotated[float | None, typer.Option(help="Seconds that they stay.", min=0.001)] = None,
    forever: Annotated[bool, typer.Option("--forever", help="All of them.")] = False,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Say how long a group's messages stay; with nothing said, show it."""
    from samcast.client.blocking import connect

    bounds = (count, size, age)
    if forever and any(bound is not None for bound in bounds):
        raise ConfigError("--forever and a bound contradict each other; give one of them")
    with connect(address_of(cluster, folder)) as client, patience():
        group = client.group(name, create=False)
        if forever or any(bound is not None for bound in bounds):
            group.keep(count=count, size=size, age=age)
        there = group.checkpoints()
        head = group.head()
    kept = there.keep
    said = [f"{kept.count} messages"] if kept.count else []
    said += [f"{kept.size} bytes"] if kept.size else []
    said += [f"{kept.age_ms / 1000:g} s"] if kept.age_ms else []
    said += [f"what is not in two checkpoints ({kept.fold})"] if kept.fold else []
    typer.echo(
        f"{name} keeps {' or '.join(said) or 'all messages'}: {there.collected + 1} to {head}"
    )
    for found in there.checkpoints:
        typer.echo(f"checkpoint at {found.number}: {found.rows} rows, {found.size} bytes")
