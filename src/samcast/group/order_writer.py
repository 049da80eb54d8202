"""What a commit server writes into its order journal, and in which order records may follow each
other.

An install takes effect, on replay, only at the record that says so; that record goes in front of
whatever is written next. So does the cancellation of one that was given up.
"""

from collections.abc import Sequence

from samcast.group.installing import Install
from samcast.group.order_log import OrderLog
from samcast.group.settings import GroupSettings
from samcast.group.storage import Replayed
from samcast.wire.order import Epoch
from samcast.wire.records import (
    AnyRecord,
    BaseRecord,
    CancelRecord,
    EntriesRecord,
    InstalledRecord,
    InstallRecord,
    UnknownRecord,
    encode_record,
)

Encoded = tuple[bytes, ...]


class OrderWriter:
    """Makes the records of one journal."""

    def __init__(self, settings: GroupSettings, replayed: Replayed, log_epoch: Epoch) -> None:
        self._settings = settings
        self._prefix: list[AnyRecord] = []
        if replayed.is_installed_unsaid:
            self._prefix = [InstalledRecord(log_epoch)]
        elif replayed.has_open_install:
            self._prefix = [CancelRecord()]
        self.length = replayed.log.length  # of the log, as far as it was handed to the disk

    def accepted(self, log: OrderLog) -> Encoded:
        """What was appended to the log since the last time."""
        first, self.length = self.length + 1, log.length
        return self._encode([*self._take_prefix(), *self._entries(log, first)])

    def install(self, install: Install) -> Encoded:
        """A new end of the log, which doesn't take effect yet."""
        return self._encode([*self._take_prefix(), *self._install(install)])

    def install_over_unknown(
        self, install: Install, log: OrderLog, log_epoch: Epoch, unknown_from: int
    ) -> Encoded:
        """The same for a fresh journal: until it takes effect, what rot took stays unknown."""
        self._prefix = []
        kept = [*self._base(log, log.base, log_epoch), UnknownRecord(unknown_from)]
        return self._encode([*kept, *self._install(install)])

    def fresh(self, log: OrderLog, base: int, log_epoch: Epoch) -> Encoded:
        """A fresh journal that begins above `base`."""
        self._prefix = []
        self.length = log.length
        return self._encode(self._base(log, base, log_epoch))

    def installed(self, install: Install) -> None:
        """It took effect: say so before anything else is written."""
        self.length = install.log.length
        self._prefix = [InstalledRecord(install.epoch)]

    def cancelled(self) -> None:
        """It must never take effect."""
        self._prefix = [CancelRecord()]

    def _take_prefix(self) -> list[AnyRecord]:
        prefix, self._prefix = self._prefix, []
        return prefix

    def _install(self, install: Install) -> list[AnyRecord]:
        record = InstallRecord(install.epoch, install.base, install.base_hash)
        return [record, *self._entries(install.log, install.base + 1)]

    def _base(self, log: OrderLog, base: int, log_epoch: Epoch) -> list[AnyRecord]:
        base_hash = log.hash_at(base)
        assert base_hash is not None
        return [BaseRecord(base, base_hash, log_epoch), *self._entries(log, base + 1)]

    def _entries(self, log: OrderLog, first: int) -> list[AnyRecord]:
        """The entries from an index on, in records small enough for any journal segment."""
        most, bytes_max = self._settings.entries_per_record_max, self._settings.order_bytes_max
        records: list[AnyRecord] = []
        while first <= log.length:
            entries = tuple(log.slice(first, most, bytes_max))
            records.append(EntriesRecord(first, entries))
            first += len(entries)
        return records

    @staticmethod
    def _encode(records: Sequence[AnyRecord]) -> Encoded:
        return tuple(encode_record(record) for record in records)
