"""Small records kept twice, such as votes and the superblock: a new one replaces the old in place.

Both copies are written in one go, in two sectors that are each written whole or not at all, so a
crash leaves at least one of them readable, old or new, and rot must hit both to lose the record. A
lost vote is never taken for none (SAFETY 2.6: treat the disk as lost; FAULTS 39).

Sector: magic, checksum of all that follows it, sequence, length, record, zeros.
"""

import enum
import struct

import msgspec
from crc32c import crc32c

from samcast.limits import SECTOR_BYTES, TWIN_RECORD_BYTES_MAX

TWIN_BYTES = 2 * SECTOR_BYTES
_MAGIC = 0x31544353  # "SCT1"
_SEQUENCE_MAX = 2**63 - 1
_SEAL = struct.Struct("<II")  # magic, checksum
_HEADER = struct.Struct("<QI")  # sequence, length
_RECORD_FROM = _SEAL.size + _HEADER.size


class TwinState(enum.Enum):
    EMPTY = "empty"  # never written
    FOUND = "found"
    LOST = "lost"  # something was written, and neither copy can be trusted


class TwinScan(msgspec.Struct, frozen=True, gc=False):
    state: TwinState
    sequence: int = 0
    record: bytes = b""
    is_whole: bool = (
        True  # if not, write the record anew before acting on it: one copy stands alone
    )


def encode_twin(sequence: int, record: bytes) -> bytes:
    """Both copies; the sequence must be above that of every record written here before."""
    if not 0 < sequence <= _SEQUENCE_MAX:
        raise ValueError(f"a twin's sequence is from 1 to {_SEQUENCE_MAX}, not {sequence}")
    if len(record) > TWIN_RECORD_BYTES_MAX:
        raise ValueError(f"a twin holds {TWIN_RECORD_BYTES_MAX} bytes, not {len(record)}")
    rest = (_HEADER.pack(sequence, len(record)) + record).ljust(SECTOR_BYTES - _SEAL.size, b"\0")
    return (_SEAL.pack(_MAGIC, crc32c(rest)) + rest) * 2


def decode_twin(data: bytes) -> TwinScan:
    """What two sectors hold; missing bytes count as zeros."""
    if not any(data):
        return TwinScan(TwinState.EMPTY)
    copies = [_read(data[:SECTOR_BYTES]), _read(data[SECTOR_BYTES:TWIN_BYTES])]
    readable = [copy for copy in copies if copy]
    if not readable:
        return TwinScan(TwinState.LOST)
    sequence, record = max(readable, key=lambda copy: copy[0])
    if any(copy[0] == sequence and copy[1] != record for copy in readable):
        return TwinScan(TwinState.LOST)  # Two records under one sequence: neither can be believed.
    return TwinScan(TwinState.FOUND, sequence, record, is_whole=copies[0] == copies[1])


def _read(sector: bytes) -> tuple[int, bytes] | None:
    if len(sector) < SECTOR_BYTES:
        return None
    magic, check = _SEAL.unpack_from(sector)
    if magic != _MAGIC or check != crc32c(sector[_SEAL.size :]):
        return None
    sequence, length = _HEADER.unpack_from(sector, _SEAL.size)
    if not 0 < sequence <= _SEQUENCE_MAX or length > TWIN_RECORD_BYTES_MAX:
        return None
    return sequence, sector[_RECORD_FROM : _RECORD_FROM + length]
