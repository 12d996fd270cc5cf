"""Deletes records (DeleteRecords): moves a partition's log start offset on every in-sync replica (R11).

Neighbours: `upkeep.maintenance` moves the start here; replication sends the new start to the followers.
"""

from __future__ import annotations

import asyncio

from tidelog.errors import TimedOut
from tidelog_broker.storage.log.write_batch import refusal_of
from tidelog_broker.upkeep.maintenance import Maintenance
from tidelog_broker.writing.partition import Partition

START_LOOK_SECONDS = 0.02
"""How often a deletion checks whether all members of the ISR have the new start."""


class RecordDeletion:
    """Deletes records of the partitions of one broker. Runs on one event loop."""

    def __init__(self, maintenance: Maintenance) -> None:
        self._loop = asyncio.get_running_loop()
        self._maintenance = maintenance

    async def delete(self, partition: Partition, before: int, timeout_s: float) -> int:
        """Moves the log start offset forward, durably, on every member of the ISR (R11); returns it.

        After `TimedOut` (after `timeout_s`) or `NotLeader` the start may have moved all the same. After
        `NotEnoughReplicas` it has not moved, nor after `DiskFull` or `StorageFailed`, which mean that the
        start could not be saved here.
        """
        too_few = partition.too_few()
        if too_few is not None:
            raise too_few
        try:
            await self._maintenance.advance_starts([(partition, min(before, partition.high_watermark))])
        except OSError as error:
            raise refusal_of(error) from error
        start, deadline = partition.log.start_offset, self._loop.time() + timeout_s
        while partition.replica.start_acknowledged < start:
            if self._loop.time() > deadline or partition.stopped:
                raise TimedOut(
                    f"records below offset {start} are deleted here, but not yet on every in-sync replica"
                )
            await asyncio.sleep(START_LOOK_SECONDS)
        return start
