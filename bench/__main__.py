"""The command `python -m bench`: chooses cases, measures them and prints the table (docs/benchmarks.md)."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from bench.cases.catalog import PEERS, all_cases
from bench.harness import report
from bench.harness.alternate import enter, measure, say
from bench.harness.case import Case, matching
from bench.harness.model import Missing
from bench.harness.results import Entry
from bench.harness.stage import Stage
from bench.harness.work import Effort
from bench.measuring.machine import describe

EXIT_FAILED = 1
EXIT_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 all measured, 1 a case failed, 2 wrong usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    try:
        cases = matching(all_cases(), _split(options.cases))
        peers = _peers(options.peers)
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return EXIT_USAGE
    if options.list:
        for case in cases:
            print(f"{case.name:<36} {case.unit:<34} {', '.join(case.peers) or '–'}")
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    entries: list[Entry] = []
    failed: list[str] = []
    code = 0
    try:
        effort = Effort(options.kills, options.peer_kills, options.streams_percent, options.spark_percent)
        with Stage(options.dir, effort) as stage:
            _measure_all(cases, stage, peers, options, entries, failed)
    except KeyboardInterrupt:
        code = 130
    machine = describe()
    if entries:
        entries = [replace(entry, settings={**entry.settings, "machine": machine}) for entry in entries]
        report.print_table(entries, machine)
        if options.json is not None:
            report.write_json(entries, options.json)
    for name in failed:
        say(f"{name} failed")
    return code or (EXIT_FAILED if failed else 0)


def _measure_all(
    cases: Sequence[Case],
    stage: Stage,
    peers: Sequence[str],
    options: argparse.Namespace,
    entries: list[Entry],
    failed: list[str],
) -> None:
    told: set[tuple[str, str]] = set()

    def absent(peer: str, lack: str) -> None:
        if (peer, lack) not in told:
            told.add((peer, lack))
            say(f"{peer} is left out: {lack}")

    servers = ""
    for case in cases:
        if case.servers != servers:
            stage.clear()
            servers = case.servers
        try:
            contenders = enter(case, stage, peers, absent)
            entries += measure(case, contenders, rounds=options.rounds, seconds=options.seconds)
        except Missing as lack:
            # Tidelog itself cannot run the case: nothing to compare.
            absent(case.name, str(lack))
        except Exception as error:
            # An exception of a server or a client library ends its case, not the run.
            say(f"{case.name}: {type(error).__name__}: {error}")
            failed.append(case.name)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM cleans up as Ctrl-C does."""
    raise KeyboardInterrupt


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _peers(text: str) -> list[str]:
    names = _split(text)
    for name in names:
        if name not in PEERS:
            raise ValueError(f"there is no peer {name!r}; the peers are {', '.join(PEERS)}")
    return [name for name in PEERS if name in names]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures Tidelog and its peers with the same work, in one run, in turn.",
        epilog="Example: python -m bench --cases produce.rf1.fsync,consume --json out.json",
    )
    parser.add_argument(
        "--cases",
        default="",
        metavar="A,B",
        help="names of cases, or the first parts of names (produce.rf1.fsync). Default: all cases",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file as well")
    parser.add_argument("--list", action="store_true", help="list the cases and exit")
    parser.add_argument(
        "--rounds", type=_positive_int, default=3, help="measurements of each contender. Default: %(default)s"
    )
    parser.add_argument(
        "--seconds",
        type=_positive_float,
        default=2.0,
        help="about how long one measurement takes. Default: %(default)s",
    )
    parser.add_argument(
        "--peers",
        default=",".join(PEERS),
        metavar="A,B",
        help="peers to measure. Default: %(default)s; '' measures Tidelog alone",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="FOLDER",
        help="a folder on the disk to measure. Default: the folder for temporary files",
    )
    usual = Effort()
    parser.add_argument(
        "--kills", type=_positive_int, default=usual.kills,
        help="failovers of Tidelog in each failover case. Default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--peer-kills", type=_positive_int, default=usual.peer_kills,
        help="failovers of each peer in each failover case. Default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--streams-percent", type=_percent, default=usual.streams_percent, metavar="P",
        help="make only this share of the streams that a streams case names, to try it out. Default: 100",
    )  # fmt: skip
    parser.add_argument(
        "--spark-percent", type=_percent, default=usual.spark_percent, metavar="P",
        help="read and write only this share of the rows of a spark case, to try it out. Default: 100",
    )  # fmt: skip
    return parser


def _percent(text: str) -> float:
    value = float(text)
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 100")
    return value


def _positive_int(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _positive_float(text: str) -> float:
    value = float(text)
    if not 0 < value <= 60:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 60")
    return value


if __name__ == "__main__":
    sys.exit(main())
