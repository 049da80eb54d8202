"""The datagram: a piece of a frame, a question for pieces, or the newest sequence, on a network
that loses them.

    offset  size  field
         0     4  magic    b"SAMG"
         4     1  version  1
         5     1  kind     0: a piece, 1: a question for pieces, 2: the newest sequence, 3: parity,
                           4: heard
         6     2  node     whose it is
         8     8  cluster  so that another cluster on the same address is told apart
        16     8  life     of the node, drawn at its start: its sequence begins again
        24     8  sequence of the frame, from 1 on; 0 in a question; all up to it was heard
        32     2  index    of the piece; of parity: 64 times the block, and which one of it
        34     2  count    of the frame's pieces
        36     2  size     of all its pieces but the last, which may be smaller
        38     2  last     of parity: the size of the frame's last piece; otherwise 0
        40     4  check    CRC-32C over the 40 bytes above and all that follows
        44        the piece or parity; or the life that is asked, then 16 bytes for each range that
                  lacks; or the life that was heard; or nothing

Parity is of a block of at most 64 pieces, the frame's last one filled up with zeros: with any of it
as many pieces of the block can be made up for as there is parity (GRP-25).

Integers are little-endian. Each datagram can be judged alone, before anything is kept of it, and
what it claims of its frame costs nothing: memory follows the pieces that really came.
"""

import struct

import msgspec
from crc32c import crc32c

from samcast.limits import FRAME_BYTES_MAX
from samcast.wire.errors import WireError

DATAGRAM_MAGIC = b"SAMG"
DATAGRAM_VERSION = 1
DATAGRAM_HEADER_BYTES = 44
KIND_PIECE = 0
KIND_QUESTION = 1
KIND_NEWEST = 2
KIND_PARITY = 3
KIND_HEARD = 4
PIECES_MAX = 2**16 - 1
BLOCK_PIECES = 64
RANGES_MAX = 80  # of one question: it fits the smallest network that we use
SEQUENCE_END = 2**63

_HEADER = struct.Struct("<4sBBHQQQHHHH")
_CHECK = struct.Struct("<I")
_LIFE = struct.Struct("<Q")
_RANGE = struct.Struct("<QHHI")


class Source(msgspec.Struct, frozen=True, gc=False):
    """One life of a node."""

    node: int
    life: int


class Piece(msgspec.Struct, frozen=True, gc=False):
    """A piece of a frame."""

    source: Source
    sequence: int
    index: int
    count: int
    size: int  # of all pieces but the last
    data: bytes


class Parity(msgspec.Struct, frozen=True, gc=False):
    """What makes up for any one lost piece of a block of a frame's pieces."""

    source: Source
    sequence: int
    block: int
    index: int  # which parity of the block
    count: int  # of the frame's pieces
    size: int
    size_last: int
    data: bytes


class Lacking(msgspec.Struct, frozen=True, gc=False):
    """Pieces of one frame; `count` 0: all of them, since nothing is known of the frame."""

    sequence: int
    first: int
    count: int


class Question(msgspec.Struct, frozen=True, gc=False):
    """What somebody lacks of what a life of a node has sent."""

    source: Source
    life: int
    ranges: tuple[Lacking, ...]


class Newest(msgspec.Struct, frozen=True, gc=False):
    """A life of a node has sent frames up to this one, so that a lost end is noticed."""

    source: Source
    sequence: int


class Heard(msgspec.Struct, frozen=True, gc=False):
    """Somebody has all that a life of a node has sent up to this frame, or does without."""

    source: Source
    life: int
    sequence: int


AnyDatagram = Piece | Parity | Question | Newest | Heard


class Envelope:
    """Makes the datagrams of one life of a node in a cluster."""

    def __init__(self, cluster: int, source: Source) -> None:
        self._cluster = cluster
        self.source = source

    def cut(self, sequence: int, frame: bytes | memoryview, size: int) -> list[bytes]:
        """A frame in pieces of this size."""
        count = max(1, -(-len(frame) // size))
        if count > PIECES_MAX:
            raise WireError(
                "datagram-pieces",
                f"{len(frame)} bytes in pieces of {size} are {count}, and a frame has at most"
                f" {PIECES_MAX}; send it another way",
            )
        return [self.piece(sequence, frame, size, index, count) for index in range(count)]

    def piece(
        self, sequence: int, frame: bytes | memoryview, size: int, index: int, count: int
    ) -> bytes:
        """One of them."""
        data = frame[index * size : (index + 1) * size]
        return self._sealed(KIND_PIECE, sequence, index, count, size, bytes(data))

    def parity(
        self, sequence: int, place: tuple[int, int], count: int, sizes: tuple[int, int], data: bytes
    ) -> bytes:
        """Parity: its place is the block and which one of it; sizes are of pieces, of the last."""
        block, index = place
        at = BLOCK_PIECES * block + index
        return self._sealed(KIND_PARITY, sequence, at, count, sizes[0], data, sizes[1])

    def question(self, life: int, ranges: tuple[Lacking, ...]) -> bytes:
        """Ask a life of a node for pieces; at most RANGES_MAX ranges."""
        assert len(ranges) <= RANGES_MAX
        body = _LIFE.pack(life) + b"".join(
            _RANGE.pack(lacking.sequence, lacking.first, lacking.count, 0) for lacking in ranges
        )
        return self._sealed(KIND_QUESTION, 0, 0, 0, 0, body)

    def heard(self, life: int, sequence: int) -> bytes:
        """Tell a life of a node how far we have heard it."""
        return self._sealed(KIND_HEARD, sequence, 0, 0, 0, _LIFE.pack(life))

    def newest(self, sequence: int) -> bytes:
        """Say how far we are."""
        return self._sealed(KIND_NEWEST, sequence, 0, 0, 0, b"")

    def _sealed(
        self,
        kind: int,
        sequence: int,
        index: int,
        count: int,
        size: int,
        body: bytes,
        last: int = 0,
    ) -> bytes:
        header = _HEADER.pack(
            DATAGRAM_MAGIC, DATAGRAM_VERSION, kind, self.source.node, self._cluster,
            self.source.life, sequence, index, count, size, last,
        )  # fmt: skip
        return b"".join((header, _CHECK.pack(crc32c(body, crc32c(header))), body))


def cluster_of(data: bytes) -> int:
    """Whose it says that it is; 0 if it is too short to say."""
    return int.from_bytes(data[8:16], "little") if len(data) >= DATAGRAM_HEADER_BYTES else 0


def decode_datagram(data: bytes, cluster: int) -> AnyDatagram:
    """What a datagram of our cluster says, or a `WireError`: drop it and count the code."""
    if len(data) < DATAGRAM_HEADER_BYTES:
        raise WireError("datagram-truncated", f"{len(data)} bytes are less than a header of 44")
    fields = _HEADER.unpack_from(data)
    magic, version, kind, node, theirs, life, sequence, index, count, size, last = fields
    if magic != DATAGRAM_MAGIC:
        raise WireError("datagram-magic", f"{magic!r} instead of {DATAGRAM_MAGIC!r}")
    if version != DATAGRAM_VERSION or (last and kind != KIND_PARITY):
        raise WireError("datagram-version", f"version {version}, and we read {DATAGRAM_VERSION}")
    if theirs != cluster:
        raise WireError("datagram-cluster", f"of cluster {theirs:#x}, not of ours")
    body = data[DATAGRAM_HEADER_BYTES:]
    (check,) = _CHECK.unpack_from(data, _HEADER.size)
    if crc32c(body, crc32c(data[: _HEADER.size])) != check:
        raise WireError("datagram-check", "the bytes changed on their way")
    source = Source(node, life)
    if kind == KIND_QUESTION:
        return _question(source, body)
    if kind == KIND_PIECE:
        _check_piece(sequence, index, count, size, len(body))
        return Piece(source, sequence, index, count, size, body)
    if kind == KIND_PARITY:
        block, index = divmod(index, BLOCK_PIECES)
        _check_parity(sequence, block, count, size, last, len(body))
        return Parity(source, sequence, block, index, count, size, last, body)
    return _position(kind, source, sequence, body)


def _position(kind: int, source: Source, sequence: int, body: bytes) -> Newest | Heard:
    if kind == KIND_NEWEST and not body and sequence < SEQUENCE_END:
        return Newest(source, sequence)
    if kind == KIND_HEARD and len(body) == _LIFE.size and sequence < SEQUENCE_END:
        return Heard(source, _LIFE.unpack(body)[0], sequence)
    raise WireError("datagram-kind", f"kind {kind} of {len(body)} bytes is unknown to this version")


def _check_piece(sequence: int, index: int, count: int, size: int, length: int) -> None:
    is_last = index == count - 1
    is_fitting = 0 < length <= size if is_last else length == size
    if not 1 <= sequence < SEQUENCE_END or index >= count or not is_fitting:
        raise WireError(
            "datagram-range",
            f"piece {index} of {count}, {length} bytes where pieces have {size}, frame {sequence}",
        )
    _check_frame(count, size)


def _check_parity(
    sequence: int, block: int, count: int, size: int, size_last: int, length: int
) -> None:
    is_fitting = length == size and 1 <= size_last <= size and block * BLOCK_PIECES < count
    if not 1 <= sequence < SEQUENCE_END or not is_fitting:
        raise WireError(
            "datagram-range",
            f"parity of block {block} of {count} pieces, {length} bytes where pieces have {size}"
            f" and the last {size_last}, frame {sequence}",
        )
    _check_frame(count, size)


def _check_frame(count: int, size: int) -> None:
    if (count - 1) * size >= FRAME_BYTES_MAX + size:
        raise WireError(
            "datagram-length",
            f"{count} pieces of {size} bytes, and a frame has at most {FRAME_BYTES_MAX}",
        )


def _question(source: Source, body: bytes) -> Question:
    rest = len(body) - _LIFE.size
    if rest < _RANGE.size or rest % _RANGE.size or rest // _RANGE.size > RANGES_MAX:
        raise WireError("datagram-question", f"{len(body)} bytes are no question of 1 to 80 ranges")
    ranges: list[Lacking] = []
    for sequence, first, count, reserved in _RANGE.iter_unpack(body[_LIFE.size :]):
        if not 1 <= sequence < SEQUENCE_END or first + count > PIECES_MAX or reserved:
            raise WireError("datagram-question", f"pieces {first} to {first + count} of {sequence}")
        ranges.append(Lacking(sequence, first, count))
    return Question(source, _LIFE.unpack_from(body)[0], tuple(ranges))
