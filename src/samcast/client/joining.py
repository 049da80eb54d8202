"""Beginning with a checkpoint: its blocks are fetched from several servers at once, each is checked
as it comes, and the whole against the hash that the order advertises."""

import importlib.util
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from samcast.client.ending import Arrivals, Ended
from samcast.errors import CheckpointAbsentError, ClientError, DiskError, NotConnectedError
from samcast.group.fetching import Absent, Fetched, Fetching, Refuse, Want
from samcast.group.table import Table
from samcast.machine.ports import Effect
from samcast.machine.quorum import servers_with
from samcast.wire.order import ROLE_CHECKPOINT, Checkpoint
from samcast.wire.retention import digest_of_list

if TYPE_CHECKING:
    from samcast.checkpoint.blocks import Block, BlockList
    from samcast.client.engine import Engine

T = TypeVar("T")
SILENCE_S = 30.0  # after which a fetch is given up
AGAIN_S = 0.2  # between two questions whether a checkpoint is there by now
REFUSED_MAX = 20  # blocks that were not what they should be

Progress = Callable[[int, int], None]  # rows that are here, and all of them


def nobody_looks(rows: int, of: int) -> None:
    """The progress of a fetch that nobody watches."""


def fetch_table(
    engine: "Engine", group: int, checkpoint: Checkpoint, progress: Progress = nobody_looks
) -> Table:
    """The state of a checkpoint."""
    try:
        return patiently(lambda: _fetched(engine, group, checkpoint, progress))
    except NotConnectedError:
        # Who had this list of blocks may have another one by now: once more, with a fresh one.
        return _fetched(engine, group, checkpoint, progress)


def patiently(fetch: Callable[[], T]) -> T:
    """Fetch a checkpoint that somebody holds for us: servers that say they have none may have just
    started, or not be through with copying it."""
    limit = time.monotonic() + SILENCE_S
    while True:
        try:
            return fetch()
        except CheckpointAbsentError:
            if time.monotonic() > limit:
                raise
            time.sleep(AGAIN_S)


def _fetched(engine: "Engine", group: int, checkpoint: Checkpoint, progress: Progress) -> Table:
    from samcast.checkpoint.blocks import read_block

    with Fetch(engine, group, checkpoint) as fetch:
        listed = fetch.list()
        table = Table()
        for _, (rows, total) in fetch.blocks(range(1, len(listed.blocks) + 1), read_block):
            table.load(rows, total)
            progress(len(table), listed.rows)
        listed.complete(table)
    if table.state_hash() != checkpoint.hash:
        raise ClientError(f"the blocks of checkpoint {table.number} don't add up to its hash")
    return table


class Fetch:
    """One checkpoint on its way here, or some of its blocks; of a list that is here already, if
    one is given, else of one that is fetched first."""

    def __init__(
        self, engine: "Engine", group: int, checkpoint: Checkpoint, listed: bytes = b""
    ) -> None:
        if importlib.util.find_spec("pyarrow") is None:
            raise ClientError("a checkpoint is read with pyarrow: pip install 'samcast[arrow]'")
        servers = [s.node for s in servers_with(engine.configuration, ROLE_CHECKPOINT)]
        if not servers:
            raise ClientError("no node of this cluster serves checkpoints (roles in its file)")
        self._engine = engine
        self._checkpoint = checkpoint
        self._window = 3 * len(servers)  # blocks on their way, whoever is slower
        self._found = Arrivals()
        self._refused = 0
        self.listed = listed
        role = Fetching(group, checkpoint.number, servers, () if listed else (0,))
        self._at = engine.call(engine.add_role(role, self._on_effect))

    def _on_effect(self, effect: Effect) -> None:
        if isinstance(effect, Fetched | Absent | Ended):
            self._found.put(effect)

    def __enter__(self) -> "Fetch":
        return self

    def __exit__(self, *error: object) -> None:
        if not self._engine.is_closed:
            self._engine.call(self._engine.remove_role(self._at))

    def list(self) -> "BlockList":
        """Which blocks there are; checked against what is advertised."""
        from samcast.checkpoint.blocks import read_list

        if self.listed:
            return read_list(self.listed, self._checkpoint)
        fetched, found = self._take(lambda one: read_list(one.data, self._checkpoint))
        self.listed = fetched.data
        return found

    def blocks(
        self, wanted: Sequence[int], read: "Callable[[bytes, Block], T]"
    ) -> Iterator[tuple[int, T]]:
        """Blocks of this list, in whatever order they come, each as `read` gives it."""
        listed = self.list()
        self._want(wanted[: self._window])
        for taken in range(len(wanted)):
            fetched, found = self._take(lambda one: read(one.data, listed.blocks[one.block - 1]))
            yield fetched.block, found
            self._want(wanted[self._window + taken : self._window + taken + 1])

    def _want(self, blocks: Sequence[int]) -> None:
        if blocks:
            self._engine.post(self._at, Want(tuple(blocks), digest_of_list(self.listed)))

    def _take(self, read: Callable[[Fetched], T]) -> tuple[Fetched, T]:
        """The next one that is what it should be; others are asked for what isn't."""
        while True:
            try:
                fetched: Fetched = self._found.get(timeout=SILENCE_S)
            except queue.Empty:
                raise NotConnectedError(
                    f"no checkpoint server gives checkpoint {self._checkpoint.number} (asked for"
                    f" {SILENCE_S:.0f} s)"
                ) from None
            if isinstance(fetched, Absent):
                raise CheckpointAbsentError(
                    f"no server has checkpoint {self._checkpoint.number} just now: there may be a"
                    " newer one, or they have just started; ask again which there are"
                )
            try:
                return fetched, read(fetched)
            except DiskError as error:
                self._refused += 1
                if self._refused > REFUSED_MAX:
                    raise ClientError(f"no sound checkpoint could be had: {error}") from None
                self._engine.post(self._at, Refuse(fetched.block, fetched.server))
