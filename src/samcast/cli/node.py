"""`samcast node` and `samcast format`: one node of a cluster, in this process and on its disk."""

from pathlib import Path
from typing import Annotated

import typer

from samcast.errors import ConfigError, DiskError

CONFIG = Annotated[Path, typer.Option(help="The cluster file, the same for all nodes.")]
NAME = Annotated[str, typer.Option(help="Which of its nodes this is.")]


def run(
    config: CONFIG,
    name: NAME,
    log: Annotated[str, typer.Option(help="plain, or json: an object per line.")] = "plain",
) -> None:
    """Run one node until it is told to stop (SIGTERM)."""
    from samcast.runtime.cluster_file import read_cluster_file
    from samcast.runtime.log import Form
    from samcast.runtime.node import run_node

    if log not in [form.value for form in Form]:
        raise ConfigError(f"--log is {log!r}; it must be plain or json")
    raise typer.Exit(run_node(read_cluster_file(config), name, Form(log)))


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
