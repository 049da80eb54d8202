"""Forward error correction (GRP-25): parity over the pieces of a frame, so that a receiver can make
up for lost ones without asking. The arithmetic is zfec's (`samcast[fec]`)."""

from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from samcast.wire.datagram import BLOCK_PIECES

CAN_MAKE_UP = find_spec("zfec") is not None  # Whoever can't asks for what it lacks.


@lru_cache(maxsize=BLOCK_PIECES)
def _encoder(pieces: int) -> Any:
    from zfec import Encoder  # only those who want parity need it

    return Encoder(pieces, pieces + BLOCK_PIECES)


@lru_cache(maxsize=BLOCK_PIECES)
def _decoder(pieces: int) -> Any:
    from zfec import Decoder

    return Decoder(pieces, pieces + BLOCK_PIECES)


def parity_of(frame: bytes, size: int, percent: int) -> Iterator[tuple[tuple[int, int], bytes]]:
    """The parity of a frame that is cut into pieces of this size, with block and index of each: so
    many per hundred pieces of a block, at least one."""
    padded = frame + bytes(-len(frame) % size or (0 if frame else size))
    pieces = [padded[at : at + size] for at in range(0, len(padded), size)]
    for block, start in enumerate(range(0, len(pieces), BLOCK_PIECES)):
        of_block = pieces[start : start + BLOCK_PIECES]
        count = -(-len(of_block) * percent // 100)
        numbers = list(range(len(of_block), len(of_block) + count))
        for index, data in enumerate(_encoder(len(of_block)).encode(of_block, numbers)):
            yield (block, index), data


def made_up(
    count: int, size: int, here: dict[int, bytes], parity: dict[int, bytes]
) -> dict[int, bytes]:
    """The lacking pieces of a block of so many, in full size, from those that are here and as much
    parity as there are lacking ones."""
    lacking = [at for at in range(count) if at not in here]
    chosen = sorted(parity)[: len(lacking)]
    shares = {at: data.ljust(size, b"\0") for at, data in here.items()}
    # A piece stands at its own place, parity wherever one lacks.
    numbers = [at if at in here else -1 for at in range(count)]
    for at, index in zip(lacking, chosen, strict=True):
        numbers[at] = count + index
    blocks = [shares[at] if at in here else parity[numbers[at] - count] for at in range(count)]
    whole = _decoder(count).decode(blocks, numbers)
    return {at: bytes(whole[at]) for at in lacking}
