"""Nonsense against a node's listener: a coded refusal, and everybody else goes on undisturbed."""

import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import samcast
from samcast.limits import FRAME_BYTES_UNTRUSTED_MAX
from samcast.machine.ports import Channel
from samcast.runtime.local_cluster import LocalCluster, log_path
from samcast.wire.codec import KIND_BATCH, KIND_CONTROL
from samcast.wire.errors import WireError
from samcast.wire.frame import FrameDecoder, encode_frame
from samcast.wire.group import Seal, encode_control
from samcast.wire.order import Configuration
from samcast.wire.session import (
    CHANNEL_BASE,
    KIND_DATAGRAM,
    KIND_SESSION,
    PROTOCOL,
    Hello,
    Refused,
    Welcome,
    client_id,
    decode_session,
    encode_route,
    encode_session,
)

WAIT_S = 30.0
HELLO = encode_session(Hello(PROTOCOL, ""))


@contextmanager
def connected(cluster: LocalCluster) -> Iterator[socket.socket]:
    node = cluster.plan().nodes[0]
    with socket.create_connection((node.host, node.port), timeout=WAIT_S) as made:
        yield made


def answers(to: socket.socket) -> list[object]:
    """All session messages until the node closes the connection."""
    decoder = FrameDecoder()
    found: list[object] = []
    while data := to.recv(65536):
        found += [decode_session(body) for kind, body in decoder.feed(data) if kind == KIND_SESSION]
    return found


def header(kind: int = 1, version: int = 1, length: int = 10) -> bytes:
    frame = bytearray(encode_frame(kind, b"x" * 10))
    frame[4] = version
    frame[8:12] = length.to_bytes(4, "little")
    return bytes(frame)


SEAL = encode_control(Seal(1, (9, 1, 1)))
CASES = {
    "random bytes": (random.Random(1).randbytes(5000), "frame-magic"),
    "another protocol": (b"GET / HTTP/1.1\r\nHost: samcast\r\n\r\n", "frame-magic"),
    "a later version": (header(version=9), "frame-version"),
    "an oversize frame": (header(length=FRAME_BYTES_UNTRUSTED_MAX + 1), "frame-length"),
    "a flipped bit": (bytes([*encode_frame(1, b"abc")[:-1], 0]), "frame-crc"),
    "no hello": (encode_frame(KIND_CONTROL, encode_route(0, 1) + SEAL), "session-order"),
    "a welcome that nobody asked for": (
        encode_session(Welcome(2, 2, "", Configuration(1, (), 1, 1, 1), ())), "session-order",
    ),
    "a control message in disguise": (
        HELLO + encode_frame(KIND_CONTROL, encode_route(0, 1) + b"\xdc\x03\x00" + SEAL[1:]),
        "client-kind",
    ),
    "hello again": (HELLO + HELLO, "session-order"),
    "a kind that nobody knows": (
        HELLO + encode_frame(77, encode_route(0, 2) + b"garbage"), "client-kind",
    ),
    "half a session": (encode_frame(KIND_SESSION, b"\x93\x01"), "session-malformed"),
    "another cluster": (encode_session(Hello(PROTOCOL, "elsewhere")), "session-cluster"),
    "a later protocol": (encode_session(Hello(99, "")), "session-protocol"),
    "a node of another file": (encode_session(Hello(PROTOCOL, "", 2, "d", (("k", "v"),))),
                               "session-config"),
    "what only servers say": (
        HELLO + encode_frame(KIND_CONTROL, encode_route(0, 1) + SEAL), "client-kind",
    ),
    "a channel of servers": (
        HELLO + encode_frame(KIND_BATCH, encode_route(0, CHANNEL_BASE + 3) + b"x"),
        "client-channel",
    ),
    "a datagram for all": (
        HELLO + encode_frame(KIND_DATAGRAM, encode_route(0, CHANNEL_BASE + 2) + b"x"),
        "client-channel",
    ),
    "a datagram for another client": (
        HELLO + encode_frame(KIND_DATAGRAM, encode_route(0, client_id(1, 5)) + b"x"),
        "client-channel",
    ),
    "a batch for another client": (
        HELLO + encode_frame(KIND_BATCH, encode_route(0, client_id(2, 5)) + b"x"),
        "client-channel",
    ),
    "a route cut short": (HELLO + encode_frame(KIND_BATCH, b"abc"), "route-truncated"),
    "half a batch": (
        HELLO + encode_frame(KIND_BATCH, encode_route(0, CHANNEL_BASE + 2) + b"x" * 40),
        "batch-truncated",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    made = LocalCluster(tmp_path_factory.mktemp("shared") / "cluster")
    made.make(3)
    made.start_all()
    try:
        made.await_ready()
        yield made
    finally:
        made.stop_all()


@pytest.mark.req("GRP-27")
@pytest.mark.parametrize("name", list(CASES))
def test_nonsense_is_refused_with_a_code_and_disturbs_nobody(
    shared: LocalCluster, name: str
) -> None:
    data, code = CASES[name]
    pids = [process.pid for process in shared.processes()]
    with samcast.connect(shared.address) as client:
        before = client.group("calm").send(b"before").number(WAIT_S)
        with connected(shared) as bad:
            bad.sendall(data)
            refusals = [said for said in answers(bad) if isinstance(said, Refused)]
        assert [refusal.code for refusal in refusals] == [code]
        assert refusals[0].detail
        assert client.group("calm").send(b"after").number(WAIT_S) == before + 1
    assert [process.pid for process in shared.processes()] == pids


def test_a_flood_of_connections_that_say_nothing_disturbs_nobody(shared: LocalCluster) -> None:
    node = shared.plan().nodes[0]
    idle = [socket.create_connection((node.host, node.port)) for _ in range(200)]
    try:
        for half_open in idle[:50]:
            half_open.sendall(HELLO[:7])
        with samcast.connect(f"{node.host}:{node.port}") as client:
            assert client.group("calm").send(b"x").number(WAIT_S) > 0
    finally:
        for half_open in idle:
            half_open.close()


def memory_of(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def test_a_reader_that_reads_nothing_holds_up_nobody_and_takes_no_memory(
    shared: LocalCluster,
) -> None:
    from samcast.wire.group import Follow

    pid = shared.processes()[0].pid
    with samcast.connect(shared.address) as client:
        group = client.group("large")
        body = os.urandom(200_000)
        for _ in range(200):  # 40 MB
            group.send(body)
        group.flush(WAIT_S)
        with connected(shared) as deaf:
            follow = encode_control(Follow(group.id, 1, 100_000))
            deaf.sendall(HELLO + 50 * encode_frame(KIND_CONTROL, encode_route(0, 1) + follow))
            assert group.send(b"last").number(WAIT_S) == 201
            for _ in range(20):
                group.send(b"x").number(WAIT_S)
            assert memory_of(pid) < 1_000_000_000


def test_a_welcome_names_every_node(shared: LocalCluster) -> None:
    with connected(shared) as good:
        good.sendall(HELLO)
        decoder = FrameDecoder()
        said: list[object] = []
        while not said:
            said += [decode_session(body) for _, body in decoder.feed(good.recv(65536))]
        welcome = said[0]
        assert isinstance(welcome, Welcome)
        assert [peer.name for peer in welcome.peers] == ["n1", "n2", "n3"]
        with pytest.raises(WireError):
            decode_session(b"\xc1")


def test_nonsense_that_a_node_passes_on_for_a_client_is_not_held_against_the_node(
    shared: LocalCluster,
) -> None:
    batch = encode_frame(KIND_BATCH, encode_route(0, CHANNEL_BASE + Channel.DATA) + b"no batch")
    single = encode_frame(KIND_BATCH, encode_route(0, 2) + b"no batch")
    logs = [log_path(node) for node in shared.plan().nodes]
    before = [log.read_text() for log in logs]
    with connected(shared) as stranger:
        stranger.sendall(HELLO + single + batch)
        assert isinstance(answers(stranger)[-1], Refused)  # by its own node, which looks as well
    with samcast.connect(shared.address) as client:
        client.group("still").send(b"here").number(WAIT_S)
    for log, text in zip(logs, before, strict=True):
        assert "lost the connection" not in log.read_text().removeprefix(text)


def test_a_refusal_by_a_stranger_is_nothing_to_write_about(shared: LocalCluster) -> None:
    log = log_path(shared.plan().nodes[0])
    with connected(shared) as stranger:
        stranger.sendall(encode_session(Refused("forged", "two\nlines")))
        assert [type(said) for said in answers(stranger)] == [Refused]
    assert "two" not in log.read_text()
