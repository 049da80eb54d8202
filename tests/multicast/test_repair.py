"""Frames over a network that loses, doubles and overtakes: whole, once, with few questions."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samcast.limits import NODE_MAX
from samcast.multicast.hearing import TELL_BYTES, Hearing
from samcast.multicast.reassembly import JUMP_MAX, JUMPS_BELIEVED, Bounds, Reassembly
from samcast.multicast.recent import AGAIN_PIECES_MAX, Recent
from samcast.wire.datagram import Envelope, Lacking, Piece, Source, decode_datagram
from samcast.wire.errors import WireError

CLUSTER = 7
SIZE = 50
US = Source(1, 100)


class Draws:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self.random.randrange(bound)


def sender(held_max: int = 1_000_000) -> Recent:
    return Recent(Envelope(CLUSTER, US), SIZE, held_max)


def piece_of(datagram: bytes) -> Piece:
    found = decode_datagram(datagram, CLUSTER)
    assert isinstance(found, Piece)
    return found


class Network:
    """One sender and many receivers; what is sent arrives after a while, or not, or twice."""

    def __init__(
        self, seed: int, receivers: int, loss: float, bounds: Bounds | None = None
    ) -> None:
        self.chance = random.Random(seed)
        self.loss = loss
        self.recent = sender()
        self.receivers = [Reassembly(Draws(seed + i), bounds) for i in range(receivers)]
        self.got: list[list[bytes]] = [[] for _ in range(receivers)]
        self._coming: list[tuple[int, int, bytes]] = []
        self.now_ms = 0
        self.questions = 0
        self.repairs = Counter[str]()

    def _post(self, to: int, datagram: bytes) -> None:
        for _ in range(2 if self.chance.random() < self.loss / 2 else 1):
            if self.chance.random() >= self.loss:
                self._coming.append((self.now_ms + self.chance.randrange(1, 4), to, datagram))

    def to_all(self, datagrams: list[bytes]) -> None:
        for datagram in datagrams:
            for to in range(len(self.receivers)):
                self._post(to, datagram)

    def send(self, frame: bytes) -> None:
        self.to_all(self.recent.send(frame))

    def pass_ms(self) -> None:
        self.now_ms += 1
        due = [c for c in self._coming if c[0] <= self.now_ms]
        self._coming = [c for c in self._coming if c[0] > self.now_ms]
        self.chance.shuffle(due)
        for _, to, datagram in due:
            frame = self.receivers[to].take(piece_of(datagram), self.now_ms)
            if frame is not None:
                self.got[to].append(frame)
        for to, receiver in enumerate(self.receivers):
            if receiver.due_ms() <= self.now_ms:
                self._ask(to, receiver.questions(self.now_ms))

    def _ask(self, to: int, ranges: list[Lacking]) -> None:
        if not ranges:
            return
        self.questions += 1
        if self.chance.random() < self.loss:
            return
        again = self.recent.answer(to, tuple(ranges), self.now_ms)
        self.repairs["one"] += len(again.to_one)
        self.repairs["all"] += len(again.to_all)
        for datagram in again.to_one:
            self._post(to, datagram)
        self.to_all(again.to_all)

    def heartbeat(self) -> None:
        for receiver in self.receivers:
            receiver.announce(self.recent.sequence, self.now_ms)


def play(seed: int, frames: list[bytes], loss: float, receivers: int = 3) -> Network:
    patient = Bounds(asked_max=30)
    network = Network(seed, receivers, loss, patient)
    for receiver in network.receivers:
        receiver.announce(0, 0)  # all listen from the beginning
    for frame in frames:
        network.send(frame)
        network.pass_ms()
    for _ in range(4000):
        if network.now_ms % 50 == 0:
            network.heartbeat()
        network.pass_ms()
        if all(len(got) == len(frames) for got in network.got):
            break
    return network


@pytest.mark.req("GRP-13")
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 700), min_size=1, max_size=25),
    st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.4]),
)
def test_every_frame_comes_once_whatever_is_lost(seed: int, sizes: list[int], loss: float) -> None:
    frames = [bytes([at]) * size for at, size in enumerate(sizes)]
    network = play(seed, frames, loss)
    for got in network.got:
        assert sorted(got) == sorted(frames)
    for receiver in network.receivers:
        assert (receiver.held, receiver.given_up) == (0, 0)


def test_nothing_is_asked_where_nothing_is_lost() -> None:
    network = play(1, [b"x" * 500] * 20, 0.0)
    assert network.questions == 0


@pytest.mark.parametrize("receivers", [3, 100])
def test_one_datagram_that_is_lost_for_all_is_repaired_for_all_at_once(receivers: int) -> None:
    network = Network(5, receivers, 0.0)
    for receiver in network.receivers:
        receiver.announce(0, 0)
    network.to_all(network.recent.send(b"x" * 140)[1:])  # the first of three pieces is lost
    for _ in range(100):
        network.pass_ms()
    assert [len(got) for got in network.got] == [1] * receivers
    assert network.repairs["one"] == 1  # whoever asked first
    assert network.repairs["all"] == 1
    # Of many, most heard the repair before they asked.
    assert network.questions <= max(3, receivers * 3 / 4)


def test_what_nobody_has_any_more_is_given_up() -> None:
    receiver = Reassembly(Draws(1), Bounds(asked_max=3))
    receiver.announce(0, 0)
    receiver.announce(1, 0)
    asked = 0
    for now_ms in range(1000):
        asked += len(receiver.questions(now_ms))
    assert (asked, receiver.given_up) == (3, 1)
    assert receiver.due_ms() > 10**9


def test_pauses_between_questions_double() -> None:
    receiver = Reassembly(Draws(1), Bounds(wait_ms=4, asked_max=5))
    receiver.announce(0, 0)
    receiver.announce(1, 0)
    times = [now_ms for now_ms in range(1000) if receiver.questions(now_ms)]
    pauses = [b - a for a, b in pairwise(times)]
    assert 4 <= times[0] <= 8
    for pause, least in zip(pauses, (8, 16, 32, 64), strict=True):
        assert least <= pause <= 2 * least


def test_a_piece_that_comes_puts_the_question_for_the_rest_off() -> None:
    receiver = Reassembly(Draws(1))
    first, second, _ = Envelope(CLUSTER, US).cut(1, b"x" * 140, SIZE)
    receiver.announce(0, 0)
    assert receiver.take(piece_of(first), 0) is None
    due_ms = receiver.due_ms()
    assert receiver.take(piece_of(second), due_ms - 1) is None
    assert receiver.due_ms() == due_ms + due_ms - 1
    assert receiver.questions(due_ms) == []


def test_memory_is_bounded_by_what_came_and_by_frames() -> None:
    bounds = Bounds(bytes_max=1000, frames_max=20)
    receiver = Reassembly(Draws(1), bounds)
    envelope = Envelope(CLUSTER, US)
    receiver.announce(0, 0)
    for sequence in range(1, 200):  # frames that claim much, and of which one piece comes
        datagram = envelope.piece(sequence, bytes(SIZE * 3), SIZE, 0, 3)
        assert receiver.take(piece_of(datagram), 0) is None
        assert receiver.held <= bounds.bytes_max
    assert receiver.given_up >= 170
    receiver.announce(10_000, 0)
    assert len(receiver.questions(10**6)) <= 20


def test_who_joins_late_asks_for_nothing_before() -> None:
    receiver = Reassembly(Draws(1))
    envelope = Envelope(CLUSTER, US)
    assert receiver.take(piece_of(envelope.cut(500, b"late", SIZE)[0]), 0) == b"late"
    assert receiver.due_ms() > 10**9
    assert receiver.take(piece_of(envelope.cut(499, b"before", SIZE)[0]), 0) is None


def test_a_sequence_that_nobody_can_have_reached_changes_nothing() -> None:
    receiver = Reassembly(Draws(1))
    envelope = Envelope(CLUSTER, US)
    assert receiver.take(piece_of(envelope.cut(1, b"one", SIZE)[0]), 0) == b"one"
    assert receiver.take(piece_of(envelope.cut(2 + JUMP_MAX, b"far", SIZE)[0]), 0) is None
    receiver.announce(2**60, 0)
    assert receiver.implausible == 2
    assert receiver.take(piece_of(envelope.cut(2, b"two", SIZE)[0]), 0) == b"two"


def test_who_was_away_for_very_long_listens_again_from_where_the_sender_is() -> None:
    receiver = Reassembly(Draws(1))
    envelope = Envelope(CLUSTER, US)
    assert receiver.take(piece_of(envelope.cut(1, b"one", SIZE)[0]), 0) == b"one"
    far = 5 + 2 * JUMP_MAX
    got = [receiver.take(piece_of(envelope.cut(far + i, b"far", SIZE)[0]), 0) for i in range(20)]
    assert got == [None] * (JUMPS_BELIEVED - 1) + [b"far"] * (20 - JUMPS_BELIEVED + 1)
    assert receiver.questions(10**6) == []


def test_pieces_that_contradict_each_other_are_left_out() -> None:
    receiver = Reassembly(Draws(1))
    envelope = Envelope(CLUSTER, US)
    first, second = envelope.cut(1, b"a" * 60, SIZE)
    other = envelope.cut(1, b"b" * 140, SIZE)[2]
    assert receiver.take(piece_of(first), 0) is None
    assert receiver.take(piece_of(first), 0) is None
    assert receiver.take(piece_of(other), 0) is None
    assert receiver.take(piece_of(second), 0) == b"a" * 60
    assert receiver.take(piece_of(second), 0) is None


# The sender's side.


def asked(recent: Recent, asker: int, now_ms: int, *ranges: Lacking) -> tuple[int, int]:
    again = recent.answer(asker, ranges, now_ms)
    return len(again.to_one), len(again.to_all)


def test_the_first_is_answered_alone_the_second_with_all_and_then_nobody() -> None:
    recent = sender()
    recent.send(b"x" * 140)
    piece = Lacking(1, 1, 1)
    assert asked(recent, 8, 0, piece) == (1, 0)
    assert asked(recent, 8, 1, piece) == (1, 0)  # it was lost on its way to the same one
    assert asked(recent, 9, 2, piece) == (0, 1)
    assert asked(recent, 10, 3, piece) == (0, 0)
    assert asked(recent, 8, 3, piece) == (0, 0)
    assert asked(recent, 10, 40, piece) == (1, 0)  # much later it is another loss
    assert asked(recent, 8, 40, Lacking(1, 0, 0)) == (2, 1)


def test_what_is_asked_in_one_question_is_bounded_and_what_is_gone_is_gone() -> None:
    recent = sender(held_max=1_000_000)
    recent.send(bytes(SIZE * (AGAIN_PIECES_MAX + 100)))
    assert asked(recent, 8, 0, Lacking(1, 0, 0)) == (AGAIN_PIECES_MAX, 0)
    assert asked(recent, 8, 0, Lacking(1, 60_000, 5), Lacking(99, 0, 1)) == (0, 0)
    small = sender(held_max=100)
    for _ in range(5):
        small.send(b"y" * 60)
    assert asked(small, 8, 0, Lacking(4, 0, 0)) == (0, 0)
    assert asked(small, 8, 0, Lacking(5, 0, 0)) == (2, 0)


def test_a_client_that_asks_again_at_once_gets_nothing_more() -> None:
    recent = sender()
    recent.send(bytes(10 * SIZE))
    client = NODE_MAX + 5
    assert len(recent.answer(client, (Lacking(1, 0, 0),), 0).to_one) == 10
    assert recent.answer(client, (Lacking(1, 0, 0),), 1).to_one == []
    assert len(recent.answer(2, (Lacking(1, 0, 0),), 1).to_all) == 10  # Others lack it, too.
    assert len(recent.answer(client, (Lacking(1, 3, 1),), 1000).to_one) == 1


def test_what_has_not_left_yet_is_not_sent_again() -> None:
    recent = sender()
    recent.send(bytes(10 * SIZE))
    assert len(recent.answer(2, (Lacking(1, 0, 0),), 0, (1, 4)).to_one) == 6
    assert len(recent.answer(3, (Lacking(1, 0, 0),), 1000, (2, 4)).to_one) == 10


def test_a_sender_is_told_how_far_it_was_heard_also_after_a_late_repair() -> None:
    envelope = Envelope(CLUSTER, US)
    hearing = Hearing(Draws(1))
    hearing.expect(1, 100)
    half = TELL_BYTES // 4
    frames = [[*map(piece_of, envelope.cut(at, bytes(2 * half), half))] for at in range(1, 9)]
    told = []
    for pieces in (frames[0], *frames[2:], frames[1]):  # The second one comes last.
        for piece in pieces:
            hearing.take(piece, 0)
        told.append(hearing.to_tell(1))
    assert told == [None, (100, 1), *[None] * 5, (100, 8)]
    hearing.expect(1, 101)  # Another life begins anew.
    with pytest.raises(WireError, match="datagram-life"):
        hearing.take(frames[0][0], 0)
    with pytest.raises(WireError, match="datagram-life"):
        hearing.check(US)
