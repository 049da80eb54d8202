"""`samcast group`: makes and lists groups, and says what stays of them."""

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samcast.cli.consent import YES, ask
from samcast.cli.lease import told_holder
from samcast.cli.patience import patience
from samcast.cli.where import CLUSTER, DIR, address_of
from samcast.errors import ConfigError

if TYPE_CHECKING:
    from samcast.client.blocking import Group
    from samcast.wire.order import Keep

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
    by: Annotated[
        str | None, typer.Argument(help="table, latest, append, or one that is installed.")
    ] = None,
    version: Annotated[int, typer.Option(help="Its version.", min=1)] = 1,
    every: Annotated[
        int, typer.Option(help="Messages between two checkpoints; 0: as is usual.", min=0)
    ] = 0,
    by_jobs: Annotated[
        bool,
        typer.Option("--by-jobs/--by-servers", help="`samcast pipeline consolidate` folds it."),
    ] = False,
    off: Annotated[bool, typer.Option("--off", help="No more checkpoints.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also one that is installed at the nodes only.")
    ] = False,
    yes: YES = False,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Have checkpoints made of a group's messages. No message goes by that: see `group keep`.

    Servers fold the messages themselves, or, where a state is too large for one machine, jobs do.
    """
    from samcast.client.blocking import connect
    from samcast.client.keeping import folded, is_of_other_state, unfolded

    if (by is None) is not off:
        raise ConfigError("name a fold (table, latest, append, or an installed one), or say --off")
    if by is not None and not force:
        _look_for(by, version)
    with connect(address_of(cluster, folder)) as client, patience():
        group = client.group(name, create=not off)
        there = group.checkpoints()
        now = there.keep
        after = unfolded(now) if by is None else folded(now, by, version, every, by_jobs)
        if is_of_other_state(now, after) and there.checkpoints and there.collected:
            ask(
                f"messages 1 to {there.collected} of {name} are gone and only in its checkpoints"
                f" by {now.fold} (version {now.fold_version}), which are of no use without it",
                yes,
            )
        group.fold(by, version, every=every, by_jobs=by_jobs)
    who = "jobs" if by_jobs else "servers"
    typer.echo(f"{who} fold {name} by {by} (version {version})" if by else f"{name} has no fold")


def _look_for(fold: str, version: int) -> None:
    """A slip of the pen is told here; nodes may have others, but don't say which."""
    if importlib.util.find_spec("pyarrow") is not None:
        from samcast.checkpoint.folds import fold_of

        try:
            fold_of(fold, version)
        except ConfigError as error:
            raise ConfigError(
                f"{error}. Nothing was changed; if the nodes have it, say --force"
            ) from None


@app.command("keep")
def keep(
    name: str,
    count: Annotated[int | None, typer.Option(help="The newest messages, so many.", min=1)] = None,
    size: Annotated[int | None, typer.Option(help="The newest messages, bytes.", min=1)] = None,
    age: Annotated[float | None, typer.Option(help="Seconds that they stay.", min=0.001)] = None,
    checkpointed: Annotated[
        bool, typer.Option("--checkpointed", help="What is not in two checkpoints.")
    ] = False,
    forever: Annotated[bool, typer.Option("--forever", help="All of them.")] = False,
    yes: YES = False,
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
) -> None:
    """Say how long a group's messages stay; with nothing said, show it.

    Of a group with a fold, what is not in two checkpoints stays in any case.
    """
    from samcast.client.blocking import connect
    from samcast.client.leases import groups_of, holder_of

    bounds = (count, size, age)
    is_said = checkpointed or any(bound is not None for bound in bounds)
    if forever and is_said:
        raise ConfigError("--forever and a bound contradict each other; give one of them")
    with connect(address_of(cluster, folder)) as client, patience():
        group = client.group(name, create=False)
        if is_said:
            wanted = tuple(int(bound or 0) for bound in (count, size, (age or 0) * 1000))
            _ask_before(group, wanted, checkpointed, yes)
        if forever or is_said:
            group.keep(count=count, size=size, age=age, checkpointed=checkpointed)
        there = group.checkpoints()
        head = group.head()
        holder = [holder_of(facts) for facts in groups_of(client) if facts["id"] == group.id]
    typer.echo(f"{name} keeps {told(there.keep)}: {there.collected + 1} to {head}")
    for lease in holder:
        if lease is not None:
            typer.echo(told_holder(lease))
    for found in there.checkpoints:
        typer.echo(f"checkpoint at {found.number}: {found.rows} rows, {found.size} bytes")


def _ask_before(
    group: "Group", wanted: tuple[int, ...], is_checkpointed: bool, is_agreed: bool
) -> None:
    """Messages that would have stayed until now go only if somebody means it."""
    from samcast.client.keeping import bounded, newly_going

    there = group.checkpoints()
    count, size, age_ms = wanted
    after = bounded(there.keep, count, size, age_ms, is_checkpointed)
    going = newly_going(there.keep, after, there.collected, group.head())
    if going:
        most = "" if after.count and not (size or age_ms) else "up to "
        ask(
            f"{group.name} keeps {told(there.keep)}; by keeping {told(after)}, {most}{going} of the"
            " messages that are there would go for good, unless a lease holds them",
            is_agreed,
        )


def told(keep: "Keep") -> str:
    """What stays, in words."""
    if not keep.lets_go:
        return "all messages" + (f", and checkpoints ({keep.fold})" if keep.fold else "")
    said = [f"{keep.count} messages"] if keep.count else []
    said += [f"{keep.size} bytes"] if keep.size else []
    said += [f"{keep.age_ms / 1000:g} s"] if keep.age_ms else []
    said = [" or ".join(said)] if said else []
    said += [f"what is not in two checkpoints ({keep.fold})"] if keep.fold else []
    return " and ".join(said)
