"""Sends what is stored to whoever asked for it, piece by piece: a reader of much that was must not
keep those waiting who send or hear something now.

Each destination gets its first piece at once, which is all there is for who follows what comes. The
rest waits its turn: one piece in each turn of the loop, the destinations one after the other. Who
has much on its way already waits with all of it, and much is less where many do: they share what
the node can spare for them, and wait their turn for it. What is asked for again while it waits is
sent once.
"""

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from samcast.disk.data_store import DataStore
from samcast.group.storage import BatchKey, RunSlice, SendRows, SendStored
from samcast.limits import NODE_MAX
from samcast.machine.ports import NodeId
from samcast.wire.group import Repair
from samcast.wire.rows import RUNS_MAX, gather
from samcast.wire.stretch import Stretch

PIECE_BYTES = 512 * 1024  # of one turn; a large payload goes alone
ANSWER_BYTES = 4 * 1024 * 1024  # of one answer to who asks again after each
WAITING_MAX = 20_000  # payloads for one destination; what it isn't sent it asks for again
WAITING_ALL_MAX = 1_000_000  # of all destinations, shared; a client has some thousands at most
ROWS_WAITING_MAX = 1024  # answers of short runs, shared; what is to be in one takes up to 160 KB
ROWS_READERS_MAX = 256  # that have such; those that haven't read for longest ask again
ANSWER_BYTES_MIN = 64 * 1024  # however many share
UNDER_WAY_BYTES = 4 * 1024 * 1024  # to one destination, before it gets more
FEW = 8  # payloads whose size is looked up, since they may be small together
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
        share: Callable[[], int] = lambda: UNDER_WAY_BYTES,
        may_begin: Callable[[NodeId, int], bool] = lambda to, size: True,
    ) -> None:
        self._data = data
        self._send = send
        self._under_way = under_way  # bytes that wait to leave; None: nobody is there
        self._on_rotted = on_rotted
        self._share = share  # bytes that a reader may have waiting, as many as there are
        self._may_begin = may_begin  # so large an answer, to a reader: it has its turn
        self._waiting: OrderedDict[NodeId, Wanted] = OrderedDict()
        self._rows: OrderedDict[NodeId, OrderedDict[tuple[int, int], SendRows]] = OrderedDict()
        self._is_planned = False
        self._has_answered = False  # in this turn of the loop

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values())) + sum(map(len, self._rows.values()))

    def _is_behind(self, to: NodeId) -> bool:
        """Whether so much is on its way to it that it gets nothing more just now."""
        return (self._under_way(to) or 0) >= self._most_under_way(to)

    def _most_under_way(self, to: NodeId) -> int:
        """Nodes need what they ask for, whatever readers do."""
        return UNDER_WAY_BYTES if to <= NODE_MAX else min(UNDER_WAY_BYTES, self._share())

    def _answer_bytes(self, to: NodeId) -> int:
        if to <= NODE_MAX:
            return ANSWER_BYTES
        return max(ANSWER_BYTES_MIN, min(ANSWER_BYTES, self._share() // 4))

    def send_stored(self, effect: SendStored) -> None:
        """What was asked for, now and in the turns that follow."""
        wanted: Wanted = OrderedDict((key, number) for number, key in effect.batches)
        waiting = self._waiting.get(effect.to)
        is_large = effect.is_one or effect.is_urgent
        is_now = self._may_send(effect.to, is_large) and self._is_turn(effect.to, wanted)
        if is_now and is_large:
            self._has_answered = True
            self._plan()
            self._send_piece(effect.to, wanted, self._answer_bytes(effect.to))
        elif is_now and waiting is None:
            self._send_piece(effect.to, wanted, PIECE_BYTES)
        if not wanted or (effect.is_one and is_now):
            return
        if waiting is None:
            waiting = self._waiting[effect.to] = OrderedDict()
        most = max(1, min(WAITING_MAX, WAITING_ALL_MAX // len(self._waiting)))
        for key, number in wanted.items():
            if len(waiting) < most:
                waiting[key] = number
        self._plan()

    def _may_send(self, to: NodeId, is_large: bool) -> bool:
        """What nodes ask for is needed at once. Readers get one large answer in each turn of the
        loop, since it is work to put it together; of who is behind all of it waits."""
        if to <= NODE_MAX:
            return True
        return not (is_large and self._has_answered) and not self._is_behind(to)

    def _is_turn(self, to: NodeId, wanted: Wanted | RunSlice) -> bool:
        """Whether there is room for this answer, of which all readers together have so much. What
        is small needs none."""
        if to <= NODE_MAX:
            return True
        size = 0
        if len(wanted) <= FEW:
            places = map(self._data.place_of, wanted.keys())
            size = sum(place[2] for place in places if place is not None)
            if size <= ANSWER_BYTES_MIN:
                return True
        return self._may_begin(to, max(size, self._answer_bytes(to)))

    def send_rows(self, effect: SendRows) -> None:
        """Short runs as one answer, once there is room for it."""
        if self._may_send(effect.to, is_large=True) and self._is_turn(effect.to, effect.runs):
            self._has_answered = True
            self._send_rows(effect)
        else:
            rows = self._rows.setdefault(effect.to, OrderedDict())
            if len(rows) < ROWS_WAITING_MAX // len(self._rows):
                rows[effect.runs.group, effect.number_first] = effect
            while len(self._rows) > ROWS_READERS_MAX:
                self._rows.popitem(last=False)
        self._plan()

    def _send_late_rows(self) -> None:
        """What has waited: one answer to the next one that has room again. What isn't there any
        more has been collected, and who asks for it again is told so."""
        for to, rows in list(self._rows.items()):
            if self._under_way(to) is None:
                del self._rows[to]
            elif not self._is_behind(to) and self._is_turn(to, next(iter(rows.values())).runs):
                _, effect = rows.popitem(last=False)
                self._rows.move_to_end(to)
                if not rows:
                    del self._rows[to]
                if all(map(self._data.is_stored, effect.runs[:RUNS_MAX].keys())):
                    self._has_answered = True
                    self._send_rows(effect)
                    return

    def _send_rows(self, effect: SendRows) -> None:
        most = self._answer_bytes(effect.to)
        if effect.are_single and self._send_stretch(effect, most):
            return
        payloads: list[bytes] = []
        keys = effect.runs[:RUNS_MAX].keys()
        for key, payload in zip(keys, self._data.read_many(keys, most), strict=False):
            if payload is None:
                self._on_rotted(key)
                break
            payloads.append(payload)
        self._send(effect.to, gather(effect.runs.group, effect.number_first, payloads))

    def _send_stretch(self, effect: SendRows, most: int) -> bool:
        """The same as they lie on the disk, where that is one piece; who reads them looks at each,
        which would cost us many times as much."""
        read = self._data.read_stretch(effect.runs, most)
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
        self._is_planned = self._has_answered = False
        self._send_late_rows()
        for to in list(self._waiting):
            if self._under_way(to) is None:
                del self._waiting[to]
            elif not self._is_behind(to) and self._is_turn(to, self._waiting[to]):
                wanted = self._waiting[to]
                self._waiting.move_to_end(to)
                self._send_piece(to, wanted, PIECE_BYTES, is_late=True)
                if not wanted:
                    del self._waiting[to]
                break
        else:
            if self._waiting or self._rows or self._has_answered:
                self._plan(0.0 if self._has_answered else PAUSE_S)
            return
        if self._waiting or self._rows or self._has_answered:
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
