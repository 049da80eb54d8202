"""Sends what is stored to whoever asked for it, piece by piece: a reader of much that was must not
keep those waiting who send or hear something now.

Each destination gets its first piece at once, which is all there is for who follows what comes. The
rest waits its turn: one piece in each turn of the loop, the destinations one after the other, and
none to whom much is on its way already. What is asked for again while it waits is sent once.
"""

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from samcast.disk.data_store import DataStore
from samcast.group.storage import BatchKey, SendRows, SendStored
from samcast.machine.ports import NodeId
from samcast.wire.group import Repair
from samcast.wire.rows import RUNS_MAX, gather
from samcast.wire.stretch import Stretch

PIECE_BYTES = 512 * 1024  # of one turn; a large payload goes alone
ANSWER_BYTES = 4 * 1024 * 1024  # of one answer to who asks again after each
WAITING_MAX = 20_000  # payloads for one destination; what it isn't sent it asks for again
UNDER_WAY_BYTES = 4 * 1024 * 1024  # to one destination, before it gets more
PAUSE_S = 0.005  # when all have so much under way

Wanted = OrderedDict[BatchKey, int]  # and its first number


class Serving:
    """Of one node."""

    def __init__(
        self,
        data: DataStore,
        send: Callable[[NodeId, Any], None],
        under_way: Callable[[NodeId], int | None],
        on_rotted: Callable[[BatchKey], None],
    ) -> None:
        self._data = data
        self._send = send
        self._under_way = under_way  # bytes that wait to leave; None: nobody is there
        self._on_rotted = on_rotted
        self._waiting: OrderedDict[NodeId, Wanted] = OrderedDict()
        self._is_planned = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def send_stored(self, effect: SendStored) -> None:
        """What was asked for, now and in the turns that follow."""
        wanted: Wanted = OrderedDict((key, number) for number, key in effect.batches)
        waiting = self._waiting.get(effect.to)
        if effect.is_one or effect.is_urgent:
            self._send_piece(effect.to, wanted, ANSWER_BYTES)
        elif waiting is None:
            self._send_piece(effect.to, wanted, PIECE_BYTES)
        if not wanted or effect.is_one:
            return
        if waiting is None:
            waiting = self._waiting[effect.to] = OrderedDict()
        for key, number in wanted.items():
            if len(waiting) < WAITING_MAX:
                waiting[key] = number
        self._plan()

    def send_rows(self, effect: SendRows) -> None:
        """Short runs as one answer."""
        if effect.are_single and self._send_stretch(effect):
            return
        payloads: list[bytes] = []
        keys = effect.runs[:RUNS_MAX].keys()
        for key, payload in zip(keys, self._data.read_many(keys, ANSWER_BYTES), strict=False):
            if payload is None:
                self._on_rotted(key)
                break
            payloads.append(payload)
        self._send(effect.to, gather(effect.runs.group, effect.number_first, payloads))

    def _send_stretch(self, effect: SendRows) -> bool:
        """The same as they lie on the disk, where that is one piece; who reads them looks at each,
        which would cost us many times as much."""
        read = self._data.read_stretch(effect.runs, ANSWER_BYTES)
        if read is None:
            return False
        found, data = read
        runs = found.runs
        self._send(
            effect.to,
            Stretch(
                runs.group,
                effect.number_first,
                found.segment,
                found.first,
                runs.who.tobytes(),
                runs.counters.tobytes(),
                array("I", found.who).tobytes(),
                b"".join([runs.senders[who][0] for who in found.who]),
                found.offsets,
                data,
            ),
        )
        return True

    def _plan(self, pause_s: float = 0.0) -> None:
        if not self._is_planned:
            self._is_planned = True
            loop = asyncio.get_running_loop()
            if pause_s:
                loop.call_later(pause_s, self._turn)
            else:
                loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_planned = False
        for to in list(self._waiting):
            under_way = self._under_way(to)
            if under_way is None:
                del self._waiting[to]
            elif under_way < UNDER_WAY_BYTES:
                wanted = self._waiting[to]
                self._waiting.move_to_end(to)
                self._send_piece(to, wanted, PIECE_BYTES, is_late=True)
                if not wanted:
                    del self._waiting[to]
                break
        else:
            if self._waiting:
                self._plan(PAUSE_S)
            return
        if self._waiting:
            self._plan()

    def _send_piece(self, to: NodeId, wanted: Wanted, most: int, *, is_late: bool = False) -> None:
        """The first ones, of so many bytes; at least one of them. What isn't there any more has
        been collected if this was asked for in an earlier turn; otherwise it is lost."""
        found: list[tuple[int, bytes]] = []
        size = 0
        while wanted and size < most:
            key, number = next(iter(wanted.items()))
            if is_late and not self._data.is_stored(key):
                del wanted[key]
                continue
            payload = self._data.read(key)
            if payload is None:
                self._on_rotted(key)
            elif found and size + len(payload) > most:
                break
            else:
                found.append((number, payload))
                size += len(payload)
            del wanted[key]
        if found:
            self._send(to, Repair(tuple(found)))
