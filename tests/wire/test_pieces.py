"""Pieces of a value are, together, the bytes that encoding it at once gives."""

import msgspec
import pytest

from samcast.wire.pieces import Many, Parts, in_pieces, listed


@pytest.mark.parametrize("count", [0, 1, 15, 16, 255, 256, 2**16 - 1, 2**16, 2**16 + 1])
def test_a_list_of_any_length_begins_as_the_encoder_begins_it(count: int) -> None:
    pieces = list(in_pieces(Parts((7, Many(count, range(count))))))
    assert len(pieces) == 3 + count
    assert b"".join(pieces) == msgspec.msgpack.encode([7, list(range(count))])


def test_lists_within_lists_are_cut_as_well() -> None:
    inner = Parts((1, Many(2, iter([b"x", "y"])), None))
    pieces = list(in_pieces(Many(2, iter([inner, (1, [2])]))))
    assert b"".join(pieces) == msgspec.msgpack.encode([[1, [b"x", "y"], None], [1, [2]]])
    assert max(map(len, pieces)) < 5


def test_the_same_items_can_be_had_at_once() -> None:
    assert listed(3, (n for n in range(3))) == [0, 1, 2]
