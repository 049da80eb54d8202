"""Who leads a cluster of this machine, as its nodes themselves say."""

import time

from samcast.client.blocking import connect
from samcast.errors import SamcastError
from samcast.runtime.local_cluster import LocalCluster

PAUSE_S = 0.02


def sequencer_of(cluster: LocalCluster, within_s: float = 10.0) -> str:
    """The name of the node that is sequencing, once there is one."""
    limit = time.monotonic() + within_s
    while time.monotonic() < limit:
        for process in cluster.processes():
            if not process.pid:
                continue
            try:
                with connect(f"{process.plan.host}:{process.plan.port}") as client:
                    if client.status()["sequencing"]:
                        return process.plan.name
            except (SamcastError, TimeoutError):
                continue
        time.sleep(PAUSE_S)
    raise SamcastError(f"nobody leads within {within_s:.0f} s; `samcast doctor` says why")
