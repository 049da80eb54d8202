"""Starting and stopping a local cluster, by several people at once, and with its ids lost."""

import subprocess
import sys
from pathlib import Path

from samcast.runtime.local_cluster import LocalCluster, pid_path

SAMCAST = [sys.executable, "-m", "samcast.cli.main"]


def nodes_in(folder: Path) -> list[int]:
    """All processes that run a node of this folder, whatever its files say."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().decode().split("\0")
        except OSError:
            continue
        if str(folder / "cluster.toml") in command:
            found.append(int(path.parent.name))
    return found


def test_two_who_start_a_cluster_at_once_start_it_once_and_it_can_be_stopped(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "cluster"
    up = [*SAMCAST, "up", "--detach", "--dir", str(folder)]
    both = [subprocess.Popen(up, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    said = sorted(process.communicate(timeout=60)[0].decode().partition(":")[0] for process in both)
    running = nodes_in(folder)
    down = subprocess.run([*SAMCAST, "down", "--dir", str(folder)], capture_output=True, timeout=60)
    left = nodes_in(folder)
    LocalCluster(folder).stop_all()
    assert [process.returncode for process in both] == [0, 0]
    assert said == ["cluster is up", "cluster was up already"]
    assert len(running) == 3
    assert (down.returncode, left) == (0, [])


def test_a_node_whose_id_was_lost_is_stopped_all_the_same(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster")
    plan = cluster.make(2)
    cluster.start_all()
    try:
        cluster.await_ready()
        pid_path(plan.node("n1")).unlink()
        pid_path(plan.node("n2")).write_text("1\n")
        another = LocalCluster(cluster.folder)
        assert [p.pid for p in another.processes()] == [p.pid for p in cluster.processes()]
        another.stop_all()
        assert nodes_in(cluster.folder) == []
    finally:
        cluster.stop_all()
