"""``python -m chaos``: see docs/chaos.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import uvloop

from chaos.clocks import MISSING, find_faketime
from chaos.harness import Harness
from chaos.plan import Kind
from chaos.planted import plants
from chaos.run import Run, RunOptions
from chaos.scenarios.catalog import SCENARIOS
from chaos.verdict import Verdict
from tidelog.cli.errors import CommandError
from tidelog.without_pandas import leave_pandas_out

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 no anomaly, 1 some, or the cluster did not heal, 2 wrong usage, 130 interrupted."""
    asked = _parser().parse_args(arguments)
    try:
        kinds = [Kind(name.strip()) for name in (asked.faults or "").split(",") if name.strip()]
    except ValueError as error:
        print(f"chaos: {error}; there are {', '.join(Kind)}", file=sys.stderr)
        return EXIT_USAGE
    if asked.faults is None and asked.scenario is None:
        kinds = list(Kind)
        if find_faketime() is None:
            kinds.remove(Kind.CLOCK)
            print(f"clocks do not jump in this run: {MISSING}", flush=True)
    elif Kind.CLOCK in kinds and find_faketime() is None:
        print(f"chaos: {Kind.CLOCK}: {MISSING}", file=sys.stderr)
        return EXIT_USAGE
    if asked.plant and asked.plant not in plants():
        print(f"chaos: no bug is called {asked.plant!r}; there are {', '.join(plants())}", file=sys.stderr)
        return EXIT_USAGE
    if asked.scenario is not None and asked.scenario not in SCENARIOS:
        print(f"chaos: no scenario is called {asked.scenario!r}; there are {_names()}", file=sys.stderr)
        return EXIT_USAGE
    if asked.rounds is not None and (asked.scenario is None or asked.rounds < 1):
        print("chaos: --rounds goes with --scenario, and there is at least 1", file=sys.stderr)
        return EXIT_USAGE
    # The network between brokers is in this process, and an import is a pause of it.
    leave_pandas_out()
    folder = Path(tempfile.mkdtemp(prefix="tidelog-chaos-", dir=asked.dir))
    try:
        verdict = uvloop.run(_interruptible(_begun(asked, kinds, folder)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        shutil.rmtree(folder, ignore_errors=True)
        return EXIT_INTERRUPTED
    except CommandError as error:
        print(f"chaos: {error}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        return EXIT_FAILED
    except BaseException:
        print(f"chaos: the run failed; what it left is in {folder}", file=sys.stderr)
        raise
    for line in verdict.lines():
        print(line)
    if asked.json is not None:
        asked.json.write_text(json.dumps(verdict.as_json(), indent=2) + "\n")
    if verdict.clean and not asked.keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"history, logs and data are kept in {folder}; tidelog verify --history judges it again")
    return 0 if verdict.clean else EXIT_FAILED


def _begun(asked: argparse.Namespace, kinds: Sequence[Kind], folder: Path) -> Coroutine[Any, Any, Verdict]:
    """What was asked for: a scenario, or faults by chance."""
    seed = random.SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    if asked.scenario is None:
        return Run(
            RunOptions(seed, asked.minutes * 60, kinds, asked.copies, asked.plant), folder, _say
        ).play()
    scenario = SCENARIOS[asked.scenario]
    rounds = scenario.rounds if asked.rounds is None else asked.rounds
    harness = Harness(scenario.setup, folder, _say, seed=seed, plant=asked.plant)
    return harness.play(lambda: scenario.act(harness, rounds))


def _names() -> str:
    return ", ".join(SCENARIOS)


async def _interruptible(run: Coroutine[Any, Any, Verdict]) -> Verdict:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await run


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description="Three brokers under load and faults; then everything is healed, read and judged.",
        epilog="Example: python -m chaos --minutes 5 --faults kill,freeze,isolate",
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="how long faults go on. Default: 2")
    scenarios = "; ".join(
        f"{name}: {one.about} ({one.rounds} rounds)" if one.rounds > 1 else f"{name}: {one.about}"
        for name, one in SCENARIOS.items()
    )
    parser.add_argument(
        "--scenario",
        metavar="NAME",
        help=f"in place of faults by chance, for --minutes, a story. {scenarios}",
    )
    parser.add_argument("--rounds", type=int, help="how often a scenario does what it does")
    parser.add_argument(
        "--seed", type=int, help="of the schedule and of what clients do. Default: another each time"
    )
    parser.add_argument("--faults", metavar="A,B", help=f"'' for none. Default: {', '.join(Kind)}")
    parser.add_argument("--copies", type=int, default=3, help="replication factor. Default: 3")
    parser.add_argument("--plant", default="", help="a bug for every broker, by name; it must be found")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdict there as well")
    parser.add_argument("--dir", type=Path, metavar="FOLDER", help="for data. Default: for temporary files")
    parser.add_argument("--keep", action="store_true", help="keep history, logs and data in any case")
    return parser


if __name__ == "__main__":
    sys.exit(main())
