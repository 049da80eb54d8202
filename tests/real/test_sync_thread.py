"""Writes and syncs: after a failure nothing counts as stored any more."""

import asyncio
import os
from pathlib import Path

import pytest

from samcast.runtime.sync_thread import INLINE_BYTES, SyncThread


@pytest.mark.parametrize("size", [10, 2 * INLINE_BYTES])  # by the loop itself, and by the thread
def test_nothing_is_stored_after_a_write_that_failed(tmp_path: Path, size: int) -> None:
    synced: list[int] = []
    failed: list[Exception] = []

    async def main() -> None:
        thread = SyncThread(asyncio.get_running_loop(), "test", synced.append, failed.append)
        good = os.open(tmp_path / "good", os.O_RDWR | os.O_CREAT)
        bad = os.open(tmp_path / "good", os.O_RDONLY)  # it can't be written
        thread.put(1, [(bad, 0, bytes(size))])
        await asyncio.sleep(0.2)
        thread.put(2, [(good, 0, bytes(size))])
        await asyncio.sleep(0.2)
        thread.close()
        os.close(good)
        os.close(bad)

    asyncio.run(main())
    assert len(failed) == 1
    assert synced == []
