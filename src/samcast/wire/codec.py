"""One encoder and one decoder for all that travels: frames of control messages or batches."""

import msgspec

from samcast.limits import FRAME_BYTES_MAX
from samcast.wire.batch import Batch, batch_parts, decode_batch
from samcast.wire.control import Control
from samcast.wire.errors import WireError
from samcast.wire.frame import decode_frame, encode_frame, frame_parts
from samcast.wire.group import AnyControl, decode_control, encode_control

KIND_CONTROL = 1
KIND_BATCH = 2

Message = AnyControl | Batch


def encode(message: Control | Batch) -> bytes:
    """The frame of one message."""
    if type(message) is Batch:
        return encode_frame(KIND_BATCH, *batch_parts(message))
    return encode_frame(KIND_CONTROL, encode_control(message))


def decode(data: bytes, bytes_max: int = FRAME_BYTES_MAX) -> Message:
    """The message of exactly one frame, or a `WireError` that says what is wrong with it."""
    kind, payload = decode_frame(data, bytes_max)
    return decode_payload(kind, payload)


def message_parts(before: bytes, message: Control | Batch) -> tuple[bytes | memoryview, ...]:
    """The frame of one message, with something before it, to be written as it is."""
    if type(message) is Batch:
        return frame_parts(KIND_BATCH, before, *batch_parts(message))
    return frame_parts(KIND_CONTROL, before, encode_control(message))


def decode_payload(kind: int, payload: bytes, at: int = 0) -> Message:
    """The message from a place on in a frame that has already been checked and opened."""
    if kind == KIND_BATCH:
        return decode_batch(payload, at)
    if kind != KIND_CONTROL:
        raise WireError(
            "frame-kind", f"kind {kind} is unknown to this version; was the peer upgraded?"
        )
    try:
        message: AnyControl = decode_control(memoryview(payload)[at:] if at else payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError("control-malformed", f"not a control message we know: {error}") from None
    return message
