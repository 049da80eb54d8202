"""What a commit server writes into its journal fits it, however large the entries are."""

import pytest

from samcast.errors import ConfigError
from samcast.group.installing import Install
from samcast.group.order_log import OrderLog
from samcast.group.order_writer import OrderWriter
from samcast.group.settings import GroupSettings
from samcast.group.storage import Replayed, replay
from samcast.limits import (
    BATCH_MESSAGES_MAX,
    DECISION_BYTES,
    DECISION_STAGE_BYTES,
    ORDER_PIECE_BYTES_MAX,
    SERVERS_MAX,
)
from samcast.wire.group import Start
from samcast.wire.journal import JournalWriter, scan_journal
from samcast.wire.order import (
    HASH_NONE,
    AnyEntry,
    ConfigEntry,
    Configuration,
    DecisionEntry,
    Keep,
    KeepEntry,
    Part,
    Place,
    RunEntry,
    Server,
    StageRef,
    encode_entry,
)
from samcast.wire.records import (
    AnyRecord,
    BaseRecord,
    EntriesRecord,
    InstalledRecord,
    decode_record,
    encode_record,
)

SEGMENT_BYTES = 16 * 1024 * 1024  # as order_store has it
SETTINGS = GroupSettings()
EPOCH = (1, 1, 7)
CONFIGURATION = Configuration(1, (Server(1, 1, 1),), 1, 1, 1)
OWNER = b"\x01" * 16
LARGEST = 2**63 - 1


def decisions(count: int, stages: int) -> list[AnyEntry]:
    refs = tuple(StageRef(2**40 + n, 1000, b"d" * 16) for n in range(stages))
    return [DecisionEntry(OWNER, 1, tx, (Part(1, 1, refs),)) for tx in range(count)]


def log_of(entries: list[AnyEntry]) -> OrderLog:
    log = OrderLog()
    log.extend(entries)
    return log


def read_back(encoded: tuple[bytes, ...]) -> list[AnyRecord]:
    """Through the journal as it lies on a disk."""
    writer = JournalWriter(segment_bytes=SEGMENT_BYTES)
    segments: dict[int, bytearray] = {}
    for write in writer.append(encoded):
        segment = segments.setdefault(write.segment, bytearray(SEGMENT_BYTES))
        segment[write.offset : write.offset + len(write.data)] = write.data
    found = scan_journal({n: bytes(s) for n, s in segments.items()}, segment_bytes=SEGMENT_BYTES)
    return [decode_record(record) for record in found.records]


def writer_of() -> OrderWriter:
    return OrderWriter(SETTINGS, Replayed(OrderLog()), EPOCH)


def test_many_large_decisions_are_accepted_in_records_that_fit() -> None:
    entries = decisions(256, 650)
    records = read_back(writer_of().accepted(log_of(entries)))
    base = BaseRecord(0, HASH_NONE, EPOCH)
    assert replay([base, *records], EPOCH, False).log.length == 256
    assert [e for r in records if type(r) is EntriesRecord for e in r.entries] == entries


def test_many_large_decisions_are_installed_and_rewritten_in_records_that_fit() -> None:
    entries = decisions(256, 650)
    install = Install(Start(CONFIGURATION, EPOCH, 0, HASH_NONE, 1, (), 256), 1, None)
    install.entries = entries
    install.log.extend(entries)
    writer = writer_of()
    installed = [*read_back(writer.install(install)), InstalledRecord(EPOCH)]
    assert replay(installed, EPOCH, False).log.length == 256
    fresh = read_back(writer.fresh(install.log, 100, EPOCH))
    assert replay(fresh, EPOCH, False).log.last_hash == install.log.last_hash


def test_a_record_is_cut_by_bytes_and_by_count_and_a_large_entry_stands_alone() -> None:
    settings = GroupSettings(order_bytes_max=1000, entries_per_record_max=4)
    small = [RunEntry(1, b"s" * 16, 1, n, 1, n, b"d" * 16, 0, 0) for n in range(1, 7)]
    large = decisions(1, 100)
    writer = OrderWriter(settings, Replayed(OrderLog()), EPOCH)
    records = [decode_record(r) for r in writer.accepted(log_of([*small, *large, *small]))]
    shape = [(r.index_first, len(r.entries)) for r in records if type(r) is EntriesRecord]
    assert shape == [(1, 4), (5, 2), (7, 1), (8, 4), (12, 2)]


def test_records_of_before_replay_whatever_their_size() -> None:
    entries = tuple(decisions(100, 650))
    assert len(encode_record(EntriesRecord(1, entries))) > SETTINGS.order_bytes_max
    records: list[AnyRecord] = [BaseRecord(0, HASH_NONE, EPOCH), EntriesRecord(1, entries)]
    assert replay(records, EPOCH, False).log.length == 100


def largest_entries() -> list[AnyEntry]:
    ref = StageRef(LARGEST, BATCH_MESSAGES_MAX, b"d" * 32)
    stages = SETTINGS.decision_stages_max
    long, wide = "\U0001f600" * 255, "\U0001f600" * 255
    servers = tuple(Server(LARGEST, LARGEST, LARGEST) for _ in range(SERVERS_MAX))
    places = tuple(Place(LARGEST, long, wide, 65535) for _ in range(SERVERS_MAX))
    numbers = (LARGEST,) * 5
    keep = Keep(LARGEST, LARGEST, LARGEST, long, LARGEST, LARGEST)
    return [
        DecisionEntry(
            OWNER, LARGEST, LARGEST, tuple(Part(LARGEST, LARGEST, (ref,)) for _ in range(stages))
        ),
        DecisionEntry(OWNER, LARGEST, LARGEST, (Part(LARGEST, LARGEST, (ref,) * stages),)),
        ConfigEntry(Configuration(LARGEST, servers, *numbers), places),
        KeepEntry(LARGEST, keep, keep),
    ]


@pytest.mark.parametrize("entry", largest_entries(), ids=lambda entry: type(entry).__name__)
def test_the_largest_entry_fits_a_record(entry: AnyEntry) -> None:
    size = len(encode_entry(entry))
    assert size <= DECISION_BYTES + DECISION_STAGE_BYTES * SETTINGS.decision_stages_max
    assert size <= ORDER_PIECE_BYTES_MAX
    assert len(read_back(writer_of().accepted(log_of([entry])))) == 1


def test_settings_that_would_let_an_entry_outgrow_the_journal_are_refused() -> None:
    with pytest.raises(ConfigError, match="14562 stages"):
        GroupSettings(decision_stages_max=14_563)
    with pytest.raises(ConfigError, match="order_bytes_max"):
        GroupSettings(order_bytes_max=ORDER_PIECE_BYTES_MAX + 1)
