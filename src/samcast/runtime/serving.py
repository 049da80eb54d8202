"""Sends what is stored to whoever asked for it, piece by piece: a reader of much that was must not
keep those waiting who send or hear something now.

Each destination gets its first piece at once, which is all there is for who follows what comes. The
rest waits its turn: one piece in each turn of the loop, the destinations one after the other.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from samcast.group.storage import BatchKey, SendRows, SendStored
from samcast.machine.ports import NodeId
from samcast.runtime.data_store import DataStore
from samcast.wire.group import Repair
from samcast.wire.rows import gather

PIECE_BYTES = 512 * 1024  # of one turn; a large payload goes alone
ANSWER_BYTES = 4 * 1024 * 1024  # of one answer to who asks again after each
WAITING_MAX = 200_000  # payloads; who isn't sent something asks for it again

Wanted = tuple[int, BatchKey]


class Serving:
    """Of one node."""

    def __init__(
        self,
        data: DataStore,
        send: Callable[[NodeId, Any], None],
        reaches: Callable[[NodeId], bool],
        on_rotted: Callable[[BatchKey], None],
    ) -> None:
        self._data = data
        self._send = send
        self._reaches = reaches
        self._on_rotted = on_rotted
        self._waiting: OrderedDict[NodeId, deque[Wanted]] = OrderedDict()
        self._count = 0
        self._is_planned = False

    def __len__(self) -> int:
        return self._count

    def send_stored(self, effect: SendStored) -> None:
        """What was asked for, now and in the turns that follow."""
        if effect.is_one:
            self._send_piece(effect.to, deque(effect.batches), ANSWER_BYTES)
            return
        wanted = deque(effect.batches)
        if effect.to not in self._waiting:
            self._send_piece(effect.to, wanted, PIECE_BYTES)
        if wanted and self._count < WAITING_MAX:
            self._waiting.setdefault(effect.to, deque()).extend(wanted)
            self._count += len(wanted)
            self._plan()

    def send_rows(self, effect: SendRows) -> None:
        """Short runs as one answer."""
        payloads: list[bytes] = []
        read = self._data.read_many(effect.keys, ANSWER_BYTES)
        for key, payload in zip(effect.keys, read, strict=False):
            if payload is None:
                self._on_rotted(key)
                break
            payloads.append(payload)
        self._send(effect.to, gather(effect.group, effect.number_first, payloads))

    def _plan(self) -> None:
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_planned = False
        if not self._waiting:
            return
        to, wanted = self._waiting.popitem(last=False)
        before = len(wanted)
        if self._reaches(to):
            self._send_piece(to, wanted, PIECE_BYTES, is_late=True)
        else:
            wanted.clear()
        self._count -= before - len(wanted)
        if wanted:
            self._waiting[to] = wanted
        if self._waiting:
            self._plan()

    def _send_piece(
        self, to: NodeId, wanted: deque[Wanted], most: int, *, is_late: bool = False
    ) -> None:
        """The first ones, of so many bytes; at least one of them. What isn't there any more has
        been collected if this was asked for in an earlier turn; otherwise it is lost."""
        found: list[tuple[int, bytes]] = []
        size = 0
        while wanted and size < most:
            number, key = wanted[0]
            if is_late and not self._data.is_stored(key):
                wanted.popleft()
                continue
            payload = self._data.read(key)
            if payload is None:
                self._on_rotted(key)
            elif found and size + len(payload) > most:
                break
            else:
                found.append((number, payload))
                size += len(payload)
            wanted.popleft()
        if found:
            self._send(to, Repair(tuple(found)))
