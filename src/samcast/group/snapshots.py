"""Core snapshots of a commit server, and the truncation of its log that they allow.

A snapshot is taken at every agreed index: the state is frozen there, which takes a moment, and
encoded bit by bit in the turns that follow, since a large one takes longer than a sequencer may be
silent. Each entry that is folded meanwhile pays for its share, so that one snapshot is done before
the next is due. When enough commit servers hold one, and enough data
servers have marked every number up to it, the sequencer orders a truncation; each server then
rewrites its journal without those entries. Two generations are kept, and the one at the log's base:
who shares nothing with us starts from there.
"""

from itertools import islice
from typing import TYPE_CHECKING

from samcast.group.core import Core
from samcast.group.core_state import state_hash
from samcast.group.order_log import OrderLog
from samcast.group.settings import GroupSettings
from samcast.group.storage import Replayed, RewriteOrder, StoreSnapshot
from samcast.limits import CORE_STATE_BYTES_MAX, ORDER_PIECE_BYTES_MAX
from samcast.machine.ports import NEVER_MS, Effect, Warn
from samcast.wire.order import HASH_NONE, Configuration

if TYPE_CHECKING:
    from samcast.group.commit_server import CommitServer

GENERATIONS = 2
PAUSE_MS = 5  # between two turns that encode: as long again as such a turn takes


class Making:
    """A snapshot under way."""

    __slots__ = ("chunks", "index", "per_entry", "pieces", "size")

    def __init__(self, frozen: Core, interval: int) -> None:
        self.index = frozen.index
        self.pieces = frozen.pieces()
        self.per_entry = 1 + frozen.size() // interval
        self.chunks: list[bytes] = []
        self.size = 0

    def encode(self, most: int) -> bool:
        """So many pieces more, or fewer if they are large; False: there are no more."""
        done: list[bytes] = []
        size = 0
        for piece in islice(self.pieces, most):
            done.append(piece)
            size += len(piece)
            if size >= ORDER_PIECE_BYTES_MAX:
                break
        self.chunks.append(b"".join(done))
        self.size += size
        return len(done) == most or size >= ORDER_PIECE_BYTES_MAX


class Snapshots:
    """The snapshots on one disk."""

    def __init__(self, server: "CommitServer", states: dict[int, bytes]) -> None:
        self._server = server
        self._states = states
        self.index, self.hash = 0, HASH_NONE  # of the newest
        for index in sorted(states):
            self._note(index, states[index], state_hash(states[index]))
        self._truncating = 0
        self._making: Making | None = None
        self._due_ms = 0  # when to encode more of it

    def _note(self, index: int, state: bytes, digest: bytes) -> None:
        self._states[index] = state
        if index > self.index:
            self.index, self.hash = index, digest

    def get(self, index: int) -> tuple[int, bytes] | None:
        """A durable snapshot: the one asked for, or the newest (0)."""
        index = index or self.index
        state = self._states.get(index)
        return None if state is None else (index, state)

    def keep(self, index: int, state: bytes, digest: bytes) -> None:
        """A snapshot, ours or a peer's, is on our disk now."""
        self._note(index, state, digest)
        kept = self.kept_with(index)
        self._states = {at: state for at, state in self._states.items() if at in kept}

    def kept_with(self, index: int) -> tuple[int, ...]:
        """Which snapshots stay once this one is durable."""
        newest = sorted({*self._states, index})[-GENERATIONS:]
        server = self._server
        # The base, the base that is being written, and the one that is ordered.
        bases = (server.log.base, self._truncating, server.core.truncated)
        return tuple(sorted({*newest, index, *bases}))

    def on_folded(self, core: Core, out: list[Effect]) -> None:
        """One entry more is in the core state: go on, and begin at an agreed index."""
        if self._making is not None:
            self._go_on(self._making, self._making.per_entry, out)
        settings = self._server.settings
        if core.index % settings.snapshot_interval:
            return
        while self._making is not None:
            self._go_on(self._making, settings.snapshot_rows_max, out)
        self._making = Making(self.freeze(core), settings.snapshot_interval)
        self._due_ms = self._server.now_ms

    def on_drained(self, out: list[Effect]) -> None:
        """At the end of a turn, every few: not more than doesn't hold anybody up."""
        if self._making is not None and self._server.now_ms >= self._due_ms:
            self._due_ms = self._server.now_ms + PAUSE_MS
            self._go_on(self._making, self._server.settings.snapshot_rows_max, out)

    def due_ms(self) -> int:
        """Soon, while there is something to encode."""
        return NEVER_MS if self._making is None else self._due_ms

    @staticmethod
    def freeze(core: Core) -> Core:
        """The state as it is at this index, whatever is folded from now on."""
        return core.copy()

    def _go_on(self, making: Making, most: int, out: list[Effect]) -> None:
        if making.encode(most):
            return
        self._making = None
        if making.size > CORE_STATE_BYTES_MAX:
            # The same everywhere. Without a snapshot entries stay, and nothing else happens.
            said = f"at {making.index}: {making.size} bytes, {CORE_STATE_BYTES_MAX} fit; remove"
            out.append(Warn("core-state-size", f"{said} groups or names, or the log only grows"))
            return
        index, digest, state = making.index, state_hash(*making.chunks), b"".join(making.chunks)
        kept = self.kept_with(index)
        out.append(
            self._server.store(
                lambda token: StoreSnapshot(token, index, state, kept),
                lambda o: self.keep(index, state, digest),
            )
        )

    @property
    def is_truncating(self) -> bool:
        """The journal is being rewritten without its oldest entries."""
        return self._truncating > self._server.log.base

    def truncate(self, index: int, out: list[Effect]) -> None:
        """Entries up to a committed truncation may go."""
        server = self._server
        if server.installing.is_writing or server.unknown_from or index not in self._states:
            return  # A later turn tries again.
        if self._truncating >= index:
            return
        self._truncating = index
        epoch, length = server.log_epoch, server.log.length
        records = server.writer.fresh(server.log, index, epoch)

        def stored(o: list[Effect]) -> None:
            if server.log.base < index <= server.core.index:
                server.log.drop(index)
                server.queries.forget_below(index)
                if server.sequencer is not None:
                    server.sequencer.drop_below(index)
            server.on_entries_stored(epoch, length, o)

        out.append(server.store(lambda token: RewriteOrder(token, records), stored))


def recover_core(
    initial: Configuration, settings: GroupSettings, replayed: Replayed, states: dict[int, bytes]
) -> Core:
    """The fold at the newest snapshot that the log reaches: what it holds must not be given up
    for a later one, since data servers may not have seen those entries yet."""
    core = Core(initial, settings)
    for index in sorted(states, reverse=True):
        older = Core.decode(states[index], settings)
        if replayed.log.hash_at(index) == older.hash:
            return older
        core = core if core.index else older
    if replayed.log.hash_at(core.index) == core.hash:
        return core
    if core.index < replayed.log.base or replayed.unknown_from:
        # The base's snapshot, or what led up to this one, is lost: nothing above it is known.
        replayed.unknown_from = core.index + 1
    replayed.log = OrderLog(core.index, core.hash)
    return core
