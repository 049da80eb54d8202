"""Parts of a range as record batches, whatever way they come in."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from samcast.group.row_reader import RowsCame
from samcast.pipeline import reading
from samcast.wire.batch import encode_batch
from samcast.wire.rows import gather
from tests.group.build import GROUP, batch


def part(first: int, count: int) -> RowsCame:
    runs = [encode_batch(batch(number)) for number in range(first, first + count)]
    return RowsCame(gather(GROUP, first, runs), (), first + count)


@pytest.mark.req("PIP-01")
def test_no_row_comes_twice_though_parts_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connected(SimpleNamespace):
        def __enter__(self) -> "Connected":
            return self

        def __exit__(self, *error: object) -> None: ...

    def parts(*asked: Any) -> Iterator[RowsCame]:
        yield part(3, 4)
        yield part(5, 10)  # the late answer of another server
        yield part(15, 20)

    monkeypatch.setattr(reading, "connected", lambda cluster: Connected(engine=None))
    monkeypatch.setattr(reading, "open_group", lambda client, name: SimpleNamespace(id=GROUP))
    monkeypatch.setattr(reading, "read_range", parts)
    found = reading.record_batches("", "g", 4, 30, rows=3)
    numbers = [number for rows in found for number in rows.column("number").to_pylist()]
    assert numbers == list(range(4, 30))
