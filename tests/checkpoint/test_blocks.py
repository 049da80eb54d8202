"""Checkpoints as files: written, read again, damaged, and of somebody else."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from samcast.checkpoint import blocks
from samcast.checkpoint.blocks import (
    check_checkpoint,
    column_blocks,
    load_checkpoint,
    read_block,
    read_list,
    write_blocks,
    write_checkpoint,
)
from samcast.checkpoint.folds import TableFold, fold_of
from samcast.checkpoint.places import block_name, place_of
from samcast.errors import ConfigError, DiskError
from samcast.group.table import Schedule, Table
from samcast.wire.order import Checkpoint
from samcast.wire.table import Change, Put, encode_change

ABOUT = ("cluster", "routes", "table", 1)
ROWS = 25


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 10)


def table() -> Table:
    made = Table()
    for i in range(1, ROWS + 1):
        put = Put(b"key-%03d" % (37 * i % ROWS), b"value-%d" % i, 60_000 if i % 5 == 0 else 0)
        made.apply(i, encode_change(Change((put,), (), 1000 * i)))
    return made


@pytest.mark.req("GRP-15")
def test_a_state_is_the_same_after_it_was_written_and_read(tmp_path: Path) -> None:
    made = table()
    place = place_of(tmp_path, 1, made.number)
    listed = write_checkpoint(place, made, ABOUT)
    assert [block.rows for block in listed.blocks] == [10, 10, 5]
    assert listed.checkpoint() == Checkpoint(ROWS, ROWS, made.size, made.state_hash())
    again_listed, again = load_checkpoint(place)
    assert again_listed == listed
    assert (again.number, again.clock_ms) == (made.number, made.clock_ms)
    assert again.content_hash() == made.content_hash()
    later = encode_change(Change((), (), 70_000))  # some rows end with it, in both
    assert again.apply(ROWS + 1, later) == made.apply(ROWS + 1, later) != []
    assert again.state_hash() == made.state_hash()


@pytest.mark.req("GRP-15", "PIP-04")
@pytest.mark.parametrize("size", [1, 3, 7, 10, 11, 25])
@pytest.mark.parametrize("most", [40, 90, 10_000])
def test_columns_are_cut_into_the_same_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, most: int
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", most)
    made = table()
    listed = write_checkpoint(tmp_path / "1", made, ABOUT)
    files = [pq.read_table(path) for path in sorted((tmp_path / "1").glob("*.parquet"))]
    whole = pa.concat_tables(files)
    pieces = (whole.slice(first, size) for first in range(0, ROWS, size))
    cut = column_blocks(pieces)
    again = write_blocks(tmp_path / "2", cut, ABOUT, made.number, made.clock_ms, made.writes)
    assert again == listed
    assert len(listed.blocks) > 2


@pytest.mark.req("GRP-15")
def test_other_tools_can_open_it(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "1", table(), ABOUT)
    rows = pq.read_table(tmp_path / "1" / block_name(1)).to_pylist()
    assert rows[0]["key"] == b"key-000"
    whole = pq.ParquetDataset([str(p) for p in sorted((tmp_path / "1").glob("*.parquet"))]).read()
    assert whole.num_rows == ROWS


@pytest.mark.req("GRP-17")
def test_blocks_of_any_server_add_up_to_the_advertised_hash(tmp_path: Path) -> None:
    made = table()
    listed = write_checkpoint(tmp_path / "1", made, ABOUT)
    advertised = listed.checkpoint()
    data = (tmp_path / "1" / block_name(0)).read_bytes()
    assert read_list(data, advertised) == listed
    put_together = Table()
    for number in (3, 1, 2):
        block = (tmp_path / "1" / block_name(number)).read_bytes()
        put_together.load(*read_block(block, listed.blocks[number - 1]))
    listed.complete(put_together)
    assert put_together.state_hash() == advertised.hash


def damaged(place: Path, how: str) -> None:
    path = place / block_name(2)
    if how == "missing":
        path.unlink()
    elif how == "swapped":
        path.write_bytes((place / block_name(1)).read_bytes())
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif how == "list":
        (place / block_name(0)).write_bytes(b"{}")
    else:
        data = bytearray(path.read_bytes())
        data[int(how)] ^= 4
        path.write_bytes(data)


@pytest.mark.req("GRP-15")
@pytest.mark.parametrize("how", ["missing", "swapped", "cut", "list", "10", "60"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, how: str) -> None:
    write_checkpoint(tmp_path / "1", table(), ABOUT)
    damaged(tmp_path / "1", how)
    with pytest.raises(DiskError):
        check_checkpoint(tmp_path / "1")


@pytest.mark.req("GRP-15")
def test_a_list_that_lies_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "1", table(), ABOUT)
    path = tmp_path / "1" / block_name(0)
    said = json.loads(path.read_bytes())
    lies = {"clock_ms": 5, "writes": 1, "rows": 24, "hash": "00" * 32, "blocks": said["blocks"][:2]}
    for key, value in lies.items():
        with pytest.raises(DiskError, match="add up"):
            read_list(json.dumps({**said, key: value}).encode())
    for broken in (b"", b"[]", json.dumps({**said, "blocks": [{"rows": 1, "hash": "x"}]}).encode()):
        with pytest.raises(DiskError, match="not a list"):
            read_list(broken)
    with pytest.raises(DiskError, match="another state"):
        read_list(path.read_bytes(), Checkpoint(ROWS, ROWS, 1, bytes(32)))


@pytest.mark.req("GRP-15")
def test_what_was_left_half_written_is_no_checkpoint(tmp_path: Path) -> None:
    place = place_of(tmp_path, 1, ROWS)
    half = place.with_name(f".{place.name}.writing")
    half.mkdir(parents=True)
    (half / "rest").touch()
    write_checkpoint(place, table(), ABOUT)
    assert not half.exists()
    assert check_checkpoint(place).rows == ROWS
    write_checkpoint(place, table(), ABOUT)  # once more, in its place


@pytest.mark.req("GRP-15")
def test_folds_are_found_by_name_and_version() -> None:
    assert isinstance(fold_of("table", 1), TableFold)
    with pytest.raises(ConfigError, match="no fold 'tabel' is installed here; there are table, la"):
        fold_of("tabel", 1)
    with pytest.raises(ConfigError, match="in version 1, the group wants 2"):
        fold_of("append", 2)


@pytest.mark.req("GRP-15")
def test_checkpoints_get_rarer_as_the_state_grows() -> None:
    def due(keys: int, first: int, last: int) -> list[int]:
        made = Table()
        schedule = Schedule(made)
        found = []
        for number in range(1, last + 1):
            made.merge(number, 1, [b"k%d" % (number % keys)], [b"v"], [number])
            if number == first - 1:
                schedule = Schedule(made)  # as one that begins with the state of this number
            if schedule.is_due(made, 10) and number >= first:
                found.append(number)
        return found

    assert due(1, 1, 60) == [10, 20, 30, 40, 50, 60]
    assert due(20, 1, 200) == [40, 80, 120, 160, 200]
    assert due(20, 81, 200) == [120, 160, 200]  # whoever comes later chooses alike


@pytest.mark.req("GRP-15")
def test_a_batch_counts_by_its_writes() -> None:
    made = Table()
    schedule = Schedule(made)
    many = tuple(Put(b"%d" % i, b"") for i in range(100))
    found = []
    for number in range(1, 21):
        made.apply(number, encode_change(Change(many)))
        if schedule.is_due(made, 2):
            found.append(number)
    assert found == [4, 6, 8, 12, 14, 16, 18]  # 256 writes or more between two
