"""Preparing a node that is to join a running cluster: its file and its disk."""

import dataclasses
import secrets
from pathlib import Path

from samcast.errors import ConfigError, DiskError
from samcast.runtime.cluster_file import ClusterPlan, NodePlan, read_cluster_text
from samcast.runtime.cluster_text import write_cluster_file
from samcast.runtime.folder import format_folder


def prepare(origin: str, config: Path, node_id: int, name: str, host: str, port: int,
            roles: tuple[str, ...], folder: str) -> ClusterPlan:  # fmt: skip
    """Write the cluster file of a newcomer, and make its disk. `origin` is how the cluster began,
    as one of its nodes tells."""
    if config.exists():
        raise DiskError(f"{config} is there already; name another file, or go on with that one")
    plan = read_cluster_text(origin, config)
    node = NodePlan(
        id=node_id,
        name=name,
        host=host,
        port=port,
        roles=roles,
        folder=config.parent / folder,
        uuid=1 + secrets.randbelow(2**62),
    )
    return write_newcomer(plan, node)


def write_newcomer(plan: ClusterPlan, node: NodePlan) -> ClusterPlan:
    """Add a node to a file, and make its disk."""
    if any(known.name == node.name for known in (*plan.nodes, *plan.joined)):
        raise ConfigError(
            f"{plan.path}: there was a node {node.name!r} before; choose another name"
        )
    if node.folder.exists() and any(node.folder.iterdir()):
        raise DiskError(f"{node.folder} is not empty; a new node begins with an empty folder")
    joined = dataclasses.replace(plan, joined=(*plan.joined, node))
    write_cluster_file(joined)
    format_folder(node.folder, node.id, node.uuid)
    return joined
