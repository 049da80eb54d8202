"""One replica of PySyncObj: `python -m samcast.bench.peers.pysyncobj_replica JOURNAL OWN OTHER
OTHER`. It does what lines of its standard input say, and answers each with one line of JSON:

    rate COUNT BYTES WINDOW    seconds until so many calls were applied, so many on their way
    one COUNT BYTES            how long each call took, in ms

A process of its own, since its ticking thread would take time from whoever else sends there.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

READY_S = 60.0


def replica(journal: str, own: str, others: list[str]) -> Any:
    """A replicated object whose only operation takes a message."""
    from pysyncobj import SyncObj, SyncObjConf, replicated

    class Log(SyncObj):  # type: ignore[misc, no-any-unimported, unused-ignore]
        def __init__(self) -> None:
            conf = SyncObjConf(
                journalFile=journal, autoTickPeriod=0.001, appendEntriesPeriod=0.005,
                appendEntriesBatchSizeBytes=1 << 20, logCompactionMinEntries=10**9,
                logCompactionMinTime=10**9,
            )  # fmt: skip
            super().__init__(own, others, conf)
            self.count = 0

        @replicated  # type: ignore[misc, untyped-decorator, unused-ignore]
        def take(self, body: bytes) -> int:
            self.count += 1
            return self.count

    return Log()


def rate(kept: Any, count: int, size: int, window: int) -> float:
    """Calls with a callback each."""
    room = threading.Semaphore(window)
    failed: list[object] = []

    def on_done(result: object, error: object) -> None:
        if error:
            failed.append(error)
        room.release()

    bodies = [(b"%08d" % i).ljust(size, b"x") for i in range(count)]
    began = time.perf_counter()
    for body in bodies:
        room.acquire()
        kept.take(body, callback=on_done)
    for _ in range(window):
        room.acquire()
    if failed:
        raise SystemExit(f"PySyncObj failed: {failed[0]}")
    return time.perf_counter() - began


def one(kept: Any, count: int, size: int) -> list[float]:
    """One call after the other."""
    waits: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        kept.take(b"x" * size, sync=True)
        waits.append((time.perf_counter() - began) * 1000)
    return waits


def main() -> None:
    journal, own, *others = sys.argv[1:]
    Path(journal).parent.mkdir(parents=True, exist_ok=True)
    kept = replica(journal, own, others)
    limit = time.monotonic() + READY_S
    while not kept.isReady():
        if time.monotonic() > limit:
            raise SystemExit(f"PySyncObj is not ready after {READY_S:.0f} s")
        time.sleep(0.05)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        what, *words = line.split()
        numbers = [int(word) for word in words]
        done = rate(kept, *numbers) if what == "rate" else one(kept, *numbers)
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
