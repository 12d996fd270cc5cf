"""Clients that load a cluster, as one program: in a pod, or on any machine that reaches brokers.

It writes to Streams and reads them until it is told to stop. Then it reads everything once more, and checks
all answers and records. It prints JSON lines: the state once a second, and the verdict at the end. The exit
code is 0 if no record was lost, duplicated, or out of order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import tidelog
from chaos.load import READER, StreamWriter, TailReader, WriterKind
from chaos.nats_load import PUBLISHER, Publisher
from chaos.recording import Recording
from chaos.verdict import judge, read_everything
from tidelog import ProducerOptions
from tidelog.history import lines_of

KINDS: Final = (
    WriterKind("idempotent, in batches", ProducerOptions(delivery_timeout_s=60), 20, 8, 12),
    WriterKind("idempotent, one by one", ProducerOptions(delivery_timeout_s=60), 1, 1, 15),
    WriterKind("idempotent, steady", ProducerOptions(delivery_timeout_s=60), 1, 8, 60),
)
"""Writers per Stream without a subject. After a minute a writer gives a record up, and reports it."""

CONNECT_SECONDS_MAX: Final = 60.0
PROGRESS_SECONDS: Final = 1.0
END_SECONDS_MAX: Final = 120.0
"""How long requests that are unanswered at the end of the load may take."""


class Stream(NamedTuple):
    name: str
    partitions: int
    subject: str
    """The subject that is recorded from NATS; empty: the library writes the records."""


def _stream(text: str) -> Stream:
    """Parses ``name:partitions[@subject]``."""
    rest, _, subject = text.partition("@")
    name, _, partitions = rest.partition(":")
    return Stream(name, int(partitions), subject)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    return asyncio.run(_run(asked))


async def _run(asked: argparse.Namespace) -> int:
    recording, rng, stop = Recording(), random.Random(asked.seed), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with tidelog.connect(asked.server, connect_timeout_s=CONNECT_SECONDS_MAX) as client:
        tails = [TailReader(client, one.name, one.partitions, recording) for one in asked.streams]
        writers = [
            StreamWriter(client, one.name, one.partitions, kind, recording, rng)
            for one in asked.streams
            for kind in KINDS
            if not one.subject
        ]
        publishers = [
            Publisher(asked.nats, one.name, one.subject, recording, rng)
            for one in asked.streams
            if one.subject
        ]
        feeding: list[StreamWriter | Publisher] = [*writers, *publishers]
        reading = [asyncio.create_task(one.run()) for one in tails]
        writing = [asyncio.create_task(one.run()) for one in feeding]
        telling = asyncio.create_task(_tell(recording, asked.stop_file, stop))
        await stop.wait()
        for writer in feeding:
            writer.stopping.set()
        await asyncio.wait_for(asyncio.gather(*writing), END_SECONDS_MAX)
        for task in (telling, *reading):
            task.cancel()
        await asyncio.gather(telling, *reading, return_exceptions=True)
        await read_everything(client, recording, [one.name for one in asked.streams])
    if asked.history:
        asked.history.write_text("".join(f"{line}\n" for line in lines_of(recording.histories)))
    verdict = _verdict(recording)
    _say(verdict=verdict)
    return 0 if verdict["clean"] else 1


async def _tell(recording: Recording, stop_file: Path, stop: asyncio.Event) -> None:
    """Prints the state once a second, and checks whether it must stop."""
    while True:
        pauses = {name: one.seconds for name, one in recording.take_pauses().items()}
        for name, seconds in recording.silence(asyncio.get_running_loop().time()).items():
            # A pause that has not ended counts too.
            pauses[name] = max(pauses.get(name, 0.0), seconds)
        _say(
            at=round(time.time(), 3),
            acknowledged=recording.acknowledged,
            pauses={name: round(seconds, 3) for name, seconds in pauses.items()},
            errors={who: len(told) for who, told in recording.errors.items()},
        )
        if stop_file.exists():
            stop.set()
        await asyncio.sleep(PROGRESS_SECONDS)


def _verdict(recording: Recording) -> dict[str, Any]:
    reports = judge(recording)
    return {
        "clean": not recording.failures and all(one.ok for one in reports.values()),
        "acknowledged": sum(one.acknowledged for one in reports.values()),
        "read": sum(one.read for one in reports.values()),
        "longest_pause": str(recording.longest_pause),
        "errors": {
            who: sorted(set(told)) for who, told in recording.errors.items() if who not in (READER, PUBLISHER)
        },
        "repeated": {who: len(told) for who, told in recording.errors.items() if who in (READER, PUBLISHER)},
        "troubles": recording.failures,
        "anomalies": {
            name: {str(kind): count for kind, count in one.anomalies.items()}
            for name, one in reports.items()
            if one.anomalies
        },
        "examples": [f"{name}: {one}" for name, report in reports.items() for one in report.examples],
    }


def _say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", required=True, help="brokers, as host:port,host:port")
    parser.add_argument("--nats", default="", help="the URL of NATS servers")
    parser.add_argument(
        "--streams", required=True, nargs="+", type=_stream, metavar="NAME:PARTITIONS[@SUBJECT]"
    )
    parser.add_argument(
        "--stop-file", type=Path, default=Path("/tmp/stop"), help="it stops when that is there"
    )
    parser.add_argument("--history", type=Path, help="where to keep what was told and seen")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
