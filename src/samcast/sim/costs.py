"""What a run costs each role, and whether that grows with what is outstanding or with the senders.

Times differ from machine to machine and from minute to minute, so the figure that counts is a
ratio: the cost at the largest size over the cost at the smallest, both taken in turn in the same
rounds of one process. A step's cost is the processor's time that it takes, whoever else uses the
machine meanwhile. `docs/costs.md` has the tables; no test asserts a time.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from samcast.group.core import Core
from samcast.machine.ports import Effect, Event, Role
from samcast.sim.commit_loads import FollowerLoad, GapLoad, LeaderLoad
from samcast.sim.loads import (
    CoreLoad,
    DataLoad,
    EntryLoad,
    Flow,
    FullMemberLoad,
    Load,
    MemberLoad,
    OverheardLoad,
    Plain,
    SenderLoad,
    data_server,
    member,
)
from samcast.wire.order import AnyEntry

FILL_RUNS = 1000  # a step of these while a state is built
RUNS_PER_STEP = (1, 100)


class Watch:
    """Takes steps and adds up how long they take; `due_ms` is a part of every turn."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.events = 0  # that came in; the tick that begins a turn is not counted

    def step(self, role: Role, events: Sequence[Event]) -> list[Effect]:
        started = time.process_time()
        effects = role.step(events)
        role.due_ms()
        self.seconds += time.process_time() - started
        self.events += len(events) - 1
        return effects

    def fold(self, core: Core, entries: Sequence[AnyEntry]) -> None:
        started = time.process_time()
        for entry in entries:
            core.apply(entry)
        self.seconds += time.process_time() - started
        self.events += len(entries)


class Case(NamedTuple):
    """A role at work, and what there is 10 or 100,000 of."""

    role: str
    counted: str
    make: Callable[[int], Load]
    grows: bool = False  # nothing is ever finished: a state serves for one round


OUTSTANDING = (
    Case("sender", "unconfirmed", lambda n: SenderLoad()),
    Case("entry", "passed on", lambda n: EntryLoad(Flow(1, n))),
    Case("data server", "not numbered", lambda n: DataLoad(Flow(1, n))),
    Case("data server", "not yet durable", lambda n: DataLoad(Flow(1, n), is_disk_late=True)),
    Case("data server", "overheard", lambda n: OverheardLoad(Flow(1, n), data_server())),
    Case("leader", "reported once", lambda n: LeaderLoad(Flow(1, n))),
    Case("leader", "not committed", lambda n: LeaderLoad(Flow(1, n), is_commit_late=True)),
    Case("leader", "behind a gap", lambda n: GapLoad(Flow(1, n)), grows=True),
    Case("follower", "not committed", lambda n: FollowerLoad(Flow(1, n))),
    Case("member", "without a number", lambda n: MemberLoad(Flow(1, n))),
    Case("member", "without a payload", lambda n: MemberLoad(Flow(1, n), is_payload_late=True)),
    Case("member", "overheard", lambda n: OverheardLoad(Flow(1, n), member())),
    Case("member", "more than it keeps", lambda n: FullMemberLoad(Flow(1, n), n)),
    Case("core", "remembered by a row", lambda n: CoreLoad(Flow(1, n))),
)
SENDERS = (
    Case("entry", "senders", lambda n: EntryLoad(Flow(n, 0))),
    Case("data server", "senders", lambda n: DataLoad(Flow(n, 0))),
    Case("leader", "senders", lambda n: LeaderLoad(Flow(n, 0))),
    Case("follower", "senders", lambda n: FollowerLoad(Flow(n, 0))),
    Case("member", "senders", lambda n: MemberLoad(Flow(n, 0))),
    Case("core", "senders", lambda n: CoreLoad(Flow(n, 0))),
)


class Plan(NamedTuple):
    """How much is measured."""

    sizes: tuple[int, ...]
    rounds: int
    runs_by_ones: int  # of a round
    runs_by_hundreds: int


FULL = Plan((10, 1000, 100_000), 7, 200, 1000)
QUICK = Plan((10, 200), 1, 10, 100)


class Row(msgspec.Struct):
    """One case with steps of one size; lists go with the report's sizes."""

    role: str
    counted: str
    runs_per_step: int
    growth: float  # cost at the largest size / cost at the smallest
    us_per_run: list[float]
    us_per_event: list[float]


class Once(msgspec.Struct):
    """What is paid now and then for the whole state; lists go with the report's sizes."""

    what: str
    milliseconds: list[float]


class Report(msgspec.Struct):
    """Everything that was measured."""

    python: str
    is_collecting: bool
    rounds: int
    sizes: list[int]
    outstanding: list[Row]
    senders: list[Row]
    once: list[Once]


# Measuring.


def measure(plan: Plan, is_collecting: bool) -> Report:
    """All cases, one after the other."""
    return Report(
        python=".".join(map(str, sys.version_info[:3])),
        is_collecting=is_collecting,
        rounds=plan.rounds,
        sizes=list(plan.sizes),
        outstanding=[row for case in OUTSTANDING for row in rows_of(case, plan, fill)],
        senders=[row for case in SENDERS for row in rows_of(case, plan, pass_through)],
        once=measure_once(plan),
    )


def fill(load: Load, runs: int) -> None:
    """Leave so many runs outstanding, and replace half of them, as they are after a while."""
    for chunk in chunks(runs):
        load.add(Plain(), chunk)
    pass_through(load, runs // 2)


def pass_through(load: Load, runs: int) -> None:
    """Have so many runs, and so their senders, known and done."""
    for chunk in chunks(runs):
        load.add(Plain(), chunk)
        load.finish(Plain(), chunk)


def chunks(runs: int) -> Iterator[int]:
    for at in range(0, runs, FILL_RUNS):
        yield min(FILL_RUNS, runs - at)


def rows_of(case: Case, plan: Plan, prepare: Callable[[Load, int], None]) -> list[Row]:
    """Sizes take turns within a round, so that a slow minute slows them all."""

    def make(size: int) -> Load:
        load = case.make(size)
        prepare(load, size)
        return load

    loads = {size: make(size) for size in plan.sizes}
    gc.collect()
    watches: dict[tuple[int, int], list[tuple[Watch, int]]] = {}
    for at in range(plan.rounds):
        for size in plan.sizes[at % len(plan.sizes) :] + plan.sizes[: at % len(plan.sizes)]:
            if case.grows and size < plan.sizes[-1]:
                loads[size] = make(size)
            for runs_per_step in RUNS_PER_STEP:
                taken = take(loads[size], runs_per_step, plan)
                watches.setdefault((runs_per_step, size), []).append(taken)
    return [row_of(case, r, [watches[r, size] for size in plan.sizes]) for r in RUNS_PER_STEP]


def take(load: Load, runs_per_step: int, plan: Plan) -> tuple[Watch, int]:
    """One reading: how long so many runs take."""
    runs = plan.runs_by_ones if runs_per_step == 1 else plan.runs_by_hundreds
    watch = Watch()
    for _ in range(runs // runs_per_step):
        load.add(watch, runs_per_step)
        load.finish(watch, runs_per_step)
    return watch, runs


def row_of(case: Case, runs_per_step: int, readings: list[list[tuple[Watch, int]]]) -> Row:
    """The medians over the rounds; the growth is the median of each round's own ratio."""
    per_run = [[w.seconds / runs for w, runs in of_size] for of_size in readings]
    per_event = [[w.seconds / w.events for w, _ in of_size] for of_size in readings]
    ratios = [last / first for first, last in zip(per_run[0], per_run[-1], strict=True)]
    return Row(
        case.role,
        case.counted,
        runs_per_step,
        median(ratios),
        [median(costs) * 1e6 for costs in per_run],
        [median(costs) * 1e6 for costs in per_event],
    )


def measure_once(plan: Plan) -> list[Once]:
    """Snapshots and elections go over all rows; how long does that take?"""
    snapshot, copy = Once("core snapshot", []), Once("core copy of a new sequencer", [])
    collection = Once("full garbage collection of a core", [])
    for size in plan.sizes:
        load = CoreLoad(Flow(size, 0))
        pass_through(load, size)
        snapshot.milliseconds.append(milliseconds(load.core.encode, plan))
        copy.milliseconds.append(milliseconds(load.core.copy, plan))
        collection.milliseconds.append(milliseconds(gc.collect, plan))
    return [snapshot, copy, collection]


def milliseconds(call: Callable[[], object], plan: Plan) -> float:
    readings = []
    for _ in range(plan.rounds):
        started = time.process_time()
        call()
        readings.append(time.process_time() - started)
    return median(readings) * 1e3


# Saying it.


def tables(report: Report) -> str:
    """The report as Markdown, ratios first."""
    collector = "on" if report.is_collecting else "off while measuring"
    return "\n\n".join(
        [
            f"Python {report.python}, garbage collector {collector}, median of {report.rounds} "
            "rounds; microseconds.",
            "Outstanding runs, all of one sender:",
            table(report, report.outstanding),
            "Senders that have a row, one run after the other from the next of them:",
            table(report, report.senders),
            "Paid for the whole state, by senders that have a row; milliseconds:",
            table_of_once(report),
        ]
    )


def table(report: Report, rows: list[Row]) -> str:
    sizes = [f"{size:,}" for size in report.sizes]
    heads = ["role", "counted", "runs per step", f"{sizes[-1]} / {sizes[0]}"]
    heads += [f"per run, {size}" for size in sizes] + [f"per event, {size}" for size in sizes]
    lines = [heads, ["---", "---", *["---:"] * (len(heads) - 2)]]
    for row in rows:
        costs = [f"{cost:.1f}" for cost in (*row.us_per_run, *row.us_per_event)]
        growth = f"**{row.growth:.2f}**"
        lines.append([row.role, row.counted, str(row.runs_per_step), growth, *costs])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def table_of_once(report: Report) -> str:
    heads = ["what", *(f"{size:,}" for size in report.sizes)]
    lines = [heads, ["---", *["---:"] * len(report.sizes)]]
    lines += [[once.what, *(f"{ms:.2f}" for ms in once.milliseconds)] for once in report.once]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(argv: list[str] | None = None) -> int:
    """Measure and print; always 0, since no cost is right or wrong by itself."""
    parser = argparse.ArgumentParser(
        prog="costs", description="Measure what a run costs each role, and how that grows."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="small sizes: is everything there?")
    parser.add_argument("--collect", action="store_true", help="leave the garbage collector on")
    options = parser.parse_args(argv)
    if not options.collect:
        gc.disable()
    try:
        report = measure(QUICK if options.quick else FULL, options.collect)
    finally:
        gc.enable()
    print(msgspec.json.encode(report).decode() if options.json else tables(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
