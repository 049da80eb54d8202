"""The table as a fold: equal wherever it is computed, and what a dict would hold."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from samcast.group.table import HASH_SPACE, Changed, Row, Table, row_hash
from samcast.wire.errors import WireError
from samcast.wire.table import (
    KEY_BYTES_MAX,
    Change,
    Check,
    Delete,
    Put,
    decode_change,
    encode_change,
)

KEYS = st.sampled_from([b"a", b"b", b"ba", b"c", b""])
WRITES = st.one_of(
    st.builds(Put, KEYS, st.binary(max_size=3), st.sampled_from([0, 0, 5, 50])),
    st.builds(Delete, KEYS),
)
CHANGES = st.builds(
    Change,
    st.lists(WRITES, max_size=4).map(tuple),
    st.lists(st.builds(Check, KEYS, st.integers(0, 12)), max_size=1).map(tuple),
    st.integers(0, 100),
)


def body(*writes: Put | Delete, checks: tuple[Check, ...] = (), clock_ms: int = 0) -> bytes:
    return encode_change(Change(writes, checks, clock_ms))


class Model:
    """The same, as simply as can be."""

    def __init__(self) -> None:
        self.clock_ms = 0
        self.rows: dict[bytes, Row] = {}

    def apply(self, number: int, change: Change) -> None:
        self.clock_ms = max(self.clock_ms, change.clock_ms)
        self.rows = {
            key: row
            for key, row in self.rows.items()
            if not row.expires_ms or row.expires_ms > self.clock_ms
        }
        for check in change.checks:
            found = self.rows.get(check.key)
            if (found.number if found else 0) != check.number:
                return
        for write in change.writes:
            if isinstance(write, Put):
                expires = self.clock_ms + write.ttl_ms if write.ttl_ms else 0
                self.rows[write.key] = Row(write.value, number, expires)
            else:
                self.rows.pop(write.key, None)


@pytest.mark.req("GRP-24")
@given(st.lists(CHANGES, max_size=25))
def test_it_holds_what_a_dict_would(changes: list[Change]) -> None:
    table, model = Table(), Model()
    seen: dict[bytes, bytes | None] = {}
    for number, change in enumerate(changes, 1):
        told = table.apply(number, encode_change(change))
        model.apply(number, change)
        seen.update({changed.key: changed.value for changed in told or ()})
        assert {key: table.get(key) for key in table.keys()} == model.rows  # noqa: SIM118
        assert list(table.keys()) == sorted(model.rows)
        assert list(table.keys(b"b", b"c")) == [k for k in sorted(model.rows) if b"b" <= k < b"c"]
        assert len(table) == len(model.rows)
        # Whoever follows the changes has the same.
        assert {k: v for k, v in seen.items() if v is not None} == {
            key: row.value for key, row in model.rows.items()
        }
    again = Table()
    for number, change in enumerate(changes, 1):
        again.apply(number, encode_change(change))
    assert again.content_hash() == table.content_hash()


def test_the_hash_tells_content_and_numbers_apart_and_forgets_the_way() -> None:
    one, other = Table(), Table()
    one.apply(1, body(Put(b"x", b"1")))
    one.apply(2, body(Delete(b"x")))
    one.apply(3, body(Put(b"k", b"v")))
    other.apply(3, body(Put(b"k", b"v")))
    assert one.content_hash() == other.content_hash()
    later = Table()
    later.apply(4, body(Put(b"k", b"v")))
    assert later.content_hash() != other.content_hash()
    assert Table().content_hash() != other.content_hash()


def test_a_change_whose_check_fails_has_no_effect_at_all() -> None:
    table = Table()
    table.apply(1, body(Put(b"a", b"1")))
    refused = body(Put(b"b", b"2"), Put(b"a", b"3"), checks=(Check(b"a", 1), Check(b"b", 1)))
    assert table.apply(2, refused) is None
    assert table.get(b"b") is None
    accepted = body(Put(b"b", b"2"), checks=(Check(b"a", 1), Check(b"b", 0)))
    assert table.apply(3, accepted) == [Changed(3, b"b", b"2")]


def test_what_is_no_change_has_no_effect_anywhere() -> None:
    table = Table()
    for number, nonsense in enumerate([b"", b"\xff", b"hello", b"\x93\x01"], 1):
        assert table.apply(number, nonsense) is None
    assert (table.malformed, table.number, len(table)) == (4, 4, 0)
    with pytest.raises(WireError, match="table-malformed"):
        decode_change(encode_change(Change((Put(bytes(KEY_BYTES_MAX + 1), b""),))))


def test_keys_last_by_the_clock_that_changes_tell() -> None:
    table = Table()
    table.apply(1, body(Put(b"a", b"1", 100), clock_ms=1000))
    table.apply(2, body(clock_ms=1099))
    assert table.get(b"a") is not None
    table.apply(3, body(clock_ms=500))  # A clock that is behind changes nothing.
    assert table.clock_ms == 1099
    assert table.apply(4, body(clock_ms=1100)) == [Changed(4, b"a", None)]
    table.apply(5, body(Put(b"a", b"1", 100), clock_ms=1100))
    table.apply(6, body(Put(b"a", b"2"), clock_ms=1150))  # Put anew, for ever.
    table.apply(7, body(clock_ms=9999))
    assert table.get(b"a") == Row(b"2", 6)


@pytest.mark.req("GRP-24")
@pytest.mark.parametrize("most", [3, 10_000])
def test_the_hash_is_of_the_rows_whatever_way_led_to_them(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("samcast.group.table.CHANGED_MAX", most)
    chance = random.Random(5)
    table = Table()
    for number in range(1, 400):
        key = b"%d" % chance.randrange(30)
        write = Put(key, b"%d" % number) if chance.random() < 0.7 else Delete(key)
        table.apply(number, encode_change(Change((write,))))
        if chance.random() < 0.1:
            rows = [(key, table.get(key)) for key in table.keys()]  # noqa: SIM118 - no dict
            total = (
                sum(row_hash(key, *astuple(row)) for key, row in rows if row is not None)
                % HASH_SPACE
            )
            assert table.content_hash() == f"{len(rows)}-{total:064x}"
