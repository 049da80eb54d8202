"""Core snapshots are made a little at a time, of a state that no longer changes."""

import msgspec
import pytest

from samcast.group import snapshots
from samcast.group.commit_server import CommitServer
from samcast.group.core import Core
from samcast.group.core_state import index_of
from samcast.group.rows import Row
from samcast.group.settings import GroupSettings
from samcast.group.storage import StoreSnapshot
from samcast.machine.ports import NEVER_MS, Effect, Event, Received, Ticked
from samcast.wire.group import CommitSubmit
from samcast.wire.order import HASH_NONE, AnyEntry, GroupEntry, RunEntry
from tests.group.build import CONFIGURATION, GROUP, codes, led_cell, only, open_entry, settle
from tests.group.test_core import rich

SENDERS = 100_000


def run(sender: int, counter: int, number: int, group: int = GROUP) -> RunEntry:
    sender_id = b"\0" + sender.to_bytes(15)
    return RunEntry(group, sender_id, 1, counter, 1, number, b"d" * 16, number - 1, 1)


def crowded(settings: GroupSettings, senders: int) -> CommitServer:
    """Node 2 of a cell with so many senders, just before an agreed index."""
    server = led_cell(settings, with_data=False).commit[2]
    rows = server.core.groups[GROUP]
    rows.senders_max = 10**6
    for number in range(1, senders + 1):
        assert rows.number(run(number, 1, number))
    return server


def submit(server: CommitServer, *entries: AnyEntry) -> Received:
    first = server.log.length + 1
    epoch, last = server.log_epoch, server.log.length + len(entries)
    return Received(epoch[1], CommitSubmit(1, epoch, first, entries, last, HASH_NONE))


@pytest.mark.req("GRP-23")
def test_no_turn_encodes_more_than_a_piece_and_the_state_stays_as_it_was_frozen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = GroupSettings(snapshot_interval=4)
    server = crowded(settings, SENDERS)
    encoded, state_of = [0], Row.state

    def counted(row: Row) -> object:
        encoded[0] += 1
        return state_of(row)

    monkeypatch.setattr(Row, "state", counted)

    def turn(*events: Event) -> tuple[int, list[Effect]]:
        before = encoded[0]
        effects = server.step(events)
        return encoded[0] - before, effects

    turn(submit(server, run(1, 2, SENDERS + 1)))
    expected = server.core.copy()
    expected.apply(run(2, 2, SENDERS + 2))
    rows, effects = turn(submit(server, run(2, 2, SENDERS + 2)))
    assert 0 < rows <= settings.snapshot_rows_max
    assert turn(submit(server))[0] == 0  # there is a pause for others
    rows, more = turn(submit(server, run(SENDERS - 1, 2, SENDERS + 3)))
    share = 1 + expected.size() // settings.snapshot_interval  # an entry pays for as much
    assert 0 < rows <= share
    turns = 0
    while server.snapshots.due_ms() < NEVER_MS:
        assert only(StoreSnapshot, [*effects, *more]) == []
        rows, effects = turn(Ticked(server.snapshots.due_ms()))
        turns += 1
        assert rows <= settings.snapshot_rows_max
    assert turns > SENDERS // 2 // settings.snapshot_rows_max
    (snapshot,) = only(StoreSnapshot, effects)
    assert snapshot.index == 4 == index_of(snapshot.state)
    assert snapshot.state == expected.encode()


@pytest.mark.req("GRP-23")
def test_a_snapshot_is_done_before_the_next_is_due_however_small_its_pieces() -> None:
    settings = GroupSettings(snapshot_interval=8, snapshot_rows_max=1)
    server = crowded(settings, 500)
    entries = [run(number, 2, 500 + number) for number in range(1, 41)]
    plain = server.core.copy()
    states = {}
    for entry in entries:
        plain.apply(entry)
        states[plain.index] = plain.encode()
    taken: list[Effect] = []
    for entry in entries:
        taken += settle(server, [submit(server, entry)])
    stored = {s.index: s.state for s in only(StoreSnapshot, taken)}
    assert list(stored) == [8, 16, 24, 32]  # the one at 40 is under way
    assert all(state == states[index] for index, state in stored.items())
    assert server.snapshots.due_ms() < NEVER_MS


def test_a_copy_for_an_election_copies_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    server = crowded(GroupSettings(), 1000)
    state = server.core.encode()
    copied, copy_row = [0], Row.copy

    def counted(row: Row) -> Row:
        copied[0] += 1
        return copy_row(row)

    monkeypatch.setattr(Row, "copy", counted)
    tail = server.core.copy()
    assert copied == [0]
    assert tail.apply(run(1, 2, 1001))
    assert tail.apply(run(1, 3, 1002))
    assert copied == [1]
    assert server.core.encode() == state
    assert server.core.apply(run(1, 2, 1001))
    assert server.core.encode() != state
    assert tail.groups[GROUP].head == 1002


def at_once(core: Core) -> bytes:
    """As a state was encoded before it was done in pieces."""
    return msgspec.msgpack.encode(
        [
            core.index,
            core.hash,
            core.epoch,
            core.truncated,
            core.group_next,
            core.configuration,
            [(g, rows.state()) for g, rows in core.groups.items()],
            [(g, retained.state()) for g, retained in core.retained.items()],
            list(core.places.values()),
            core.settled,
            [(g, r.intervals) for g, r in core.retained.items() if r.intervals],
            core.replaced,
            [(g, naming) for g, r in core.groups.items() if (naming := r.naming())],
        ]
    )


@pytest.mark.parametrize("senders", [0, 15, 16, 300])
def test_pieces_are_the_bytes_that_encoding_at_once_gives(senders: int) -> None:
    core = rich()
    rows = core.groups[GROUP]
    rows.senders_max = 10**6
    for number in range(rows.head + 1, rows.head + 1 + senders):
        rows.number(run(number, 1, number))
    assert core.encode() == at_once(core)


# How large it may become.


def folded(settings: GroupSettings, *entries: AnyEntry) -> Core:
    core = Core(CONFIGURATION, settings)
    for entry in entries:
        core.apply(entry)
    return core


def test_all_groups_together_remember_a_bounded_number_of_senders() -> None:
    settings = GroupSettings(cell_senders_max=12)
    core = folded(settings, *(GroupEntry(g, f"g{g}", 2**30, 10**9) for g in (1, 2, 3)))
    for number in range(1, 31):
        assert core.apply(run(number, 1, number, 1))
    assert len(core.groups[1].unnamed) == 12
    for group in (2, 3):
        for number in range(1, 31):
            if number == 15:
                core = Core.decode(core.encode(), settings)  # it is as strict after a start
            assert core.apply(run(number, 1, number, group))
        assert len(core.groups[group].unnamed) == 3  # its share, whatever others have
        assert core.groups[group].memory_floor == 28
    assert sum(len(rows.unnamed) for rows in core.groups.values()) <= 2 * 12


def test_the_newest_sender_of_a_full_cell_is_remembered() -> None:
    core = folded(
        GroupSettings(cell_senders_max=1), *(GroupEntry(g, f"g{g}", 9, 9) for g in (1, 2))
    )
    for group in (1, 2):
        assert core.apply(run(1, 1, 1, group))
        assert core.apply(run(1, 2, 2, group))
    assert core.apply(run(2, 1, 3, 2))
    assert list(core.groups[2].unnamed) == [run(2, 1, 3).sender]


def test_a_state_that_fits_no_snapshot_is_told_and_nothing_else_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "CORE_STATE_BYTES_MAX", 2000)
    server = crowded(GroupSettings(snapshot_interval=4), 100)
    effects = settle(server, [submit(server, run(1, 2, 101), open_entry())])
    assert codes(effects) == ["core-state-size"]
    assert only(StoreSnapshot, effects) == []
    assert server.core.index == 4
    assert server.snapshots.due_ms() == NEVER_MS
