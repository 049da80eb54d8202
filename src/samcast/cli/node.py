"""`samcast node`: runs one node of a cluster in this process."""

from pathlib import Path
from typing import Annotated

import typer


def run(
    config: Annotated[Path, typer.Option(help="The cluster file, the same for all nodes.")],
    name: Annotated[str, typer.Option(help="Which of its nodes this is.")],
) -> None:
    """Run one node until it is told to stop (SIGTERM)."""
    from samcast.runtime.cluster_file import read_cluster_file
    from samcast.runtime.node import run_node

    raise typer.Exit(run_node(read_cluster_file(config), name))
