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
    from samcast.disk.layout import Opened
    from samcast.runtime.cluster_file import NodePlan
    from samcast.runtime.os_folder import OsFolder

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
    from samcast.runtime.folder import lock_folder, plain_errors

    node = read_cluster_file(config).node(name)
    if not node.folder.exists():
        raise DiskError(f"there is no folder {node.folder}; a node that starts makes it")
    with plain_errors(node.folder, name, config):
        lock = lock_folder(node.folder)
        try:
            yield node
        finally:
            os.close(lock)


@app.command()
def show(name: NAME, config: CONFIG = LOCAL) -> None:
    """Whether the disk of a node is whole; exit code 1 if it isn't."""
    from samcast.disk.layout import open_disk
    from samcast.runtime.os_folder import OsFolder

    with _stopped(config, name) as node:
        folder = OsFolder(node.folder)
        opened = open_disk(folder, node.id)
        why = opened.why if opened.record is None else _why_lost(folder, opened)
        if opened.record is None or why:
            raise DiskError(
                f"{node.folder} is no disk of {name} ({why}): {name} would set it aside and begin"
                " with a new one, which the cluster must let in"
            )
        typer.echo(f"{node.folder} is the disk {opened.record.uuid} of {name}; all of it is there")


def _why_lost(folder: "OsFolder", opened: "Opened") -> str:
    """Why a start would give up a disk whose parts are all there; nothing if it wouldn't. Journals
    are read as a start does; what that makes or mends, the next start would."""
    from samcast.disk.data_segments import LIST
    from samcast.disk.data_store import DataStore
    from samcast.disk.layout import DATA, ORDER
    from samcast.disk.order_store import OrderStore

    assert opened.record is not None
    names = folder.names()
    if ORDER in names:  # A disk of an earlier version that was never started has none.
        store = OrderStore(folder.folder(ORDER))
        try:
            order = store.recover(opened.record.uuid, is_laid_out=opened.is_laid_out)
        finally:
            store.close()
        if order is None:
            return "its vote can't be read"
        if order.is_rotten:
            raise DiskError(
                f"a part of the order in {folder.path}/{ORDER} is rotten or missing. If it was"
                " moved, bring it back; the node may start as it is, too, and then learns from the"
                " others what it lacks before it votes on that"
            )
    data = folder.folder(DATA)
    if DATA in names and LIST in data.names() and not DataStore(data).has_all():
        return "the list of its payloads can't be read"
    return ""


@app.command()
def trust(name: NAME, config: CONFIG = LOCAL, yes: YES = False) -> None:
    """Say that this is the node's own disk, neither a copy nor restored from one.

    A node asks for that when its device has another number than before, where the file system has
    nothing better to tell a disk by. An untrue word lets the node forget what it has confirmed.
    """
    from samcast.disk.layout import SUPER, missing, trust_disk
    from samcast.runtime.os_folder import OsFolder

    with _stopped(config, name) as node:
        folder = OsFolder(node.folder)
        if SUPER not in folder.names():
            raise missing(folder, SUPER)
        if not yes:
            typer.confirm(
                f"Is {node.folder} just as {name} left it, neither copied nor restored?", abort=True
            )
        trust_disk(folder, node.id)
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
