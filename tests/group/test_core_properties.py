"""The core state under any log: it never fails, and equal logs give equal states.

The second half folds random histories of honest senders and compares every answer that was ever
given with what the whole log shows in the end.
"""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samcast.group.core import Core
from samcast.group.rows import Admission
from samcast.group.settings import GroupSettings
from samcast.wire.batch import Batch
from samcast.wire.group import AnswerKind
from samcast.wire.order import AnyEntry, GroupEntry, RunEntry
from tests.group.build import (
    CONFIGURATION,
    GROUP,
    GROUP_ENTRY,
    NAMED,
    OWNER,
    asked,
    batch,
    open_entry,
    run_entry,
)
from tests.group.nonsense import IMPOSSIBLE, Hints, values
from tests.group.test_core import rich

SETTINGS = GroupSettings(sender_runs_max=2, named_max=2, cell_lifetime=6)
HINTS = Hints()
HINTS.configurations = [
    CONFIGURATION,
    *IMPOSSIBLE,
    msgspec.structs.replace(CONFIGURATION, number=2),
]


def entries() -> st.SearchStrategy[Any]:
    """Any entries, and some that are likely to take effect."""
    likely: list[AnyEntry] = [
        GROUP_ENTRY,
        open_entry(),
        open_entry(2, nonce=8),
        open_entry(sender=OWNER, scope=0),
        *(run_entry(batch(counter), counter) for counter in (1, 2, 3)),
    ]
    anything = values(AnyEntry, HINTS)
    return st.lists(st.one_of(st.sampled_from(likely), anything), max_size=12)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(entries())
def test_no_entry_whatsoever_makes_the_fold_raise(log: list[AnyEntry]) -> None:
    core = Core(CONFIGURATION, SETTINGS)
    for index, entry in enumerate(log, 1):
        assert core.apply(entry) in (True, False)
        assert core.index == index


@settings(max_examples=100, derandomize=True, deadline=None)
@given(entries(), st.data())
def test_equal_logs_give_equal_states_however_often_they_go_through_a_snapshot(
    log: list[AnyEntry], data: st.DataObject
) -> None:
    plain, kept = Core(CONFIGURATION, SETTINGS), Core(CONFIGURATION, SETTINGS)
    frozen: list[tuple[Core, bytes]] = []
    for entry in log:
        effective = plain.apply(entry)
        assert kept.apply(entry) == effective
        assert kept.encode() == plain.encode()
        way = data.draw(st.sampled_from(["as it is", "snapshot", "copy"]))
        if way == "snapshot":
            kept = Core.decode(kept.encode(), SETTINGS)
        elif way == "copy":
            frozen.append((kept, kept.encode()))
            kept = kept.copy()
    assert kept.encode() == plain.encode()
    # What it was copied from shares rows with it, and still is what it was.
    assert all(core.encode() == state for core, state in frozen)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(entries())
def test_a_no_op_changes_nothing_but_the_position_in_the_log(log: list[AnyEntry]) -> None:
    core = Core(CONFIGURATION, SETTINGS)
    for entry in log:
        groups = [(g, rows.state()) for g, rows in core.groups.items() if g != 0]
        before = (groups, core.configuration, core.truncated, core.group_next, core.epoch)
        if not core.apply(entry):
            groups = [(g, rows.state()) for g, rows in core.groups.items() if g != 0]
            after = (groups, core.configuration, core.truncated, core.group_next, core.epoch)
            assert after == before


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.data())
def test_a_spoilt_snapshot_raises_nothing_but_a_decode_error(data: st.DataObject) -> None:
    state = bytearray(rich().encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(state) - 1))
        state[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.sampled_from([len(state), len(state) // 2]))
    with suppress(msgspec.DecodeError):
        core = Core.decode(bytes(state[:end]), SETTINGS)
        core.apply(GROUP_ENTRY)  # whatever came out of it is a state like others
        core.apply(run_entry(batch(3), 9))


# Honest senders against a brute-force oracle.


class History:
    """A log made by the numbering rule, and every answer that was given on the way."""

    def __init__(self, lifetime: int, senders_max: int) -> None:
        self.core = Core(CONFIGURATION, SETTINGS)
        self.log: list[AnyEntry] = []
        self._append(GroupEntry(GROUP, "orders", lifetime, senders_max))
        self._append(open_entry())
        self.incarnation = 1
        self.made: list[Batch] = []
        self.answers: list[tuple[Batch, tuple[AnswerKind, int]]] = []
        self._next: dict[bytes, int] = {}
        self._settled: dict[bytes, int] = {}  # all below this counter has an outcome
        self._ended: dict[bytes, None] = {}

    def _append(self, entry: AnyEntry) -> None:
        assert self.core.apply(entry)
        self.log.append(entry)

    def make(self, sender: bytes, count: int, age: int) -> None:
        """A sender freezes its next run; what it knows of the head may be old."""
        counter = self._next.get(sender, 1)
        settled = self._settled.get(sender, 1)
        if sender in self._ended or counter - settled > 4:
            return
        birth = max(0, self.core.head(GROUP) - age)
        of = batch(
            counter,
            count,
            sender=sender,
            birth=birth,
            incarnation=self.incarnation if sender == NAMED else 1,
            confirmed_below=settled,
            seen=self.core.head(GROUP),
        )
        self._next[sender] = counter + count
        self.made.append(of)

    def report(self, at: int) -> None:
        """Reports of any run that was ever made reach the sequencer, however late."""
        if not self.made:
            return
        of = self.made[at % len(self.made)]
        key = (GROUP, of.sender, of.incarnation, of.counter_first, of.birth)
        if self.core.admission(*key) is Admission.NUMBER:
            self._append(run_entry(of, self.core.head(GROUP) + 1))

    def ask(self, at: int) -> None:
        """Any run that was ever made is sent again."""
        if not self.made:
            return
        of = self.made[at % len(self.made)]
        answer = self.core.answer(asked(of))
        if answer is None:
            return
        self.answers.append((of, answer))
        if answer[0] in (AnswerKind.EXPIRED, AnswerKind.REOPEN, AnswerKind.FORGOTTEN):
            self._ended[of.sender] = None
        elif self._settled.get(of.sender, 1) == of.counter_first:
            self._settled[of.sender] = of.counter_first + of.count

    def open(self) -> None:
        """Another process takes the name over and goes on where the first one stopped."""
        self.incarnation += 1
        self._append(open_entry(self.incarnation))
        row = self.core.groups[GROUP].row(NAMED)
        assert row is not None
        self._next[NAMED] = self._settled[NAMED] = row.next

    def numbers_of(self, of: Batch) -> list[int]:
        """What the whole log says of a run, by looking at every entry."""
        return [
            entry.number_first
            for entry in self.log
            if isinstance(entry, RunEntry)
            and (entry.sender, entry.incarnation, entry.counter_first)
            == (of.sender, of.incarnation, of.counter_first)
        ]


SENDERS = [bytes([0, n]) + bytes(14) for n in range(5)]
STEPS = st.one_of(
    st.tuples(
        st.just("make"),
        st.sampled_from([*SENDERS, NAMED, NAMED]),
        st.integers(1, 3),
        st.sampled_from([0, 0, 2, 6]),
    ),
    st.tuples(st.just("report"), st.integers(0, 60)),
    st.tuples(st.just("report"), st.integers(0, 60)),
    st.tuples(st.just("ask"), st.integers(0, 60)),
    st.tuples(st.just("open")),
)


def history_of(lifetime: int, senders_max: int, steps: list[Any]) -> History:
    history = History(lifetime, senders_max)
    for name, *arguments in steps:
        getattr(history, name)(*arguments)
    for at in range(len(history.made)):  # everything that is still about arrives in the end
        history.report(at)
        history.ask(at)
    return history


HISTORIES = st.builds(
    history_of, st.sampled_from([4, 8, 1000]), st.integers(1, 4), st.lists(STEPS, max_size=60)
)


@pytest.mark.req("GRP-04", "GRP-26")
@settings(max_examples=120, derandomize=True, deadline=None)
@given(HISTORIES)
def test_an_id_never_gets_two_numbers_and_numbers_have_no_gaps(history: History) -> None:
    for of in history.made:
        assert len(history.numbers_of(of)) <= 1
    runs = [entry for entry in history.log if isinstance(entry, RunEntry)]
    head = 0
    for entry in runs:
        assert entry.number_first == head + 1
        head += entry.count
    assert history.core.head(GROUP) == head


@pytest.mark.req("GRP-19", "GRP-26")
@settings(max_examples=120, derandomize=True, deadline=None)
@given(HISTORIES)
def test_what_is_answered_is_what_the_whole_log_shows(history: History) -> None:
    for of, (kind, number_first) in history.answers:
        numbers = history.numbers_of(of)
        if kind in (AnswerKind.EXPIRED, AnswerKind.REOPEN):
            assert numbers == []  # neither before nor after the answer
        elif kind is AnswerKind.NUMBER:
            assert numbers == [number_first]
        elif kind is AnswerKind.CONFIRMED:
            assert len(numbers) == 1
        else:
            assert kind in (AnswerKind.FENCED, AnswerKind.FORGOTTEN)


@pytest.mark.req("GRP-26")
@settings(max_examples=120, derandomize=True, deadline=None)
@given(HISTORIES)
def test_the_runs_of_a_sender_are_numbered_in_the_order_of_their_counters(
    history: History,
) -> None:
    last: dict[bytes, int] = {}
    for entry in history.log:
        if isinstance(entry, RunEntry):
            assert entry.counter_first == last.get(entry.sender, 0) + 1
            last[entry.sender] = entry.counter_first + entry.count - 1
