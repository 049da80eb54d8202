"""The promise that what is written stays small enough for where it is written (R)."""

from collections.abc import Sequence

from samcast.limits import ORDER_PIECE_BYTES_MAX
from samcast.sim.checkers import Violation
from samcast.wire.records import EntriesRecord, decode_record

HEADER_BYTES = 16  # of a record, beside its entries


class Records:
    """R: a record of the order is as small as its journal wants it, unless one entry is larger. A
    journal refuses what doesn't fit, and the server dies of that at each start."""

    def __init__(self) -> None:
        self.bytes_max = ORDER_PIECE_BYTES_MAX

    def on_store(self, who: str, records: Sequence[bytes]) -> None:
        """Something is on its way to the order journal."""
        for encoded in records:
            if len(encoded) <= self.bytes_max + HEADER_BYTES:
                continue
            record = decode_record(encoded)
            if type(record) is EntriesRecord and len(record.entries) > 1:
                count, most = len(record.entries), self.bytes_max
                raise Violation("R", f"{who}: {count} entries, {len(encoded)} bytes, not {most}")
