"""The same face over real processes."""

from pathlib import Path

from samcast.client.blocking import Client, Group, connect
from samcast.client.leading import sequencer_of
from samcast.runtime.local_cluster import LocalCluster


class RealCluster:
    """Three nodes as processes, in a folder that goes with the test."""

    def __init__(self, folder: Path) -> None:
        self._local = LocalCluster(folder)
        self._local.make(3)
        self._local.start_all()
        try:
            self._local.await_ready()
            self._client: Client = connect(self._local.address)
        except BaseException:
            self._local.stop_all()
            raise

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes."""
        return [node.name for node in self._local.plan().present]

    def group(self, name: str) -> Group:
        """A group by its name; it is made if it isn't there."""
        return self._client.group(name)

    def kill(self, name: str) -> str:
        """SIGKILL a node; `sequencer` is whoever leads. Its name."""
        found = sequencer_of(self._local) if name == "sequencer" else name
        self._local.kill(found)
        return found

    def restart(self, name: str) -> None:
        """Start a node that was killed."""
        self._local.start(name)
        self._local.await_ready(name)

    def close(self) -> None:
        """Stop everything."""
        try:
            self._client.close()
        finally:
            self._local.stop_all()
