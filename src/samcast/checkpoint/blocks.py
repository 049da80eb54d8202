"""A checkpoint on disk: a folder of Parquet files, each a block of rows in the order of their keys,
and a list of the blocks.

The hash of a state is the sum over its rows, so the blocks' hashes add up to it: the list is
checked against the hash that the order advertises, and each block against the list, whatever
server and whatever version of a library wrote it.
"""

import io
import os
import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import structs

from samcast.checkpoint.places import LIST, block_name
from samcast.errors import DiskError
from samcast.group.table import HASH_BYTES, HASH_SPACE, Row, Table, row_hash, state_hash
from samcast.wire.order import Checkpoint, Natural, Positive

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

    rows: Natural
    hash: str


class BlockList(msgspec.Struct, frozen=True):
    """What a checkpoint says of itself."""

    cluster: str
    group: str
    fold: str
    fold_version: Natural
    number: Positive
    rows: Natural
    size: Natural
    clock_ms: Natural
    writes: Natural
    hash: str
    blocks: list[Block]

    def about(self) -> About:
        """Of what it is a state."""
        return self.cluster, self.group, self.fold, self.fold_version

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
    columns, total = read_columns(data, expected)
    lists = [columns.column(name).to_pylist() for name in SCHEMA.names]
    return [(key, Row(value, *stamps)) for key, value, *stamps in zip(*lists, strict=True)], total


def read_columns(data: bytes, expected: Block) -> tuple[pa.Table, int]:
    """The same as columns."""
    try:
        columns = pq.read_table(pa.BufferReader(data), schema=SCHEMA, memory_map=False)
    except (pa.ArrowException, OSError) as error:
        raise DiskError(f"a block that can't be read: {error}") from None
    if any(columns.column(name).null_count for name in SCHEMA.names):
        raise DiskError("a block with cells that hold nothing")
    total = _hash_of(columns)
    if len(columns) != expected.rows or _written(total) != expected.hash:
        raise DiskError("a block whose rows aren't what its list says")
    return columns, total


def _hash_of(columns: pa.Table) -> int:
    lists = [columns.column(name).to_pylist() for name in SCHEMA.names]
    return sum(map(row_hash, *lists)) % HASH_SPACE


def _written(total: int) -> str:
    return total.to_bytes(HASH_BYTES, "little").hex()


def write_checkpoint(place: Path, table: Table, about: About) -> BlockList:
    """Write a state, read it again, and only then give it its name. What is in its place goes."""
    listed = write_blocks(
        place, _in_blocks(table), about, table.number, table.clock_ms, table.writes
    )
    if listed.hash != table.state_hash().hex():
        raise DiskError(f"checkpoint {table.number} isn't what was in memory")
    return listed


def write_blocks(
    place: Path, blocks: Iterable[pa.Table], about: About, number: int, clock_ms: int, writes: int
) -> BlockList:
    """The same for rows that come as blocks, in the order of their keys."""
    beside = place.with_name(f".{place.name}.writing")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    made: list[EncodedBlock] = []
    for at, rows in enumerate(blocks, 1):
        encoded = encode_block(rows)
        _write(beside / block_name(at), encoded.data)
        made.append(structs.replace(encoded, data=b""))
    listed = list_of(made, about, number, clock_ms, writes)
    _write(beside / LIST, encode_list(listed))
    finish(beside, place)
    return listed


def finish(beside: Path, place: Path) -> BlockList:
    """What is written whole is read again, and only then takes its place."""
    listed = check_checkpoint(beside)
    take_place(beside, place)
    return listed


def take_place(beside: Path, place: Path) -> None:
    """What was read again and is sound gets its name; what is there goes."""
    _sync(beside)
    shutil.rmtree(place, ignore_errors=True)
    beside.rename(place)
    _sync(place.parent)


class EncodedBlock(msgspec.Struct, frozen=True):
    """A block's file, and what its list says of it."""

    data: bytes
    rows: int
    size: int
    hash: str


def encode_block(rows: pa.Table) -> EncodedBlock:
    """As its file."""
    columns = rows.cast(SCHEMA)
    out = io.BytesIO()
    pq.write_table(columns, out, compression="zstd")
    rows, size = len(columns), _size_of(columns)
    return EncodedBlock(out.getvalue(), rows, size, _written(_hash_of(columns)))


def _size_of(columns: pa.Table) -> int:
    lengths = (pc.sum(pc.binary_length(columns[name])).as_py() for name in ("key", "value"))
    return sum(length or 0 for length in lengths)


def list_of(
    blocks: Sequence[EncodedBlock], about: About, number: int, clock_ms: int, writes: int
) -> BlockList:
    """What a checkpoint of these blocks says of itself."""
    total = sum(int.from_bytes(bytes.fromhex(block.hash), "little") for block in blocks)
    whole = state_hash(total % HASH_SPACE, clock_ms, writes).hex()
    rows, size = sum(block.rows for block in blocks), sum(block.size for block in blocks)
    listed = [Block(block.rows, block.hash) for block in blocks]
    return BlockList(*about, number, rows, size, clock_ms, writes, whole, listed)


def encode_list(listed: BlockList) -> bytes:
    """As its file."""
    return msgspec.json.format(msgspec.json.encode(listed), indent=1)


def check_checkpoint(place: Path) -> BlockList:
    """Read a checkpoint; a `DiskError` says what is wrong with it."""
    listed = read_list(_read(place / LIST))
    size = 0
    for number, block in enumerate(listed.blocks, 1):
        size += _size_of(read_columns(_read(place / block_name(number)), block)[0])
    if size != listed.size:
        raise DiskError(f"its blocks have {size} bytes, and its list says {listed.size}")
    return listed


def sound_checkpoint(place: Path) -> BlockList | None:
    """The same, or None if there is none, or it is not sound."""
    try:
        return check_checkpoint(place)
    except DiskError:
        return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DiskError(f"{path.name} can't be read: {error}") from None


def load_checkpoint(place: Path) -> tuple[BlockList, Table]:
    """The state again."""
    listed = read_list(_read(place / LIST))
    table = Table()
    for number, block in enumerate(listed.blocks, 1):
        table.load(*read_block(_read(place / block_name(number)), block))
    listed.complete(table)
    return listed, table


def _in_blocks(table: Table) -> Iterator[pa.Table]:
    """By rows and by bytes, and by nothing that could differ from server to server."""
    rows: list[tuple[bytes, bytes, int, int]] = []
    size = 0
    for key in table.keys():  # noqa: SIM118 - not a dict
        row = table.get(key)
        assert row is not None
        rows.append((key, row.value, row.number, row.expires_ms))
        size += len(key) + len(row.value)
        if len(rows) >= BLOCK_ROWS or size >= BLOCK_BYTES:
            yield _columns(rows)
            rows, size = [], 0
    if rows:
        yield _columns(rows)


def _columns(rows: list[tuple[bytes, bytes, int, int]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def column_blocks(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same blocks of rows that come as columns, in the order of their keys."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for piece in pieces:
        sizes = pc.add(pc.binary_length(piece["key"]), pc.binary_length(piece["value"]))
        ends = pc.cumulative_sum(sizes.cast(pa.int64())).to_pylist()
        begun = 0  # rows of this piece that are in blocks before
        while begun < len(piece):
            done = ends[begun - 1] if begun else 0
            full = bisect_left(ends, done + BLOCK_BYTES - size) + 1 - begun
            count = min(full, BLOCK_ROWS - rows, len(piece) - begun)
            waiting.append(piece.slice(begun, count))
            rows += count
            begun += count
            size += ends[begun - 1] - done
            if rows >= BLOCK_ROWS or size >= BLOCK_BYTES:
                yield pa.concat_tables(waiting)
                waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


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
