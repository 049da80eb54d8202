"""Clients that stop reading: a node's memory has one bound for all of them, and nobody else is
kept from anything."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

import samcast
from samcast.runtime.connection import WAITING_BYTES_MAX, Connection
from samcast.runtime.local_cluster import LocalCluster
from samcast.runtime.readers import LOOK_BYTES, READERS_BYTES_MAX, SMALL_BYTES, Readers
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

    def __init__(self, held: int) -> None:
        self.held = held
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def of(*waiting: int) -> tuple[Readers, list[Reader]]:
    readers = Readers(100 * MIB)
    made = [Reader(size) for size in waiting]
    for reader in made:
        readers.add(cast(Connection, reader))
    return readers, made


def test_those_who_wait_share_what_there_is_and_small_answers_always_come() -> None:
    readers, (one, *_) = of(*[10 * MIB] * 4)
    assert readers.share == 25 * MIB
    assert readers.has_room(20 * MIB, 5 * MIB)
    assert not readers.has_room(20 * MIB, 6 * MIB)
    assert readers.has_room(20 * MIB, SMALL_BYTES)
    assert readers.has_room(40 * MIB, SMALL_BYTES)
    assert readers.has_room(0, 32 * MIB)  # as large as a single message may be
    for _ in range(2):
        readers.remove(cast(Connection, one))
    assert readers.share == 100 * MIB // 3
    assert Readers().share == WAITING_BYTES_MAX


def test_beyond_the_bound_those_go_that_have_read_nothing_for_longest() -> None:
    readers, (old, reading, large, new) = of(30 * MIB, 20 * MIB, 40 * MIB, 0)
    assert readers.has_room(0, LOOK_BYTES)
    assert not old.is_aborted  # The sum is within the bound.
    reading.held -= 1
    large.held -= 1
    new.held = 30 * MIB
    assert readers.has_room(0, LOOK_BYTES)
    assert [r.is_aborted for r in (old, reading, large, new)] == [True, False, False, True]
    assert readers.parted == 2
    assert len(readers) == 2


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
