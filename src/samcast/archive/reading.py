"""Reading an archive: a range of numbers as record batches, from the files that hold them."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet

from samcast.archive.index import Archive, File
from samcast.errors import CollectedError, DiskError

NUMBER = "number"


def numbers_of(path: Path) -> tuple[int, int]:
    """The first number of a Parquet file and the one behind its last; they must follow each other.
    Both are the same if it holds nothing."""
    with _opened(path) as file:
        rows = file.metadata.num_rows
        if not rows:
            return 0, 0
        first = last = None
        for batch in file.iter_batches(columns=[NUMBER]):
            numbers = batch.column(0)
            begin = numbers[0].as_py()
            if (last is not None and begin != last + 1) or not numbers.equals(
                arrow.arange(begin, begin + len(numbers))
            ):
                raise DiskError(f"{path}: its numbers don't follow each other from {begin} on")
            first = begin if first is None else first
            last = begin + len(numbers) - 1
    assert first is not None
    assert last is not None
    return first, last + 1


def record_batches(
    archive: Archive, first: int, end: int, rows: int
) -> Iterator[arrow.RecordBatch]:
    """The messages from `first` up to, but not with, `end`, in order; all must be in it."""
    if first < archive.first or end > archive.end:
        raise CollectedError(
            f"{archive.folder} holds messages {archive.first} to {archive.end - 1}, not"
            f" {first} to {end - 1}"
        )
    for path, file in archive.files(first, end):
        yield from _rows_of(path, file, max(first, file.first), min(end, file.end), rows)


def _rows_of(
    path: Path, file: File, first: int, end: int, rows: int
) -> Iterator[arrow.RecordBatch]:
    at = file.first
    with _opened(path, file) as opened:
        try:
            skipped, groups = _groups(opened, first - file.first)
            at += skipped
            for batch in opened.iter_batches(batch_size=rows, row_groups=groups):
                begin = max(0, first - at)
                length = min(batch.num_rows, end - at) - begin
                if length > 0:
                    piece = batch.slice(begin, length)
                    _check(path, piece, at + begin)
                    yield piece
                at += batch.num_rows
                if at >= end:
                    break
        except (arrow.ArrowException, OSError) as error:
            raise DiskError(f"{path} is damaged: {error}") from None
    if at < end:
        raise DiskError(f"{path} is damaged: it ends before message {at}, not {file.end}")


def _groups(opened: parquet.ParquetFile, skip: int) -> tuple[int, list[int]]:
    """The row groups that are left when so many rows needn't be read, and how many these were."""
    metadata = opened.metadata
    at = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if at + rows > skip:
            return at, list(range(group, metadata.num_row_groups))
        at += rows
    return at, []


def _check(path: Path, piece: arrow.RecordBatch, first: int) -> None:
    """Numbers are part of what a file says, so that nobody is given another message's content."""
    numbers = piece.column(NUMBER)
    if not numbers.equals(arrow.arange(first, first + len(numbers))):
        raise DiskError(f"{path} is damaged: message {first} isn't where its index says")


def _opened(path: Path, file: File | None = None) -> parquet.ParquetFile:
    try:
        size = path.stat().st_size
        if file is not None and size != file.size:
            raise DiskError(f"{path} was altered: {size} bytes, its index says {file.size}")
        return parquet.ParquetFile(path, page_checksum_verification=True)
    except FileNotFoundError:
        raise DiskError(f"{path} is missing; its archive has it in its index") from None
    except DiskError:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise DiskError(f"{path} is damaged: {error}") from None
