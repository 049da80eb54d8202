"""C and K once more, read off the disks: what is committed is found by a start on as many copies of
what is durable just then as it takes, and so are the payloads of what is numbered.

The other checkers believe acknowledgements and what recovery lists; this one runs the recovery that
ships on what would be left if the power went now. It is slow, so one seed of ten does it.
"""

from collections.abc import Callable, Iterable

from samcast.disk.data_segments import LIST
from samcast.disk.data_store import DataStore
from samcast.disk.layout import DATA, ORDER
from samcast.disk.order_store import OrderStore
from samcast.errors import DiskError
from samcast.group.storage import BatchKey, replay
from samcast.machine.quorum import servers_with
from samcast.sim.chance import SeededChance
from samcast.sim.checkers import Violation
from samcast.sim.disk import DATA_SEGMENT_BYTES
from samcast.sim.platter import Platter, SimFolder
from samcast.sim.world import Process
from samcast.wire.batch import identify
from samcast.wire.order import EPOCH_NONE, ROLE_COMMIT, ROLE_DATA, Configuration

EVERY = 10  # seeds
COMMITS = 10  # between two looks


class Reading:
    """Reads copies of disks."""

    def __init__(
        self,
        servers: Callable[[], list[Process]],
        hurt: Callable[[], int],
        gone: Callable[[BatchKey], list[bytes]],
        segment_bytes: int,
    ) -> None:
        self._servers = servers
        self._gone = gone  # contents that the order has let go
        self._hurt = hurt  # disks that the promises may do without just now
        self._segment_bytes = segment_bytes
        self.commits = 0
        self._runs: list[tuple[BatchKey, bytes]] = []  # since the last look

    def on_committed(
        self,
        index: int,
        entry_hash: bytes,
        runs: Iterable[tuple[BatchKey, bytes]],
        configuration: Configuration,
    ) -> None:
        """An entry was committed, and gave numbers to these. A look at one tells of all before it,
        since its hash does."""
        self.commits += 1
        self._runs += runs
        if self.commits % COMMITS:
            return
        wanted = [run for run in self._runs if run[1] not in self._gone(run[0])]
        self._runs = []
        hurt = self._hurt()
        orders = self._folders(configuration, ROLE_COMMIT)
        held = sum(self._holds(folder, index, entry_hash) for folder in orders)
        if held < configuration.k_commit - hurt:
            raise Violation("C", f"index {index} was committed, and {held} disks give it back")
        if wanted:
            stores = self._folders(configuration, ROLE_DATA)
            found = [self._payloads(folder, wanted) for folder in stores]
            for key, digest in wanted:
                copies = sum((key, digest) in some for some in found)
                if copies < configuration.k_data - hurt:
                    raise Violation("K", f"{key} was numbered, and {copies} disks give it back")

    def _folders(self, configuration: Configuration, role: int) -> list[SimFolder]:
        """What would be on the listed disks of a role if the power went now."""
        listed = {server.node: server.uuid for server in servers_with(configuration, role)}
        found: list[SimFolder] = []
        for process in self._servers():
            disk = process.disk
            if disk is not None and listed.get(process.node) == disk.uuid:
                found.append(disk.platter.root.copy(Platter(SeededChance(0))))
        return found

    def _holds(self, folder: SimFolder, index: int, entry_hash: bytes) -> bool:
        store = OrderStore(folder.folder(ORDER), self._segment_bytes)
        found = store.recover(0, is_laid_out=True)
        if found is None:
            return False
        epoch = found.vote.log_epoch if found.vote is not None else EPOCH_NONE
        replayed = replay(found.records, epoch, found.is_rotten)
        if replayed.log.base >= index:
            return True  # It is in the snapshot that the log begins with.
        is_known = not 0 < replayed.unknown_from <= index
        return is_known and replayed.log.hash_at(index) == entry_hash

    @staticmethod
    def _payloads(
        folder: SimFolder, wanted: list[tuple[BatchKey, bytes]]
    ) -> set[tuple[BatchKey, bytes]]:
        store = DataStore(folder.folder(DATA), DATA_SEGMENT_BYTES)
        try:
            if LIST not in store.folder.names() or store.recover(0) is None:
                return set()
        except DiskError:
            return set()
        payloads = [(key, store.read(key)) for key, _ in wanted]
        return {(key, identify(data)[3]) for key, data in payloads if data is not None}
