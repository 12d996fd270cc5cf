"""Reads all logs of a broker, slowly, so that rot is found while other replicas are whole (DESIGN 4.8).

One task serves the whole broker. After each piece it waits as long as the piece may take at the allowed
rate, so that readers and writers are hardly disturbed. Damage that it finds is recorded: reads of the range
are refused, the broker's log and the metrics show it, and `healer` fetches the range from another replica.
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
"""Approximate size of one piece; a piece has at least one batch."""

FIRST_PASS_SECONDS_MAX: Final = 60.0
"""The first pass begins this long after a start, or sooner if the interval between passes is shorter."""

SEGMENT_BYTES_MIN: Final = 256 << 10
"""A segment counts as at least this size: opening thousands of small segments without a pause would keep a
core and a disk busy for seconds, and writers would wait."""

PAUSE_SECONDS_MIN: Final = 0.05
"""Shorter pauses are added up until they reach this."""


class Scrubber:
    """Reads the logs of one broker, a piece at a time. Belongs to one event loop."""

    def __init__(
        self,
        partitions: Mapping[Key, Partition],
        thread: Executor,
        *,
        bytes_per_second: int,
        interval: float,
        read: Callable[[int], None],
    ) -> None:
        """`interval`: seconds from the end of a pass to the next pass. `read` is called with each number of
        bytes read."""
        assert bytes_per_second > 0
        self._loop = asyncio.get_running_loop()
        self._partitions = partitions
        self._thread = thread
        self._rate = bytes_per_second
        self._interval = interval
        self._read = read
        self._owed = 0.0
        """Seconds of pause that are due for bytes already read."""
        self.passes = 0
        """Number of complete passes."""

    def __repr__(self) -> str:
        return f"<Scrubber passes={self.passes} bytes_per_second={self._rate}>"

    async def run(self) -> None:
        """Runs until cancelled."""
        pause = min(self._interval, FIRST_PASS_SECONDS_MAX)
        while True:
            await asyncio.sleep(pause)
            pause = self._interval
            for partition in list(self._partitions.values()):
                for segment in partition.log.segments:
                    await self._guarded(partition, segment)
            self.passes += 1

    async def _guarded(self, partition: Partition, segment: Segment) -> None:
        """Checks a segment; an error is logged and does not prevent the check of other segments."""
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
