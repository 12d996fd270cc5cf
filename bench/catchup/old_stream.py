"""The stream of old segments that the readers of `bench.catchup` read, part by part.

Our client (`bench.ours.catch_up`) reads a part through the broker; the plain program (`bench.catchup.cold`)
reads the same part from the broker's files.
"""

from __future__ import annotations

import asyncio
import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import tidelog
from bench.catchup.load import LEAD_SECONDS
from bench.catchup.report import OURS, PLAIN
from bench.harness.alternate import say
from bench.harness.processes import Failed, python
from bench.ours.broker import Broker
from bench.ours.client import arrow_batches
from bench.ours.fill import fill
from tidelog.model import StreamSettings

OLD = "old"
"""The stream's name."""

READ_BYTES_PER_SECOND = 50e6
"""The rate of all readers together, in bytes as stored."""

READERS = 2
"""Reading processes; each reads one partition of the old stream."""

OLD_VALUE_BYTES = 100
SEGMENT_BYTES = 64 << 20

REST_SECONDS = 15.0
"""From the end of the filling until the first phase: disks empty their caches, and those of virtual machines
earn credit again."""

SLACK_SECONDS = 2.0
"""How much longer than planned the readers may take before they reach the next round's part."""

SPARE_BYTES = 256 << 20
"""Bytes behind the last round's part: the broker still has them in memory or in active segments."""

READER_SECONDS_MAX = 60.0
"""A reader that was not ended ends this long after its phase."""


@dataclass(frozen=True, slots=True)
class OldStream:
    """The stream that is read, and where its batches are on the disk."""

    folder: Path
    batch_rows: int
    batch_bytes: int
    """Bytes of each batch as stored: all batches have one size."""
    batches_per_round: int
    """Batches of each partition that one round reads; no two rounds read the same."""

    def segments(self, partition: int) -> list[Path]:
        return sorted((self.folder / str(partition)).glob("*.log"))

    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())


def prepare(loop: asyncio.Runner, broker: Broker, new: str, *, rounds: int, seconds: float) -> OldStream:
    """Fills the old stream and makes an empty one called `new` beside it.

    The old stream is synced while it is filled, so that no phase has flushes of it.
    """
    batches = arrow_batches(OLD_VALUE_BYTES)
    size = batches[0].nbytes
    span = LEAD_SECONDS + seconds + SLACK_SECONDS
    per_round = math.ceil(READ_BYTES_PER_SECOND * span / READERS / size)
    count = READERS * (rounds * per_round + math.ceil(SPARE_BYTES / READERS / size))
    room = 1.5 * count * size
    if shutil.disk_usage(broker.folder).free < room:
        raise Failed(
            f"{broker.folder.parent} has too little free disk: {room / 1e9:.1f} GB are needed; "
            "choose another folder with --dir"
        )
    say(f"writing {count * size / 1e9:.1f} GB of records to be read later")

    async def work() -> None:
        async with tidelog.connect(broker.address) as client:
            settings = StreamSettings(segment_bytes=SEGMENT_BYTES)
            await client.create_stream(OLD, partitions=READERS, durability="fsync", settings=settings)
            await client.create_stream(new, partitions=1, durability="fsync")
            await fill(client, OLD, batches, count=count, partitions=READERS)

    loop.run(work())
    say(f"letting the disk rest for {REST_SECONDS:g} s")
    sleep(REST_SECONDS)
    (folder,) = (broker.folder / "data" / "streams").glob(f"{OLD}~*")
    stored = sum(path.stat().st_size for path in folder.glob("*/*.log"))
    return OldStream(folder, batches[0].num_rows, stored // count, per_round)


def readers_of(
    kind: str, old: OldStream, address: str, *, number: int, seconds: float, cpus: float
) -> list[list[str]]:
    """The commands that read in a phase; `cpus`: CPU seconds a second that the plain program uses."""
    begin = number * old.batches_per_round
    pace = (
        "--bytes-per-second", READ_BYTES_PER_SECOND / READERS,
        "--seconds", LEAD_SECONDS + seconds + READER_SECONDS_MAX,
    )  # fmt: skip
    if kind == OURS:
        return [
            python(
                "bench.ours.catch_up", "--address", address, "--stream", OLD, "--partition", partition,
                "--offset", begin * old.batch_rows, "--batch-bytes", old.batch_bytes, *pace,
            )
            for partition in range(READERS)
        ]  # fmt: skip
    if kind == PLAIN:
        return [
            python(
                "bench.catchup.cold", *old.segments(partition),
                "--skip-bytes", begin * old.batch_bytes, "--cpus", cpus / READERS, *pace,
            )
            for partition in range(READERS)
        ]  # fmt: skip
    return []
