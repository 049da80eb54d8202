"""Options that several subcommands share: which cluster is meant."""

import os
from pathlib import Path
from typing import Annotated

import typer

from samcast.errors import ConfigError

DIR = Annotated[Path, typer.Option("--dir", help="The folder of the cluster.")]
CLUSTER = Annotated[
    str | None,
    typer.Option("--cluster", help="host:port of any node; else $SAMCAST_CLUSTER, else --dir."),
]


def address_of(cluster: str | None, folder: Path) -> str:
    """The address that the options mean."""
    from samcast.client.finding import FOLDER, find_address

    return find_address(_checked(cluster), "" if folder == Path(FOLDER) else folder)


def remote_of(cluster: str | None, folder: Path) -> str:
    """The address that was said, by option or environment; nothing if the folder is meant."""
    from samcast.client.finding import ENVIRONMENT, FOLDER

    said = os.environ.get(ENVIRONMENT, "") if folder == Path(FOLDER) else ""
    return _checked(cluster) or said


def _checked(cluster: str | None) -> str | None:
    if cluster is not None and not cluster.strip():
        raise ConfigError("--cluster is empty; write host:port of a node, or leave it out")
    return cluster
