"""What a data server drops of that which has no number: only what its own fold of a contiguous
committed prefix rules out, never by a clock or a proposal.
"""

from typing import TYPE_CHECKING

from samcast.group.storage import BatchKey, DropBatch
from samcast.machine.ports import Effect
from samcast.wire.order import CELL, OpenEntry, SenderRemovedEntry

if TYPE_CHECKING:
    from samcast.group.data_server import DataServer


class Dropping:
    """The rules of one data server."""

    def __init__(self, server: "DataServer") -> None:
        self._server = server
        self._unsure: dict[int, None] = {}  # groups where a snapshot skipped numbers we lack

    def on_skipped(self) -> None:
        """A snapshot has taken the place of entries that we never saw."""
        self._unsure.update(dict.fromkeys(self._server.follower.core.groups))

    def on_drained(self, out: list[Effect]) -> None:
        """Once a group is whole again, whatever has no number in it never got one."""
        if not self._unsure:
            return
        for group in [g for g in self._unsure if self._server.numbered.is_whole_in(g)]:
            del self._unsure[group]
            self.drop_expired(group, out)
            for owner in self._server.unnumbered.owners():
                self.drop_stages(owner, out)

    def on_group_removed(self, group: int, out: list[Effect]) -> None:
        """Nothing of it is ever numbered now."""
        if group not in self._unsure:
            for key in self._server.unnumbered.of_group(group):
                self.drop(key, out)

    def drop_expired(self, group: int, out: list[Effect]) -> None:
        """What was born below the floor is numbered no more."""
        if group in self._unsure or group == CELL:
            return
        rows = self._server.follower.core.groups.get(group)
        if rows is None:
            return
        if rows.is_removed:  # A snapshot may have told us, not the entry.
            self.on_group_removed(group, out)
            return
        for key in self._server.unnumbered.born_below(group, rows.admission_floor()):
            self.drop(key, out)

    def drop_stages(self, owner: bytes, out: list[Effect]) -> None:
        """Stages that can never be decided."""
        for key in self._server.unnumbered.of_owner(owner):
            held = self._server.unnumbered.get(key)
            if held is None or key[0] in self._unsure:
                continue
            if self.may_drop_stage(key, held.birth):
                self.drop(key, out)

    def owners_ended(self, entry: OpenEntry | SenderRemovedEntry) -> list[bytes]:
        """Whose stages may be in vain now: of the lives before this one, or, where an owner has
        taken another one's place, of whoever that was."""
        is_anonymous = type(entry) is OpenEntry and entry.is_anonymous
        may_evict = is_anonymous and self._server.follower.core.groups[CELL].memory_floor
        return self._server.unnumbered.owners() if may_evict else [entry.sender]

    def may_drop_stage(self, key: BatchKey, birth: int) -> bool:
        """Whether this stage is one of them."""
        return self._server.follower.core.may_drop_stage(key[1], key[2], key[3], birth)

    def drop(self, key: BatchKey, out: list[Effect]) -> None:
        """Give a payload without a number up."""
        self._server.unnumbered.pop(key)
        self._server.reports.forget(key)
        out.append(DropBatch(key))
