"""What a client that listens believes: nodes, from their own places, of lives that were told."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from samcast.client.listener import Listener
from samcast.errors import ConfigError
from samcast.machine.ports import Channel
from samcast.wire.batch import Batch
from samcast.wire.codec import message_parts
from samcast.wire.control import Control
from samcast.wire.datagram import Envelope, Lacking, Source
from samcast.wire.group import Heartbeat
from samcast.wire.order import HASH_NONE
from samcast.wire.session import CHANNEL_BASE, MulticastPlace, Peer, encode_route

CLUSTER, LIFE = 77, 5
PEERS = (Peer(1, "n1", "127.0.0.1", 7001), Peer(2, "n2", "127.0.0.1", 7002))
PLACE = MulticastPlace((("239.77.1.9", 7999, CLUSTER),), ((1, LIFE), (2, LIFE)))
BEAT = Heartbeat(1, (1, 1, 1), 0, HASH_NONE, ())


def pieces(node: int, source: int, channel: Channel, cluster: int = CLUSTER) -> list[bytes]:
    route = encode_route(source, CHANNEL_BASE + channel)
    frame = b"".join(message_parts(route, BEAT))
    return Envelope(cluster, Source(node, LIFE)).cut(1, frame, 1000)


class Ear:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Nothing is heard here but what the test says: no real group is joined.
        self.silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.silent.setblocking(False)
        monkeypatch.setattr(Listener, "_join", lambda *_: self.silent)
        self.heard: list[tuple[int, Control | Batch]] = []
        self.asked: list[int] = []
        self.listener = Listener(
            lambda node, data: self.asked.append(node),
            lambda source, message: self.heard.append((source, message)),
        )
        self.listener.tune(PLACE, PEERS, "127.0.0.1")

    def answer(self, node: int, *datagrams: bytes) -> None:
        for datagram in datagrams:
            self.listener.take_answer(node, datagram)


@pytest.fixture
def ear(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ear]:
    made = Ear(monkeypatch)
    yield made
    made.silent.close()


def test_what_a_node_says_to_all_is_heard(ear: Ear) -> None:
    ear.answer(1, *pieces(1, 1, Channel.GLOBAL))
    assert ear.heard == [(1, BEAT)]
    assert ear.listener.is_hearing


def test_what_is_for_servers_is_left_to_them(ear: Ear) -> None:
    ear.answer(1, *pieces(1, 1, Channel.COMMIT))
    assert ear.heard == []
    assert not ear.listener.is_hearing  # Only the sequencer's own channel tells that it is there.


def test_nobody_speaks_for_another_node(ear: Ear) -> None:
    ear.answer(2, *pieces(1, 1, Channel.GLOBAL))  # n2 brings what n1 is to have sent
    ear.answer(2**41 + 7, *pieces(1, 1, Channel.GLOBAL))  # a client does
    ear.answer(1, *pieces(1, 2, Channel.GLOBAL))  # n1 speaks in n2's name
    assert ear.heard == []
    assert ear.listener.dropped == {"datagram-source": 2, "route-source": 1}


def test_other_clusters_and_other_lives_are_dropped(ear: Ear) -> None:
    ear.answer(1, *pieces(1, 1, Channel.GLOBAL, cluster=78))
    ear.answer(1, Envelope(CLUSTER, Source(1, LIFE + 1)).newest(4), b"short")
    assert ear.heard == []
    assert ear.listener.dropped == {
        "datagram-cluster": 1, "datagram-life": 1, "datagram-truncated": 1,
    }  # fmt: skip


def test_a_question_is_for_nodes(ear: Ear) -> None:
    ear.answer(1, Envelope(CLUSTER, Source(1, LIFE)).question(LIFE, (Lacking(1, 0, 0),)))
    assert ear.heard == []


def test_what_lacks_is_asked_of_who_sent_it(ear: Ear) -> None:
    async def main() -> None:
        ear.answer(2, Envelope(CLUSTER, Source(2, LIFE)).newest(1))
        ear.answer(2, Envelope(CLUSTER, Source(2, LIFE)).newest(3))
        for _ in range(200):
            await asyncio.sleep(0.01)
            if ear.asked:
                break

    asyncio.run(main())
    assert ear.asked[0] == 2


def test_without_a_group_there_is_nothing_to_tune_to(ear: Ear) -> None:
    with pytest.raises(ConfigError, match="has no multicast"):
        ear.listener.tune(MulticastPlace(), PEERS, "127.0.0.1")


def test_a_host_that_is_no_address_is_named() -> None:
    listener = Listener(lambda node, data: None, lambda source, message: None)
    with pytest.raises(ConfigError, match=r"from no-address: .*illegal IP"):
        listener.tune(PLACE, PEERS, "no-address")
