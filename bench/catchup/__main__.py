"""Runs `python -m bench.catchup`: phases without readers, beside ours, and beside the plain program."""

from __future__ import annotations

import argparse
import asyncio
import math
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import uvloop

from bench.catchup import load as catchup_load
from bench.catchup import report as catchup_report
from bench.catchup.cold import evict
from bench.catchup.load import Window, produce, reading
from bench.catchup.old_stream import (
    READ_BYTES_PER_SECOND,
    READERS,
    OldStream,
    prepare,
    readers_of,
)
from bench.catchup.report import KINDS, OURS, PLAIN, Phase, cpus_to_burn
from bench.harness.alternate import say
from bench.harness.processes import Failed
from bench.harness.report import write_json
from bench.measuring.buckets import percentile
from bench.measuring.latency import summary_ms
from bench.measuring.machine import describe, settle
from bench.ours.broker import Broker

NEW = "new"
"""The stream that the producer writes to."""

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def measure(
    loop: asyncio.Runner,
    broker: Broker,
    old: OldStream,
    kind: str,
    *,
    number: int,
    seconds: float,
    cpus: float,
) -> Phase:
    """Measures one phase, on files that are not in the page cache."""
    evict(old.files())
    settle()
    commands = readers_of(kind, old, broker.address, number=number, seconds=seconds, cpus=cpus)
    with reading(commands) as pids:
        window = Window(broker, pids)
        latencies = summary_ms(loop.run(produce(broker.address, NEW, seconds, window)))
    rates = window.per_second
    return Phase(
        round=number + 1,
        kind=kind,
        produce_p50_ms=latencies["p50_ms"],
        produce_p99_ms=latencies["p99_ms"],
        produce_p999_ms=latencies["p99.9_ms"],
        requests=latencies["count"],
        flush_p50_ms=percentile(window.flushes, 50) * 1e3,
        flush_p99_ms=percentile(window.flushes, 99) * 1e3,
        flushes=window.flushes[math.inf],
        read_mb_per_s=rates["fetched" if kind == OURS else "read"] / 1e6,
        disk_mb_per_s=rates["disk"] / 1e6,
        reader_cpus=rates["reader_cpus"],
        broker_cpus=rates["broker_cpus"],
        foreign_cpus=window.foreign_cpus,
    )


def run(loop: asyncio.Runner, broker: Broker, rounds: int, seconds: float) -> list[Phase]:
    """All phases. Ours is first before the plain program, which must know how much CPU time to use."""
    old = prepare(loop, broker, NEW, rounds=rounds, seconds=seconds)
    phases: list[Phase] = []
    for number in range(rounds):
        for kind in KINDS if number % 2 == 0 else reversed(KINDS):
            cpus = cpus_to_burn(phases) if kind == PLAIN else 0.0
            phase = measure(loop, broker, old, kind, number=number, seconds=seconds, cpus=cpus)
            phases.append(phase)
            say(
                f"round {number + 1}/{rounds} {kind}: produce p99 {phase.produce_p99_ms:.2f} ms, "
                f"flush p99 {phase.flush_p99_ms:.2f} ms, {phase.read_mb_per_s:.1f} MB/s read"
            )
    return phases


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 measured, whether the ratios are good or bad; 1 not measured; 130 interrupted."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tidelog-catchup-", dir=options.dir) as folder,
            # One event loop for all phases: gRPC for asyncio does not work well with several in one process.
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop,
        ):
            broker = Broker(Path(folder))
            try:
                broker.start()
                phases = run(loop, broker, options.rounds, options.seconds)
            finally:
                broker.stop()
    except Failed as error:
        print(f"bench.catchup: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    machine = describe()
    settings = {
        "rounds": options.rounds,
        "seconds": options.seconds,
        "read_mb_per_s": READ_BYTES_PER_SECOND / 1e6,
        "readers": READERS,
        "requests_per_second": catchup_load.PRODUCE_PER_SECOND,
        "request_bytes": catchup_load.PRODUCE_RECORDS * catchup_load.PRODUCE_VALUE_BYTES,
        "durability": "fsync before the answer",
        "machine": machine,
    }
    entries = catchup_report.entries(phases, settings)
    catchup_report.print_report(phases, entries, machine)
    if options.json is not None:
        write_json(entries, options.json)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.catchup",
        description="Measures what readers of old segments cost producers, beside a plain program.",
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="rounds of three phases each. Default: %(default)s"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a phase. Default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to this file as well")
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="FOLDER",
        help="a folder on the disk to measure. Default: the folder for temporary files",
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1 or not 0 < options.seconds <= 600:
        parser.error("--rounds must be 1 or more, and --seconds above 0 and at most 600")
    return options


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM cleans up as Ctrl-C does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
