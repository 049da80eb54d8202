"""A checkpoint on disk: a folder of Parquet files, each a block of rows in the order of their keys,
and a list of the blocks.

The hash of a state is the sum over its rows, so the blocks' hashes add up to it: the list is
checked against the hash that the order advertises, and each block against the list, whatever
server and whatever version of a library wrote it.
"""

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from samcast.checkpoint.places import LIST, block_name
from samcast.errors import DiskError
from samcast.group.table import HASH_BYTES, HASH_SPACE, Row, Table, row_hash, state_hash
from samcast.wire.order import Checkpoint

BLOCK_ROWS = 32_768
BLOCK_BYTES = 8 * 1024 * 1024  # of keys and values
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("number", pa.uint64(), nullable=False),
        pa.field("expires_ms", pa.uint64(), nullable=False),
    ]
)


About = tuple[str, str, str, int]  # cluster, group, fold and its version


class Block(msgspec.Struct, frozen=True):
    """What a block must hold."""

    rows: int
    hash: str


class BlockList(msgspec.Struct, frozen=True):
    """What a checkpoint says of itself."""

    cluster: str
    group: str
    fold: str
    fold_version: int
    number: int
    rows: int
    size: int
    clock_ms: int
    writes: int
    hash: str
    blocks: list[Block]

    def complete(self, table: Table) -> None:
        """What isn't in the rows."""
        table.number, table.clock_ms, table.writes = self.number, self.clock_ms, self.writes

    def checkpoint(self) -> Checkpoint:
        """As it is reported."""
        return Checkpoint(self.number, self.rows, self.size, bytes.fromhex(self.hash))


def read_list(data: bytes, checkpoint: Checkpoint | None = None) -> BlockList:
    """The list, checked in itself and against what is advertised; a `DiskError` says what is
    wrong."""
    try:
        listed = msgspec.json.decode(data, type=BlockList)
        hashes = [int.from_bytes(bytes.fromhex(block.hash), "little") for block in listed.blocks]
        found = state_hash(sum(hashes) % HASH_SPACE, listed.clock_ms, listed.writes)
    except (msgspec.DecodeError, ValueError, OverflowError) as error:
        raise DiskError(f"not a list of blocks: {error}") from None
    if found.hex() != listed.hash or sum(block.rows for block in listed.blocks) != listed.rows:
        raise DiskError("the list of blocks doesn't add up to its own hash")
    if checkpoint is not None and listed.checkpoint() != checkpoint:
        raise DiskError(f"another state than the advertised one at {checkpoint.number}")
    return listed


def read_block(data: bytes, expected: Block) -> tuple[list[tuple[bytes, Row]], int]:
    """The rows of a block and the sum of their hashes; a `DiskError` if they aren't the expected
    ones."""
    try:
        columns = pq.read_table(pa.BufferReader(data), schema=SCHEMA, memory_map=False)
    except (pa.ArrowException, OSError) as error:
        raise DiskError(f"a block that can't be read: {error}") from None
    lists = [columns.column(name).to_pylist() for name in SCHEMA.names]
    rows = [(key, Row(value, n, expires)) for key, value, n, expires in zip(*lists, strict=True)]
    total = _hash_of(rows)
    if len(rows) != expected.rows or _written(total) != expected.hash:
        raise DiskError("a block whose rows aren't what its list says")
    return rows, total


def _hash_of(rows: list[tuple[bytes, Row]]) -> int:
    return sum(row_hash(key, row) for key, row in rows) % HASH_SPACE


def _written(total: int) -> str:
    return total.to_bytes(HASH_BYTES, "little").hex()


def write_checkpoint(place: Path, table: Table, about: About) -> BlockList:
    """Write a state, read it again, and only then give it its name. What is in its place goes."""
    beside = place.with_name(f".{place.name}.writing")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    blocks: list[Block] = []
    for number, rows in enumerate(_in_blocks(table), 1):
        data = _encoded(rows)
        _write(beside / block_name(number), data)
        blocks.append(Block(len(rows), _written(_hash_of(rows))))
    listed = BlockList(
        *about, table.number, len(table), table.size, table.clock_ms, table.writes,
        table.state_hash().hex(), blocks,
    )  # fmt: skip
    _write(beside / LIST, msgspec.json.format(msgspec.json.encode(listed), indent=1))
    _sync(beside)
    check_checkpoint(beside)
    shutil.rmtree(place, ignore_errors=True)
    beside.rename(place)
    _sync(place.parent)
    return listed


def check_checkpoint(place: Path) -> BlockList:
    """Read a checkpoint; a `DiskError` says what is wrong with it."""
    listed = read_list(_read(place / LIST))
    for _ in _blocks_of(place, listed):
        pass
    return listed


def _blocks_of(place: Path, listed: BlockList) -> Iterator[tuple[list[tuple[bytes, Row]], int]]:
    """The blocks of a checkpoint, checked, one after the other."""
    for number, block in enumerate(listed.blocks, 1):
        yield read_block(_read(place / block_name(number)), block)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DiskError(f"{path.name} can't be read: {error}") from None


def load_checkpoint(place: Path) -> tuple[BlockList, Table]:
    """The state again."""
    listed = read_list(_read(place / LIST))
    table = Table()
    for rows, total in _blocks_of(place, listed):
        table.load(rows, total)
    listed.complete(table)
    return listed, table


def _in_blocks(table: Table) -> Iterator[list[tuple[bytes, Row]]]:
    """By rows and by bytes, and by nothing that could differ from server to server."""
    rows: list[tuple[bytes, Row]] = []
    size = 0
    for key in table.keys():  # noqa: SIM118 - not a dict
        row = table.get(key)
        assert row is not None
        rows.append((key, row))
        size += len(key) + len(row.value)
        if len(rows) >= BLOCK_ROWS or size >= BLOCK_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def _encoded(rows: list[tuple[bytes, Row]]) -> bytes:
    columns = [
        pa.array([key for key, _ in rows], pa.binary()),
        pa.array([row.value for _, row in rows], pa.binary()),
        pa.array([row.number for _, row in rows], pa.uint64()),
        pa.array([row.expires_ms for _, row in rows], pa.uint64()),
    ]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), out, compression="zstd")
    return out.getvalue()


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
