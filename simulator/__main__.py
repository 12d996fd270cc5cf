"""``python -m simulator``: runs seeds, says what was exercised, and tells the story of one that failed."""

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
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one and tell its story")
    parser.add_argument(
        "--seeds",
        type=int,
        default=0,
        help=f"run so many, from --first on; {SEEDS} and, with --mutations, {SEEDS_MAX}",
    )
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--mutations", action="store_true", help="plant bugs; each has to be caught")
    parser.add_argument("--only", default="", help="with --mutations: those whose name holds this")
    parser.add_argument("--lines", type=int, default=LINES_SHOWN, help="how much of the story; 0: all of it")
    parser.add_argument("--profile", default="", choices=["", *PROFILES], help="with --seed: of the swarm")
    asked = parser.parse_args()
    # What brokers log of recoveries is part of the story where it matters.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if asked.seed is not None:
        result = simulate(asked.seed, asked.profile)
        _tell(result, asked.lines)
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
    print(f"{len(seeds)} seeds, {events:,} events, {acknowledged:,} batches acknowledged, {elections:,} "
          f"leaderships, {time.monotonic() - begun:.0f} s; {len(failed)} failed")  # fmt: skip
    print("rules and how often they were exercised:")
    for line in coverage.table(marks):
        print(line)
    if failed:
        worst = min(failed, key=lambda result: result.events)
        print(f"the shortest: python -m simulator --seed {worst.seed}")
    unmet = coverage.unmet(marks) if len(seeds) >= coverage.SEEDS_ENOUGH else []
    if unmet:
        print(f"never exercised: {', '.join(unmet)}")
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
    print(f"{len(names)} planted bugs, {len(missed)} not caught within {seeds_max} seeds, "
          f"{time.monotonic() - begun:.0f} s")  # fmt: skip
    return 1 if missed else 0


def _first_line(result: Result) -> str:
    return result.violation.splitlines()[0]


def _catch(asked: tuple[str, int, int]) -> tuple[str, Result | None]:
    """The first seed whose run breaks with the bug planted."""
    name, first, seeds_max = asked
    (planted,) = [one for one in mutations() if one.name == name]
    with planted.plant():
        for seed in range(first, first + seeds_max):
            result = simulate(seed, planted.profile)
            if not result.ok:
                return name, result
    return name, None


def _tell(result: Result, lines: int) -> None:
    for line in result.lines[-lines:] if lines else result.lines:
        print(line)
    print(f"seed {result.seed}: {result.events} events, {result.seconds:.1f} s, "
          f"{result.acknowledged} acknowledged, {result.elections} leaderships, "
          f"fingerprint {result.fingerprint}")  # fmt: skip
    print(f"plan: {result.plan}")
    for mark, count in result.marks.items():
        print(f"  {count:>7}  {mark}")
    print(result.violation or "no violation")


if __name__ == "__main__":
    sys.exit(main())
