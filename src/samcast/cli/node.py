"""`samcast node` and `samcast format`: one node of a cluster, in this process and on its disk; and
changing who the nodes are."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samcast.cli.where import CLUSTER, DIR, address_of, remote_of
from samcast.errors import ConfigError, DiskError

if TYPE_CHECKING:
    from samcast.client.administration import Administration, Newcomer
    from samcast.runtime.local_cluster import LocalCluster
    from samcast.wire.order import Configuration, Place

CONFIG = Annotated[Path, typer.Option(help="The cluster file, the same for all nodes.")]
NAME = Annotated[str, typer.Option(help="Which of its nodes this is.")]
LOG = Annotated[str, typer.Option(help="plain, or json: an object per line.")]
WAITING = Annotated[
    str | None,
    typer.Argument(
        metavar="[HOST:PORT]",
        help="A node that was prepared, runs, and waits. Without it one is made in --dir.",
    ),
]
LOST = Annotated[
    bool,
    typer.Option(
        "--lost", help="Its disk is lost for good: don't wait for copies of what only it may hold."
    ),
]
PATIENCE = Annotated[float, typer.Option("--timeout", help="Seconds until it is given up.", min=1)]
K_COMMIT = Annotated[int | None, typer.Option(help="Disks that must hold the order.", min=1)]
E_COMMIT = Annotated[int | None, typer.Option(help="Commit servers that elect.", min=1)]
K_DATA = Annotated[int | None, typer.Option(help="Disks that must hold a message.", min=1)]
K_CHECKPOINT = Annotated[
    int | None, typer.Option(help="Servers that must have come to the same state.", min=0)
]
LOCAL = Path(".samcast")
NAME_OF_A_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
TIMEOUT_S = 300.0

app = typer.Typer(
    help="Run a node; list, add, remove and replace nodes of a running cluster.",
    no_args_is_help=True,
)


@app.callback(invoke_without_command=True)
def run_or_change(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(help="The cluster file; with --name: run that node.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Which of its nodes this is.")] = None,
    log: LOG = "plain",
) -> None:
    """`samcast node --config FILE --name NAME` runs a node until it is told to stop (SIGTERM). The
    commands below change who the nodes of a running cluster are."""
    if context.invoked_subcommand is not None:
        return
    if config is None or name is None:
        raise ConfigError("say --config and --name to run a node, or a command (--help)")
    from samcast.runtime.cluster_file import read_cluster_file
    from samcast.runtime.log import Form
    from samcast.runtime.node import run_node

    if log not in [form.value for form in Form]:
        raise ConfigError(f"--log is {log!r}; it must be plain or json")
    raise typer.Exit(run_node(read_cluster_file(config), name, Form(log)))


@app.command("list")
def show(cluster: CLUSTER = None, folder: DIR = LOCAL) -> None:
    """Who serves now, and how many of them must agree."""
    with _administration(cluster, folder) as admin:
        _tell(admin.configuration, admin.places)


def _tell(now: "Configuration", found: "dict[int, Place]") -> None:
    """A configuration, in lines."""
    from samcast.runtime.cluster_file import ROLES

    names = {node: place.name for node, place in found.items()}
    places = {place.name: f"{place.host}:{place.port}" for place in found.values()}
    for server in now.servers:
        name = names.get(server.node, f"node {server.node}")
        roles = " ".join(role for role, bit in ROLES.items() if server.roles & bit)
        typer.echo(f"{name}\t{places.get(name, '?')}\t{roles}")
    typer.echo(
        f"configuration {now.number}: k_commit {now.k_commit}, e_commit {now.e_commit}, k_data"
        f" {now.k_data}, k_checkpoint {now.k_checkpoint}"
    )


@app.command("prepare")
def prepare(
    name: Annotated[str, typer.Argument(help="A name that no node of the cluster ever had.")],
    host: Annotated[str, typer.Option(help="Where the others will find it.")],
    port: Annotated[int, typer.Option(help="Where the others will find it.", min=1, max=65535)],
    config: Annotated[
        Path | None, typer.Option(help="The file that is written; else NAME.toml.")
    ] = None,
    roles: Annotated[str, typer.Option(help="Of commit,data,checkpoint.")] = (
        "commit,data,checkpoint"
    ),
    cluster: CLUSTER = None,
    folder: DIR = LOCAL,
) -> None:
    """On a new machine: write the file and make the disk of a node that is to join a cluster."""
    from samcast.client.blocking import connect
    from samcast.machine.change import node_last
    from samcast.runtime.cluster_file import ROLES
    from samcast.runtime.newcomer import prepare as prepare_node

    wanted = tuple(role.strip() for role in roles.split(","))
    if not NAME_OF_A_NODE.fullmatch(name):
        raise ConfigError(f"{name!r} is no name for a node: letters, digits, '.', '-' and '_'")
    if any(role not in ROLES for role in wanted) or len(set(wanted)) != len(wanted):
        raise ConfigError(f"--roles is {roles!r}; it must be some of {','.join(ROLES)}")
    path = config or Path(f"{name}.toml")
    with connect(address_of(cluster, folder)) as client:
        origin = client.engine.call(client.engine.plan(), 10)
        node_id = node_last(client.engine.configuration) + 1
    prepare_node(origin, path, node_id, name, host, port, wanted, name)
    typer.echo(f"{path} and the disk of {name} are there; now")
    typer.echo(f"  samcast node --config {path} --name {name}     # run it; it waits")
    typer.echo(f"  samcast node add {host}:{port}     # from anywhere: let it in")


@app.command("add")
def add(
    waiting: WAITING = None,
    k_commit: K_COMMIT = None,
    e_commit: E_COMMIT = None,
    k_data: K_DATA = None,
    k_checkpoint: K_CHECKPOINT = None,
    timeout: PATIENCE = TIMEOUT_S,
    cluster: CLUSTER = None,
    folder: DIR = LOCAL,
) -> None:
    """Let one more node in. Unless you say otherwise, a majority must agree from then on."""
    from samcast.client.administration import Quorums

    quorums = Quorums(k_commit, e_commit, k_data, k_checkpoint)
    with _administration(cluster, folder) as admin:
        newcomer = _newcomer(admin, waiting, cluster, folder)
        before = admin.places
        now = admin.add(newcomer, quorums, timeout)
    typer.echo(f"{newcomer.place.name} is of the cluster")
    _tell(now, {**before, newcomer.place.node: newcomer.place})


@app.command("remove")
def remove(
    name: str,
    lost: LOST = False,
    k_commit: K_COMMIT = None,
    e_commit: E_COMMIT = None,
    k_data: K_DATA = None,
    k_checkpoint: K_CHECKPOINT = None,
    timeout: PATIENCE = TIMEOUT_S,
    cluster: CLUSTER = None,
    folder: DIR = LOCAL,
) -> None:
    """Do without a node, up or down. When this has ended, it may be switched off for good."""
    from samcast.client.administration import Quorums

    quorums = Quorums(k_commit, e_commit, k_data, k_checkpoint)
    with _administration(cluster, folder) as admin:
        before = admin.places
        now = admin.remove(name, quorums, timeout, lost)
    _retire(name, cluster, folder)
    _tell(now, before)


@app.command("replace")
def replace(
    name: str,
    waiting: WAITING = None,
    lost: LOST = False,
    timeout: PATIENCE = TIMEOUT_S,
    cluster: CLUSTER = None,
    folder: DIR = LOCAL,
) -> None:
    """Put a node in the place of another, up or down. When this has ended, the old one may be
    switched off for good."""
    with _administration(cluster, folder) as admin:
        admin.node_of(name)
        newcomer = _newcomer(admin, waiting, cluster, folder)
        before = admin.places
        now = admin.replace(name, newcomer, timeout, lost)
    typer.echo(f"{newcomer.place.name} is in the place of {name}")
    _retire(name, cluster, folder)
    _tell(now, {**before, newcomer.place.node: newcomer.place})


@app.command("admit")
def admit(
    name: str,
    disk: Annotated[
        int | None,
        typer.Option(help="Its uuid, as doctor and status tell; else the one that asks."),
    ] = None,
    timeout: PATIENCE = TIMEOUT_S,
    cluster: CLUSTER = None,
    folder: DIR = LOCAL,
) -> None:
    """Give a node's place to its new disk now. The old one must have been stopped, counts as lost,
    and never takes its place back by itself."""
    with _administration(cluster, folder) as admin:
        before = admin.places
        chosen = admin.disk_that_asks(name) if disk is None else disk
        now = admin.admit(name, chosen, timeout)
    typer.echo(f"disk {chosen} has the place of {name}")
    _tell(now, before)


@app.command("quorums")
def quorums(
    k_commit: K_COMMIT = None,
    e_commit: E_COMMIT = None,
    k_data: K_DATA = None,
    k_checkpoint: K_CHECKPOINT = None,
    timeout: PATIENCE = TIMEOUT_S,
    cluster: CLUSTER = None,
    folder: DIR = LOCAL,
) -> None:
    """Change how many nodes must agree."""
    from samcast.client.administration import Quorums

    wanted = Quorums(k_commit, e_commit, k_data, k_checkpoint)
    if wanted == Quorums():
        raise ConfigError("say which number is to change (--help shows them)")
    with _administration(cluster, folder) as admin:
        before = admin.places
        now = admin.set_quorums(wanted, timeout)
    _tell(now, before)


@contextmanager
def _administration(cluster: str | None, folder: Path) -> "Iterator[Administration]":
    from samcast.client.administration import Administration
    from samcast.client.blocking import connect

    with connect(address_of(cluster, folder)) as client:
        yield Administration(client, lambda text: typer.echo(text, err=True))


def _newcomer(
    admin: "Administration", waiting: str | None, cluster: str | None, folder: Path
) -> "Newcomer":
    """The node at an address, or a new one in the folder of a local cluster."""
    from samcast.client.administration import newcomer_at
    from samcast.machine.change import node_last

    if waiting is None:
        local = _local(cluster, folder)
        if local is None:
            raise ConfigError(
                "say where the new node waits (host:port); `samcast node prepare` makes one"
            )
        node = local.prepare(node_last(admin.configuration) + 1)
        local.start(node.name)
        local.await_ready(node.name)
        waiting = f"{node.host}:{node.port}"
    return newcomer_at(waiting, admin.cluster)


def _local(cluster: str | None, folder: Path) -> "LocalCluster | None":
    """The cluster of the folder, if that is what is meant."""
    from samcast.runtime.local_cluster import LocalCluster

    if remote_of(cluster, folder) or not LocalCluster(folder).exists:
        return None
    return LocalCluster(folder)


def _retire(name: str, cluster: str | None, folder: Path) -> None:
    """End a node of a local cluster that was removed."""
    local = _local(cluster, folder)
    if local is None or name not in [node.name for node in local.plan().present]:
        typer.echo(f"{name} is not of the cluster any more; it stops, and its folder may go")
        return
    local.retire(name)
    typer.echo(f"{name} has ended; its folder {local.plan().node(name).folder} may go")


def make_disk(config: CONFIG, name: NAME) -> None:
    """Make the first disk of a node of a NEW cluster, with the uuid of the cluster file.

    A node that has lost its disk must not do this: it just starts, and is let in again.
    """
    from samcast.runtime.cluster_file import read_cluster_file
    from samcast.runtime.folder import format_folder

    node = read_cluster_file(config).node(name)
    if node.folder.exists() and any(node.folder.iterdir()):
        raise DiskError(f"{node.folder} is not empty; a first disk begins with an empty folder")
    format_folder(node.folder, node.id, node.uuid)
    typer.echo(f"{node.folder} is the first disk of {name}")
