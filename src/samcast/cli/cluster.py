"""`samcast up`, `status`, `down`: a cluster of processes on this machine."""

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from samcast.cli.doctor import look_at_lives
from samcast.cli.where import CLUSTER, DIR, remote_of
from samcast.errors import SamcastError

if TYPE_CHECKING:
    from samcast.runtime.local_cluster import LocalCluster

NODES = 3
FOLDER = ".samcast"


def up(
    folder: DIR = Path(".samcast"),
    nodes: Annotated[
        int | None, typer.Option(help="How many, if the cluster is new.", show_default="3")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave it running, return.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="A line per second, no screen.")] = False,
) -> None:
    """Start a cluster here and watch it at work.

    Its data stays in the folder, and the next `up` goes on with it.
    """
    from samcast.runtime.local_cluster import LocalCluster

    cluster = LocalCluster(folder)
    with cluster.alone():
        was_up = _start(cluster, nodes, detach)
    if detach:
        where = "" if folder == Path(FOLDER) else f" --dir {folder}"
        was = "was up already" if was_up else "is up"
        typer.echo(f"cluster {was}: {cluster.address}")
        typer.echo(
            f"try:  echo hello | samcast send greetings{where};"
            f"  samcast read greetings --count 1{where}"
        )
        typer.echo(f"stop it with:  samcast down{where}")
        return
    try:
        watch(cluster, is_plain=plain or not (sys.stdin.isatty() and sys.stdout.isatty()))
    finally:
        cluster.stop_all()
    typer.echo(f"stopped; the data is in {folder}")


def _start(cluster: "LocalCluster", nodes: int | None, detach: bool) -> bool:
    """Make what isn't there, start what doesn't run; whether anything ran before."""
    folder = cluster.folder
    if not cluster.exists:
        cluster.make(NODES if nodes is None else nodes)
    elif nodes is not None and nodes != len(cluster.plan().present):
        raise SamcastError(
            f"the cluster in {folder} has {len(cluster.plan().present)} nodes; --nodes is for a new"
            " one, in another --dir"
        )
    running = [process for process in cluster.processes() if process.pid]
    if running and not detach:
        raise SamcastError(
            f"the cluster in {folder} is up already; `samcast status` looks at it, `samcast down`"
            " stops it"
        )
    try:
        cluster.start_all()
        cluster.await_ready()
    except BaseException:  # also when somebody interrupts it
        if not running:
            cluster.stop_all()
        raise
    return bool(running)


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
    name = cluster.plan().cluster
    places = {n.name: f"{n.host}:{n.port}" for n in cluster.plan().present}
    left = [f"{node} at {place}" for node, place in places.items()
            if _node(node, place).get("cluster") == name]  # fmt: skip
    if left:
        raise SamcastError(
            f"these were not started from {folder} and still answer: {', '.join(left)}; stop them"
            " where they were started"
        )
    typer.echo("cluster is down")


def gather(folder: Path, address: str = "") -> dict[str, Any]:
    """All that is known of a cluster: from its nodes, and from its folder if it has one here."""
    from samcast.client.blocking import connect
    from samcast.runtime.local_cluster import LocalCluster

    if address:
        with connect(address) as client:
            name = str(client.status()["cluster"])
            places = {name: f"{host}:{port}" for name, host, port in client.nodes}
        nodes = [_node(name, place) for name, place in places.items()]
        return {"cluster": name, "address": ",".join(places.values()), "nodes": nodes}
    cluster = LocalCluster(folder)
    if not cluster.exists:
        raise SamcastError(
            f"there is no cluster in {folder}; `samcast up --dir {folder}` makes one"
        )
    nodes = []
    for process in cluster.processes():
        node = process.plan
        said = _node(node.name, f"{node.host}:{node.port}")
        nodes.append({"roles": list(node.roles), "pid": process.pid or None, **said})
    return {"cluster": cluster.plan().cluster, "address": cluster.address, "nodes": nodes}


def _node(name: str, address: str) -> dict[str, Any]:
    """What one node says of itself."""
    from samcast.client.blocking import connect

    said: dict[str, Any] = {
        "name": name, "address": address, "sequencing": False, "state": "down",
    }  # fmt: skip
    try:
        with connect(address) as client:
            said.update(client.status())
    except (SamcastError, TimeoutError):
        pass
    return said


def status(
    folder: DIR = Path(".samcast"),
    cluster: CLUSTER = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """How a cluster is. Exit code 1 if no node answers."""
    said = gather(folder, remote_of(cluster, folder))
    is_down = all(node["state"] == "down" for node in said["nodes"])
    if as_json:
        typer.echo(json.dumps(said))
        raise typer.Exit(int(is_down))
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{said['cluster']}   {said['address']}")
    for column in ("node", "pid", "address", "roles", "state", "epoch", "index"):
        table.add_column(column)
    for node in said["nodes"]:
        state = "sequencing" if node["sequencing"] else node["state"]
        table.add_row(
            node["name"], str(node.get("pid") or "-"), node["address"],
            " ".join(node.get("roles", [])), state,
            str(node.get("epoch", "-")), str(node.get("index", "-")),
        )  # fmt: skip
    Console().print(table)
    _say_who_holds(said["nodes"])
    for trouble in look_at_lives(said["nodes"]):
        typer.echo(f"trouble: {trouble}")
    if not any(node["sequencing"] for node in said["nodes"]):
        up = sum(node["state"] != "down" for node in said["nodes"])
        typer.echo(
            f"nobody leads: {up} of {len(said['nodes'])} nodes answer; nothing is confirmed until"
            " enough are up and have agreed on one (`samcast doctor` says more)"
        )
    raise typer.Exit(int(is_down))


def _say_who_holds(nodes: list[dict[str, Any]]) -> None:
    """Messages that are there only since somebody has a lease on them are told of."""
    from samcast.cli.lease import told_holder
    from samcast.client.leases import holder_of

    told = next((n for n in nodes if n["sequencing"]), {})
    for group in told.get("groups", []):
        lease = holder_of(group)
        if lease is not None:
            typer.echo(f"{group['name']}: {told_holder(lease)}")
