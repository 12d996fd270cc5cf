"""Reads all logs of a broker, slowly, so that rot is found while other replicas are whole (DESIGN 4.8).

One task for the whole broker. After each piece it waits as long as the piece is worth at the rate
that is allowed, so that readers and writers hardly notice. What it finds is known from then on:
reads of it are refused, the broker's log and the metrics show it, `healer` fetches it from another replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Final

import structlog

from tidelog_broker.replication.replica import Key
from tidelog_broker.storage.segments.scrubbing import beginning_of, check_piece
from tidelog_broker.storage.segments.segment import Segment
from tidelog_broker.writing.partition import Partition

log = structlog.get_logger(__name__)

PIECE_BYTES: Final = 1 << 20
"""Read at a time, about; one batch always is."""

FIRST_PASS_SECONDS_MAX: Final = 60.0
"""The first pass begins so long after a start, or sooner if passes are more frequent."""

SEGMENT_BYTES_MIN: Final = 256 << 10
"""What a segment counts for at least: opening thousands of small ones one after the other would keep a core
and a disk busy for seconds, and whoever writes meanwhile would wait."""

PAUSE_SECONDS_MIN: Final = 0.05
"""Shorter pauses are saved up."""


class Scrubber:
    """Reads the logs of one broker, a piece at a time. Of one event loop."""

    def __init__(
        self,
        partitions: Mapping[Key, Partition],
        thread: Executor,
        *,
        bytes_per_second: int,
        interval: float,
        read: Callable[[int], None],
    ) -> None:
        """`interval` in seconds, from the end of a pass to the next; `read` is told of bytes."""
        assert bytes_per_second > 0
        self._loop = asyncio.get_running_loop()
        self._partitions = partitions
        self._thread = thread
        self._rate = bytes_per_second
        self._interval = interval
        self._read = read
        self._owed = 0.0
        """Seconds that what was read is worth, and that were not waited yet."""
        self.passes = 0
        """That are complete."""

    def __repr__(self) -> str:
        return f"<Scrubber passes={self.passes} bytes_per_second={self._rate}>"

    async def run(self) -> None:
        """Until cancelled."""
        pause = min(self._interval, FIRST_PASS_SECONDS_MAX)
        while True:
            await asyncio.sleep(pause)
            pause = self._interval
            for partition in list(self._partitions.values()):
                for segment in partition.log.segments:
                    await self._guarded(partition, segment)
            self.passes += 1

    async def _guarded(self, partition: Partition, segment: Segment) -> None:
        """What cannot be read at all must not keep the others from their turn."""
        try:
            await self._check(partition, segment)
        except Exception as error:
            if not partition.removed and segment in partition.log.segments:
                log.warning("a segment could not be checked", segment=segment.path, error=str(error))

    async def _check(self, partition: Partition, segment: Segment) -> None:
        if segment.size == 0:
            return
        place, done, left = beginning_of(segment), False, SEGMENT_BYTES_MIN
        while not done and not partition.removed and segment in partition.log.segments:
            piece = await self._loop.run_in_executor(self._thread, check_piece, segment, place, PIECE_BYTES)
            left -= piece.bytes
            await self._wait_for(piece.bytes)
            if not piece.sound:
                await self._map(partition, segment)
                return
            place, done = piece.place, piece.done
        await self._pause(max(0, left))

    async def _map(self, partition: Partition, segment: Segment) -> None:
        await self._loop.run_in_executor(self._thread, partition.log.damage.map_segment, segment)
        await self._wait_for(segment.size)

    async def _wait_for(self, size: int) -> None:
        self._read(size)
        await self._pause(size)

    async def _pause(self, size: int) -> None:
        self._owed += size / self._rate
        if self._owed >= PAUSE_SECONDS_MIN:
            owed, self._owed = self._owed, 0.0
            await asyncio.sleep(owed)
