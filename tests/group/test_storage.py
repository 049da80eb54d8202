"""What a journal's records give back: installs, cancellations, bases, and what rot may hide."""

import pytest

from samcast.group.order_log import OrderLog
from samcast.group.storage import Replayed, replay
from samcast.wire.order import EPOCH_NONE, HASH_NONE, AnyEntry, Epoch, EpochEntry
from samcast.wire.records import (
    AnyRecord,
    BaseRecord,
    CancelRecord,
    EntriesRecord,
    InstalledRecord,
    InstallRecord,
    UnknownRecord,
)

OLD: Epoch = (1, 1, 1)
NEW: Epoch = (2, 2, 2)
A: tuple[AnyEntry, ...] = tuple(EpochEntry((1, 1, n)) for n in range(9))
B: tuple[AnyEntry, ...] = tuple(EpochEntry((2, 2, n)) for n in range(9))


def hash_of(*entries: AnyEntry) -> bytes:
    log = OrderLog()
    log.extend(entries)
    return log.last_hash


def installed(*records: AnyRecord, length: int = 4) -> list[AnyRecord]:
    """A journal that begins with an install of the first entries of A, in the old epoch."""
    return [
        InstallRecord(OLD, 0, HASH_NONE),
        EntriesRecord(1, A[:length]),
        InstalledRecord(OLD),
        *records,
    ]


INSTALL_B: list[AnyRecord] = [InstallRecord(NEW, 2, hash_of(*A[:2])), EntriesRecord(3, B[:3])]


def log_in(replayed: Replayed) -> tuple[AnyEntry, ...]:
    log = replayed.log
    return tuple(log.slice(log.base + 1, log.length - log.base))


def test_an_empty_journal_is_an_empty_log() -> None:
    replayed = replay([], EPOCH_NONE, False)
    assert (log_in(replayed), replayed.unknown_from) == ((), 0)


@pytest.mark.req("GRP-23")
def test_entries_follow_each_other() -> None:
    replayed = replay(installed(EntriesRecord(5, A[4:6]), EntriesRecord(7, A[6:7])), OLD, False)
    assert log_in(replayed) == A[:7]
    assert replayed.unknown_from == 0
    assert not replayed.has_open_install


@pytest.mark.req("GRP-21")
def test_an_install_replaces_the_end_of_the_log_where_it_took_effect() -> None:
    records = installed(*INSTALL_B, InstalledRecord(NEW), EntriesRecord(6, B[3:4]))
    assert log_in(replay(records, NEW, False)) == (*A[:2], *B[:4])


@pytest.mark.req("GRP-21")
def test_an_install_that_never_took_effect_leaves_the_old_log_in_force() -> None:
    replayed = replay(installed(*INSTALL_B), OLD, False)
    assert log_in(replayed) == A[:4]
    assert replayed.has_open_install
    assert not replayed.is_installed_unsaid
    assert replayed.unknown_from == 0


@pytest.mark.req("GRP-21")
def test_the_vote_says_that_an_install_at_the_end_took_effect_before_the_journal_does() -> None:
    replayed = replay(installed(*INSTALL_B), NEW, False)
    assert log_in(replayed) == (*A[:2], *B[:3])
    assert replayed.is_installed_unsaid
    assert not replayed.has_open_install


def test_a_cancelled_install_is_passed_over() -> None:
    records = installed(*INSTALL_B, CancelRecord(), EntriesRecord(5, A[4:5]))
    replayed = replay(records, OLD, False)
    assert log_in(replayed) == A[:5]
    assert not replayed.has_open_install


def test_an_install_that_another_one_follows_never_took_effect() -> None:
    again: list[AnyRecord] = [InstallRecord((3, 3, 3), 4, hash_of(*A[:4])), EntriesRecord(5, B[:1])]
    records = installed(*INSTALL_B, *again, InstalledRecord((3, 3, 3)))
    assert log_in(replay(records, (3, 3, 3), False)) == (*A[:4], *B[:1])


def test_an_install_on_a_base_that_we_lack_begins_at_that_base() -> None:
    records = installed(
        InstallRecord(NEW, 7, b"\x07" * 32), EntriesRecord(8, B[:2]), InstalledRecord(NEW)
    )
    log = replay(records, NEW, False).log
    assert (log.base, log.length, log.hash_at(7)) == (7, 9, b"\x07" * 32)


def test_a_fresh_journal_begins_at_its_base() -> None:
    records: list[AnyRecord] = [BaseRecord(4, hash_of(*A[:4]), OLD), EntriesRecord(5, A[4:7])]
    replayed = replay(records, OLD, False)
    assert (replayed.log.base, replayed.log.length) == (4, 7)
    assert replayed.log.last_hash == hash_of(*A[:7])
    assert replayed.unknown_from == 0


@pytest.mark.req("GRP-23")
def test_behind_rot_nothing_is_known() -> None:
    replayed = replay(installed(), OLD, True)
    assert log_in(replayed) == A[:4]
    assert replayed.unknown_from == 5


@pytest.mark.req("GRP-23")
def test_if_the_log_is_not_of_the_epoch_that_was_voted_nothing_above_its_base_is_known() -> None:
    replayed = replay(installed(), NEW, True)
    assert log_in(replayed) == ()
    assert replayed.unknown_from == 1
    above: list[AnyRecord] = [BaseRecord(4, hash_of(*A[:4]), OLD), EntriesRecord(5, A[4:7])]
    replayed = replay(above, NEW, False)
    assert (replayed.log.base, replayed.log.length, replayed.unknown_from) == (4, 4, 5)


@pytest.mark.req("GRP-23")
def test_what_was_unknown_stays_unknown_until_an_install_takes_effect() -> None:
    lost: list[AnyRecord] = [
        BaseRecord(0, HASH_NONE, OLD),
        EntriesRecord(1, A[:4]),
        UnknownRecord(4),
    ]
    replayed = replay(lost, OLD, False)
    assert log_in(replayed) == A[:3]
    assert replayed.unknown_from == 4
    open_install = replay([*lost, *INSTALL_B], OLD, False)
    assert open_install.unknown_from == 4
    whole = replay([*lost, *INSTALL_B, InstalledRecord(NEW)], NEW, False)
    assert (log_in(whole), whole.unknown_from) == ((*A[:2], *B[:3]), 0)
    unsaid = replay([*lost, *INSTALL_B], NEW, False)
    assert (log_in(unsaid), unsaid.unknown_from) == ((*A[:2], *B[:3]), 0)


@pytest.mark.req("GRP-23")
def test_rot_behind_an_install_hides_what_was_appended_to_it() -> None:
    records = installed(*INSTALL_B, InstalledRecord(NEW), EntriesRecord(6, B[3:4]))
    replayed = replay(records, NEW, True)
    assert log_in(replayed) == (*A[:2], *B[:4])
    assert replayed.unknown_from == 7
