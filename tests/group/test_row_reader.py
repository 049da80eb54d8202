"""Reading a range by hand: part after part, from whoever can."""

from array import array

import pytest
from msgspec import structs

from samcast.group.row_reader import (
    ANSWERS_MAX,
    PAUSE_MS,
    REPEAT_MS,
    RowReader,
    RowsCame,
    RowsGone,
    Taken,
)
from samcast.machine.ports import NEVER_MS, Effect, Received, Send, Ticked
from samcast.wire.batch import encode_batch
from samcast.wire.group import Repair
from samcast.wire.retention import Collected
from samcast.wire.rows import Rows, RowsRequest, Skipped, gather
from samcast.wire.segment import encode_record
from samcast.wire.stretch import SINGLE_RUNS_MAX, Stretch
from tests.group.build import ANN, CONFIGURATION, GROUP, batch, codes, only


def asked(effects: list[Effect]) -> tuple[int, int]:
    """Who is asked, and from which number on."""
    (send,) = only(Send, effects)
    assert isinstance(send.message, RowsRequest)
    assert send.message.number_end == 100
    return send.to, send.message.number_first


def reading() -> RowReader:
    reader = RowReader(70, CONFIGURATION, 2, (GROUP, 5, 100))
    assert asked(reader.step([Ticked(0)])) == (2, 5)
    return reader


def short(first: int, count: int) -> Received:
    runs = [encode_batch(batch(at + 1)) for at in range(count)]
    return Received(2, gather(GROUP, first, runs))


@pytest.mark.req("PIP-01")
def test_each_part_is_followed_by_the_question_for_the_next() -> None:
    reader = reading()
    effects = reader.step([short(4, 3)])  # It begins before what was asked for.
    (came,) = only(RowsCame, effects)
    assert came.end == 7
    assert asked(effects) == (2, 7)
    long = Repair(((7, encode_batch(batch(1, 30))), (37, encode_batch(batch(31, 70)))))
    effects = reader.step([Received(2, long)])
    (came,) = only(RowsCame, effects)
    assert [number for number, _ in came.runs] == [7, 37]
    assert came.end == 107
    assert not only(Send, effects)
    assert reader.due_ms() == NEVER_MS


def test_what_does_not_follow_is_not_taken() -> None:
    reader = reading()
    assert not only(RowsCame, reader.step([short(6, 3)]))
    assert not only(RowsCame, reader.step([short(1, 4)]))
    gap = Repair(((8, encode_batch(batch(1, 30))),))
    assert not only(RowsCame, reader.step([Received(2, gap)]))
    assert codes(reader.step([Received(2, Repair(((5, b"nonsense"),)))])) == ["repair-malformed"]


def test_who_is_silent_or_can_not_go_on_is_passed_over() -> None:
    reader = reading()
    assert not reader.step([Ticked(REPEAT_MS - 1)])
    assert asked(reader.step([Ticked(REPEAT_MS)])) == (3, 5)
    assert not reader.step([Received(3, Rows(GROUP, 5))])
    assert asked(reader.step([Ticked(REPEAT_MS + PAUSE_MS)])) == (1, 5)


def test_no_more_is_asked_for_than_is_taken() -> None:
    reader = reading()
    for turn in range(ANSWERS_MAX):
        effects = reader.step([short(5 + turn, 1)])
        assert bool(only(Send, effects)) == (turn < ANSWERS_MAX - 1)
    assert reader.due_ms() == NEVER_MS
    assert asked(reader.step([Taken()])) == (2, 5 + ANSWERS_MAX)


def test_what_is_gone_ends_it() -> None:
    reader = reading()
    (gone,) = only(RowsGone, reader.step([Received(2, Collected(GROUP, 50))]))
    assert gone.number == 50
    assert not reader.step([Ticked(10_000), short(5, 3)])


@pytest.mark.req("PIP-01")
def test_who_wants_a_certain_time_passes_over_what_a_server_says_is_of_another() -> None:
    reader = RowReader(70, CONFIGURATION, 2, (GROUP, 5, 100), (1000, 2000))
    (send,) = only(Send, reader.step([Ticked(0)]))
    assert send.message == RowsRequest(GROUP, 5, 100, (1000, 2000))
    assert not only(RowsCame, reader.step([Received(2, Skipped(GROUP, 6, 50))]))
    effects = reader.step([Received(2, Skipped(GROUP, 5, 50))])
    (came,) = only(RowsCame, effects)
    assert (came.rows, came.runs, came.end) == (None, (), 50)
    assert asked(effects) == (2, 50)
    (came,) = only(RowsCame, reader.step([Received(2, Skipped(GROUP, 50, 2**40))]))
    assert came.end == 100
    assert reader.due_ms() == NEVER_MS


def test_who_wants_all_times_passes_over_nothing() -> None:
    reader = reading()
    assert not only(RowsCame, reader.step([Received(2, Skipped(GROUP, 5, 50))]))


def as_stored(effects: list[Effect]) -> tuple[int, int, bool]:
    """Who is asked, from which number on, and whether for what is stored as it is."""
    (send,) = only(Send, effects)
    assert isinstance(send.message, RowsRequest)
    return send.to, send.message.number_first, send.message.as_stored


@pytest.mark.req("PIP-01")
def test_what_is_stored_is_taken_as_it_is_and_asked_for_again_if_it_is_not_sound() -> None:
    reader = RowReader(70, CONFIGURATION, 2, (GROUP, 5, 10**6), as_stored=True)
    assert as_stored(reader.step([Ticked(0)])) == (2, 5, True)
    good = stretch(5, 3)
    effects = reader.step([Received(2, good)])
    (came,) = only(RowsCame, effects)
    assert came.stretch is not None
    number_first, rows = came.stretch
    assert (number_first, came.end) == (5, 8)
    assert rows.column("body").to_pylist() == [b"a"] * 3
    assert as_stored(effects) == (2, 8, True)

    assert not only(RowsCame, reader.step([Received(2, good)]))  # It came before.
    bad = structs.replace(stretch(8, 3), data=bytes(len(good.data)))
    effects = reader.step([Received(2, bad)])
    assert codes(effects) == ["stretch-unsound"]
    assert not only(RowsCame, effects)
    # The same server, which is to look at it: it may not know yet.
    assert as_stored(effects) == (2, 8, False)
    assert as_stored(reader.step([short(8, 1)])) == (2, 9, False)
    behind = 8 + SINGLE_RUNS_MAX
    long = Repair(((9, encode_batch(batch(1, SINGLE_RUNS_MAX - 1))),))
    assert as_stored(reader.step([Received(2, long)])) == (2, behind, True)


def test_who_sends_what_is_not_sound_is_asked_and_then_passed_over() -> None:
    reader = RowReader(70, CONFIGURATION, 2, (GROUP, 5, 10**6), as_stored=True)
    reader.step([Ticked(0)])
    assert as_stored(reader.step([Ticked(REPEAT_MS)])) == (3, 5, True)
    bad = structs.replace(stretch(5, 3), data=bytes(1000))
    assert as_stored(reader.step([Received(2, bad)])) == (2, 5, False)  # It was slow.
    assert not only(Send, reader.step([Received(2, bad)]))
    assert as_stored(reader.step([Ticked(REPEAT_MS + PAUSE_MS)])) == (3, 5, False)
    assert as_stored(reader.step([Received(3, short(5, 1).message)])) == (3, 6, False)


def stretch(first: int, count: int) -> Stretch:
    """Runs of one sender, one behind the other."""
    data, offsets = b"", []
    for at in range(count):
        offsets.append(64 + len(data))
        payload = encode_batch(batch(first + at))
        data += encode_record(0, payload, generation=1, offset=offsets[-1])
    who, counters = array("I", [0] * count), array("Q", range(first, first + count))
    return Stretch(
        GROUP, first, 1, 64, who.tobytes(), counters.tobytes(), bytes(4), ANN,
        array("Q", offsets).tobytes(), data,
    )  # fmt: skip
