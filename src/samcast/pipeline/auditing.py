"""An audit: does everybody have the same messages under the same numbers?

Members say what they delivered by the records they kept, commit servers which runs they have
ordered, data servers what they keep, run by run; Spark compares all of them. A run's digest covers
its sender, its place among the sender's messages and its content.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from samcast.client.blocking import Client, Group
from samcast.client.lease import Lease
from samcast.client.recording import about_record, read_record
from samcast.client.survey import survey
from samcast.errors import CollectedError, ConfigError
from samcast.group.surveying import Kind, Surveyed
from samcast.machine.quorum import servers_with
from samcast.pipeline.reading import all_nodes, connected, open_group, ranges
from samcast.pipeline.running import Count, counted_tasks, prepare, session
from samcast.wire.order import ROLE_COMMIT, ROLE_DATA

if TYPE_CHECKING:
    import pyarrow

RUNS = "who string, kind string, at long, number long, count long, digest binary, note string"
MEMBER, ORDER, CONTENT = "member", Kind.ORDER.value, Kind.CONTENT.value
GONE, LACKING, SILENT, BROKEN = "gone", "lacking", "silent", "broken"
TURN = 2**40  # places of one task come before those of the next
RUNS_AT_ONCE = 4096
RANGE_MIN = 2_000_000  # messages that are worth a task of their own
FINDINGS_MAX = 1000

TRIES = 5
LEASE_S = 3600.0

Row = tuple[str, str, int, int, int, bytes, str]


class Task(NamedTuple):
    """Whom to ask for what."""

    who: str
    kind: str
    cluster: str  # of a server: the group, and addresses
    place: str  # a record, or a server's id
    first: int
    end: int
    at: int  # where its runs stand among others of the same participant


@dataclass(frozen=True, slots=True)
class Finding:
    """Somebody who isn't like the others, or not in order."""

    what: str  # gap, duplicate, order, content, unknown, missing, silent, nothing, record
    who: str
    number: int
    last: int
    detail: str


@dataclass(frozen=True, slots=True)
class Participant:
    """Whoever was looked at, and how far it goes."""

    who: str
    kind: str
    first: int
    last: int
    runs: int
    messages: int
    gone: int  # messages that it needn't have any more


@dataclass(frozen=True, slots=True)
class Audit:
    """What came of it."""

    group: str
    first: int
    last: int
    participants: list[Participant]
    findings: list[Finding]  # by number, the first ones
    count: int  # of all findings

    @property
    def verdict(self) -> str:
        """In a sentence."""
        span = f"messages {self.first} to {self.last} of {self.group!r}"
        if not self.findings:
            return f"All agree: {span}, {len(self.participants)} participants."
        one = self.findings[0]
        more = f" ({self.count} findings)" if self.count > 1 else ""
        return f"They do not agree from number {one.number} on: {one.who}: {one.detail}{more}."


def audit_group(
    cluster: str,
    name: str,
    records: list[Path],
    master: str,
    show: Count,
    first: int = 0,
    end: int = 0,
    settings: Sequence[str] = (),
) -> Audit:
    """Compare everybody, from the oldest message that is there to the newest, or a part of it."""
    prepare(master, cluster, settings)
    with session("samcast audit") as spark, counted_tasks(spark, show):
        return audit_with(spark, cluster, name, records, first, end)


def audit_with(
    spark: Any, cluster: str, name: str, records: list[Path], first: int = 0, end: int = 0
) -> Audit:
    """The same in a session that is there."""
    with connected(cluster) as client:
        group = open_group(client, name)
        with _held(group, first).kept() as lease:  # so that nothing goes while we look at it
            head = group.head()
            span = (max(first, lease.number + 1), min(end or head + 1, head + 1))
            if span[0] >= span[1]:
                raise ConfigError(f"group {name!r} has no messages {first} to {end or head}")
            tasks = tasks_of(client, group, records, span)
            runs = runs_of(spark, tasks).persist()
            try:
                return compared(spark, runs, name, span, tasks)
            finally:
                runs.unpersist()


def runs_of(spark: Any, tasks: list[Task]) -> Any:
    """What everybody says, each task for itself."""
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(partial(_look, tasks), RUNS)


def _held(group: Group, first: int) -> Lease:
    for left in reversed(range(TRIES)):
        number = max(first, group.oldest()) - 1
        try:
            return group.lease(f"audit-{secrets.token_hex(8)}", number, ttl=LEASE_S)
        except CollectedError:  # Some of it went in between.
            if not left:
                raise
    raise AssertionError


def tasks_of(
    client: Client, group: Group, records: list[Path], span: tuple[int, int]
) -> list[Task]:
    """One for each record, and for each server and range."""
    cluster = all_nodes(client)
    tasks: list[Task] = []
    for path in records:
        about = about_record(path)
        if (about.group, about.cluster) != (group.name, client.engine.identity):
            raise ConfigError(f"{path} is the record of group {about.group!r} of {about.cluster}")
        tasks.append(Task(path.name, MEMBER, "", str(path.resolve()), *span, 0))
    if len({task[0] for task in tasks}) != len(tasks):
        raise ConfigError("two records have one name; name them after their members")
    names = client.engine.node_names
    parts = ranges(*span, max(1, min(8, (span[1] - span[0]) // RANGE_MIN)))
    for role, kind in ((ROLE_COMMIT, ORDER), (ROLE_DATA, CONTENT)):
        for server in servers_with(client.engine.configuration, role):
            who = f"{names.get(server.node, server.node)} ({kind})"
            tasks += [
                Task(who, kind, f"{group.name}\n{cluster}", str(server.node), a, b, turn * TURN)
                for turn, (a, b) in enumerate(parts)
            ]
    return tasks


# in Spark's workers


def _look(
    tasks: list[Task], batches: "Iterator[pyarrow.RecordBatch]"
) -> "Iterator[pyarrow.RecordBatch]":
    import pyarrow as arrow

    for batch in batches:
        for at in batch.column(0).to_pylist():
            task = tasks[at]
            found = _of_member(task) if task.kind == MEMBER else _of_server(task)
            for rows in _in_pieces(found):
                names = [name.split()[0] for name in RUNS.split(", ")]
                columns = [arrow.array(column) for column in zip(*rows, strict=True)]
                columns[5] = columns[5].cast(arrow.binary())
                yield arrow.RecordBatch.from_arrays(columns, names=names)


def _in_pieces(rows: Iterator[Row]) -> Iterator[list[Row]]:
    piece: list[Row] = []
    for row in rows:
        piece.append(row)
        if len(piece) >= RUNS_AT_ONCE:
            yield piece
            piece = []
    if piece:
        yield piece


def _of_member(task: Task) -> Iterator[Row]:
    who = (task.who, MEMBER)
    for at, run in enumerate(read_record(Path(task.place))):
        if not run.is_sound:
            yield (*who, at, run.number, run.count, b"", BROKEN)
        if run.number < task.end and run.number + run.count > task.first:
            yield (*who, at, run.number, run.count, run.digest, "")


def _of_server(task: Task) -> Iterator[Row]:
    name, cluster = task.cluster.split("\n")
    kind = Kind(task.kind)
    with connected(cluster) as client:
        group = open_group(client, name)
        found = survey(client.engine, int(task.place), kind, group.id, task.first, task.end)
        yield from _rows_of(found, (task.who, task.kind), task.at)


def _rows_of(found: Iterator[Surveyed], who: tuple[str, str], at: int) -> Iterator[Row]:
    for part in found:
        for run in part.runs:
            yield (*who, at, run.number, run.count, run.digest, "")
            at += 1
        notes = ((part.gone, GONE), (part.lacking, LACKING), (part.silent, SILENT))
        for stretch, note in notes:
            if stretch is not None:
                yield (*who, at, stretch[0], stretch[1] - stretch[0], b"", note)
                at += 1


# comparing

IN_PLACE = """
select *, max(number + count) over (partition by who order by number, at
       rows between unbounded preceding and 1 preceding) as reached,
       lag(number) over (partition by who order by at) as before,
       row_number() over (partition by who, number order by at) as turn
from (select distinct who, kind, at, number, count, digest from runs where note = '')
"""
VOTES = """
select number, count, digest, votes,
       row_number() over (partition by number order by servers desc, votes desc, digest) as rank
from (select number, count, digest, count(distinct who) as votes,
             count(distinct case when kind != 'member' then who end) as servers
      from placed where turn = 1 group by number, count, digest)
"""
FINDINGS = """
select 'gap' as what, who, reached as number, number - 1 as last,
       concat('messages ', reached, ' to ', number - 1, ' were not delivered') as detail
from placed where kind = 'member' and number > reached
union all
select 'duplicate', who, number, number + count - 1,
       concat('messages ', number, ' to ', number + count - 1, ' were delivered twice')
from placed where kind = 'member' and number < reached
union all
select 'order', who, number, number + count - 1,
       concat('message ', number, ' was delivered after ', before)
from placed where kind = 'member' and turn = 1 and number < before
union all
select 'content', p.who, p.number, p.number + p.count - 1,
       concat('messages ', p.number, ' to ', p.number + p.count - 1, ' are not those that ',
              v.votes, ' others have')
from placed p join votes v on p.number = v.number and v.rank = 1
where p.turn = 1 and (p.digest != v.digest or p.count != v.count)
union all
select 'unknown', p.who, p.number, p.number + p.count - 1,
       concat('messages ', p.number, ' to ', p.number + p.count - 1, ' are known to no server')
from placed p left anti join (select number from placed where kind != 'member') s
     on p.number = s.number
where p.kind = 'member'
union all
select 'missing', who, number, number + count - 1,
       concat('messages ', number, ' to ', number + count - 1,
              ' are not there, or what is there is damaged')
from runs where note = 'lacking'
union all
select 'missing', who, number, number + count - 1,
       concat('messages ', number, ' to ', number + count - 1,
              ' are not kept, though the group still has them')
from runs where note = 'gone' and kind = 'content'
union all
select 'silent', who, number, number + count - 1,
       concat('nothing was heard about messages ', number, ' to ', number + count - 1)
from runs where note = 'silent'
union all
select 'record', who, number, number + count - 1,
       concat('its record was altered at message ', number)
from runs where note = 'broken'
"""
PARTICIPANTS = """
select who, kind, min(case when note = '' then number end) as first,
       max(case when note = '' then number + count - 1 end) as last,
       count(case when note = '' then 1 end) as runs,
       sum(case when note = '' then count else 0 end) as messages,
       sum(case when note = 'gone' then count else 0 end) as gone
from runs group by who, kind order by kind, who
"""


def compared(spark: Any, runs: Any, name: str, span: tuple[int, int], tasks: list[Task]) -> Audit:
    runs.createOrReplaceTempView("runs")
    placed = spark.sql(IN_PLACE).persist()  # Nearly every question is about it.
    placed.createOrReplaceTempView("placed")
    spark.sql(VOTES).createOrReplaceTempView("votes")
    found = spark.sql(FINDINGS).persist()
    first = found.orderBy("number", "who", "what").limit(FINDINGS_MAX).collect()
    findings = [Finding(r.what, r.who, r.number, r.last, r.detail) for r in first]
    count = found.count()
    found.unpersist()
    placed.unpersist()
    there = {
        r.who: Participant(r.who, r.kind, r.first or 0, r.last or 0, r.runs, r.messages, r.gone)
        for r in spark.sql(PARTICIPANTS).collect()
    }
    for who, kind in dict.fromkeys(task[:2] for task in tasks):
        if who not in there:  # Who says nothing at all hasn't agreed to anything.
            there[who] = Participant(who, kind, 0, 0, 0, 0, 0)
            nothing = Finding("nothing", who, span[0], span[1] - 1, "it has nothing of this range")
            findings.insert(0, nothing)
            count += 1
    participants = sorted(there.values(), key=lambda one: (one.kind, one.who))
    return Audit(name, span[0], span[1] - 1, participants, findings, count)
