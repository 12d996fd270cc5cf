"""The command: the table of all cases, or the long run."""

from __future__ import annotations

import argparse
import asyncio

from bench.hostile_input.catalog import CASES, LARGE_MESSAGES, LARGE_MESSAGES_CASE, LARGE_MESSAGES_FLAGS
from bench.hostile_input.endurance import endure
from bench.hostile_input.measuring import Found, measure


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.hostile_input",
        description="Measures what hostile input costs a broker and its other clients, and prints a table.",
        epilog="Needs the folder tests on PYTHONPATH. docs/hostile-input.md explains the cases.",
    )
    parser.add_argument("--case", default="", metavar="TEXT", help="run only cases whose name contains TEXT")
    parser.add_argument(
        "--minutes",
        type=float,
        default=0.0,
        help="put ten times as much load on one broker for so long instead",
    )
    options = parser.parse_args()
    if options.minutes:
        asyncio.run(endure(options.minutes))
        return
    print(
        "| input | MB before | peak | after | longest delay of the event loop, ms | ran, ms "
        "| slowest small request, ms | took, s | |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, case in CASES.items():
        if options.case in name:
            print_found(name, asyncio.run(measure(case)))
    if options.case in LARGE_MESSAGES:
        print_found(LARGE_MESSAGES, asyncio.run(measure(LARGE_MESSAGES_CASE, LARGE_MESSAGES_FLAGS)))


def print_found(name: str, found: Found) -> None:
    print(
        f"| {name} | {found.before_mb:.0f} | {found.peak_mb:.0f} | {found.after_mb:.0f} "
        f"| {found.late_ms:.0f} | {found.ran_ms:.0f} | {found.wait_ms:.0f} | {found.took_s:.1f} "
        f"| {found.note} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
