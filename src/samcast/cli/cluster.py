"""`samcast up`, `status`, `down`: a cluster of processes on this machine."""

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samcast.cli.where import DIR
from samcast.errors import SamcastError

if TYPE_CHECKING:
    from samcast.runtime.local_cluster import LocalCluster


def up(
    folder: DIR = Path(".samcast"),
    nodes: Annotated[int, typer.Option(help="How many, if the cluster is new.")] = 3,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it running, return.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="A line per second, no screen.")] = False,
) -> None:
    """Start a cluster here and watch it at work; its data stays in the folder, and the next `up`
    goes on with it."""
    from samcast.runtime.local_cluster import LocalCluster

    cluster = LocalCluster(folder)
    if not cluster.exists:
        cluster.make(nodes)
    cluster.start_all()
    try:
        cluster.await_ready()
    except SamcastError:
        cluster.stop_all()
        raise
    if detach:
        typer.echo(f"cluster is up: {cluster.address}")
        typer.echo("try:  echo hello | samcast send greetings;  samcast read greetings --count 1")
        typer.echo("stop it with:  samcast down")
        return
    try:
        watch(cluster, is_plain=plain or not (sys.stdin.isatty() and sys.stdout.isatty()))
    finally:
        cluster.stop_all()
    typer.echo(f"stopped; the data is in {folder}")


def watch(cluster: "LocalCluster", *, is_plain: bool) -> None:
    """Put a sender and a member to work, and show what they see until somebody stops it."""
    from samcast.cli.demo import Demo
    from samcast.cli.screen import PROGRAM, Screen

    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    demo = Demo(cluster)
    demo.start()
    screen = Screen(cluster, demo)
    try:
        if is_plain:
            typer.echo(f"cluster is up: {cluster.address}\nCtrl-C stops it. Try:\n\n{PROGRAM}\n")
            screen.run_plain()
        else:
            screen.run()
    except KeyboardInterrupt:
        pass
    finally:
        demo.stop()


def down(folder: DIR = Path(".samcast")) -> None:
    """Stop the cluster of this folder; its data stays."""
    from samcast.runtime.local_cluster import LocalCluster

    cluster = LocalCluster(folder)
    if not cluster.exists:
        raise SamcastError(f"there is no cluster in {folder}")
    cluster.stop_all()
    typer.echo("cluster is down")


def gather(folder: Path) -> dict[str, Any]:
    """All that is known of a cluster: from its folder, and from its nodes."""
    from samcast.client.blocking import connect
    from samcast.runtime.local_cluster import LocalCluster

    cluster = LocalCluster(folder)
    if not cluster.exists:
        raise SamcastError(f"there is no cluster in {folder}; `samcast up` makes one")
    plan = cluster.plan()
    nodes: list[dict[str, Any]] = []
    for process in cluster.processes():
        node = process.plan
        said: dict[str, Any] = {
            "name": node.name,
            "pid": process.pid or None,
            "address": f"{node.host}:{node.port}",
            "roles": list(node.roles),
            "sequencing": False,
            "state": "down",
        }
        if process.pid:
            try:
                client = connect(f"{node.host}:{node.port}")
            except SamcastError as error:
                said["state"] = f"doesn't answer: {error}"
            else:
                said.update(client.status())
                client.close()
        nodes.append(said)
    return {"cluster": plan.cluster, "address": cluster.address, "nodes": nodes}


def status(
    folder: DIR = Path(".samcast"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """How the cluster of this folder is."""
    said = gather(folder)
    if as_json:
        typer.echo(json.dumps(said))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{said['cluster']}   {said['address']}")
    for column in ("node", "pid", "address", "roles", "state", "epoch", "index"):
        table.add_column(column)
    for node in said["nodes"]:
        state = "sequencing" if node["sequencing"] else node["state"]
        table.add_row(
            node["name"], str(node["pid"] or "-"), node["address"], " ".join(node["roles"]), state,
            str(node.get("epoch", "-")), str(node.get("index", "-")),
        )  # fmt: skip
    Console().print(table)
