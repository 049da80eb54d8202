"""`samcast disk`: a node's folder while the node is stopped: whether all of it is there, and an
operator's word where the node can't know."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from samcast.errors import DiskError

if TYPE_CHECKING:
    from samcast.runtime.cluster_file import NodePlan

CONFIG = Annotated[Path, typer.Option(help="The cluster file.")]
NAME = Annotated[str, typer.Argument(help="Which of its nodes.")]
YES = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
LOCAL = Path(".samcast/cluster.toml")

app = typer.Typer(
    help="Look after the disk of a node that is stopped.",
    no_args_is_help=True,
)


@contextmanager
def _stopped(config: Path, name: str) -> "Iterator[NodePlan]":
    """The folder of a node, which nobody else uses meanwhile."""
    from samcast.runtime.cluster_file import read_cluster_file
    from samcast.runtime.folder import lock_folder

    node = read_cluster_file(config).node(name)
    if not node.folder.exists():
        raise DiskError(f"there is no folder {node.folder}; a node that starts makes it")
    lock = lock_folder(node.folder)
    try:
        yield node
    finally:
        os.close(lock)


@app.command()
def show(name: NAME, config: CONFIG = LOCAL) -> None:
    """Whether the disk of a node is whole; exit code 1 if it isn't."""
    from samcast.disk.data_store import DataStore
    from samcast.disk.layout import DATA, Opened, open_disk
    from samcast.runtime.os_folder import OsFolder

    with _stopped(config, name) as node:
        folder = OsFolder(node.folder)
        opened = open_disk(folder, node.id)
        if opened.record is not None and not DataStore(folder.folder(DATA)).has_all():
            opened = Opened(None, "the list of its payloads can't be read")
        if opened.record is None:
            raise DiskError(
                f"{node.folder} is no disk of {name} ({opened.why}): {name} would set it aside and"
                " begin with a new one, which the cluster must let in"
            )
        typer.echo(f"{node.folder} is the disk {opened.record.uuid} of {name}; all of it is there")


@app.command()
def trust(name: NAME, config: CONFIG = LOCAL, yes: YES = False) -> None:
    """Say that this is the node's own disk, neither a copy nor restored from one.

    A node asks for that when its device has another number than before, where the file system has
    nothing better to tell a disk by. An untrue word lets the node forget what it has confirmed.
    """
    from samcast.disk.layout import trust_disk
    from samcast.runtime.os_folder import OsFolder

    with _stopped(config, name) as node:
        if not yes:
            typer.confirm(
                f"Is {node.folder} just as {name} left it, neither copied nor restored?", abort=True
            )
        trust_disk(OsFolder(node.folder), node.id)
        typer.echo(f"{node.folder} is the disk of {name}; start it")


@app.command()
def renew(name: NAME, config: CONFIG = LOCAL, yes: YES = False) -> None:
    """Begin with a new disk: what is there is set aside, and the cluster must let the node in.

    For a disk that has lost a part for good. The cluster has one copy less of everything until the
    node has caught up.
    """
    from samcast.runtime.folder import format_folder, set_aside

    with _stopped(config, name) as node:
        if not yes:
            typer.confirm(
                f"Give up what is in {node.folder}? It is kept aside, but counts no more",
                abort=True,
            )
        aside = set_aside(node.folder)
        format_folder(node.folder, node.id)
        kept = f"; what was there is in {aside}" if aside is not None else ""
        typer.echo(f"{node.folder} is a new disk; start {name}, and it will be let in{kept}")
