"""One encoder and one decoder: whatever a role may say is read back as it was said, or refused."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samcast.limits import FRAME_BYTES_MAX
from samcast.wire.codec import KIND_BATCH, KIND_CONTROL, decode, decode_payload, encode
from samcast.wire.control import Control
from samcast.wire.errors import WireError
from samcast.wire.frame import encode_frame
from samcast.wire.group import (
    AbortRequest,
    GroupRequest,
    Head,
    Heartbeat,
    Outcome,
    OutcomeKind,
    Promise,
    Propose,
    decode_control,
    encode_control,
)
from samcast.wire.order import HASH_NONE
from tests.group.build import CONFIGURATION, OWNER, batch
from tests.group.nonsense import IMPOSSIBLE, KINDS, LAST, Hints, values

HINTS = Hints()
HINTS.configurations = [CONFIGURATION, *IMPOSSIBLE]


def code_of(frame: bytes) -> str:
    with pytest.raises(WireError) as caught:
        decode(frame)
    return caught.value.code


def control_frame(*fields: object) -> bytes:
    """A frame of a control message whose fields nobody has checked."""
    return encode_frame(KIND_CONTROL, msgspec.msgpack.encode(fields))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=8, derandomize=True, deadline=None)
@given(data=st.data())
def test_every_control_message_is_read_back_as_it_was_said(
    kind: type[Control], data: st.DataObject
) -> None:
    message = data.draw(values(kind, HINTS))
    again = decode(encode(message))
    assert type(again) is kind
    assert again == message


def test_no_two_control_messages_share_a_tag() -> None:
    tags = [kind.__struct_config__.tag for kind in KINDS]
    assert len(tags) == len(dict.fromkeys(tags))


def test_every_control_message_is_frozen_and_positional() -> None:
    for kind in KINDS:
        assert kind.__struct_config__.frozen
        assert kind.__struct_config__.array_like


def test_a_batch_is_read_back_as_it_was_said() -> None:
    of = batch(3, 4, text="body", birth=9)
    assert decode(encode(of)) == of


def test_a_control_message_of_an_older_version_lacks_its_last_fields_and_is_read() -> None:
    request = (3, OWNER, 1, 7)  # tag of AbortRequest, owner, incarnation, tx
    assert decode(control_frame(16, 5, request)) == Propose(5, AbortRequest(OWNER, 1, 7), 0)
    assert decode(control_frame(17, 5, 8)) == Outcome(5, OutcomeKind.DONE)


def test_a_control_message_of_a_newer_version_has_fields_that_are_passed_over() -> None:
    assert decode(control_frame(14, 1, 2, "since version 9")) == Head(1, 2)


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (0,),
        (len(KINDS) + 1, 1, 2),  # a kind that is not ours
        (14, 1),  # a Head without a number
        (14, -1, 2),
        (14, 1, LAST + 1),
        (14, 1, 2.5),
        (14, 1, True),
        (8, 1, (1, 1), 0, HASH_NONE, ()),  # an epoch of two parts
        (8, 1, (1, 1, 1), 0, HASH_NONE[:31], ()),
        (13, "orders"),
        (4, ((1, "text"),)),
        (16, 5, (3, OWNER[:15], 1, 7)),
        (16, 5, (99, OWNER, 1, 7)),
    ],
)
def test_a_control_message_that_breaks_its_types_is_refused(fields: tuple[object, ...]) -> None:
    assert code_of(control_frame(*fields)) == "control-malformed"


def test_a_name_that_is_no_text_is_refused() -> None:
    payload = encode_control(Propose(1, GroupRequest("z", 5, 5))).replace(b"\xa1z", b"\xa1\x80")
    assert code_of(encode_frame(KIND_CONTROL, payload)) == "control-malformed"


@pytest.mark.parametrize(
    ("name", "lifetime", "senders_max"),
    [("", 5, 5), ("x" * 256, 5, 5), ("orders", 0, 5), ("orders", 5, 0)],
)
def test_a_group_that_could_hold_nothing_is_refused(
    name: str, lifetime: int, senders_max: int
) -> None:
    assert code_of(encode(Propose(1, GroupRequest(name, lifetime, senders_max)))) == (
        "control-malformed"
    )


@pytest.mark.parametrize("kind", [0, 11, LAST])
def test_an_answer_or_an_outcome_of_an_unknown_kind_is_refused(kind: int) -> None:
    assert code_of(control_frame(17, 5, kind)) == "control-malformed"
    answer = (kind, 1, OWNER, 1, 1, 1, 1, bytes(16))
    assert code_of(control_frame(15, (answer,), 1, 1)) == "control-malformed"


def test_numbers_up_to_the_last_one_are_read() -> None:
    beat = Heartbeat(LAST, (LAST, LAST, LAST), LAST, HASH_NONE, ((LAST, LAST),))
    assert decode(encode(beat)) == beat


@pytest.mark.parametrize("kind", [0, 3, 255])
def test_a_frame_of_an_unknown_kind_is_refused(kind: int) -> None:
    assert code_of(encode_frame(kind, encode_control(Head(1, 2)))) == "frame-kind"


def test_the_kind_of_a_frame_decides_how_it_is_read() -> None:
    head = encode_control(Head(1, 2))
    assert decode_payload(KIND_CONTROL, head) == Head(1, 2)
    with pytest.raises(WireError, match="batch-truncated"):
        decode_payload(KIND_BATCH, head)


def test_a_frame_above_the_limit_is_refused_before_it_is_read() -> None:
    frame = encode(batch(text="x" * 5000))
    assert decode(frame, bytes_max=FRAME_BYTES_MAX) == batch(text="x" * 5000)
    with pytest.raises(WireError) as caught:
        decode(frame, bytes_max=1000)
    assert caught.value.code.startswith("frame-")


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_make_the_decoder_of_control_messages_raise_anything_else(data: bytes) -> None:
    with suppress(WireError):
        decode_payload(KIND_CONTROL, data)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.data())
def test_a_control_message_with_one_flipped_bit_is_refused_or_is_another_message_of_its_types(
    data: st.DataObject,
) -> None:
    """The frame's checksum is what finds flips; behind it the decoder still keeps to the types."""
    promise = Promise(1, (3, 2, 1), 102, (1, 1, 5), 7, 0, 0, ((7, HASH_NONE),))
    payload = bytearray(encode_control(promise))
    at = data.draw(st.integers(0, 8 * len(payload) - 1))
    payload[at // 8] ^= 1 << at % 8
    try:
        message = decode_payload(KIND_CONTROL, bytes(payload))
    except WireError:
        return
    assert decode_control(encode_control(message)) == message
