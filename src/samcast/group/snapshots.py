"""Core snapshots of a commit server, and the truncation of its log that they allow.

A snapshot is taken at every agreed index. When enough commit servers hold one, and enough data
servers have marked every number up to it, the sequencer orders a truncation; each server then
rewrites its journal without those entries. Two generations are kept, and the one at the log's base:
who shares nothing with us starts from there.
"""

from typing import TYPE_CHECKING

from samcast.group.core import Core, state_hash
from samcast.group.order_log import OrderLog
from samcast.group.settings import GroupSettings
from samcast.group.storage import Replayed, RewriteOrder, StoreSnapshot
from samcast.machine.ports import Effect
from samcast.wire.order import HASH_NONE, Configuration

if TYPE_CHECKING:
    from samcast.group.commit_server import CommitServer

GENERATIONS = 2


class Snapshots:
    """The snapshots on one disk."""

    def __init__(self, server: "CommitServer", states: dict[int, bytes]) -> None:
        self._server = server
        self._states = states
        self.index, self.hash = 0, HASH_NONE  # of the newest
        for index in sorted(states):
            self._note(index, states[index])
        self._truncating = 0

    def _note(self, index: int, state: bytes) -> None:
        self._states[index] = state
        if index > self.index:
            self.index, self.hash = index, state_hash(state)

    def get(self, index: int) -> tuple[int, bytes] | None:
        """A durable snapshot: the one asked for, or the newest (0)."""
        index = index or self.index
        state = self._states.get(index)
        return None if state is None else (index, state)

    def keep(self, index: int, state: bytes) -> None:
        """A snapshot, ours or a peer's, is on our disk now."""
        self._note(index, state)
        kept = self.kept_with(index)
        self._states = {at: state for at, state in self._states.items() if at in kept}

    def kept_with(self, index: int) -> tuple[int, ...]:
        """Which snapshots stay once this one is durable."""
        newest = sorted({*self._states, index})[-GENERATIONS:]
        server = self._server
        # The base, the base that is being written, and the one that is ordered.
        bases = (server.log.base, self._truncating, server.core.truncated)
        return tuple(sorted({*newest, index, *bases}))

    def take(self, core: Core, out: list[Effect]) -> None:
        """Write the core state as it is at its index."""
        index, state = core.index, core.encode()
        kept = self.kept_with(index)
        out.append(
            self._server.store(
                lambda token: StoreSnapshot(token, index, state, kept),
                lambda o: self.keep(index, state),
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
