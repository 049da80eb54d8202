"""A checkpoint as files, from servers that have it, block by block: no more of it is ever in
memory, so it may be larger than that."""

import os
import shutil
import threading
from pathlib import Path

from samcast.checkpoint.blocks import (
    Block,
    BlockList,
    check_checkpoint,
    read_columns,
    take_place,
)
from samcast.checkpoint.places import LIST, block_name
from samcast.client.engine import Engine
from samcast.client.joining import Fetch
from samcast.wire.order import Checkpoint


def copy_checkpoint(
    engine: Engine, group: int, checkpoint: Checkpoint, place: Path, places: threading.Lock
) -> BlockList:
    """Have it in a folder, checked as it comes, and once more when it is whole. Whoever gives a
    state its place holds `places`."""
    beside = place.with_name(f".{place.name}.copying")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    with Fetch(engine, group, checkpoint) as fetch:
        listed = fetch.list()
        for block, data in fetch.blocks(range(1, len(listed.blocks) + 1), _sound):
            _write(beside / block_name(block), data)
        _write(beside / LIST, fetch.listed)
    check_checkpoint(beside)
    with places:
        take_place(beside, place)
    return listed


def _sound(data: bytes, block: Block) -> bytes:
    read_columns(data, block)
    return data


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
