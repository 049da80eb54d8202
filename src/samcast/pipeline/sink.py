"""Writing from Spark: every task stages its rows, and one decision per batch makes all of them
messages, at once and once (PIP-03, PIP-09; SAFETY 2.12).

Spark makes a writer anew for each batch, in processes that share nothing; what ties them together
is in the properties of its tasks. The name under which a stream writes is its query's id, which
lies in the checkpoint folder; its transactions are numbered by Spark's batches. A batch that was
decided stays so, whoever repeats it; a query that another one has replaced is fenced.
"""

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from samcast.client.blocking import TABLES, Client
from samcast.client.staging import (
    ABORT_S,
    Parts,
    Staging,
    abort,
    decide_or_abort,
    fenced,
    forget,
    joined,
    open_run,
)
from samcast.errors import ConfigError, RefusedError, SamcastError
from samcast.pipeline.encoding import stages_of_group, stages_of_table
from samcast.pipeline.options import WriteOptions
from samcast.pipeline.reading import all_nodes, connected, turned
from samcast.pipeline.tables import check_table
from samcast.wire.order import CELL

if TYPE_CHECKING:
    import pyarrow

# What Spark tells its tasks about the stream that they are part of.
QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
RUN = "spark.jobGroup.id"


@dataclass
class Staged(WriterCommitMessage):
    """What a task has staged; nothing where there were no rows, or all was done before."""

    name: str = ""
    incarnation: int = 0
    tx: int = 0
    parts: Parts = ()
    seen: int = 0


@dataclass(frozen=True)
class Target:
    """Where rows go."""

    cluster: str  # all of its nodes
    group: int
    is_table: bool
    timeout: float
    index: int  # of the cell, when this was planned

    def stage(self, name: str, run: str, tx: int, rows: "Iterator[pyarrow.RecordBatch]") -> Staged:
        """In a task: put its rows on enough disks. A name that is the run's own is used once."""
        context = TaskContext.get()
        assert context is not None, "only in a task"
        stages = stages_of_table(rows) if self.is_table else stages_of_group(rows)
        first = next(stages, None)
        if first is None:
            return Staged()
        with connected(turned(self.cluster, context.partitionId())) as client:
            opened = open_run(client.engine, name, run, tx, self.index if name == run else None)
            if tx < opened.tx_next:
                return Staged(name)
            staging = Staging(client.engine, opened, tx, context.taskAttemptId())
            for columns, count in chain([first], stages):
                staging.stage(self.group, columns, count)
            return Staged(name, opened.incarnation, tx, staging.finish(), opened.seen)

    def decide(self, said: Sequence[WriterCommitMessage | None]) -> None:
        """In the driver: make them messages."""
        staged = [one for one in said if isinstance(one, Staged) and one.parts]
        if not staged:
            return
        one = staged[0]
        # Between two of its tasks another run had the name, or has even decided.
        is_passed = any(
            isinstance(other, Staged) and other.name and not other.parts for other in said
        )
        if is_passed or any(other.incarnation != one.incarnation for other in staged):
            raise fenced(one.name)
        parts = joined([other.parts for other in staged])
        with connected(self.cluster) as client:
            seen = min(other.seen for other in staged)
            decide_or_abort(
                client.engine, one.name, one.incarnation, one.tx, parts, self.timeout, seen
            )

    def abort(self, said: Sequence[WriterCommitMessage | None]) -> None:
        """In the driver: what is staged may go. Only to save room, so it may fail; but a decision
        that came first, unheard, is told beside the error that brought us here."""
        staged = [one for one in said if isinstance(one, Staged) and one.parts]
        if not staged:
            return
        one, is_decided = staged[0], False
        with contextlib.suppress(SamcastError), connected(self.cluster) as client:
            is_decided = not abort(client.engine, one.name, one.incarnation, one.tx, ABORT_S)
        if is_decided:
            raise RefusedError(
                f"transaction {one.tx} of {one.name!r} was decided before it could be aborted: all"
                " of its rows are there, so don't write them again"
            )


def target_of(options: WriteOptions) -> Target:
    """Ask the cluster, when a query is planned: a mistake is told then, and not by a worker."""
    with connected(options.cluster) as client:
        group = _group_id(client, options)
        is_table = bool(options.table)
        index = client.engine.call(client.engine.head(CELL), options.timeout)
        return Target(all_nodes(client), group, is_table, float(options.timeout), index)


def _group_id(client: Client, options: WriteOptions) -> int:
    if options.table:
        if options.create:
            client.table(options.table, wait=False)
        check_table(client, options.table)
        return client.group(TABLES + options.table).id
    if not options.create and options.group not in client.groups():
        there = ", ".join(sorted(client.groups())[:10]) or "none"
        raise ConfigError(
            f"there is no group {options.group!r} here; there are: {there}; or make it with"
            ' option("create", "true")'
        )
    return client.group(options.group).id


class StreamWriter(DataSourceStreamArrowWriter):
    """One batch of a stream."""

    def __init__(self, target: Target, name: str) -> None:
        self._target = target
        self._name = name

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Staged:
        """In a task."""
        name = self._name or f"spark-{_property(QUERY)}"
        tx = int(_property(BATCH)) + 1
        return self._target.stage(name, _property(RUN), tx, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """In the driver, when all tasks are done."""
        self._target.decide(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """The same, when one has failed, or `commit` has."""
        self._target.abort(messages)


class Writer(DataSourceArrowWriter):
    """`df.write`: one transaction. With a name it takes effect once for each batch under that name:
    of the stream that it is part of, by `foreachBatch`, or as the option says."""

    def __init__(self, target: Target, name: str, batch: int | None) -> None:
        self._target = target
        self._run = f"spark-{secrets.token_hex(16)}"
        self._name = name and f"{name}/{target.group}"
        self._batch = batch

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Staged:
        """In a task."""
        if not self._name:
            return self._target.stage(self._run, self._run, 1, iterator)
        if self._batch is not None:
            return self._target.stage(self._name, self._run, self._batch + 1, iterator)
        if not _said(BATCH):  # A guess would take one batch for another, and leave it out.
            raise ConfigError(
                f"which batch of {self._name!r} is this? Outside of a stream, and in threads of"
                ' your own, say it: option("batch", number), rising'
            )
        return self._target.stage(self._name, _property(RUN), int(_said(BATCH)) + 1, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver, when all tasks are done."""
        self._target.decide(messages)
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The same, when one has failed, or `commit` has."""
        try:
            self._target.abort(messages)
        finally:
            self._forget()

    def _forget(self) -> None:
        """A name that was made for this alone."""
        if self._name:
            return
        cluster = self._target.cluster
        with contextlib.suppress(SamcastError), connected(cluster) as client:
            forget(client.engine, self._run, ABORT_S)


def _said(name: str) -> str:
    context = TaskContext.get()
    return str(context.getLocalProperty(name) or "") if context is not None else ""


def _property(name: str) -> str:
    said = _said(name)
    if not said:
        raise ConfigError(f"Spark has not told its task {name!r}: is it 4.2 or newer?")
    return said
