"""Who reads much that was gets it piece by piece, and nobody waits for that."""

import asyncio
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samcast.disk.data_store import DataStore
from samcast.group.payloads import key_of
from samcast.group.storage import BatchKey, RunSlice, SendRows, SendStored, StoreBatch
from samcast.limits import NODE_MAX
from samcast.runtime.os_folder import OsFolder
from samcast.runtime.serving import PAUSE_S, PIECE_BYTES, UNDER_WAY_BYTES, Serving
from samcast.wire.batch import Batch, columns_from_cells, encode_batch, make_batch
from samcast.wire.group import Repair
from samcast.wire.rows import Rows
from tests.real.test_data_store import segments_in, start

READER, LIVE = 1001, 1002  # nodes, which need what they ask for
CLIENTS = (NODE_MAX + 1, NODE_MAX + 2)


def batch(counter: int, size: int) -> Batch:
    return make_batch(
        group=1, sender=b"s" * 16, incarnation=1, counter_first=counter, count=1, birth=0,
        confirmed_below=1, seen=0, sent_ms=0, configuration=1,
        columns=columns_from_cells([b"%d" % counter * size]),
    )  # fmt: skip


class Node:
    """A store with payloads, and what is sent from it."""

    def __init__(self, folder: Path) -> None:
        self.store = DataStore(OsFolder(folder))
        self.sent: list[tuple[int, list[int]]] = []
        self.rotted: list[BatchKey] = []
        self.under_way: dict[int, int | None] = {}
        self.share = UNDER_WAY_BYTES
        self.has_room = True  # for large answers to readers
        self.serving = Serving(
            self.store, self._send, lambda to: self.under_way.get(to, 0), self.rotted.append,
            lambda: self.share, lambda to, size: self.has_room,
        )  # fmt: skip

    def _send(self, to: int, message: Any) -> None:
        if isinstance(message, Rows):
            first, count = message.number_first, len(message.counts) // 4
            self.sent.append((to, list(range(first, first + count))))
            return
        assert isinstance(message, Repair)
        self.sent.append((to, [number for number, _ in message.batches]))

    async def fill(self, sizes: list[int]) -> None:
        durable = asyncio.Event()

        def on_synced(token: int) -> None:
            if token == len(sizes):
                durable.set()

        start(self.store, on_synced, _fail)
        for at, size in enumerate(sizes, 1):
            of = batch(at, size)
            self.store.store(StoreBatch(at, key_of(of), of))
        await durable.wait()

    def want(self, to: int, *numbers: int, **how: bool) -> None:
        keys = tuple((n, (1, b"s" * 16, 1, n, 0)) for n in numbers)
        self.serving.send_stored(SendStored(to, keys, **how))

    def want_rows(self, to: int, *numbers: int) -> None:
        senders, who = [(b"s" * 16, 1)], array("I", [0] * len(numbers))
        runs = RunSlice(1, senders, who, array("Q", numbers), array("Q", [0] * len(numbers)))
        self.serving.send_rows(SendRows(to, numbers[0], runs))

    async def settle(self) -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        assert not len(self.serving)


def _fail(error: Exception) -> None:
    raise error


def play(folder: Path, sizes: list[int], work: "Callable[[Node], Any]") -> Node:
    async def main() -> Node:
        node = Node(folder)
        await node.fill(sizes)
        await work(node)
        node.store.close()
        return node

    return asyncio.run(main())


THIRD = PIECE_BYTES // 3


def test_the_first_piece_leaves_at_once_and_others_are_not_kept_waiting(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        node.want(READER, *range(1, 9))
        assert node.sent == [(READER, [1, 2])]
        node.want(LIVE, 9)
        assert node.sent[1:] == [(LIVE, [9])]
        node.want(READER, 9)  # behind what it waits for
        await node.settle()

    node = play(tmp_path, [THIRD] * 8 + [10], work)
    of_reader = [numbers for to, numbers in node.sent if to == READER]
    assert of_reader == [[1, 2], [3, 4], [5, 6], [7, 8, 9]]
    assert node.rotted == []


def test_many_readers_take_turns(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        node.want(READER, *range(1, 7))
        node.want(LIVE, *range(1, 7))
        await node.settle()

    node = play(tmp_path, [THIRD] * 6, work)
    assert [to for to, _ in node.sent] == [READER, LIVE] * 3


def test_what_is_larger_than_a_piece_goes_alone_and_one_answer_is_one(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        node.want(READER, 1, 2, 3)
        await node.settle()
        node.want(LIVE, 1, 2, 3, is_one=True)

    node = play(tmp_path, [10, 2 * PIECE_BYTES, 10], work)
    assert node.sent == [(READER, [1]), (READER, [2]), (READER, [3]), (LIVE, [1, 2, 3])]


def test_what_was_collected_meanwhile_is_passed_over_and_who_is_gone_is_forgotten(
    tmp_path: Path,
) -> None:
    async def work(node: Node) -> None:
        node.want(READER, *range(1, 5))
        node.store.forget([(1, b"s" * 16, 1, 3, 0)])
        await node.settle()
        node.want(LIVE, 1, 2, 4)
        node.under_way[LIVE] = None
        await node.settle()

    node = play(tmp_path, [2 * THIRD] * 4, work)
    assert node.sent == [(READER, [1]), (READER, [2]), (READER, [4]), (LIVE, [1])]
    assert node.rotted == []


def test_rot_is_told(tmp_path: Path) -> None:
    needle = encode_batch(batch(2, 50))[-20:]

    async def work(node: Node) -> None:
        path = segments_in(tmp_path)[0][1]
        data = bytearray(path.read_bytes())
        data[data.find(needle)] ^= 1
        path.write_bytes(data)
        node.want(READER, 1, 2, 3)

    node = play(tmp_path, [50] * 3, work)
    assert node.sent == [(READER, [1, 3])]
    assert node.rotted == [(1, b"s" * 16, 1, 2, 0)]


def test_what_is_asked_for_again_is_sent_once_and_what_is_urgent_first(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        node.want(READER, *range(1, 7))
        for _ in range(50):
            node.want(READER, *range(3, 7))
        assert len(node.serving) == 4
        node.want(READER, 7, is_urgent=True)
        assert node.sent == [(READER, [1, 2]), (READER, [7])]
        await node.settle()

    node = play(tmp_path, [THIRD] * 6 + [10], work)
    assert node.sent[2:] == [(READER, [3, 4]), (READER, [5, 6])]


def test_who_has_much_under_way_waits_and_others_do_not(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        node.under_way[READER] = UNDER_WAY_BYTES
        node.want(READER, *range(1, 5))
        node.want(LIVE, *range(1, 5))
        for _ in range(100):
            await asyncio.sleep(0)
        assert node.sent == [(READER, [1, 2]), (LIVE, [1, 2]), (LIVE, [3, 4])]
        node.under_way[READER] = 0
        await asyncio.sleep(10 * PAUSE_S)
        assert len(node.serving) == 0

    node = play(tmp_path, [THIRD] * 4, work)
    assert node.sent[3:] == [(READER, [3, 4])]


def test_a_reader_that_is_behind_gets_nothing_until_it_has_read(tmp_path: Path) -> None:
    slow, other = CLIENTS

    async def work(node: Node) -> None:
        node.share = 1000
        node.under_way[slow] = 1000
        for _ in range(3):  # It asks again and again.
            node.want(slow, 1, 2, is_one=True)
            node.want_rows(slow, 3, 4)
            await asyncio.sleep(2 * PAUSE_S)
        node.want_rows(other, 3, 4)
        assert node.sent == [(other, [3, 4])]
        assert len(node.serving) == 3
        node.store.forget([(1, b"s" * 16, 1, 2, 0)])
        node.under_way[slow] = 0
        await asyncio.sleep(10 * PAUSE_S)
        assert len(node.serving) == 0

    node = play(tmp_path, [50] * 4, work)
    assert sorted(node.sent[1:]) == [(slow, [1]), (slow, [3, 4])]
    assert node.rotted == []


def test_large_answers_take_turns_and_are_smaller_where_many_share(tmp_path: Path) -> None:
    one, other = CLIENTS

    async def work(node: Node) -> None:
        node.want_rows(one, 1, 2)
        node.want_rows(other, 1, 2)
        node.want_rows(other, 3, 4)
        assert node.sent == [(one, [1, 2])]
        await node.settle()
        assert node.sent[1:] == [(other, [1, 2]), (other, [3, 4])]
        node.share = 4 * 4 * THIRD
        node.want(one, *range(1, 9), is_one=True)
        assert node.sent[3:] == [(one, [1, 2, 3])]
        node.under_way[other] = 4 * PIECE_BYTES
        node.want_rows(other, 3, 4)
        node.under_way[other] = None  # It has gone.
        await node.settle()

    node = play(tmp_path, [THIRD] * 8, work)
    assert len(node.sent) == 4


def test_large_answers_wait_for_room_and_small_ones_and_nodes_do_not(tmp_path: Path) -> None:
    one, other = CLIENTS

    async def work(node: Node) -> None:
        node.has_room = False
        node.want(one, 1, 2, is_one=True)
        node.want_rows(other, 1, 2)
        await asyncio.sleep(2 * PAUSE_S)
        assert node.sent == []
        node.want(READER, 1, is_one=True)
        node.want_rows(one, 3)
        await asyncio.sleep(2 * PAUSE_S)
        assert node.sent == [(READER, [1]), (one, [3])]
        node.has_room = True
        await asyncio.sleep(4 * PAUSE_S)
        assert len(node.serving) == 0

    node = play(tmp_path, [THIRD] * 2 + [10], work)
    assert sorted(node.sent[2:]) == [(one, [1, 2]), (other, [1, 2])]
