"""The `samcast` command: lists the subcommands; an error of ours is one line and an exit code."""

import sys
from typing import Annotated

import typer

from samcast import __version__
from samcast.cli import (
    archive,
    backup,
    bench,
    cluster,
    disk,
    doctor,
    group,
    lease,
    messages,
    name,
    node,
    pipeline,
    sim,
    table,
    trace,
)
from samcast.errors import SamcastError

EXIT_FAILED = 1

app = typer.Typer(
    name="samcast",
    help="Atomic multicast: one order of messages that survives failures.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("up")(cluster.up)
app.command("status")(cluster.status)
app.command("down")(cluster.down)
app.command("send")(messages.send)
app.command("read")(messages.read)
app.add_typer(group.app, name="group")
app.add_typer(lease.app, name="lease")
app.add_typer(name.app, name="name")
app.command("table")(table.run)
app.command("trace")(trace.run)
app.command("doctor")(doctor.run)
app.add_typer(node.app, name="node")
app.command("format")(node.make_disk)
app.add_typer(disk.app, name="disk")
app.command("backup")(backup.make)
app.command("restore")(backup.restore)
app.command("rescue")(backup.rescue)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(archive.app, name="archive")
app.command("bench")(bench.run)
app.command("sim", context_settings=sim.CONTEXT, add_help_option=False)(sim.run)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"samcast {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def main() -> None:
    try:
        app()
    except SamcastError as error:
        print(f"samcast: {error}", file=sys.stderr)
        raise SystemExit(EXIT_FAILED) from None


if __name__ == "__main__":
    main()
