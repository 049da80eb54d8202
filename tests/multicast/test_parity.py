"""Parity makes up for as many lost pieces of a block as there is of it, whichever they are."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samcast.multicast.reassembly import Reassembly
from samcast.multicast.recent import Recent
from samcast.wire.datagram import (
    BLOCK_PIECES,
    Envelope,
    Parity,
    Piece,
    Source,
    decode_datagram,
)

pytest.importorskip("zfec")

CLUSTER = 7
SIZE = 20
SEEDS = st.integers(0, 2**32)


class Draws:
    def below(self, bound: int) -> int:
        return 0


def sent(frame: bytes, percent: int) -> list[Piece | Parity]:
    recent = Recent(Envelope(CLUSTER, Source(1, 1)), SIZE, parity_percent=percent)
    found = [decode_datagram(datagram, CLUSTER) for datagram in recent.send(frame)]
    return [message for message in found if isinstance(message, Piece | Parity)]


@pytest.mark.req("GRP-25")
@given(st.integers(1, 200 * SIZE), st.integers(1, 100), SEEDS)
def test_any_so_many_may_be_lost(length: int, percent: int, seed: int) -> None:
    chance = random.Random(seed)
    frame = chance.randbytes(length)
    messages = sent(frame, percent)
    kept: list[Piece | Parity] = []
    blocks = range(-(-length // (SIZE * BLOCK_PIECES)))
    for block in blocks:
        pieces = [m for m in messages if type(m) is Piece and m.index // BLOCK_PIECES == block]
        parity = [m for m in messages if type(m) is Parity and m.block == block]
        assert len(parity) == -(-len(pieces) * percent // 100)
        kept += chance.sample([*pieces, *parity], len(pieces))
    chance.shuffle(kept)
    receiver = Reassembly(Draws())
    got = [receiver.take(message, 0) for message in kept]
    assert got == [*[None] * (len(kept) - 1), frame]
    assert receiver.held == 0


@given(st.integers(2 * SIZE, 100 * SIZE), SEEDS)
def test_one_less_and_the_rest_is_asked_for(length: int, seed: int) -> None:
    chance = random.Random(seed)
    messages = sent(chance.randbytes(length), 10)
    pieces = [m for m in messages if type(m) is Piece and m.index < BLOCK_PIECES]
    parity = [m for m in messages if type(m) is Parity and m.block == 0]
    both: list[Piece | Parity] = [*pieces, *parity]
    kept = chance.sample(both, len(pieces) - 1)
    receiver = Reassembly(Draws())
    assert [receiver.take(message, 0) for message in kept] == [None] * len(kept)
    lacking = {
        index
        for asked in receiver.questions(100)
        for index in range(asked.first, asked.first + asked.count)
    }
    here = {message.index for message in kept if type(message) is Piece}
    assert {m.index for m in pieces} - here <= lacking


def test_without_the_setting_there_is_none() -> None:
    assert all(type(message) is Piece for message in sent(bytes(100 * SIZE), 0))
