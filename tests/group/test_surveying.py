"""Asking one server for what it has, by hand."""

import pytest

from samcast.group.surveying import (
    MORE_BYTES,
    PROBE_FROM,
    REPEAT_MS,
    SILENT_MAX,
    WAITING_MAX,
    Kind,
    Seen,
    Surveyed,
    Surveyor,
    Taken,
)
from samcast.machine.ports import NEVER_MS, Effect, Received, Send, Ticked
from samcast.wire.batch import encode_batch
from samcast.wire.group import NumberReply, NumberRequest, PayloadRequest, Repair
from samcast.wire.order import DecisionEntry, Part, RunEntry, StageRef
from samcast.wire.retention import Collected
from tests.group.build import GROUP, batch, only

SERVER = 2
DIGEST = b"d" * 16


def surveyor(kind: Kind, end: int = 100) -> Surveyor:
    made = Surveyor(SERVER, kind, GROUP, 5, end)
    assert asked(made.step([Ticked(0)])) == 5
    return made


def asked(effects: list[Effect]) -> int:
    (send,) = only(Send, effects)
    assert send.to == SERVER
    assert isinstance(send.message, NumberRequest | PayloadRequest)
    (span,) = send.message.spans
    return span[1]


def told(effects: list[Effect]) -> list[Surveyed]:
    return [effect for effect in effects if isinstance(effect, Surveyed)]


def run(number: int, count: int) -> RunEntry:
    return RunEntry(GROUP, b"s" * 16, 1, number, count, number, DIGEST, 0, 1)


@pytest.mark.req("PIP-06")
def test_a_commit_server_tells_runs_and_stages_by_number() -> None:
    one = surveyor(Kind.ORDER)
    stages = (StageRef(1, 3, b"1" * 16), StageRef(2, 4, b"2" * 16))
    decision = DecisionEntry(b"o" * 16, 1, 1, (Part(GROUP, 15, stages), Part(GROUP + 1, 1, stages)))
    effects = one.step([Received(SERVER, NumberReply((run(5, 10), decision), ()))])
    (part,) = told(effects)
    assert part.runs == (Seen(5, 10, DIGEST), Seen(15, 3, b"1" * 16), Seen(18, 4, b"2" * 16))
    assert asked(effects) == 22


@pytest.mark.req("PIP-06")
def test_what_is_gone_and_what_is_lacking_are_two_things() -> None:
    one = surveyor(Kind.ORDER)
    effects = one.step([Received(SERVER, NumberReply((run(30, 5),), ((GROUP, 5, 25),)))])
    assert [(part.gone, part.lacking, len(part.runs)) for part in told(effects)] == [
        ((5, 30), None, 0), (None, None, 1),
    ]  # fmt: skip
    effects = one.step([Received(SERVER, NumberReply((run(40, 60),), ()))])
    assert [(part.lacking, len(part.runs)) for part in told(effects)] == [
        ((35, 40), 0), (None, 1), (None, 0),
    ]  # fmt: skip
    assert told(effects)[-1].is_over
    assert one.due_ms() == NEVER_MS


@pytest.mark.req("PIP-06")
def test_the_content_of_a_data_server_is_hashed_anew() -> None:
    one = surveyor(Kind.CONTENT)
    runs = (batch(1, 10), batch(11, 5), batch(16, 80))
    repair = Repair(tuple((n, encode_batch(of)) for n, of in zip((5, 15, 20), runs, strict=True)))
    (part, over) = told(one.step([Received(SERVER, repair)]))
    assert [run.digest for run in part.runs] == [of.digest for of in runs]
    assert over.is_over


@pytest.mark.req("PIP-06")
def test_a_payload_that_is_left_out_or_broken_is_lacking() -> None:
    one = surveyor(Kind.CONTENT)
    broken = Repair(((5, encode_batch(batch(1, 10))), (15, b"?"), (20, encode_batch(batch(16, 9)))))
    parts = told(one.step([Received(SERVER, broken)]))
    assert [(part.lacking, len(part.runs)) for part in parts] == [((15, 20), 1), (None, 1)]
    (part,) = told(one.step([Received(SERVER, Collected(GROUP, 40))]))
    assert part.gone == (29, 41)


def test_a_large_answer_is_waited_for_to_its_end() -> None:
    run = encode_batch(batch(1, 1))
    many = tuple((5 + at, run) for at in range(1 + MORE_BYTES // len(run)))
    one = Surveyor(SERVER, Kind.CONTENT, GROUP, 5, 10**9)
    assert not only(Send, one.step([Received(SERVER, Repair(many))]))
    assert one.due_ms() > 0


@pytest.mark.req("PIP-06")
@pytest.mark.parametrize("kind", Kind)
def test_who_never_answers_is_silent_and_not_guilty(kind: Kind) -> None:
    one = surveyor(kind)
    for turn in range(1, SILENT_MAX):
        assert only(Send, one.step([Ticked(turn * REPEAT_MS)]))
    (silent, over) = told(one.step([Ticked(SILENT_MAX * REPEAT_MS)]))
    assert (silent.silent, silent.lacking) == ((5, 100), None)
    assert over.is_over


@pytest.mark.req("PIP-06")
def test_behind_what_a_server_lacks_it_is_asked_for_the_next_that_it_has() -> None:
    one = surveyor(Kind.CONTENT)
    for turn in range(1, PROBE_FROM - 1):
        assert asked(one.step([Ticked(turn * REPEAT_MS)])) == 5
    (send,) = only(Send, one.step([Ticked((PROBE_FROM - 1) * REPEAT_MS)]))
    assert isinstance(send.message, PayloadRequest)
    assert [span[1] for span in send.message.spans] == [5, 6, 7, 9, 13, 21, 37, 69]
    far, near = (37, encode_batch(batch(30, 10))), (13, encode_batch(batch(20, 3)))
    effects = one.step([Received(SERVER, Repair((far, near)))])
    assert [(part.lacking, [run.number for run in part.runs]) for part in told(effects)] == [
        ((5, 13), []), (None, [13]),
    ]  # fmt: skip
    assert asked(effects) == 16


def test_others_are_not_listened_to_and_no_more_is_asked_than_is_taken() -> None:
    one = surveyor(Kind.ORDER, 1000)
    assert not told(one.step([Received(3, NumberReply((run(5, 1),), ()))]))
    for turn in range(WAITING_MAX):
        effects = one.step([Received(SERVER, NumberReply((run(5 + turn, 1),), ()))])
        assert bool(only(Send, effects)) == (turn < WAITING_MAX - 1)
    assert one.due_ms() == NEVER_MS
    assert asked(one.step([Taken()])) == 5 + WAITING_MAX
