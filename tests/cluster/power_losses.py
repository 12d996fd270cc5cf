"""Loss of power of a whole cluster at random points of its run under load (DESIGN 16).

Three brokers run in this process over `RecordingFiles` that share one history: a point of it is
a moment on all three disks. Clients write, delete and read with the library and over NATS, to
`fsync` streams with three copies, while brokers stop, are killed and come back (`power_load`).
Then, for random points, the disks are rebuilt, each as a loss of power could have left it, and
the cluster starts on them as after a boot: elections, suspect replicas (R6) and reconciliation
(R1) are the product's own; at some points power is lost once more while it comes back. Every
record acknowledged before the point must be at its offset, once, on all replicas; nothing may be
there that nobody sent; and the cluster takes new records.

``python -m cluster.power_losses [POINTS [SEED]]`` (with tests on the path) runs it by hand.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from unittest import mock

import structlog
import uvloop

from cluster.ledger import Expected, Ledger
from cluster.machines import BROKERS, WHOLE_SECONDS_MAX, Machines
from cluster.power_load import Load, new_disk
from cluster.recovered import Report, check
from simulator.disk import FakeDisk
from support.nats_server import NatsServer
from support.recording_files import Event, History, Replay
from support.waiting import until
from tidelog_broker.storage.directory import data_directory

AGAIN_SHARE = 0.25
"""Of the points, at which power is lost a second time."""

AGAIN_OPERATIONS_MAX = 300
"""Of the disks after the first loss: about as many as a start takes."""


async def run(folder: Path, *, points: int, count: int, seed: int, unflushed: Collection[int] = ()) -> Report:
    """Loads a cluster with about `count` records of each client, then checks `points` power losses.

    `unflushed`: brokers that only say that they flush their logs, and whose disks keep nothing
    that was not flushed: a planted bug. Raises AssertionError with what was lost, where, and the seed.
    """
    rng = random.Random(seed)
    machines, ledger = Machines(folder), Ledger(History())
    for number in BROKERS:
        Path(machines.machine(number)).mkdir()
    report = Report()
    with _Boots(folder / "boot-id") as boots:
        started, ended = await _load(machines, ledger, count, rng, report)
        report.operations = ended - started
        report.acknowledged, report.unanswered = ledger.acknowledged, ledger.unanswered
        events = ledger.history.events
        replays = [
            Replay(_unflushed(events) if number in unflushed else events, machines.machine(number))
            for number in BROKERS
        ]
        expected, facts = Expected(), iter(ledger.facts)
        upcoming = next(facts, None)
        for point in sorted(rng.sample(range(started, ended), points)):
            while upcoming is not None and upcoming[0] <= point:
                expected.add(upcoming[1])
                upcoming = next(facts, None)
            for replay in replays:
                replay.advance(point)
            disks = [
                replay.crash(None if number in unflushed else rng) for number, replay in enumerate(replays)
            ]
            try:
                boots.next()
                if rng.random() < AGAIN_SHARE:
                    disks = await _lose_again(machines, disks, rng)
                    report.again += 1
                    boots.next()
                await check(machines, disks, expected, ledger.sent, report)
            except BaseException as error:
                error.add_note(f"at point {point} of {started}–{ended}, seed {seed}")
                raise
            report.points += 1
    return report


class _Boots:
    """What brokers read as their kernel's boot id."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self._patch = mock.patch.object(data_directory, "BOOT_ID_PATH", str(path))

    def __enter__(self) -> _Boots:
        self.next()
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def next(self) -> None:
        self._count += 1
        self._path.write_text(f"boot {self._count}")


def _unflushed(events: Sequence[Event]) -> list[Event]:
    """Flushes of segments come to nothing, and checkpoints claim nothing of them."""

    def is_left_out(event: Event) -> bool:
        flush = event.kind in ("sync_begin", "sync_end")
        return (flush and event.path.endswith(".log") and "/streams/" in event.path) or (
            "/recovery-points" in event.path
        )

    return [event._replace(path="/") if is_left_out(event) else event for event in events]


async def _load(
    machines: Machines, ledger: Ledger, count: int, rng: random.Random, report: Report
) -> tuple[int, int]:
    """The points at which power may be lost: from the first on, to before the last."""
    disks = [new_disk(ledger.history) for _ in BROKERS]
    machines.format(disks[0])
    started = len(ledger.history)
    with NatsServer() as server:
        try:
            await machines.start_all(disks, nats=server.url)
            await Load(machines, disks, ledger, server.url, count, rng).run()
            ended = len(ledger.history)
            report.leader_epochs = sum(
                placed.leader_epoch
                for stream in machines.image.streams.values()
                for placed in stream.partitions
            )
        finally:
            await machines.stop_all()
    return started, ended


async def _lose_again(machines: Machines, disks: list[FakeDisk], rng: random.Random) -> list[FakeDisk]:
    """What a loss of power leaves of `disks` while the brokers start on them."""
    moment = rng.randrange(AGAIN_OPERATIONS_MAX)
    starting = asyncio.create_task(machines.start_all(disks))
    try:
        await until(
            lambda: starting.done() or sum(disk.operations for disk in disks) >= moment,
            "a start",
            WHOLE_SECONDS_MAX,
        )
        return [disk.crash(rng) for disk in disks]
    finally:
        await starting
        await machines.end_all()


def main(arguments: list[str]) -> None:
    points = int(arguments[0]) if arguments else 100
    seed = int(arguments[1]) if len(arguments) > 1 else random.SystemRandom().randrange(1 << 32)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(prefix="tidelog-power-") as folder:
        began = time.perf_counter()
        report = uvloop.run(run(Path(folder), points=points, count=400, seed=seed))
        sys.stdout.write(f"seed {seed}: {report}; {time.perf_counter() - began:.1f} s\n")


if __name__ == "__main__":
    main(sys.argv[1:])
