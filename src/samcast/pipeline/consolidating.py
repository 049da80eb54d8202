"""The job: fold with the engine that suits the size, hand in, and say who has come to the same."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samcast.client.blocking import Client, Group
from samcast.errors import ConfigError
from samcast.pipeline.bad_messages import BadMessages
from samcast.pipeline.consolidation import (
    Folded,
    Plan,
    Progress,
    Wanted,
    planned,
    states_by_server,
)
from samcast.pipeline.local_fold import fold_here, hand_in_folder
from samcast.pipeline.reading import connected, open_group, record_batches
from samcast.pipeline.running import counted_tasks, prepare, session

AUTO, LOCAL, SPARK = "auto", "local", "spark"
ENGINES = (AUTO, LOCAL, SPARK)
LOCAL_ROWS_MAX = 20_000_000  # of the checkpoint, and messages
LOCAL_BYTES_MAX = 4 * 1024**3  # of the same
LOOKED_AT = 500  # messages


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What came of it."""

    group: str
    number: int
    rows: int
    size: int
    hash: str
    engine: str
    messages: int  # that were folded in
    seconds: float
    bad: int
    bad_first: int
    handed_to: list[str]
    same: list[str]  # servers that hold this very state
    differ: list[str]  # servers that hold another one at this number
    advertised: bool

    @property
    def verdict(self) -> str:
        """In a sentence."""
        state = f"{self.group!r} at {self.number}: {self.rows} rows, {self.size} bytes"
        if self.differ:
            return f"{state}; {', '.join(self.differ)} came to another state"
        held = f"held by {', '.join(self.same)}" if self.same else "held by no server"
        return f"{state}, {held}{', advertised' if self.advertised else ''}"


def consolidate(
    cluster: str,
    name: str,
    wanted: Wanted,
    show: Progress,
    engine: str = AUTO,
    master: str = "local[*]",
    settings: Sequence[str] = (),
    spark: Any = None,
) -> Consolidated:
    """Fold a group's messages into a checkpoint; on Spark in a session that is there, if one is
    given."""
    if engine not in ENGINES:
        raise ConfigError(f"there is no engine {engine!r}; there are {', '.join(ENGINES)}")
    begun = time.monotonic()
    with connected(cluster) as client:
        group = open_group(client, name)
        with (
            planned(client, group, wanted) as plan,
            BadMessages(plan.about[2], wanted.stops_at_bad, wanted.aside) as bad,
        ):
            used = _engine(plan, engine)
            if used == LOCAL:
                folded = _here(client, plan, bad, show)
            else:
                from samcast.pipeline.spark_fold import fold_on_spark

                with _session(plan, master, settings, spark, show) as found:
                    folded = fold_on_spark(found, client, plan, bad, show)
        return _told(client, group, plan, folded, used, time.monotonic() - begun)


def _engine(plan: Plan, wanted: str) -> str:
    """By what one process would have to hold, at most; of messages the newest tell their size."""
    if wanted != AUTO:
        return wanted
    rows, size = (plan.base.rows, plan.base.size) if plan.base is not None else (0, 0)
    end = plan.number + 1
    looked_at = max(plan.first, end - LOOKED_AT)
    read = record_batches(plan.cluster, plan.name, looked_at, end, LOOKED_AT)
    looked_bytes = sum(batch.nbytes for batch in read)
    size += looked_bytes * (end - plan.first) // (end - looked_at)
    is_small = rows + end - plan.first <= LOCAL_ROWS_MAX and size <= LOCAL_BYTES_MAX
    return LOCAL if is_small else SPARK


def _here(client: Client, plan: Plan, bad: BadMessages, show: Progress) -> Folded:
    with tempfile.TemporaryDirectory(prefix="samcast-fold-") as folder:
        place = Path(folder) / "state"
        folded = fold_here(client, plan, place, bad, show)
        for server in plan.servers:
            hand_in_folder(client, plan, place, server, show)
        return folded


@contextmanager
def _session(
    plan: Plan, master: str, settings: Sequence[str], spark: Any, show: Progress
) -> Iterator[Any]:
    if spark is not None:
        yield spark
        return
    prepare(master, plan.cluster, settings)
    with session("samcast consolidate") as made, counted_tasks(made, show):
        yield made


def _told(
    client: Client, group: Group, plan: Plan, folded: Folded, engine: str, seconds: float
) -> Consolidated:
    found = folded.listed.checkpoint()
    names = client.engine.node_names
    held = {
        names.get(node, str(node)): [one for one in states.checkpoints if one.number == plan.number]
        for node, states in states_by_server(client, group).items()
    }
    return Consolidated(
        plan.name, plan.number, found.rows, found.size, folded.listed.hash, engine,
        plan.number + 1 - plan.first, seconds, folded.refused, folded.refused_first,
        [names.get(server, str(server)) for server in plan.servers],
        sorted(name for name, states in held.items() if found in states),
        sorted(name for name, states in held.items() if states and found not in states),
        found in group.checkpoints().checkpoints,
    )  # fmt: skip
