"""The window of a sender: it waits for the slowest that makes progress, and for nobody else."""

from samcast.multicast.hearing import TELL_BYTES
from samcast.multicast.window import KEPT, PATIENCE_MS, Window

SIZE = 1_000_000


def full(nodes: tuple[int, ...] = (2, 3)) -> Window:
    window = Window(4 * SIZE)
    for node in nodes:
        window.expect(node, 0)
    for sequence in range(1, 5):
        assert window.room(0) > 0
        window.sent(sequence, SIZE, 0)
    return window


def test_it_is_full_until_the_slowest_has_heard() -> None:
    window = full()
    assert window.room(1) == 0
    window.heard(2, 4, 1)
    assert window.room(1) == 0
    window.heard(3, 2, 2)
    assert window.room(2) == 2 * SIZE


def test_what_is_told_late_or_of_frames_that_never_were_changes_nothing() -> None:
    window = full()
    for node in (2, 3):
        window.heard(node, 3, 1)
        window.heard(node, 1, 2)
    assert window.room(2) == 3 * SIZE
    window.heard(2, 10**9, 3)  # As if it had heard the newest.
    assert window.room(3) == 3 * SIZE


def test_who_makes_no_progress_is_not_waited_for() -> None:
    window = full()
    window.heard(2, 4, PATIENCE_MS - 1)
    assert window.room(PATIENCE_MS - 1) == 0
    assert window.room(PATIENCE_MS) == 4 * SIZE
    window.heard(3, 1, PATIENCE_MS + 5)  # It is there again.
    assert window.room(PATIENCE_MS + 5) == SIZE


def test_patience_begins_when_there_is_something_to_hear() -> None:
    window = Window(4 * SIZE)
    window.expect(2, 0)
    late = 100 * PATIENCE_MS
    for sequence in range(1, 5):
        window.sent(sequence, SIZE, late)
    assert window.room(late + 1) == 0


def test_who_is_gone_is_forgotten() -> None:
    window = full((2,))
    window.forget(2)
    assert window.room(1) == 4 * SIZE


def test_small_amounts_need_not_be_told() -> None:
    window = Window(4 * SIZE)
    window.expect(2, 0)
    for at_ms in range(0, 1000, 100):
        window.sent(at_ms + 1, TELL_BYTES // 20, at_ms)
    assert window.room(1000) > 0


def test_it_remembers_a_bounded_number_of_frames() -> None:
    window = Window(10**12)
    for sequence in range(1, 10 * KEPT):
        window.sent(sequence, 1, 0)
    assert len(window._sequences) <= 2 * KEPT + 1
