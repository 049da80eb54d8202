"""The frame: the envelope of everything that travels. What arrives is what was sent, or nothing.

    offset  size  field
         0     4  magic    b"SAMC"
         4     1  version  1
         5     1  kind     what the payload is; no business of this module
         6     2  flags    0 in version 1
         8     4  length   bytes of the payload
        12     4  check    CRC-32C over the 12 bytes above and the payload

All integers are little-endian. A header is judged before its payload is kept, so a claimed length
costs nothing: memory follows the bytes that a peer really sent.
"""

import struct
from io import BytesIO

from crc32c import crc32c

from samcast.limits import FRAME_BYTES_MAX
from samcast.wire.errors import WireError

FRAME_MAGIC = b"SAMC"
FRAME_VERSION = 1
FRAME_HEADER_BYTES = 16

_HEADER = struct.Struct("<4sBBHII")
_CHECKED = struct.Struct("<4sBBHI")  # the part of the header that the check covers
_CHECK = struct.Struct("<I")
_KIND_MAX = 0xFF
_COPIED_BYTES_MAX = 16 * 1024  # a copy of less costs less than one more part to write


def encode_frame(kind: int, *payload: bytes | memoryview) -> bytes:
    """Puts a payload, in however many parts, into its envelope, with one copy of it."""
    return b"".join((_envelope(kind, payload), *payload))


def frame_parts(kind: int, *payload: bytes | memoryview) -> tuple[bytes | memoryview, ...]:
    """The same for whoever writes parts as they are: large ones are not copied."""
    envelope = _envelope(kind, payload)
    if len(payload[-1]) < _COPIED_BYTES_MAX:
        return (b"".join((envelope, *payload)),)
    return (b"".join((envelope, *payload[:-1])), payload[-1])


def _envelope(kind: int, payload: tuple[bytes | memoryview, ...]) -> bytes:
    assert 0 <= kind <= _KIND_MAX, f"a frame's kind is one byte, not {kind}"
    length = sum(map(len, payload))
    if length > FRAME_BYTES_MAX:
        raise WireError(
            "frame-length",
            f"a payload of {length} bytes is above the {FRAME_BYTES_MAX} that a frame may"
            " carry; cut it into several frames",
        )
    checked = _CHECKED.pack(FRAME_MAGIC, FRAME_VERSION, kind, 0, length)
    check = crc32c(checked)
    for part in payload:
        check = crc32c(part, check)
    return checked + _CHECK.pack(check)


def decode_frame(data: bytes, bytes_max: int = FRAME_BYTES_MAX) -> tuple[int, bytes]:
    """Takes the kind and payload out of exactly one frame, such as a datagram."""
    if len(data) < FRAME_HEADER_BYTES:
        raise WireError(
            "frame-truncated",
            f"{len(data)} bytes are less than a header of {FRAME_HEADER_BYTES}; drop the datagram,"
            " the sender repeats it",
        )
    kind, length, check = _read_header(data, 0, bytes_max)
    end = FRAME_HEADER_BYTES + length
    if len(data) < end:
        raise WireError(
            "frame-truncated",
            f"the header claims {length} bytes of payload and {len(data) - FRAME_HEADER_BYTES} are"
            " there; drop the datagram, the sender repeats it",
        )
    if len(data) > end:
        raise WireError(
            "frame-trailing",
            f"{len(data) - end} bytes follow the end of the frame at byte {end}; drop the datagram:"
            " it holds exactly one frame",
        )
    payload = data[FRAME_HEADER_BYTES:]
    _compare_check(data[: _CHECKED.size], payload, check, 0)
    return kind, payload


class FrameDecoder:
    """Cuts a stream into frames, in whatever pieces it comes; bounded, and done at the first error.

    Frames that were whole before an error come out first, however the stream was cut: the `feed`
    that meets the error returns them, the next one raises. `failure` tells it at once. There is no
    search for the next magic: after an error nothing in the stream can be trusted to be a header.
    """

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._frame_at = 0  # where in the stream the current frame starts; for error details
        self._head = b""
        self._kind = 0
        self._length = 0
        self._check = 0
        # A buffer in memory that gives away what it gathered without a second copy of it.
        self._gathered: BytesIO | None = None
        self._gathered_bytes = 0
        self._failure: tuple[str, str] | None = None

    def allow(self, bytes_max: int) -> None:
        """Frames that begin from now on may be this large."""
        self._bytes_max = bytes_max

    @property
    def buffered(self) -> int:
        """Bytes held between two feeds: at most a header and the payload that it announces."""
        return len(self._head) + self._gathered_bytes

    @property
    def failure(self) -> WireError | None:
        """The error that every further `feed` raises, or None; then close the connection."""
        # Made anew each time: one that is kept holds its traceback, and that the fed chunk.
        return None if self._failure is None else WireError(*self._failure)

    def feed(self, data: bytes | memoryview) -> list[tuple[int, bytes]]:
        """Takes the next piece of the stream; gives kind and payload of the frames it completes."""
        if self._failure is not None:
            raise WireError(*self._failure)
        frames: list[tuple[int, bytes]] = []
        try:
            self._take(memoryview(data).cast("B"), frames)
        except WireError as error:
            self._failure = (error.code, error.detail)
            self._clear()
            if not frames:
                raise
        return frames

    def _take(self, view: memoryview, frames: list[tuple[int, bytes]]) -> None:
        at = 0 if self._head else self._take_whole(view, frames)
        while True:
            if len(self._head) < FRAME_HEADER_BYTES:
                piece = view[at : at + FRAME_HEADER_BYTES - len(self._head)]
                self._head += piece
                at += len(piece)
                if len(self._head) < FRAME_HEADER_BYTES:
                    return
                self._kind, self._length, self._check = _read_header(
                    self._head, self._frame_at, self._bytes_max
                )
            missing = self._length - self._gathered_bytes
            piece = view[at : at + missing]
            at += len(piece)
            if len(piece) < missing:
                self._gather(piece)
                return
            payload = self._complete(piece)
            _compare_check(self._head[: _CHECKED.size], payload, self._check, self._frame_at)
            frames.append((self._kind, payload))
            self._frame_at += FRAME_HEADER_BYTES + self._length
            self._clear()

    def _take_whole(self, view: memoryview, frames: list[tuple[int, bytes]]) -> int:
        """The frames that lie whole in this piece, as most do; where the first other one begins."""
        at, end = 0, len(view)
        while end - at >= FRAME_HEADER_BYTES:
            kind, length, check = _read_header(view, self._frame_at, self._bytes_max, at)
            begin = at + FRAME_HEADER_BYTES
            if end - begin < length:
                break
            payload = bytes(view[begin : begin + length])
            _compare_check(view[at : at + _CHECKED.size], payload, check, self._frame_at)
            frames.append((kind, payload))
            self._frame_at += FRAME_HEADER_BYTES + length
            at = begin + length
        return at

    def _gather(self, piece: memoryview) -> None:
        if self._gathered is None:
            self._gathered = BytesIO()
        self._gathered.write(piece)
        self._gathered_bytes += len(piece)

    def _complete(self, piece: memoryview) -> bytes:
        if self._gathered is None:
            return bytes(piece)
        self._gathered.write(piece)
        return self._gathered.getvalue()

    def _clear(self) -> None:
        self._head = b""
        self._gathered = None
        self._gathered_bytes = 0


def _read_header(
    head: bytes | memoryview, frame_at: int, bytes_max: int, at: int = 0
) -> tuple[int, int, int]:
    magic, version, kind, flags, length, check = _HEADER.unpack_from(head, at)
    if magic != FRAME_MAGIC:
        raise WireError(
            "frame-magic",
            f"{magic!r} instead of {FRAME_MAGIC!r} at byte {frame_at}; close the connection, the"
            " peer speaks another protocol or its stream is damaged",
        )
    if version != FRAME_VERSION:
        raise WireError(
            "frame-version",
            f"version {version} at byte {frame_at + 4}, and this node reads {FRAME_VERSION};"
            " upgrade the older of the two",
        )
    if flags != 0:
        raise WireError(
            "frame-flags",
            f"flags {flags:#06x} at byte {frame_at + 6}, and version {FRAME_VERSION} has none;"
            " close the connection, what they ask for is unknown here",
        )
    if length > bytes_max:
        raise WireError(
            "frame-length",
            f"{length} bytes claimed at byte {frame_at + 8}, and {bytes_max} are allowed here;"
            " close the connection, the sender must cut its payload",
        )
    return kind, length, check


def _compare_check(checked: bytes | memoryview, payload: bytes, check: int, frame_at: int) -> None:
    found = crc32c(payload, crc32c(checked))
    if found != check:
        raise WireError(
            "frame-crc",
            f"the frame at byte {frame_at} says check {check:#010x} and has {found:#010x}; drop it"
            " and close the stream, the bytes changed on their way",
        )
