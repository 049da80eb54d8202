"""Installing another log on a commit server: gather its chunks, write it, then let it take effect.

The new end goes to disk first, the log epoch after it, and only then is the sequencer told; a crash
in between leaves the old log in force. Where the logs share nothing, the core snapshot at the new
log's base is fetched before.
"""

from typing import TYPE_CHECKING

import msgspec

from samcast.group.core import Core
from samcast.group.core_state import state_hash
from samcast.group.election import speaks_for
from samcast.group.follower import SNAPSHOT_BYTES_MAX
from samcast.group.order_log import OrderLog
from samcast.group.storage import StoreSnapshot
from samcast.machine.ports import Effect, NodeId, Send, Warn
from samcast.wire.change import Moved
from samcast.wire.group import Refusal, SnapshotReply, SnapshotRequest, Start, StartReply
from samcast.wire.order import HASH_NONE, AnyEntry, Epoch, same_rank

if TYPE_CHECKING:
    from samcast.group.commit_server import CommitServer


Stamp = tuple[int, Epoch]  # the number of a configuration, and an epoch that was elected in it


class Install:
    """A log on its way in."""

    __slots__ = ("base", "base_hash", "core", "entries", "epoch", "log", "sequencer", "stamp")

    def __init__(self, start: Start, sequencer: NodeId, core: Core | None) -> None:
        self.epoch = start.epoch
        self.stamp: Stamp = (start.configuration.number, start.epoch)
        self.base = start.base
        self.base_hash = start.base_hash
        self.sequencer = sequencer
        self.core = core  # at the base, where it had to be fetched
        self.entries: list[AnyEntry] = []
        self.log = OrderLog(start.base, start.base_hash)

    @property
    def length(self) -> int:
        """Gathered up to here."""
        return self.base + len(self.entries)


class Installing:
    """At most one install at a time."""

    def __init__(self, server: "CommitServer") -> None:
        self._server = server
        self._install: Install | None = None
        self.is_writing = False
        self._fetching: Start | None = None
        self._state = bytearray()

    def is_busy(self, epoch: Epoch) -> bool:
        """This epoch's log is being written: nothing to ask for."""
        install = self._install
        return self.is_writing and install is not None and install.epoch == epoch

    def received(self, epoch: Epoch) -> int:
        """How far this epoch's chunks have come."""
        install = self._install
        return install.length if install is not None and install.epoch == epoch else 0

    def ask(self, sequencer: NodeId, epoch: Epoch, out: list[Effect]) -> None:
        """Tell a sequencer whose log we don't have how far ours agrees with whatever it has."""
        if self._server.may_accept() and not self.is_busy(epoch):
            out.append(Send(sequencer, self.reply(epoch, is_started=False)))

    def reply(self, epoch: Epoch, *, is_started: bool) -> StartReply:
        """Where we stand in an install. One that has lost entries to rot which are not truncated
        wants them back, for the sake of data servers: it names no place to go on from."""
        server = self._server
        has_lost = server.unknown_from and server.log.base > server.core.truncated
        return StartReply(
            server.configuration.number,
            epoch,
            server.uuid,
            is_started,
            self.received(epoch),
            server.durable_length,
            () if has_lost else server.log.landmarks(),
        )

    def on_start(self, sender: NodeId, start: Start, out: list[Effect]) -> None:
        """One chunk of the log of a new sequencer."""
        server = self._server
        if start.configuration.number < server.configuration.number:
            out.append(Send(sender, Moved(server.configuration)))
            return
        server.adopt_configuration(start.configuration, out)
        server.accept_invitation()
        if not server.may_accept() or not speaks_for(sender, start.epoch, out):
            return
        clash = same_rank(start.epoch, server.promised) and start.epoch != server.promised
        if start.epoch < server.promised or clash:
            out.append(Send(sender, Refusal(start.epoch, server.promised, server.configuration)))
            return
        server.election.on_sequencer_heard(start.epoch)
        if not self._is_wanted(start):
            out.append(Send(sender, self.reply(start.epoch, is_started=True)))
            return
        if self.is_writing or not self._begin(sender, start, out):
            return
        self._gather(sender, start, out)

    def _is_wanted(self, start: Start) -> bool:
        """Not once we follow in this epoch: what we have accepted since must not be undone."""
        server = self._server
        is_behind = server.unknown_from or start.base > server.log.length
        return bool(is_behind) or start.epoch != server.log_epoch

    def _begin(self, sender: NodeId, start: Start, out: list[Effect]) -> bool:
        """Make sure that an install with this base is under way; False: not yet."""
        install = self._install
        if install is not None and (install.epoch, install.base) == (start.epoch, start.base):
            return True
        if start.base > start.length or start.index_first <= start.base:
            out.append(Warn("start-range", f"{sender}: base {start.base}, {start.index_first}"))
            return False
        is_from_start = start.base == 0 and start.base_hash == HASH_NONE
        if is_from_start or self._server.log.hash_at(start.base) == start.base_hash:
            self._install = Install(start, sender, None)
            return True
        self._fetch(sender, start, out)
        return False

    def _fetch(self, sender: NodeId, start: Start, out: list[Effect]) -> None:
        """The logs share nothing above the sequencer's base: its core snapshot comes first."""
        fetching = self._fetching
        if fetching is None or (fetching.epoch, fetching.base) != (start.epoch, start.base):
            self._state.clear()
        self._fetching = start
        out.append(Send(sender, SnapshotRequest(start.base, len(self._state))))

    def on_snapshot_reply(self, sender: NodeId, reply: SnapshotReply, out: list[Effect]) -> None:
        """A piece of the snapshot at the base."""
        start = self._fetching
        if start is None or reply.index != start.base or reply.offset != len(self._state):
            return
        end = reply.offset + len(reply.data)
        if not reply.data or not end <= reply.total <= SNAPSHOT_BYTES_MAX:
            out.append(Warn("snapshot-range", f"{sender}: {reply.offset} of {reply.total}"))
            return
        self._state += reply.data
        if len(self._state) < reply.total:
            out.append(Send(sender, SnapshotRequest(start.base, len(self._state))))
            return
        state = bytes(self._state)
        self._fetching = None
        self._state.clear()
        try:
            core = Core.decode(state, self._server.settings)
        except msgspec.DecodeError as error:
            out.append(Warn("snapshot-malformed", f"{sender}: {error}"))
            return
        if (core.index, core.hash) != (start.base, start.base_hash):
            out.append(Warn("snapshot-other", f"{sender} sent index {core.index}"))
            return
        self._keep(sender, start, core, state, out)

    def _keep(
        self, sender: NodeId, start: Start, core: Core, state: bytes, out: list[Effect]
    ) -> None:
        server = self._server

        def stored(o: list[Effect]) -> None:
            server.snapshots.keep(core.index, state, state_hash(state))
            if self.is_writing or start.epoch < server.promised or not self._is_wanted(start):
                return
            self._install = Install(start, sender, core)
            self._gather(sender, start, o)

        kept = server.snapshots.kept_with(core.index)
        out.append(
            server.store(lambda token: StoreSnapshot(token, core.index, state, kept), stored)
        )

    def _gather(self, sender: NodeId, start: Start, out: list[Effect]) -> None:
        install = self._install
        assert install is not None
        skip = install.length + 1 - start.index_first
        if not 0 <= skip <= len(start.entries):
            return  # Repeated, or a chunk before it was lost: the sequencer tries again.
        install.entries.extend(start.entries[skip:])
        if self.is_complete(install, start):
            self._write(install, out)
        elif len(start.entries) > skip:
            out.append(Send(sender, self.reply(start.epoch, is_started=False)))

    def is_complete(self, install: Install, start: Start) -> bool:
        """Only the sequencer's whole log, as it is now, makes a server whole."""
        return install.length >= start.length

    def _write(self, install: Install, out: list[Effect]) -> None:
        server = self._server
        if server.snapshots.is_truncating:
            self._install = None  # The journal is being rewritten; the sequencer tries again.
            return
        if server.log.hash_at(install.base) == install.base_hash:
            log = server.log.copy()
            log.cut(install.base)
            install.log = log
        install.log.extend(install.entries)
        if not self._keeps_committed(install):
            out.append(Warn("install-undoes-committed", f"epoch {install.epoch}"))
            self._install = None
            return
        # From here on nothing of a lower epoch may be appended behind what we write.
        if install.epoch > server.promised:
            server.promise(install.epoch, out)
        self.is_writing = True
        server.write_install(install, lambda o: self._written(install, o), out)

    def _keeps_committed(self, install: Install) -> bool:
        core = self._server.core
        if install.log.base > core.index:
            return True  # Its snapshot is of committed entries, further than ours.
        return install.log.hash_at(core.index) == core.hash

    def _written(self, install: Install, out: list[Effect]) -> None:
        server = self._server
        if not self._is_valid(install):
            self._give_up()
            return
        if server.log_epoch == install.epoch:
            self._finish(install, out)
            return
        server.save_vote(lambda o: self._stamped(install, o), out, install.stamp)

    def _stamped(self, install: Install, out: list[Effect]) -> None:
        if not self._is_valid(install):
            self._give_up()
            return
        self._finish(install, out)

    def _is_valid(self, install: Install) -> bool:
        """Nothing higher was promised meanwhile, on the strength of the old log, and no later
        configuration was told."""
        server = self._server
        is_present = install.stamp[0] == server.configuration.number
        return is_present and server.promised == install.epoch

    def _give_up(self) -> None:
        """It never took effect."""
        self._server.writer.cancelled()
        self._install = None
        self.is_writing = False

    def _finish(self, install: Install, out: list[Effect]) -> None:
        server = self._server
        server.switch_log(install)
        self._install = None
        self.is_writing = False
        out.append(Send(install.sequencer, self.reply(install.epoch, is_started=True)))
