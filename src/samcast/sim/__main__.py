"""`./dev sim`: plays seeds and says what was found. `python -m samcast.sim --help` lists the
options.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from samcast.sim.coverage import Coverage
from samcast.sim.runner import Result, run_many, run_seed


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: no promise was broken. 1: one was. 2: the arguments make no sense."""
    options = _parse(argv)
    if options.seed is not None:
        return _play_one(options)
    return _play_many(options)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sim", description="Play simulated clusters with faults and judge every promise."
    )
    parser.add_argument("--seeds", type=int, default=50, help="how many to play (default 50)")
    parser.add_argument("--start", type=int, default=0, help="the first one (default 0)")
    parser.add_argument("--seed", type=int, help="play just this one, in this process")
    parser.add_argument("--trace", type=Path, help="with --seed: write its events as JSON lines")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args(argv)
    if options.trace and options.seed is None:
        parser.error("--trace needs --seed: a trace is of one run")
    if options.seeds < 1 or options.jobs < 1 or options.start < 0:
        parser.error("--seeds and --jobs start at 1, --start at 0")
    return options


def _play_one(options: argparse.Namespace) -> int:
    if options.trace:
        with options.trace.open("w") as file:
            result = run_seed(options.seed, file)
    else:
        result = run_seed(options.seed)
    if options.json:
        print(msgspec.json.encode(result).decode())
    else:
        print(f"seed {result.seed}: unseed {result.unseed}, {result.events} events,")
        print(f"  {result.simulated_s:.1f} simulated s, {result.runs} runs committed,")
        print(f"  {result.elections} elections, faults {sum(result.faults.values())}")
        _explain(result)
    return 1 if result.promise else 0


def _explain(result: Result) -> None:
    if result.promise:
        print(f"VIOLATION of {result.promise}: {result.detail}")
        print("the last events:")
        for line in result.last[-15:]:
            print("  " + line)
        print(f"repeat exactly with: ./dev sim --seed {result.seed} --trace trace.jsonl")


def _play_many(options: argparse.Namespace) -> int:
    started = time.perf_counter()
    results: list[Result] = []

    def note(result: Result) -> None:
        results.append(result)
        if not options.json:
            _explain(result)
            if sys.stderr.isatty():
                broken = sum(1 for r in results if r.promise)
                print(f"\r{len(results)}/{options.seeds} seeds, {broken} broken", end="",
                      file=sys.stderr)  # fmt: skip

    run_many(list(range(options.start, options.start + options.seeds)), options.jobs, note)
    report = _report(results, time.perf_counter() - started)
    if options.json:
        print(msgspec.json.encode(report).decode())
    else:
        _print(report)
    return 1 if report["violations"] else 0


def _report(results: list[Result], wall_s: float) -> dict[str, Any]:
    coverage = Coverage()
    for result in results:
        coverage.add(result)
    events = sum(r.events for r in results)
    return {
        "seeds": len(results),
        "violations": sum(1 for r in results if r.promise),
        "broken": [
            {"seed": r.seed, "promise": r.promise, "detail": r.detail, "last": r.last[-10:],
             "repeat": f"./dev sim --seed {r.seed}"}
            for r in results if r.promise
        ],
        "events": events,
        "events_per_s": round(events / wall_s),
        "wall_s": round(wall_s, 1),
        "simulated_s": round(sum(r.simulated_s for r in results), 1),
        "runs": sum(r.runs for r in results),
        "runs_min": min(r.runs for r in results),
        "committed": sum(r.committed for r in results),
        "elections": sum(r.elections for r in results),
        "elections_median": statistics.median(r.elections for r in results),
        "elections_with_suffix_median": statistics.median(
            r.elections_with_suffix for r in results
        ),
        "senders_min": min(r.senders for r in results),
        "servers": [min(r.servers for r in results), max(r.servers for r in results)],
        "faults_min": min(sum(r.faults.values()) for r in results),
        "faults": coverage.faults,
        "states": coverage.states,
        "unexplained": coverage.unexplained(),
        "warnings": coverage.warnings,
    }  # fmt: skip


def _print(report: dict[str, Any]) -> None:
    print(
        f"{report['seeds']} seeds in {report['wall_s']} s: {report['violations']} violations, "
        f"{report['events']} events ({report['events_per_s']}/s), {report['simulated_s']} simulated"
        f" s, {report['runs']} runs, {report['elections']} elections"
    )
    print("faults by kind and by the state they met:")
    for kind, states in sorted(report["states"].items()):
        cells = ", ".join(f"{state} {count}" for state, count in sorted(states.items()))
        print(f"  {kind:16} {report['faults'][kind]:6}  {cells}")
    for cell in report["unexplained"]:
        print(f"  never met: {cell}")


if __name__ == "__main__":
    sys.exit(main())
