"""Entries of the log: their bytes, their chain, and the ids of senders."""

from hashlib import blake2b
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samcast.wire.order import (
    HASH_NONE,
    AnyEntry,
    EpochEntry,
    RunEntry,
    SenderRemovedEntry,
    chain_hash,
    chain_link,
    decode_entry,
    encode_entry,
    is_named,
    named_sender,
    same_rank,
    unnamed_sender,
)
from samcast.wire.records import (
    BaseRecord,
    CancelRecord,
    EntriesRecord,
    InstalledRecord,
    InstallRecord,
    MarkRecord,
    SuperRecord,
    UnknownRecord,
    VoteRecord,
    decode_mark,
    decode_record,
    decode_super,
    decode_vote,
    encode_record,
)
from tests.group.build import ANN, CONFIGURATION, GROUP_ENTRY, batch, run_entry
from tests.group.nonsense import IMPOSSIBLE, LAST, Hints, values

HINTS = Hints()
HINTS.configurations = [CONFIGURATION, *IMPOSSIBLE]
ENTRIES = values(AnyEntry, HINTS)
RUN = run_entry(batch(1, 2), 1)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(ENTRIES)
def test_every_entry_is_read_back_as_it_was_written(entry: Any) -> None:
    assert decode_entry(encode_entry(entry)) == entry


def test_no_two_entries_share_a_tag() -> None:
    tags = [kind.__struct_config__.tag for kind in get_args(AnyEntry)]
    assert sorted(tags) == list(range(1, len(tags) + 1))


@pytest.mark.parametrize(
    "changes",
    [
        {"sender": ANN[:15]},
        {"sender": ANN + b"x"},
        {"digest": bytes(15)},
        {"digest": bytes(33)},
        {"group": -1},
        {"count": LAST + 1},
        {"number_first": 1.0},
    ],
)
def test_an_entry_that_breaks_its_types_is_refused(changes: dict[str, Any]) -> None:
    broken = msgspec.structs.replace(RUN, **changes)
    with pytest.raises(msgspec.ValidationError):
        decode_entry(encode_entry(broken))


def test_the_chain_hash_binds_an_entry_to_everything_before_it() -> None:
    first, second = chain_hash(HASH_NONE, GROUP_ENTRY), chain_hash(HASH_NONE, RUN)
    assert len({HASH_NONE, first, second}) == 3
    assert chain_hash(first, RUN) != chain_hash(HASH_NONE, RUN)
    assert chain_hash(first, RUN) != chain_hash(second, GROUP_ENTRY)
    assert chain_hash(first, RUN) == chain_hash(chain_hash(HASH_NONE, GROUP_ENTRY), RUN)


@pytest.mark.parametrize("field", RunEntry.__struct_fields__)
def test_the_chain_hash_depends_on_every_field_of_a_run(field: str) -> None:
    value = getattr(RUN, field)
    other = value + 1 if isinstance(value, int) else bytes(len(value))
    changed = msgspec.structs.replace(RUN, **{field: other})
    assert chain_hash(HASH_NONE, changed) != chain_hash(HASH_NONE, RUN)


def test_the_chain_hash_is_a_keyed_hash_of_the_bytes_on_disk() -> None:
    """Another rule would part old logs from new ones."""
    written = bytes([0x92, 2, 0x93, 1, 2, 3])  # an array of tag 2 and an array of three
    expected = blake2b(written, key=HASH_NONE, digest_size=32).digest()
    assert chain_hash(HASH_NONE, EpochEntry((1, 2, 3))) == expected


def test_a_removal_of_before_is_read_and_keeps_its_hash() -> None:
    """It said nothing of incarnations."""
    name = named_sender("till-7")
    written = bytes([0x93, 8, 1, 0xC4, 16]) + name
    entry = decode_entry(written)
    assert entry == SenderRemovedEntry(1, name, 0)
    assert chain_hash(HASH_NONE, entry) == chain_link(HASH_NONE, written)
    assert chain_hash(HASH_NONE, SenderRemovedEntry(1, name, 1)) != chain_hash(HASH_NONE, entry)


@settings(max_examples=50, derandomize=True, deadline=None)
@given(st.text(max_size=20), st.binary(min_size=16, max_size=16))
def test_named_and_unnamed_senders_never_share_an_id(name: str, random_bytes: bytes) -> None:
    assert is_named(named_sender(name))
    assert not is_named(unnamed_sender(random_bytes))
    assert len(named_sender(name)) == len(unnamed_sender(random_bytes)) == 16


def test_a_name_has_one_id_and_another_name_another() -> None:
    assert named_sender("till-7") == named_sender("till-7")
    assert named_sender("till-7") != named_sender("till-8")


def test_epochs_of_one_round_and_node_have_the_same_rank_whatever_their_nonce() -> None:
    assert same_rank((3, 1, 5), (3, 1, 6))
    assert not same_rank((3, 1, 5), (3, 2, 5))
    assert not same_rank((3, 1, 5), (4, 1, 5))


@pytest.mark.parametrize(
    "record",
    [
        BaseRecord(7, HASH_NONE, (1, 2, 3)),
        EntriesRecord(8, (GROUP_ENTRY, RUN)),
        InstallRecord((2, 2, 2), 8, HASH_NONE),
        InstalledRecord((2, 2, 2)),
        CancelRecord(),
        UnknownRecord(3),
    ],
    ids=lambda record: type(record).__name__,
)
def test_every_record_of_the_journal_is_read_back_as_it_was_written(record: Any) -> None:
    assert decode_record(encode_record(record)) == record


def test_the_small_records_are_read_back_as_they_were_written() -> None:
    vote = VoteRecord((3, 1, 5), (2, 2, 2), CONFIGURATION)
    assert decode_vote(encode_record(vote)) == vote
    assert decode_super(encode_record(SuperRecord(1, 101, 9))) == SuperRecord(1, 101, 9)
    marks = MarkRecord(((1, ANN, 1, 1, 0, 5),), 12)
    assert decode_mark(encode_record(marks)) == marks
