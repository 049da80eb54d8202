"""What a member delivered, on its own disk: one record for each run, chained, so that nothing can
be taken out, put in or moved by accident without being noticed.

    a line of JSON                            whose record this is
    number, count, digest, chain              40 bytes for each run, in the order of delivery
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
from xxhash import xxh3_128_digest

from samcast.errors import ConfigError, DiskError
from samcast.wire.batch import Batch

FORMAT = 1
_RUN = struct.Struct("<QI4x16s")
CHAIN_BYTES = 8
RECORD_BYTES = _RUN.size + CHAIN_BYTES
LINE_BYTES_MAX = 4096


class About(msgspec.Struct, frozen=True):
    """Whose record it is."""

    format: int
    cluster: str
    group: str


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """One run, as it was delivered."""

    number: int
    count: int
    digest: bytes
    is_sound: bool  # the chain holds up to here


class Recorder:
    """Writes a record; one that is there is gone on with."""

    def __init__(self, path: Path, cluster: str, group: str) -> None:
        about = About(FORMAT, cluster, group)
        self._chain = bytes(CHAIN_BYTES)
        self.number_next = 0  # behind the last run that is in it; 0: there is none
        begin = 0
        if path.exists() and path.stat().st_size:
            found, begin = _about(path)
            if found != about:
                raise ConfigError(
                    f"{path} is the record of group {found.group!r} of {found.cluster}; name"
                    " another one"
                )
        self._file = path.open("r+b" if begin else "wb", buffering=64 * 1024)
        if not begin:
            self._file.write(msgspec.json.encode(about) + b"\n")
            return
        # A crash may have left a part of a record; what was behind it was never written.
        whole = (self._file.seek(0, os.SEEK_END) - begin) // RECORD_BYTES
        if whole:
            self._file.seek(begin + (whole - 1) * RECORD_BYTES)
            number, count, _ = _RUN.unpack(self._file.read(_RUN.size))
            self.number_next = number + count
            self._chain = self._file.read(CHAIN_BYTES)
        self._file.truncate(begin + whole * RECORD_BYTES)
        self._file.seek(0, os.SEEK_END)

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, number: int, batch: Batch) -> None:
        """A run is delivered."""
        run = _RUN.pack(number, batch.count, batch.digest)
        self._chain = _chained(self._chain, run)
        self._file.write(run + self._chain)

    def recorded(self, batches: Iterator[tuple[int, Batch]]) -> Iterator[tuple[int, Batch]]:
        """Runs as they are handed on; what was handed on is in the file when the next one is."""
        with self:
            for number, batch in batches:
                self.add(number, batch)
                yield number, batch
                self._file.flush()


def _chained(before: bytes, run: bytes) -> bytes:
    return xxh3_128_digest(before + run)[:CHAIN_BYTES]


def _about(path: Path) -> tuple[About, int]:
    with path.open("rb") as file:
        line = file.readline(LINE_BYTES_MAX)
    try:
        about = msgspec.json.decode(line, type=About)
    except msgspec.DecodeError as error:
        raise DiskError(f"{path} is no record of what was delivered: {error}") from None
    if about.format != FORMAT:
        raise DiskError(f"{path} has format {about.format}; this version reads {FORMAT}")
    return about, len(line)


def about_record(path: Path) -> About:
    """Whose record this is; a `DiskError` if it is none."""
    return _about(path)[0]


def read_record(path: Path) -> Iterator[Delivered]:
    """All runs of a record, in the order of delivery. The last one may be cut off by a crash."""
    _, begin = _about(path)
    chain = bytes(CHAIN_BYTES)
    with path.open("rb") as file:
        file.seek(begin)
        while len(data := file.read(RECORD_BYTES)) == RECORD_BYTES:
            run = data[: _RUN.size]
            chain = _chained(chain, run)
            is_sound = chain == data[_RUN.size :]
            chain = data[_RUN.size :]  # One finding for one place.
            number, count, digest = _RUN.unpack(run)
            yield Delivered(number, count, digest, is_sound)
