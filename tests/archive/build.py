"""Archives for tests, as Spark would have left them."""

from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet

from samcast.archive.index import Archive
from samcast.archive.writing import begin_archive, new_about

CLUSTER = "demo/1"
GROUP = "orders"


def made(folder: Path, first: int = 1) -> Archive:
    folder.mkdir(exist_ok=True)
    return begin_archive(folder, new_about(CLUSTER, GROUP, first))


def staged(folder: Path, first: int, end: int, files: int = 2, name: str = "batch") -> Path:
    """As Spark leaves it: some files, one of them empty, and marks of its own."""
    place = folder / "staging" / name
    place.mkdir(parents=True)
    marks = [first + (end - first) * at // files for at in range(files + 1)]
    for at in range(files):
        numbers = range(marks[at], marks[at + 1])
        rows = {
            "number": arrow.array(numbers, arrow.int64()),
            "body": [b"body %d" % n for n in numbers],
            "key": [b"k"] * len(numbers),
            "headers": [b""] * len(numbers),
        }
        parquet.write_table(arrow.table(rows), place / f"{at}.parquet", row_group_size=7)
    empty = arrow.table({"number": arrow.array([], arrow.int64())})
    parquet.write_table(empty, place / "empty.parquet")
    (place / "_SUCCESS").touch()
    return place
