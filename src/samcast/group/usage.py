"""How much of a data server's room is taken by payloads without a number, and by whom.

Each is counted in total, and for the client that brought it. What a disk gave back, and what
another data server had, was brought by nobody: it counts in total only.
"""

from typing import TYPE_CHECKING, TypeVar

from samcast.group.storage import BatchKey
from samcast.machine.ports import NodeId

if TYPE_CHECKING:
    from samcast.group.payloads import Held


Whose = TypeVar("Whose")


class Load:
    """What is held for one client, for one owner, or for all together."""

    __slots__ = ("reserved", "runs", "staged_bytes", "stages")

    def __init__(self) -> None:
        self.runs = 0
        self.reserved = 0  # of these, how many came in from the reserve
        self.stages = 0
        self.staged_bytes = 0

    def change(self, key: BatchKey, held: "Held", by: int) -> None:
        """One more (1) or one less (-1)."""
        if key[4]:
            self.stages += by
            self.staged_bytes += by * held.size
        else:
            self.runs += by
            self.reserved += by * held.is_reserved

    def __bool__(self) -> bool:
        return bool(self.runs or self.stages)


NOTHING = Load()  # never changed


class Usage:
    """The loads of one data server."""

    def __init__(self) -> None:
        self.total = Load()
        self._clients: dict[NodeId, Load] = {}
        self._owners: dict[bytes, Load] = {}

    def of_client(self, client: NodeId) -> Load:
        """What this client brought."""
        return self._clients.get(client, NOTHING)

    def of_owner(self, owner: bytes) -> Load:
        """The stages of this owner."""
        return self._owners.get(owner, NOTHING)

    def change(self, key: BatchKey, held: "Held", by: int) -> None:
        """A payload came (1) or went (-1)."""
        self.total.change(key, held, by)
        if held.client:
            self._change(self._clients, held.client, key, held, by)
        if key[4]:
            self._change(self._owners, key[1], key, held, by)

    @staticmethod
    def _change(
        loads: dict[Whose, Load], whose: Whose, key: BatchKey, held: "Held", by: int
    ) -> None:
        load = loads.get(whose)
        if load is None:
            load = loads[whose] = Load()
        load.change(key, held, by)
        if not load:
            del loads[whose]
