"""``python -m chaos.spark``: the command line. docs/chaos.md describes the runs."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from chaos.spark.jobs import Target
from chaos.spark.run import Run
from tidelog.cli.local.processes import Signals

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
KILLS_MAX: Final = 1_000
SEEDS: Final = 1 << 32


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 no anomaly; 1 an anomaly or a run that failed; 2 wrong usage; 130
    interrupted."""
    asked = _parser().parse_args(arguments)
    if not 1 <= asked.kills <= KILLS_MAX:
        print(f"chaos.spark: --kills is {asked.kills}; it must lie in 1–{KILLS_MAX}.", file=sys.stderr)
        return EXIT_USAGE
    seed = random.SystemRandom().randrange(SEEDS) if asked.seed is None else asked.seed
    targets = list(Target) if asked.target == "all" else [Target(asked.target)]
    signals = Signals()
    try:
        with signals.caught():
            clean = [_played(target, asked, seed, signals) for target in targets]
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0 if all(clean) else EXIT_FAILED


def _played(target: Target, asked: argparse.Namespace, seed: int, signals: Signals) -> bool:
    """Whether the run on this target is clean; its folder stays if it is not."""
    folder = Path(tempfile.mkdtemp(prefix="tidelog-chaos-", dir=asked.dir))
    print(f"{target}: {asked.kills} kills, seed {seed}", flush=True)
    run = Run(folder, target, asked.kills, seed, signals, lambda line: print(line, flush=True))
    try:
        report = run.play()
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except Exception as error:
        print(f"{target}: The run failed: {error}", file=sys.stderr)
        print(f"Logs and data are kept in {folder}.", file=sys.stderr)
        return False
    print(json.dumps(report.as_json(), indent=1), flush=True)
    if report.clean and not asked.keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"Logs and data are kept in {folder}.", flush=True)
    return report.clean


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos.spark",
        description=(
            "Runs a Spark job on a standalone Spark cluster and three brokers, and kills drivers, executors "
            "and brokers while records flow. Then checks that the target has each record of the source once."
        ),
        epilog="Example: python -m chaos.spark --kills 30 --target all",
    )
    parser.add_argument("--kills", type=int, default=30, help="how many kills for each target. Default: 30")
    parser.add_argument(
        "--target", choices=[*Target, "all"], default="all", help="where the job writes to. Default: all"
    )
    parser.add_argument("--seed", type=int, help="seed of victims and moments. Default: a new seed")
    parser.add_argument(
        "--dir", type=Path, metavar="FOLDER", help="folder for data. Default: that of temporary files"
    )
    parser.add_argument("--keep", action="store_true", help="keep logs and data of a clean run, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
