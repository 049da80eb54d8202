"""`samcast backup` and `samcast restore`."""

import time
from pathlib import Path
from typing import Annotated

import typer

from samcast.cli.patience import patience
from samcast.cli.where import CLUSTER, DIR, address_of
from samcast.errors import DiskError


def make(
    place: Annotated[Path, typer.Argument(help="A folder that isn't there yet, or is empty.")],
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Copy all groups of a running cluster, each up to the number it has now; check the copy."""
    from samcast.client.backup import back_up
    from samcast.client.blocking import connect

    with connect(address_of(cluster, folder)) as client, patience(30):
        copy = back_up(client, place, lambda text: typer.echo(text, err=True))
    total = sum(group.number - group.base for group in copy.groups)
    typer.echo(f"{place}: {len(copy.groups)} groups, {total} messages; read again and equal")


def restore(
    place: Annotated[Path, typer.Argument(help="A backup.")],
    folder: DIR = Path(".samcast"),
    nodes: Annotated[int, typer.Option(help="Nodes of the new cluster.", min=1, max=7)] = 3,
    replace: Annotated[
        bool, typer.Option("--replace", help="Set a cluster aside that is in the folder.")
    ] = False,
) -> None:
    """Make a new cluster of a backup, with the same numbers, and compare them; it is left stopped.
    It is another cluster: clients of the old one must be told where it is."""
    from samcast.client.backup import restore as restore_copy
    from samcast.runtime.local_cluster import LocalCluster

    if folder.exists() and any(folder.iterdir()):
        if not replace:
            raise DiskError(
                f"{folder} is not empty; name another one (--dir), or set it aside (--replace)"
            )
        if any(process.pid for process in LocalCluster(folder).processes()):
            raise DiskError(f"the cluster in {folder} is up; `samcast down` first")
        aside = folder.with_name(f"{folder.name}.before-{time.strftime('%Y%m%d-%H%M%S')}")
        folder.rename(aside)
        typer.echo(f"what was in {folder} is kept in {aside}", err=True)
    copy = restore_copy(place, folder, lambda text: typer.echo(text, err=True), nodes)
    typer.echo(
        f"{folder}: {len(copy.groups)} groups, equal to the backup of {copy.cluster} of"
        f" {copy.made_at}; `samcast up --dir {folder}` starts it"
    )


def rescue(
    place: Annotated[Path, typer.Argument(help="A folder that isn't there yet, or is empty.")],
    names: Annotated[
        list[str],
        typer.Argument(metavar="NODE[=FOLDER]...", help="Whose disks are left, and where."),
    ],
    config: Annotated[
        Path | None, typer.Option(help="The cluster file; else that of --dir.")
    ] = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """When too few nodes are left to agree: make a backup of the disks that are left, and a record
    of what is lost. None of these nodes may run. `samcast restore` makes a new cluster of it."""
    from samcast.client.rescue import rescue as rescue_disks
    from samcast.runtime.cluster_file import read_cluster_file

    plan = read_cluster_file(config or folder / "cluster.toml")
    incident = rescue_disks(plan, names, place, lambda text: typer.echo(text, err=True))
    lost = sum(last - first + 1 for group in incident.groups for first, last in group.lost)
    certain = (
        "no confirmed message is missing from the order"
        if incident.is_order_whole
        else "too few disks to tell whether the newest messages are among them"
    )
    typer.echo(
        f"{place}: {len(incident.groups)} groups; {certain}; the content of {lost} messages is on"
        f" none of these disks. {place / 'incident.json'} says which;"
        f" `samcast restore {place} --dir FOLDER` makes a new cluster of it"
    )
