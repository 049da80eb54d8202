"""Clients that stop reading: a node's memory has one bound for all of them, and nobody else is
kept from anything."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import samcast
from samcast.runtime.connection import WAITING_BYTES_MAX, Connection, Traffic
from samcast.runtime.local_cluster import LocalCluster
from samcast.runtime.readers import (
    READERS_BYTES_MAX,
    SMALL_BYTES,
    STALLED_S,
    TURN_S,
    Readers,
)
from samcast.wire.codec import message_parts
from samcast.wire.rows import RowsRequest
from samcast.wire.session import PROTOCOL, Hello, encode_route, encode_session

MIB = 1024 * 1024
READERS = 100
ASKED = 8  # answers of 4 MiB for each
TIMEOUT_S = 60.0
WITHOUT_READERS_BYTES = 256 * MIB  # other reasons why a process grows


class Reader:
    """A connection as the bound sees it."""

    def __init__(self, held: int = 0) -> None:
        self.held = held
        self.taken = 0
        self.is_aborted = False

    @property
    def under_way(self) -> int:
        return self.held

    def read(self, size: int) -> None:
        self.held -= size
        self.taken += size

    def abort(self) -> None:
        self.is_aborted = True


class Bound:
    """Of 100 MiB, with a clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.readers = Readers(100 * MIB, lambda: self.now)

    def add(self, *waiting: int) -> list[Reader]:
        made = [Reader(size) for size in waiting]
        for reader in made:
            self.readers.add(cast(Connection, reader))
        return made

    def remove(self, reader: Reader) -> None:
        reader.read(reader.held)
        self.readers.remove(cast(Connection, reader))

    def has_room(self, reader: Reader, size: int) -> bool:
        """What there is room for is sent."""
        self.now += 0.1
        is_sent = self.readers.has_room(cast(Connection, reader), reader.held, size)
        reader.held += size if is_sent else 0
        return is_sent


def test_those_who_wait_share_what_there_is_and_small_answers_always_come() -> None:
    bound = Bound()
    one, *_ = bound.add(*[10 * MIB] * 4)
    assert bound.readers.share == 25 * MIB
    assert not bound.has_room(one, 16 * MIB)
    assert bound.has_room(one, 12 * MIB)
    assert not bound.has_room(one, MIB)  # Half is used.
    assert bound.has_room(Reader(), 32 * MIB)  # as large as a single message may be
    assert bound.has_room(Reader(), 32 * MIB)
    assert not bound.has_room(Reader(), 32 * MIB)
    assert bound.has_room(one, SMALL_BYTES)
    for _ in range(2):
        bound.remove(one)
    assert bound.readers.share == 100 * MIB // 3
    assert Readers().share == WAITING_BYTES_MAX


def test_large_answers_wait_for_room_and_those_who_were_refused_first_come_first() -> None:
    bound = Bound()
    large, *_ = bound.add(60 * MIB, 40 * MIB)
    first, second, third, gone = Reader(), Reader(), Reader(), Reader()
    for reader in (gone, first, second, third, first):
        assert not bound.has_room(reader, 30 * MIB)
    bound.readers.leave(cast(Connection, gone))
    large.read(30 * MIB)
    assert not bound.has_room(third, 30 * MIB)
    assert not bound.has_room(second, 30 * MIB)
    assert bound.has_room(first, 30 * MIB)
    assert not bound.has_room(third, 30 * MIB)
    assert bound.has_room(third, SMALL_BYTES)
    large.read(30 * MIB)
    bound.now += TURN_S  # The second doesn't ask any more.
    assert bound.has_room(third, 30 * MIB)
    assert bound.readers.parted == 0


def test_a_message_larger_than_all_the_room_gets_through_alone() -> None:
    bound = Bound()
    one, other = Reader(), Reader()
    assert bound.has_room(one, 120 * MIB)
    assert not bound.has_room(other, 120 * MIB)
    bound.remove(one)
    assert bound.has_room(other, 120 * MIB)


def test_only_who_takes_nothing_for_seconds_while_others_wait_is_parted_with() -> None:
    bound = Bound()
    stopped, slow, other = bound.add(40 * MIB, 40 * MIB, 30 * MIB)
    waits = Reader()
    bound.now += 100 * STALLED_S  # Nobody looked, so nobody is blamed for it.
    end = bound.now + STALLED_S
    while bound.now < end - 1:
        assert not bound.has_room(waits, MIB)
        assert not stopped.is_aborted
        slow.taken += 1  # of a frame that is still there, whole
    other.taken += 1
    while not bound.has_room(waits, MIB):
        slow.taken += 1
        assert bound.now < end + 2
    assert [r.is_aborted for r in (stopped, slow, other)] == [True, False, False]
    assert bound.readers.parted == 1


def test_small_answers_are_dropped_for_who_has_its_share_once_they_are_too_many() -> None:
    bound = Bound()
    one, other = bound.add(50 * MIB, 50 * MIB)
    while bound.has_room(one, SMALL_BYTES):
        assert one.held <= 110 * MIB
        one.taken += 1
        other.taken += 1
    assert one.held >= 100 * MIB
    assert bound.has_room(Reader(), SMALL_BYTES)


def small_socket() -> socket.socket:
    """So that the kernel takes little of what waits."""
    made = socket.socket()
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return made


def test_readers_of_large_messages_all_get_theirs_and_none_is_cut() -> None:
    """They are more than there is room for."""
    readers, live, traffic = Readers(4 * MIB), list[Connection](), Traffic()
    most = 0

    def accept() -> Connection:
        made = Connection(traffic, lambda *_: None, lambda _: None)
        made.slow = readers
        made.on_open = live.append
        return made

    async def read(port: int, loop: asyncio.AbstractEventLoop) -> None:
        with small_socket() as end:
            await loop.sock_connect(end, ("127.0.0.1", port))
            left = MIB
            while left:
                data = await loop.sock_recv(end, min(left, MIB))
                assert data, "cut"
                left -= len(data)

    async def main() -> None:
        nonlocal most
        loop = asyncio.get_running_loop()
        listens = small_socket()
        listens.bind(("127.0.0.1", 0))
        server = await loop.create_server(accept, sock=listens)
        port = listens.getsockname()[1]
        reading = asyncio.gather(*(read(port, loop) for _ in range(20)))
        while not reading.done():
            for connection in live:  # One large answer in each turn.
                if not connection.under_way:
                    live.remove(connection)
                    live.append(connection)
                    connection.write(bytes(MIB))
                    break
            await asyncio.sleep(0)
            most = max(most, sum(connection.held for connection in live))
        server.close()
        await reading

    asyncio.run(main())
    assert readers.parted == 0
    assert MIB < most <= 5 * MIB


@contextmanager
def stopped_reader(node: object, group: int, head: int) -> Iterator[socket.socket]:
    """It asks for much and never reads."""
    host, port, node_id = node.host, node.port, node.id  # type: ignore[attr-defined]
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.settimeout(TIMEOUT_S)
        made.connect((host, port))
        made.sendall(encode_session(Hello(PROTOCOL, "")))
        for at in range(ASKED):
            wanted = RowsRequest(group, 1 + at, head + 1)
            made.sendall(b"".join(message_parts(encode_route(0, node_id), wanted)))
        yield made


def memory_of(pid: int) -> int:
    (line,) = [
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line
    ]
    return int(line.split()[1]) * 1024


def test_75_a_hundred_that_stop_reading_take_a_bounded_part_of_a_node(
    cluster: LocalCluster,
) -> None:
    node = cluster.plan().nodes[0]
    pid = cluster.pid_of(node)
    address = f"{node.host}:{node.port}"
    with (
        samcast.connect(address) as client,
        samcast.connect(address) as honest,
        ExitStack() as stopped,
    ):
        group = client.group("read")
        bodies = [bytes(1000) for _ in range(6000)]
        last = group.send_many(bodies)
        assert last is not None
        head = last.number(TIMEOUT_S)
        before = memory_of(pid)
        for _ in range(READERS):
            stopped.enter_context(stopped_reader(node, group.id, head))
        most = 0
        reading = honest.group("read")
        for _ in range(10):
            number = group.send(b"x").number(TIMEOUT_S)
            (found,) = reading.read(number, count=1, timeout=TIMEOUT_S)
            assert found.number == number
            assert sum(1 for _ in reading.read(1, count=6000, timeout=TIMEOUT_S)) == 6000
            most = max(most, memory_of(pid))
        with stopped_reader(node, group.id, head) as again:  # It reads at last.
            took = 0
            while took < 4 * MIB and (data := again.recv(MIB)):
                took += len(data)
            assert took >= 4 * MIB
    print(f"grew by {(most - before) >> 20} MiB for {READERS} readers")
    assert most - before < READERS_BYTES_MAX + WITHOUT_READERS_BYTES
