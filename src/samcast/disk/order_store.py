"""The order on disk: journal segments, the vote, core snapshots.

Formats and recovery are `wire` and `group.recovery`; here they meet files. A segment is made under
another name, whole and durable, before it gets its own, so a file with that name is never short. No
group names the segment that comes next before that is there, so one that is named and missing was
lost. Another one is made ahead, so that nobody has to wait for it, and so that a full disk is
noticed while there is still room for votes.
"""

import errno
from collections import deque
from collections.abc import Callable

from samcast.disk.folder import (
    NEW,
    UNREADABLE,
    Begin,
    Chunk,
    Device,
    Folder,
    Handle,
    allocate_durably,
    numbers_in,
    put_durably,
    read_synced,
)
from samcast.errors import DiskError
from samcast.group.recovery import KIND_SNAPSHOT, read_snapshots, read_vote, recover_order
from samcast.group.storage import (
    OrderRecovery,
    RewriteOrder,
    StoreOrder,
    StoreSnapshot,
    StoreVote,
)
from samcast.machine.ports import Store
from samcast.wire.journal import JournalWriter, Verdict, Write
from samcast.wire.records import encode_record as encode_small
from samcast.wire.segment import encode_record
from samcast.wire.twin import encode_twin

SEGMENT_BYTES = 16 * 1024 * 1024
ROOM_BYTES = 8 * 1024 * 1024  # left beside a segment that is made ahead, for snapshots and lists
VOTE = "vote"
SEGMENT = "segment-"
SNAPSHOT = "snapshot-"
NO_VOTE = encode_twin(1, b"")  # of a disk that has never promised anything


def begin_order(folder: Folder, segment_bytes: int = SEGMENT_BYTES) -> None:
    """All that a start will look for: the first segment, and the vote that says that there is no
    promise yet."""
    folder.close(allocate_durably(folder, _segment_name(1), segment_bytes))
    put_durably(folder, VOTE, NO_VOTE)


def _segment_name(number: int) -> str:
    return f"{SEGMENT}{number:010d}"


def _snapshot_name(index: int) -> str:
    return f"{SNAPSHOT}{index:020d}"


def _is_full(error: DiskError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


class OrderStore:
    """The order device of one node."""

    def __init__(self, folder: Folder, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._handles: dict[int, Handle] = {}
        self._vote = -1
        self._vote_sequence = 0
        self._writer = JournalWriter(segment_bytes=segment_bytes)
        self._waiting: deque[tuple[int, int]] = deque()  # token, journal sequence
        self._device: Device | None = None
        self._ahead = 0  # the segment that is being made ahead; 0: none
        self.is_short = False  # there was no room to make one ahead
        self.last_verdict = Verdict.CLEAN

    # starting

    def recover(self, uuid: int, *, is_laid_out: bool) -> OrderRecovery | None:
        """What the files say, all of it synced first; None: what binds us can't be read, and the
        disk counts as lost. A disk that wasn't laid out is one of an earlier version."""
        folder = self._folder
        names = folder.names()
        for name in names:
            if name.endswith(NEW):
                folder.unlink(name)
        if VOTE not in names:
            if is_laid_out:
                return None
            put_durably(folder, VOTE, NO_VOTE)
        self._vote = folder.open(VOTE)
        found = read_vote(read_synced(folder, self._vote), may_be_empty=not is_laid_out)
        if not found.is_readable:
            return None
        self._vote_sequence = found.sequence
        if found.vote is not None and not found.is_whole:
            folder.write(self._vote, 0, [encode_twin(found.sequence, encode_small(found.vote))])
            folder.sync(self._vote)
        segments = {
            number: self._read_segment(number, is_laid_out=is_laid_out)
            for number in numbers_in(names, SEGMENT)
        }
        snapshots = self._read_snapshots()
        folder.sync_names()
        recovery, self._writer, self.last_verdict = recover_order(
            uuid, found.vote, segments, self._segment_bytes, snapshots, is_laid_out=is_laid_out
        )
        if not is_laid_out:
            self._lay_out(has_vote=found.sequence > 0)
        return recovery

    def _lay_out(self, *, has_vote: bool) -> None:
        """Make what `begin_order` makes today, for a disk of an earlier version."""
        if not has_vote:
            self._vote_sequence = 1
            self._folder.write(self._vote, 0, [NO_VOTE])
            self._folder.sync(self._vote)
        self._make_segment(self._writer.segments_free[0])

    def _read_segment(self, number: int, *, is_laid_out: bool) -> bytes:
        folder = self._folder
        handle = self._handles[number] = folder.open(_segment_name(number))
        data = read_synced(folder, handle)
        if len(data) < self._segment_bytes:
            if is_laid_out:  # It had all its room before it had its name: it has lost something.
                left = data if any(data) else b""
                return left + UNREADABLE * (self._segment_bytes - len(left))
            if not any(data):
                # Never used: an earlier version was interrupted while it was made, or had no room.
                self._complete(handle)
        return data

    def _complete(self, handle: Handle) -> None:
        try:
            self._folder.allocate(handle, self._segment_bytes)
        except OSError as error:
            raise self._no_room(error) from error
        self._folder.sync(handle)

    def _no_room(self, error: OSError) -> DiskError:
        return DiskError(
            f"no room for the order in {self._folder.path}: {error}; free some, then start again"
        )

    def _snapshots(self) -> list[int]:
        return numbers_in(self._folder.names(), SNAPSHOT)

    def _read_snapshots(self) -> list[bytes]:
        read: list[bytes] = []
        for index in self._snapshots():
            handle = self._folder.open(_snapshot_name(index))
            read.append(read_synced(self._folder, handle))
            self._folder.close(handle)
        return read_snapshots(read)

    def start(self, begin: Begin, on_synced: Callable[[int], None]) -> None:
        """From now on stores are carried out."""

        def synced(token: int) -> None:
            while self._waiting and self._waiting[0][0] <= token:
                self._writer.note_synced(self._waiting.popleft()[1])
            on_synced(token)

        self._device = begin(synced)
        self.look_ahead()

    def close(self) -> None:
        """Finish what waits."""
        if self._device is not None:
            self._device.close()
        for handle in [*self._handles.values(), self._vote]:
            if handle >= 0:
                self._folder.close(handle)
        self._handles.clear()
        self._vote = -1

    # storing

    @property
    def segments_live(self) -> tuple[int, ...]:
        """Those that a start needs."""
        return self._writer.segments_live

    def store(self, effect: Store) -> None:
        """Take a store effect; it is answered when it and all before it are durable."""
        assert self._device is not None
        if type(effect) is StoreOrder:
            self._append(effect.token, self._writer.append(effect.records))
        elif type(effect) is RewriteOrder:
            self._append(effect.token, self._writer.start_fresh(effect.records))
        elif type(effect) is StoreVote:
            self._vote_sequence += 1
            twin = encode_twin(self._vote_sequence, effect.record)
            self._device.put(effect.token, [(self._vote, 0, twin)])
        else:
            assert type(effect) is StoreSnapshot
            name = _snapshot_name(effect.index)
            record = encode_record(KIND_SNAPSHOT, effect.state, generation=1, offset=0)
            kept = effect.kept
            self._device.put(effect.token, [], lambda: self._keep_snapshot(name, record, kept))

    def _append(self, token: int, writes: list[Write]) -> None:
        assert self._device is not None
        named = self._writer.segments_free[0]  # by what is written now
        handles = self._handles
        if named in handles and all(w.segment in handles for w in writes):
            chunks: list[Chunk] = [(handles[w.segment], w.offset, w.data) for w in writes]
            self._device.put(token, chunks)
        else:
            self._device.put(token, [], lambda: self._write_to_new(writes, named))
        self._waiting.append((token, self._writer.sequence))
        if not self.is_short and self._writer.segment_ahead not in handles:
            self.look_ahead()  # Where there was no room, only when we are told to look again.

    def _write_to_new(self, writes: list[Write], named: int) -> None:
        """Where segments must be made first, since none was made ahead: all of them, for what is
        written names those that come after it."""
        for number in dict.fromkeys([*(w.segment for w in writes), named]):
            self._make_segment(number)
        touched: dict[Handle, None] = {}
        for w in writes:
            handle = self._handles[w.segment]
            self._folder.write(handle, w.offset, [w.data])
            touched[handle] = None
        for handle in touched:
            self._folder.sync(handle)

    def _make_segment(self, number: int) -> Handle:
        """Only ever called where the device works, so that no two make the same one."""
        handle = self._handles.get(number)
        if handle is None:
            try:
                name = _segment_name(number)
                handle = allocate_durably(self._folder, name, self._segment_bytes)
            except OSError as error:
                raise self._no_room(error) from error
            self._handles[number] = handle
        return handle

    def look_ahead(self) -> None:
        """Have the segment made that will be named after the one that is named now; where there is
        no room for it, this is to be called again later."""
        number = self._writer.segment_ahead
        if number in self._handles:
            self.is_short = False
        if number in self._handles or self._ahead or self._device is None:
            return
        if self._folder.free_bytes() < self._segment_bytes + ROOM_BYTES:
            self.is_short = True  # A try would take what is left, and votes need some of that.
            return
        self._ahead = number

        def make() -> None:
            try:
                self._make_segment(number)
                self.is_short = False
            except DiskError as error:
                if not _is_full(error):
                    raise
                self.is_short = True
            finally:
                self._ahead = 0

        self._device.put(0, [], make)

    def _keep_snapshot(self, name: str, record: bytes, kept: tuple[int, ...]) -> None:
        put_durably(self._folder, name, record)
        for old in self._snapshots():
            if old not in kept:
                self._folder.unlink(_snapshot_name(old))
