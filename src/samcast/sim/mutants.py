"""`./dev mutants`: puts every unsafe rule back, one at a time, and shows that a promise checker
finds it.

A mutant changes the product's classes from outside, in a process of its own. A seed that finds it
is then played without it: only one that passes so is a catch. One that survives is a hole in the
simulator. One that ends in any other error is broken: it must follow the product.
"""

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from multiprocessing.pool import ThreadPool
from typing import TextIO

import msgspec

from samcast.sim.checkers import Violation
from samcast.sim.mutant import Mutant
from samcast.sim.mutant_rules import MUTANTS
from samcast.sim.runner import Result, Run, run_seed
from samcast.sim.trace import Trace


class Verdict(msgspec.Struct):
    """What became of one mutant."""

    name: str
    rule: str
    caught: bool
    checker: str = ""
    detail: str = ""
    seed: int = -1
    seeds: int = 0
    skipped: list[int] = []  # seeds that break a promise even without the mutant
    error: str = ""  # what it raised that isn't the breach of a promise: it is broken
    wall_s: float = 0.0


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: every mutant was caught, and none is broken."""
    parser = argparse.ArgumentParser(
        prog="mutants", description="Check the simulator: each unsafe rule must be found."
    )
    parser.add_argument("names", nargs="*", help="mutants to try (default: all)")
    parser.add_argument("--seeds", type=int, default=1000, help="give up after so many")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--list", action="store_true", help="only list them")
    options = parser.parse_args(argv)
    known = {mutant.name: mutant for mutant in MUTANTS}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no such mutant: {', '.join(unknown)}; --list shows them")
    chosen = [known[name] for name in options.names] or list(MUTANTS)
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name:32} {mutant.rule}")
        return 0
    return _try_all(chosen, options)


def _try_all(chosen: list[Mutant], options: argparse.Namespace) -> int:
    verdicts: list[Verdict] = []
    # Fresh processes: what a mutant changes must not leak, neither into the next nor into the
    # run without any.
    context = multiprocessing.get_context("fork")
    with context.Pool(options.jobs, maxtasksperchild=1) as pool, ThreadPool(options.jobs) as desks:

        def judge(mutant: Mutant) -> Verdict:
            started = time.perf_counter()
            verdict = Verdict(mutant.name, mutant.rule, caught=False)
            while not (verdict.caught or verdict.error) and verdict.seeds < options.seeds:
                first, left = options.start + verdict.seeds, options.seeds - verdict.seeds
                played, found, verdict.error = pool.apply(_play, (mutant.name, first, left))
                verdict.seeds += played
                if found is None:
                    continue
                if pool.apply(_is_broken, (found.seed,)):
                    verdict.skipped.append(found.seed)
                    continue
                verdict.caught = True
                verdict.checker, verdict.detail = found.promise, found.detail
                verdict.seed = found.seed
            verdict.wall_s = round(time.perf_counter() - started, 1)
            return verdict

        for verdict in desks.imap_unordered(judge, chosen):
            verdicts.append(verdict)
            _print(verdict, sys.stderr if options.json else sys.stdout)
    broken = [v.name for v in verdicts if v.error]
    survived = [v.name for v in verdicts if not v.caught and not v.error]
    if options.json:
        report = {"mutants": verdicts, "survived": len(survived), "broken": broken}
        print(msgspec.json.encode(report).decode())
    for what, names in (("broken", broken), ("survived", survived)):
        if names:
            print(f"{what}: {', '.join(sorted(names))}", file=sys.stderr)
    return 1 if broken or survived else 0


def _print(verdict: Verdict, file: TextIO) -> None:
    if verdict.caught:
        cost = f"{verdict.seeds} seeds, {verdict.wall_s:.0f} s"
        text = f"caught by {verdict.checker} at seed {verdict.seed} ({cost})"
    elif verdict.error:
        text = f"BROKEN: {verdict.error}"
    else:
        text = f"SURVIVED {verdict.seeds} seeds"
    print(f"{verdict.name:32} {text}", file=file, flush=True)


def _play(name: str, first: int, most: int) -> tuple[int, Result | None, str]:
    """Play seeds with a mutant until one breaks a promise; how many, that one, and any error."""
    played = 0
    try:
        next(m for m in MUTANTS if m.name == name).apply()
        for played in range(1, most + 1):
            result = run_seed(first + played - 1, None, is_mutated=True)
            if result.promise:
                return played, result, ""
    except Exception as error:  # noqa: BLE001 - whatever it is, the others must be tried
        return played, None, _where(error, first + played - 1)
    return most, None, ""


def _where(error: Exception, seed: int) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} (seed {seed}, {at.name} line {at.lineno})"


def play_briefly(name: str, seed: int, length_us: int = 600_000) -> str:
    """Only try whether a mutant still fits the product: what it raises, "" for nothing and for the
    breach of a promise. In a process of its own, for it stays changed."""
    try:
        next(m for m in MUTANTS if m.name == name).apply()
        Run(seed, Trace(None), is_mutated=True).play_briefly(length_us)
    except Violation:
        pass
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return _where(error, seed)
    return ""


def _is_broken(seed: int) -> bool:
    return bool(run_seed(seed).promise)


if __name__ == "__main__":
    sys.exit(main())
