"""`samcast lease`: for whom messages are kept, and taking such a lease away."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict

from samcast.cli.consent import YES, ask
from samcast.cli.patience import patience
from samcast.cli.where import CLUSTER, DIR, address_of
from samcast.errors import RefusedError

if TYPE_CHECKING:
    from samcast.client.leases import HeldLease

app = typer.Typer(help="For whom messages are kept.", no_args_is_help=True)


@app.command("list")
def show(
    group: Annotated[str | None, typer.Argument(help="Only of this one.")] = None,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list.")] = False,
) -> None:
    """All leases: group, name, the number above which messages stay, until when."""
    from samcast.client.blocking import connect
    from samcast.client.leases import groups_of, leases_of

    with connect(address_of(cluster, folder)) as client:
        if group is not None:
            client.group(group, create=False)
        found = [one for one in leases_of(groups_of(client)) if group in (None, one.group)]
    if as_json:
        typer.echo(json.dumps([{**asdict(one), "until": until(one)} for one in found]))
        return
    for one in found:
        typer.echo(f"{one.group}\t{one.name}\t{one.number}\t{until(one) or 'nobody leads'}")


@app.command("remove")
def remove(
    group: str,
    name: str,
    yes: YES = False,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Take a lease away. Messages that only it holds go by the settings of their group."""
    from samcast.cli.group import told
    from samcast.client.blocking import connect
    from samcast.client.lease import order_lease
    from samcast.client.leases import groups_of, leases_of

    with connect(address_of(cluster, folder)) as client, patience():
        found = client.group(group, create=False)
        there = {one.name: one for one in leases_of(groups_of(client)) if one.group == group}
        lease = there.get(name)
        if lease is None:
            raise RefusedError(
                f"group {group!r} has no lease {name!r}; `samcast lease list {group}` shows which"
            )
        keep = found.checkpoints().keep
        ask(
            f"lease {name} keeps messages {lease.number + 1} on of {group} for whoever took it;"
            f" without it the group keeps {told(keep)}, and what goes is gone for good",
            yes,
        )
        order_lease(client.engine, found.id, name, lease.number, 0)
    typer.echo(f"lease {name} of {group} is no more")


def until(lease: "HeldLease") -> str:
    """When it lapses, if nobody renews it, by the clock of this machine."""
    if lease.left_s is None:
        return ""
    return (datetime.now().astimezone() + timedelta(seconds=lease.left_s)).isoformat(" ", "seconds")


def told_holder(lease: "HeldLease") -> str:
    """That messages are there which would go, and why."""
    end = f" until {until(lease)}" if lease.left_s is not None else ""
    return f"kept from {lease.number + 1} on by lease {lease.name}{end}, unless it is renewed"
