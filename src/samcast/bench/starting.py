"""How long a data server takes to know again what its disk holds."""

import asyncio
import resource
import subprocess
import sys
import time
from pathlib import Path

from samcast.bench.measuring import Measuring, Result
from samcast.disk.data_store import SEGMENT_BYTES, DataStore
from samcast.group.data_server import DataServer
from samcast.group.payloads import key_of
from samcast.group.settings import GroupSettings
from samcast.group.storage import StoreBatch, StoreMarks
from samcast.runtime.os_folder import OsFolder
from samcast.runtime.sync_thread import SyncThread
from samcast.wire.batch import columns_from_cells, make_batch
from samcast.wire.order import ROLE_DATA, Configuration, Server
from samcast.wire.records import MarkRecord, encode_record

FULL_BATCH_BYTES = 48 * 1024  # Those of busy senders are larger, and so fewer.
STORED_BYTES = 100 * 1000**3
SENDERS = 4
MARKED = 8  # batches whose numbers are written together
RECORD_BYTES = 320  # of the small batches here, with their share of marks
ONE = columns_from_cells([b"x"])


def start(m: Measuring) -> Result:
    """From a disk with as many batches as 100 GB of full ones to a data server that serves. They
    are small ones here, since a start reads none of them."""
    batches = m.scaled(STORED_BYTES // FULL_BATCH_BYTES)
    folder = m.cluster.folder / "starting"
    folder.mkdir(parents=True)
    asyncio.run(_fill(folder, batches))
    command = [sys.executable, "-m", "samcast.bench.starting", str(folder)]
    took, resident_mb = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.split()
    return {"batches": batches, "seconds": float(took), "resident_mb": int(resident_mb),
            "us_per_batch": round(float(took) / batches * 1e6, 2)}  # fmt: skip


async def _fill(folder: Path, batches: int) -> None:
    per_segment = SEGMENT_BYTES // FULL_BATCH_BYTES
    store = DataStore(OsFolder(folder), segment_bytes=per_segment * RECORD_BYTES)
    failed: list[Exception] = []
    loop = asyncio.get_running_loop()
    store.start(
        lambda on_synced: SyncThread(loop, "data", on_synced, failed.append),
        lambda token: None,
        loop.call_later,
    )
    marks: list[tuple[int, bytes, int, int, int, int]] = []
    for number in range(1, batches + 1):
        batch = make_batch(
            group=1, sender=bytes([1 + number % SENDERS]) * 16, incarnation=1,
            counter_first=1 + number // SENDERS, count=1, birth=0, confirmed_below=1, seen=0,
            sent_ms=0, configuration=1, columns=ONE,
        )  # fmt: skip
        store.store(StoreBatch(2 * number, key_of(batch), batch))
        marks.append((*key_of(batch), number))
        if len(marks) == MARKED:
            store.store(StoreMarks(2 * number + 1, encode_record(MarkRecord(tuple(marks), number))))
            marks.clear()
        if not number % 1000:
            await asyncio.sleep(0)
    store.close()
    if failed:
        raise failed[0]


async def _load(folder: Path) -> float:
    began = time.perf_counter()
    recovery = DataStore(OsFolder(folder)).recover(1)
    assert recovery is not None
    configuration = Configuration(1, (Server(1, 1, ROLE_DATA),), 1, 1, 1)
    server = DataServer(1, configuration, GroupSettings(), recovery)
    took = time.perf_counter() - began
    assert server.numbered.at(1, 1) is not None
    return took


if __name__ == "__main__":
    seconds = asyncio.run(_load(Path(sys.argv[1])))
    print(f"{seconds:.2f} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}")
