"""``python -m chaos``: the command line of a run. docs/chaos.md describes it."""

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
from chaos.verdict import HISTORY, Verdict
from tidelog.cli.errors import CommandError
from tidelog.without_pandas import leave_pandas_out

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 no anomaly; 1 an anomaly, or the cluster did not heal; 2 wrong usage; 130
    interrupted."""
    asked = _parser().parse_args(arguments)
    names = [name.strip() for name in (asked.faults or "").split(",") if name.strip()]
    unknown = [name for name in names if name not in list(Kind)]
    if unknown:
        return _wrong_usage(f"--faults: there is no fault {unknown[0]}. Faults are: {', '.join(Kind)}.")
    kinds = [Kind(name) for name in names]
    if asked.faults is None and asked.scenario is None:
        kinds = list(Kind)
        if find_faketime() is None:
            kinds.remove(Kind.CLOCK)
            print(f"No clock jumps in this run: {MISSING}", flush=True)
    elif Kind.CLOCK in kinds and find_faketime() is None:
        return _wrong_usage(f"--faults: {Kind.CLOCK} is not possible: {MISSING}")
    if asked.plant and asked.plant not in plants():
        return _wrong_usage(f"--plant: there is no bug '{asked.plant}'. Bugs are: {', '.join(plants())}.")
    if asked.scenario is not None and asked.scenario not in SCENARIOS:
        return _wrong_usage(
            f"--scenario: there is no scenario '{asked.scenario}'. Scenarios are: {', '.join(SCENARIOS)}."
        )
    if asked.rounds is not None and (asked.scenario is None or asked.rounds < 1):
        return _wrong_usage("--rounds needs --scenario, and must be at least 1.")
    # The network between brokers runs in this process. An import pauses it.
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
        print(f"chaos: The run failed. Its data and logs are in {folder}.", file=sys.stderr)
        raise
    for line in verdict.lines():
        print(line)
    if asked.json is not None:
        asked.json.write_text(json.dumps(verdict.as_json(), indent=2) + "\n")
    if verdict.clean and not asked.keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(
            f"History, logs and data are kept in {folder}. "
            f"To judge the history again: tidelog verify --history {folder}/{HISTORY}"
        )
    return 0 if verdict.clean else EXIT_FAILED


def _begun(asked: argparse.Namespace, kinds: Sequence[Kind], folder: Path) -> Coroutine[Any, Any, Verdict]:
    """Starts what the arguments ask for: a scenario, or faults by chance."""
    seed = random.SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    if asked.scenario is None:
        return Run(
            RunOptions(seed, asked.minutes * 60, kinds, asked.copies, asked.plant, asked.tls), folder, _say
        ).play()
    scenario = SCENARIOS[asked.scenario]
    rounds = scenario.rounds if asked.rounds is None else asked.rounds
    harness = Harness(scenario.setup, folder, _say, seed=seed, plant=asked.plant)
    return harness.play(lambda: scenario.act(harness, rounds))


def _wrong_usage(message: str) -> int:
    print(f"chaos: {message}", file=sys.stderr)
    return EXIT_USAGE


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
        description=(
            "Runs three brokers under load and injects faults. Then ends all faults, reads everything, and "
            "checks that no record was lost, doubled or moved."
        ),
        epilog="Example: python -m chaos --minutes 5 --faults kill,freeze,isolate",
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="how long faults are injected. Default: 2")
    scenarios = "; ".join(
        f"{name}: {one.about} ({one.rounds} rounds)" if one.rounds > 1 else f"{name}: {one.about}"
        for name, one in SCENARIOS.items()
    )
    parser.add_argument(
        "--scenario",
        metavar="NAME",
        help=f"run this scenario instead of faults by chance; --minutes has no effect. {scenarios}",
    )
    parser.add_argument("--rounds", type=int, help="how often the scenario repeats its event")
    parser.add_argument(
        "--seed", type=int, help="seed of the schedule and of the clients. Default: a new one each time"
    )
    parser.add_argument(
        "--faults", metavar="A,B", help=f"faults to inject; '' for none. Default: {', '.join(Kind)}"
    )
    parser.add_argument("--copies", type=int, default=3, help="replication factor. Default: 3")
    parser.add_argument(
        "--tls", action="store_true", help="all connections use TLS, and calls need credentials"
    )
    parser.add_argument(
        "--plant", metavar="BUG", default="", help="plant this bug into every broker; the run must find it"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the verdict to this file")
    parser.add_argument(
        "--dir", type=Path, metavar="FOLDER", help="folder for data. Default: that of temporary files"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep history, logs and data of a run without anomaly, too"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
