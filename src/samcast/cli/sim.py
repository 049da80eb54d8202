"""`samcast sim`: hands its arguments to the simulator unread, so that one parser knows them."""

import typer

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}


def run(context: typer.Context) -> None:
    """Run simulated clusters under faults (`samcast sim --help` lists the options)."""
    from samcast.sim.__main__ import main  # Here, since no other subcommand should wait for it.

    raise typer.Exit(main(context.args))
