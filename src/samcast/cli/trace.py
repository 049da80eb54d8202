"""`samcast trace`: the way of one message, as a small timeline."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samcast.cli.where import CLUSTER, DIR, address_of
from samcast.errors import RefusedError

if TYPE_CHECKING:
    from samcast.client.tracing import Trace

WIDTH = 30  # characters of the timeline
TEXTS = {
    "payload received": "payload received from {}",
    "stored": "payload stored",
    "reported": "reported to {}",
    "report heard": "report heard from {}",
    "order received": "order received from {}",
    "order stored": "order stored, {} told",
    "acknowledgement heard": "acknowledgement heard from {}",
    "committed": "committed, all told",
    "learned as committed": "learned from {} that it is committed",
    "confirmed to the sender": "number told to the sender, {}",
    "sent to a reader": "sent to a reader, {}",
}


def run(
    group: str,
    number: Annotated[int, typer.Argument(help="Of the message.")],
    cluster: CLUSTER = None,
    folder: DIR = Path(".samcast"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    otlp: Annotated[str, typer.Option(help="Send it as OpenTelemetry spans to this collector, such"
                                      " as http://localhost:4318/v1/traces.")] = "",
) -> None:  # fmt: skip
    """What happened to one message, where and when.

    As the nodes still remember it; times are by each node's own clock.
    """
    import msgspec

    from samcast.client.tracing import trace

    found = trace(address_of(cluster, folder), group, number)
    if as_json and not otlp:
        typer.echo(msgspec.json.encode(found).decode())
        return
    if not found.steps:
        raise RefusedError(
            f"message {number} of {group!r} is there, but no node remembers its way: they keep only"
            " what happened lately, and nothing from before their last start"
        )
    if otlp:
        from samcast.client.spans import export

        typer.echo(f"{export(found, otlp)} spans sent to {otlp}")
        return
    show(found)


def show(found: "Trace") -> None:
    """As a table with a timeline."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    remarks = [f"began {found.began}"]
    if found.silent:
        remarks.append(f"no answer from {', '.join(found.silent)}")
    epochs = {step.epoch for step in found.steps if step.epoch}
    if len(epochs) > 1:
        remarks.append("it was ordered again after an election: each epoch is one attempt")
    together = f", with {found.count - 1} others" if found.count > 1 else ""
    table = Table(
        title=f"{found.group} {found.number}{together}, entry {found.index or '(not kept)'} of the"
        " order",
        caption="; ".join(remarks),
    )
    table.add_column("ms", justify="right")
    table.add_column("node")
    table.add_column("what")
    table.add_column("", width=WIDTH, no_wrap=True)
    # Readers may come much later: the picture is of the way until it was confirmed.
    on_its_way = [step.at_ms for step in found.steps if step.what != "sent to a reader"]
    whole_ms = max(0.001, *on_its_way) if on_its_way else 0.001
    for step in found.steps:
        if step.peer == "itself" and not step.what.startswith("order stored"):
            continue  # what a node tells itself
        at = min(WIDTH - 1, round((WIDTH - 1) * step.at_ms / whole_ms))
        text = TEXTS.get(step.what, step.what).format(step.peer)
        if step.epoch and len(epochs) > 1:
            text += f" (epoch {step.epoch})"
        table.add_row(f"{step.at_ms:.2f}", step.node, text, Text("·" * at + "●"))
    Console().print(table)
