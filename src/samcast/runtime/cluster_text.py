"""The text of a cluster file, from the plan that it says."""

import dataclasses

from samcast.group.settings import GroupSettings
from samcast.runtime.cluster_file import ClusterPlan, NodePlan


def write_cluster_file(plan: ClusterPlan) -> None:
    """The file that `read_cluster_file` reads the same plan from."""
    plan.path.write_text(cluster_text(plan))


def cluster_text(plan: ClusterPlan, *, is_shared: bool = False) -> str:
    """All of it, or only what all nodes share: how the cluster began."""
    lines = _head(plan)
    if plan.gone and not is_shared:
        names = ", ".join(f'"{name}"' for name in plan.gone)
        lines.append(f"gone = [{names}]  # of the nodes below; the order has removed them")
    for node in plan.nodes:
        lines += _node("node", node, is_shared)
    for node in plan.joined if not is_shared else ():
        lines += _node("joined", node, is_shared)
    defaults = GroupSettings()
    changed = {
        field.name: getattr(plan.settings, field.name)
        for field in dataclasses.fields(defaults)
        if getattr(plan.settings, field.name) != getattr(defaults, field.name)
    }
    if changed:
        lines += ["", "[settings]"]
        lines += [f"{key} = {str(value).lower()}" for key, value in changed.items()]
    return "\n".join(lines) + "\n"


def _head(plan: ClusterPlan) -> list[str]:
    lines = [
        f'cluster = "{plan.cluster}"',
        f"k_commit = {plan.k_commit}  # disks that must hold the order before anything counts",
        f"e_commit = {plan.e_commit}  # commit servers that elect a sequencer",
        f"k_data = {plan.k_data}  # disks that must hold a message before it gets a number",
        f"k_checkpoint = {plan.k_checkpoint}  # servers that must have come to the same state",
    ]
    if plan.is_insecure:
        lines.append("insecure = true")
    if plan.multicast:
        lines.append(f'multicast = "{plan.multicast}"')
        lines.append(f"datagram_bytes = {plan.datagram_bytes}")
        if plan.parity_percent:
            lines.append(f"parity_percent = {plan.parity_percent}")
        if plan.pace_mb_per_s:
            lines.append(f"pace_mb_per_s = {plan.pace_mb_per_s}")
        if plan.is_multicast_apart:
            lines.append("multicast_apart = true")
    return lines


def _node(table: str, node: NodePlan, is_shared: bool) -> list[str]:
    roles = ", ".join(f'"{role}"' for role in node.roles)
    own = [] if is_shared else [
        *([f'listen = "{node.listen}"'] if node.listen else []),
        *([f'socket = "{node.socket.name}"'] if node.socket else []),
        *([f'metrics = "{node.metrics}"'] if node.metrics else []),
        f'folder = "{node.folder.name}"',
    ]  # fmt: skip
    return [
        "",
        f"[[{table}]]",
        f"id = {node.id}",
        f'name = "{node.name}"',
        f'host = "{node.host}"',
        f"port = {node.port}",
        *own,
        f"roles = [{roles}]",
        f"uuid = {node.uuid}  # of its first disk",
    ]
