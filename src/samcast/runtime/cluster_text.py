"""The text of a cluster file, from the plan that it says."""

import dataclasses
import json
from pathlib import Path

from samcast.group.settings import GroupSettings
from samcast.runtime.cluster_file import ClusterPlan, NodePlan
from samcast.runtime.folder import write_durably


def write_cluster_file(plan: ClusterPlan) -> None:
    """The file that `read_cluster_file` reads the same plan from."""
    write_durably(plan.path, cluster_text(plan).encode())


def cluster_text(plan: ClusterPlan, *, is_shared: bool = False) -> str:
    """All of it, or only what all nodes share: how the cluster began."""
    lines = _head(plan)
    if plan.gone and not is_shared:
        names = ", ".join(map(quoted, plan.gone))
        lines.append(f"gone = [{names}]  # of the nodes below; the order has removed them")
    for node in plan.nodes:
        lines += _node("node", node, None if is_shared else plan.path.parent)
    for node in plan.joined if not is_shared else ():
        lines += _node("joined", node, plan.path.parent)
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
        f"cluster = {quoted(plan.cluster)}",
        f"k_commit = {plan.k_commit}  # disks that must hold the order before anything counts",
        f"e_commit = {plan.e_commit}  # commit servers that elect a sequencer",
        f"k_data = {plan.k_data}  # disks that must hold a message before it gets a number",
        f"k_checkpoint = {plan.k_checkpoint}  # servers that must have come to the same state",
    ]
    if plan.is_insecure:
        lines.append("insecure = true")
    if plan.multicast:
        lines.append(f"multicast = {quoted(plan.multicast)}")
        lines.append(f"datagram_bytes = {plan.datagram_bytes}")
        if plan.parity_percent:
            lines.append(f"parity_percent = {plan.parity_percent}")
        if plan.pace_mb_per_s:
            lines.append(f"pace_mb_per_s = {plan.pace_mb_per_s}")
        if plan.is_multicast_apart:
            lines.append("multicast_apart = true")
    return lines


def _node(table: str, node: NodePlan, beside: Path | None) -> list[str]:
    """`beside`: the folder of the file, for what is only this machine's."""
    own: list[str] = []
    if beside is not None:
        own += [f"listen = {quoted(node.listen)}"] if node.listen else []
        own += [f"socket = {quoted(_path(node.socket, beside))}"] if node.socket else []
        own += [f"metrics = {quoted(node.metrics)}"] if node.metrics else []
        own += [f"folder = {quoted(_path(node.folder, beside))}"]
    return [
        "",
        f"[[{table}]]",
        f"id = {node.id}",
        f"name = {quoted(node.name)}",
        f"host = {quoted(node.host)}",
        f"port = {node.port}",
        *own,
        f"roles = [{', '.join(map(quoted, node.roles))}]",
        f"uuid = {node.uuid}  # of its first disk",
    ]


def _path(path: Path, beside: Path) -> str:
    """As it would be written by hand: from the file on, where it lies below it."""
    try:
        return str(path.relative_to(beside))
    except ValueError:
        return str(path.absolute())


def quoted(text: str) -> str:
    """A TOML string, whatever is in it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
