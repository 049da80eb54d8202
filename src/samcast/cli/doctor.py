"""`samcast doctor`: what of this machine or folder would trouble a cluster."""

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import typer

from samcast.cli.where import CLUSTER, DIR, remote_of

ROOM_BYTES = 1024**3
SYNC_MS = 20.0


# Losses that somebody must act upon, since a node has started.
LOUD = ("checkpoints-differ", "checkpoint-wrong", "lease-lapsed")
# Leases of queries and jobs lapse when these end for good, and nobody need act.
PASSING = tuple(f"'{name}-" for name in ("spark", "audit", "consolidate", "backup"))


def run(folder: DIR = Path(".samcast"), cluster: CLUSTER = None) -> None:
    """Look for trouble: disk, room, nodes that don't answer. Exit code 1 if there is any."""
    remote = remote_of(cluster, folder)
    disk = [] if remote else look_at_disk(folder)
    troubles = [*disk, *look_at_cluster(folder, remote)]
    for trouble in troubles:
        typer.echo(f"trouble: {trouble}")
    if troubles:
        raise typer.Exit(1)
    typer.echo("no trouble found")


def look_at_disk(folder: Path) -> list[str]:
    """How fast it syncs, and how much room it has."""
    place = folder if folder.exists() else Path.cwd()
    waits: list[float] = []
    with tempfile.NamedTemporaryFile(dir=place) as file:
        for _ in range(20):
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
            waits.append((time.perf_counter() - began) * 1000)
    middle = statistics.median(waits)
    free = shutil.disk_usage(place).free
    typer.echo(f"python {sys.version.split()[0]}, a sync takes {middle:.2f} ms,"
               f" {free >> 20} MiB are free")  # fmt: skip
    troubles = []
    if middle > SYNC_MS:
        troubles.append(f"a sync takes {middle:.0f} ms, and every confirmation waits for two")
    if free < ROOM_BYTES:
        troubles.append(f"only {free >> 20} MiB are free; nodes refuse messages below 64")
    return troubles


def look_at_lives(nodes: list[dict[str, Any]]) -> list[str]:
    """Two processes of one node, and disks that are not let in by themselves."""
    from samcast.runtime.lives import sentence

    two = {facts["node"]: sentence(facts) for node in nodes for facts in node.get("two_lives", [])}
    asking = [
        f"disk {facts['disk']} asks for the place of {facts['name']} and is not let in:"
        f" {facts['why_not']}; if it is to have it, stop the other, then give"
        f" `samcast node admit {facts['name']} --disk {facts['disk']}`"
        for node in nodes
        for facts in node.get("asking", [])
        if facts["why_not"]
    ]
    return [*two.values(), *asking]


def look_at_cluster(folder: Path, remote: str) -> list[str]:
    """Whether all nodes are up, agree who leads, and have whole disks."""
    from samcast.cli.cluster import gather
    from samcast.runtime.local_cluster import LocalCluster, log_end

    cluster = LocalCluster(folder)
    if not remote and not cluster.exists:
        return [f"there is no cluster in {folder}; `samcast up` makes one"]
    nodes = gather(folder, remote)["nodes"]
    if all(node["state"] == "down" for node in nodes):
        return ["the cluster is stopped; `samcast up` starts it"]
    troubles = []
    others_up = sum("epoch" in node for node in nodes) - 1
    for node in nodes:
        if node.get("connected", {}).get("nodes", others_up) < others_up:
            troubles.append(
                f"{node['name']} is connected with {node['connected']['nodes']} of the {others_up}"
                " other nodes that are up; its log says why"
            )
        # The sequencer hears nobody while nobody else has anything to say.
        is_listening = not node["sequencing"] and node.get("connected", {}).get("nodes")
        if is_listening and node.get("multicast", {}).get("heard", 1) == 0:
            troubles.append(
                f"{node['name']} is connected with other nodes and hears none of them by multicast;"
                " does the network between them carry it? If not, leave `multicast` out of the file"
            )
        if "epoch" not in node:
            log = "" if remote else log_end(cluster.plan().node(node["name"]), 5)
            why = f"; the end of its log:\n{log}" if log else f" at {node['address']}"
            troubles.append(f"{node['name']} is down{why}")
        elif node["state"] == "learner":
            troubles.append(
                f"{node['name']} has a new disk and waits to be let in; whoever leads does that"
                " once the old disk has been silent for some time"
            )
        elif node.get("data", {}).get("is_full"):
            troubles.append(f"the disk of {node['name']} is full; it takes no messages")
        troubles += [
            f"{node['name']} warned: {detail}"
            for code, detail in node.get("last_warnings", {}).items()
            if code in LOUD and not detail.startswith(PASSING)
        ]
        troubles += [
            f"{node['name']} has trouble with checkpoints of group {group}: {why}"
            for group, why in node.get("fold_problems", {}).items()
        ]
    troubles += look_at_lives(nodes)
    if sum(bool(node["sequencing"]) for node in nodes) != 1:
        troubles.append("nobody leads, or two believe to; look again in a second")
    return troubles
