"""`samcast trace`: the way of one message, as a small timeline."""

from pathlib import Path
from typing import Annotated

import typer

from samcast.cli.where import CLUSTER, DIR, address_of
from samcast.errors import RefusedError

WIDTH = 30  # characters of the timeline


def run(
    group: str,
    number: Annotated[int, typer.Argument(help="Of the message.")],
    cluster: CLUSTER = "",
    folder: DIR = Path(".samcast"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """What happened to one message, where and when, as the nodes still remember it. Times are by
    each node's own clock."""
    import msgspec

    from samcast.client.tracing import trace

    found = trace(address_of(cluster, folder), group, number)
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
        return
    if not found.steps:
        raise RefusedError(
            f"message {number} of {group!r} is there, but no node remembers its way: they keep only"
            " what happened lately, and nothing from before their last start"
        )
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    together = f", with {found.count - 1} others" if found.count > 1 else ""
    table = Table(
        title=f"{group} {number}{together}, entry {found.index or '(not kept)'} of the order",
        caption=f"no answer from {', '.join(found.silent)}" if found.silent else None,
    )
    table.add_column("ms", justify="right")
    table.add_column("node")
    table.add_column("what")
    table.add_column("", width=WIDTH, no_wrap=True)
    whole_ms = max(found.steps[-1].at_ms, 0.001)
    for step in found.steps:
        what = step.what
        if step.peer:
            to_or_from = "from" if step.what.endswith(("received", "heard")) else "to"
            what = f"{what} {'by' if 'learned' in what else to_or_from} {step.peer}"
        at = round((WIDTH - 1) * step.at_ms / whole_ms)
        table.add_row(f"{step.at_ms:.2f}", step.node, what, Text("·" * at + "●"))
    Console().print(table)
