"""One replica of PySyncObj, in this process: `python -m samcast.bench.peers.pysyncobj_replica
JOURNAL OWN OTHER OTHER` runs one until it is killed."""

import sys
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


def main() -> None:
    journal, own, *others = sys.argv[1:]
    Path(journal).parent.mkdir(parents=True, exist_ok=True)
    kept = replica(journal, own, others)
    while kept is not None:
        time.sleep(1)


if __name__ == "__main__":
    main()
