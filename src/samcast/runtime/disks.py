"""The disks of one node: opened, made good or begun anew, written to by a thread each."""

import os
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from samcast.disk.data_store import DataStore
from samcast.disk.folder import Device
from samcast.disk.layout import DATA, ORDER, make_parts, open_disk, settle_disk
from samcast.disk.order_store import OrderStore
from samcast.group.listing import DataRecovery
from samcast.group.storage import OrderRecovery
from samcast.runtime.cluster_file import NodePlan
from samcast.runtime.folder import format_folder, lock_folder, plain_errors, set_aside
from samcast.runtime.os_folder import OsFolder
from samcast.runtime.sync_thread import SyncThread
from samcast.wire.records import SuperRecord


class Say(Protocol):
    """A line of the log."""

    def __call__(self, event: str, text: str, **facts: str | int) -> None:
        """Say it."""
        ...


class Recovered(msgspec.Struct, frozen=True):
    """What a node begins with."""

    uuid: int
    order: OrderRecovery
    data: DataRecovery


class Disks:
    """All that a node keeps."""

    def __init__(self, node: NodePlan, say: Say, config: Path | None = None) -> None:
        self._node = node
        self._config = config
        self._say = say
        self._path: Path = node.folder
        self._folder = OsFolder(node.folder)
        self._lock = -1
        self._record: SuperRecord | None = None
        self.order = OrderStore(self._folder.folder(ORDER))
        self.data = DataStore(self._folder.folder(DATA))
        self.devices: dict[str, SyncThread] = {}

    # starting

    def open(self) -> Recovered:
        """What the disk gives back; one that counts as lost is set aside, and begun anew."""
        with self._in_use():
            return self._open()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Who can't start lets go of the disk, and says why."""
        try:
            with plain_errors(self._path, self._node.name, self._config):
                yield
        except BaseException:
            self.close()
            raise

    def _open(self) -> Recovered:
        self._path.mkdir(parents=True, exist_ok=True)
        self._lock = lock_folder(self._path)
        opened = open_disk(self._folder, self._node.id)
        if opened.record is None:
            return self._begin(opened.why)
        self._record = opened.record
        make_parts(self._folder)
        order = self.order.recover(opened.record.uuid, is_laid_out=opened.is_laid_out)
        if order is None:
            return self._begin("its vote can't be read")
        data = self.data.recover(opened.record.uuid)
        if data is None:
            return self._begin("the list of its payloads can't be read")
        return Recovered(opened.record.uuid, order, data)

    def _begin(self, why: str) -> Recovered:
        """A disk that nobody knows: the cluster must let it in before it counts for anything."""
        self.order.close()
        aside = set_aside(self._path)
        if aside is not None:
            self._say(
                "disk-set-aside",
                f"{self._path} can't be used as it is ({why}); it is kept in {aside}",
                kept_in=str(aside),
            )
        record = format_folder(self._path, self._node.id)
        self._say(
            "disk-new",
            f"{self._node.name} begins with a new disk and waits until the cluster lets it in (if"
            " the whole cluster is new: stop it, empty the folder, and `samcast format` it)",
        )
        return self._recover_new(record)

    def _recover_new(self, record: SuperRecord) -> Recovered:
        self.order = OrderStore(self._folder.folder(ORDER))
        self.data = DataStore(self._folder.folder(DATA))
        self._record = record
        order = self.order.recover(record.uuid, is_laid_out=True)
        data = self.data.recover(record.uuid)
        assert order is not None
        assert data is not None
        return Recovered(record.uuid, order, data)

    def start(
        self,
        loop: AbstractEventLoop,
        on_order: Callable[[int], None],
        on_data: Callable[[int], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        """From now on stores are carried out."""

        def begin(name: str) -> Callable[[Callable[[int], None]], Device]:
            def begin_device(on_synced: Callable[[int], None]) -> SyncThread:
                thread = SyncThread(loop, name, on_synced, on_failed)
                self.devices[name] = thread
                return thread

            return begin_device

        assert self._record is not None
        with self._in_use():
            self.order.start(begin(ORDER), on_order)
            self.data.start(begin(DATA), on_data, loop.call_later)
            settle_disk(self._folder, self._record)

    def close(self) -> None:
        """Finish what waits; once is enough."""
        if self._lock < 0:
            return
        try:
            self.order.close()
            self.data.close()
        finally:
            os.close(self._lock)
            self._lock = -1
