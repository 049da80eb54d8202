"""Where a cluster is, for whoever doesn't say so."""

import os
from pathlib import Path

from samcast.errors import NotConnectedError
from samcast.runtime.local_cluster import LocalCluster

ENVIRONMENT = "SAMCAST_CLUSTER"
FOLDER = ".samcast"


def find_address(address: str | None = None, folder: str | Path = "") -> str:
    """Where the cluster is: as said, or from the environment, or of the folder `.samcast`."""
    if address is not None:
        return address
    if not folder and (said := os.environ.get(ENVIRONMENT)):
        return said
    local = LocalCluster(Path(folder or FOLDER))
    if local.exists:
        return local.address
    if folder:
        raise NotConnectedError(
            f"there is no cluster in {folder}; `samcast up --dir {folder}` makes one"
        )
    raise NotConnectedError(
        f"which cluster? Give an address (host:port), set {ENVIRONMENT}, or start one here with"
        " `samcast up`"
    )
