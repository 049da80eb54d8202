"""Handing a state in: piece by piece, whatever is lost or comes twice."""

import pytest

from samcast.group import handing
from samcast.group.handing import REPEAT_MS, Ask, Give, Given, Handing, Told
from samcast.machine.ports import NEVER_MS, Effect, Received, Send, Ticked
from samcast.wire.handing import HandedIn, HandIn, States, StatesRequest
from tests.group.build import GROUP, only

SERVER, JOB, NUMBER = 2, 99, 500


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handing, "PIECE_BYTES", 4)


def made() -> Handing:
    return Handing(SERVER, GROUP, NUMBER, JOB)


def said(effects: list[Effect]) -> list[tuple[int, bytes]]:
    pieces = [send.message for send in only(Send, effects)]
    return [(piece.offset, piece.data) for piece in pieces if isinstance(piece, HandIn)]


def answer(part: int, at: int, offset: int, refused: str = "", job: int = JOB) -> Received:
    return Received(SERVER, HandedIn(GROUP, NUMBER, job, part, at, offset, refused))


@pytest.mark.req("PIP-04")
def test_a_file_goes_piece_by_piece_and_then_the_next() -> None:
    role = made()
    assert role.due_ms() == NEVER_MS
    assert said(role.step([Ticked(1), Give(3, 1, b"abcdefghij")])) == [(0, b"abcd")]
    assert said(role.step([Ticked(2), Give(3, 2, b"xyz"), answer(3, 1, 4)])) == [(4, b"efgh")]
    assert said(role.step([Ticked(3), answer(3, 1, 8)])) == [(8, b"ij")]
    effects = role.step([Ticked(4), answer(3, 1, 10)])
    assert only(Given, effects) == [Given(3, 1)]
    assert said(effects) == [(0, b"xyz")]
    assert only(Given, role.step([Ticked(5), answer(3, 2, 3)])) == [Given(3, 2)]
    assert role.due_ms() == NEVER_MS


@pytest.mark.req("PIP-04")
def test_what_gets_no_answer_is_said_again_and_the_server_says_from_where() -> None:
    role = made()
    role.step([Ticked(1), Give(1, 1, b"abcdefgh")])
    assert said(role.step([Ticked(REPEAT_MS)])) == []
    assert said(role.step([Ticked(1 + REPEAT_MS)])) == [(0, b"abcd")]
    assert said(role.step([Ticked(2 + REPEAT_MS), answer(1, 1, 4)])) == [(4, b"efgh")]
    # The server has lost what it had: it says so, and gets it again.
    assert said(role.step([Ticked(3 + REPEAT_MS), answer(1, 1, 0)])) == [(0, b"abcd")]


@pytest.mark.req("PIP-04")
def test_answers_to_others_change_nothing() -> None:
    role = made()
    role.step([Ticked(1), Give(1, 1, b"abcdefgh")])
    strangers = [
        answer(1, 1, 8, job=7),
        answer(1, 2, 8),
        answer(2, 1, 8),
        Received(SERVER + 1, HandedIn(GROUP, NUMBER, JOB, 1, 1, 8)),
        Received(SERVER, States(GROUP, "latest", 1, ())),
    ]
    assert role.step([Ticked(2), *strangers]) == []


@pytest.mark.req("PIP-04")
def test_a_refusal_is_told_and_states_are_asked_for_until_they_are_told() -> None:
    role = made()
    role.step([Ticked(1), Give(1, 1, b"abcdefgh")])
    effects = role.step([Ticked(2), answer(1, 1, 0, "no room")])
    assert only(Given, effects) == [Given(1, 1, "no room")]
    asked = only(Send, role.step([Ticked(3), Ask()]))
    assert asked == [Send(SERVER, StatesRequest(GROUP))]
    assert only(Send, role.step([Ticked(3 + REPEAT_MS)])) == asked
    states = States(GROUP, "latest", 1, ())
    assert only(Told, role.step([Ticked(5 + REPEAT_MS), Received(SERVER, states)])) == [
        Told(states)
    ]
    assert role.due_ms() == NEVER_MS
