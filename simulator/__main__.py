"""``python -m simulator``: runs seeds, and prints which rules they exercised, or the trace of one seed."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from multiprocessing import Pool

import structlog

from simulator import coverage
from simulator.mutations import SEEDS_MAX, mutations
from simulator.plans.profiles.catalog import PROFILES
from simulator.run import Result, simulate

LINES_SHOWN = 60
SEEDS = 100


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m simulator",
        description=(
            "Runs whole clusters with faults, deterministic by seed, and checks the invariants of "
            "docs/replication.md. Prints which rules the runs exercised."
        ),
        epilog="Example: python -m simulator --seed 7 --lines 200",
    )
    parser.add_argument("--seed", type=int, help="run only this seed, and print its trace")
    parser.add_argument(
        "--seeds",
        type=int,
        default=0,
        help=f"how many seeds to run. Default: {SEEDS}; with --mutations at most {SEEDS_MAX} for each bug",
    )
    parser.add_argument("--first", type=int, default=1, help="the first seed. Default: 1")
    parser.add_argument("--processes", type=int, default=2, help="how many processes run seeds. Default: 2")
    parser.add_argument(
        "--mutations", action="store_true", help="plant bugs, one at a time; the checks must catch each"
    )
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="with --mutations: only bugs whose name contains TEXT"
    )
    parser.add_argument(
        "--lines",
        type=int,
        default=LINES_SHOWN,
        help=f"with --seed: how many of the last lines of the trace; 0: all. Default: {LINES_SHOWN}",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        default="",
        choices=["", *PROFILES],
        help=f"with --seed: vary the seed's plan. Profiles are: {', '.join(PROFILES)}",
    )
    asked = parser.parse_args()
    # The brokers' log lines are dropped: the trace has the events that matter.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if asked.seed is not None:
        result = simulate(asked.seed, asked.profile)
        _print_run(result, asked.lines)
        return 0 if result.ok else 1
    if asked.mutations:
        return _plant(asked.first, asked.seeds or SEEDS_MAX, asked.processes, asked.only)
    return _many(range(asked.first, asked.first + (asked.seeds or SEEDS)), asked.processes)


def _many(seeds: range, processes: int) -> int:
    marks: Counter[str] = Counter()
    begun = time.monotonic()
    failed: list[Result] = []
    events = acknowledged = elections = 0
    with Pool(processes) as pool:
        for result in pool.imap_unordered(simulate, seeds):
            marks.update(result.marks)
            events += result.events
            acknowledged += result.acknowledged
            elections += result.elections
            if not result.ok:
                failed.append(result)
                print(f"seed {result.seed}: {_first_line(result)[:300]}", flush=True)
    print(f"{_count(len(seeds), 'seed')}, {_count(events, 'event')}, "
          f"{_count(acknowledged, 'record')} acknowledged, {_count(elections, 'leader epoch')}, "
          f"{time.monotonic() - begun:.0f} s; {len(failed)} failed")  # fmt: skip
    print("How often each rule was exercised:")
    for line in coverage.table(marks):
        print(line)
    if failed:
        worst = min(failed, key=lambda result: result.events)
        print(f"To see the shortest run that failed: python -m simulator --seed {worst.seed}")
    unmet = coverage.unmet(marks) if len(seeds) >= coverage.SEEDS_ENOUGH else []
    if unmet:
        print(f"No run exercised these rules: {', '.join(unmet)}")
    return 1 if failed or unmet else 0


def _plant(first: int, seeds_max: int, processes: int, only: str) -> int:
    names = [one.name for one in mutations() if only in one.name]
    begun = time.monotonic()
    missed: list[str] = []
    with Pool(processes) as pool:
        for name, result in pool.imap(_catch, [(name, first, seeds_max) for name in names], chunksize=1):
            (planted,) = [one for one in mutations() if one.name == name]
            if result is None or result.broken:
                missed.append(name)
            caught = "NOT CAUGHT" if result is None else f"{result.seed:>4}  {_first_line(result)[:100]}"
            print(f"{planted.rule:20} {name:66} {planted.profile or '-':11} {caught}", flush=True)
    print(f"{_count(len(names), 'planted bug')}, {len(missed)} not caught within "
          f"{_count(seeds_max, 'seed')}, {time.monotonic() - begun:.0f} s")  # fmt: skip
    return 1 if missed else 0


def _first_line(result: Result) -> str:
    return result.violation.splitlines()[0]


def _catch(asked: tuple[str, int, int]) -> tuple[str, Result | None]:
    """Finds the first seed whose run fails with the planted bug; None: no seed does."""
    name, first, seeds_max = asked
    (planted,) = [one for one in mutations() if one.name == name]
    with planted.plant():
        for seed in range(first, first + seeds_max):
            result = simulate(seed, planted.profile)
            if not result.ok:
                return name, result
    return name, None


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _print_run(result: Result, lines: int) -> None:
    for line in result.lines[-lines:] if lines else result.lines:
        print(line)
    print(f"seed {result.seed}: {_count(result.events, 'event')}, {result.seconds:.1f} s of simulated time, "
          f"{_count(result.acknowledged, 'record')} acknowledged, "
          f"{_count(result.elections, 'leader epoch')}, fingerprint {result.fingerprint}")  # fmt: skip
    print(f"plan: {result.plan}")
    for mark, count in result.marks.items():
        print(f"  {count:>7}  {mark}")
    print(result.violation or "no violation")


if __name__ == "__main__":
    sys.exit(main())
