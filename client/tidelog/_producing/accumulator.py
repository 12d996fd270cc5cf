"""Records are collected: the open batch of each partition, and when it is sealed.

A batch is sealed when it is full, or when it has lingered and its partition's window has room
(`SendWindow`); until then it grows. `Producer` chooses the partition and adds records; `Sender`
delivers the batches that are sealed here.
"""

from __future__ import annotations

import asyncio
from typing import Final

import pyarrow as pa

from tidelog._options import COMPRESSION, ProducerOptions
from tidelog._producing.batching import Batch, OpenBatch, encode
from tidelog._producing.partition_queue import PartitionQueue
from tidelog._producing.partitioner import StickyPartition
from tidelog._producing.send_window import Failed
from tidelog._producing.sender import Sender
from tidelog._producing.unfinished import own_copy
from tidelog.errors import TidelogError
from tidelog.model import Receipt

RIPE_S_MAX: Final = 1.0
"""How long a batch that has lingered may still grow while the window has no room."""

NO_BATCH: Final = OpenBatch()
"""Stands where there is no open batch: it has no room."""


class RecordAccumulator:
    """The open batches of one producer.

    `sticky_open` and `open_batches` are for the producer's fast path, which adds a record to
    a batch that has room and needs nothing else from here.
    """

    __slots__ = (
        "_batch_bytes_max",
        "_compression",
        "_linger_s",
        "_loop",
        "_sender",
        "open_batches",
        "sticky",
        "sticky_open",
    )

    def __init__(self, sender: Sender, options: ProducerOptions) -> None:
        self.sticky = StickyPartition(1, 0)
        """The partition for records without a key."""
        self.sticky_open = NO_BATCH
        """The open batch of that partition."""
        self.open_batches = [NO_BATCH]
        """By partition; `NO_BATCH` where none is open."""
        self._sender = sender
        self._compression = COMPRESSION[options.compression]
        self._linger_s = options.linger_ms / 1000
        self._batch_bytes_max: int
        self._loop: asyncio.AbstractEventLoop

    def start(self, sticky: StickyPartition, batch_bytes_max: int) -> None:
        """The stream is known; records may come."""
        self.sticky = sticky
        self.open_batches = [NO_BATCH] * sticky.partitions
        self._batch_bytes_max = batch_bytes_max
        self._loop = asyncio.get_running_loop()

    def open(self, queue: PartitionQueue) -> OpenBatch:
        """Opens a batch, which begins to linger."""
        batch = queue.open = self.open_batches[queue.partition] = OpenBatch()
        queue.ripe = False
        queue.linger = self._loop.call_later(self._linger_s, self._lingered, queue)
        if queue.partition == self.sticky.current:
            self.sticky_open = batch
        return batch

    def awaited(self, queue: PartitionQueue) -> None:
        """A caller waits for a record of the open batch."""
        if queue.window.idle and not queue.ripe:
            # Nothing to wait for. The records that are sent in this turn of the loop still join the batch.
            queue.ripe = True
            if queue.linger is not None:
                queue.linger.cancel()
            queue.linger = self._loop.call_soon(self._lingered, queue)

    def window_opened(self, queue: PartitionQueue) -> None:
        """The partition's window has room again."""
        if queue.ripe and queue.open is not None:
            self.seal(queue)

    def _lingered(self, queue: PartitionQueue) -> None:
        queue.linger = None
        if queue.open is None:
            return
        window = queue.window
        if window.open or (window.held and window.idle) or queue.ripe:
            self.seal(queue)
        else:
            # It cannot be sent yet, so it may as well grow; but its delivery timeout must begin.
            queue.ripe = True
            queue.linger = self._loop.call_later(RIPE_S_MAX, self._lingered, queue)

    def seal_all(self) -> None:
        """Seals every open batch."""
        for queue in list(self._sender.queues.values()):
            if queue.open is not None:
                self.seal(queue)

    def seal(self, queue: PartitionQueue) -> None:
        """Encodes the open batch and submits it to the sender."""
        batch, queue.open, queue.ripe = queue.open, None, False
        self.open_batches[queue.partition] = NO_BATCH
        assert batch is not None
        if queue.linger is not None:
            queue.linger.cancel()
            queue.linger = None
        if self.sticky_open is batch:
            self.sticky_open = NO_BATCH
            self.sticky.step()
        if not batch.values:
            self._sender.budget.release(batch.granted)
            return
        sealed = self._sender.new_batch(queue.partition, len(batch.values), batch.granted)
        sealed.futures = batch.futures
        self._submit(queue, sealed, batch)

    def send(
        self,
        partition: int,
        columns: pa.RecordBatch,
        held_bytes: int,
        *,
        future: asyncio.Future[Receipt] | None = None,
        expected_offset: int | None = None,
    ) -> None:
        """Sends a batch that is complete already, and holds `held_bytes` of the budget.

        `future` gets its receipt or its error.
        """
        queue = self._sender.queue(partition)
        if queue.open is not None:
            # Records that were sent to the partition earlier must stay in front.
            self.seal(queue)
        batch = self._sender.new_batch(partition, columns.num_rows, held_bytes)
        batch.future, batch.expected_offset = future, expected_offset
        self._submit(queue, batch, columns)

    def _submit(self, queue: PartitionQueue, batch: Batch, records: OpenBatch | pa.RecordBatch) -> None:
        window = queue.window
        try:
            batch.data = encode(
                records,
                self._compression,
                self._batch_bytes_max,
                producer_id=window.identity.producer_id,
                producer_epoch=window.identity.producer_epoch,
                base_sequence=window.next_sequence(),
            )
        except TidelogError as error:
            self._sender.unfinished.fail(Failed(batch, error))
        else:
            self._sender.submit(queue, batch)

    def give_up(self, reason: TidelogError) -> None:
        """Fails the records of the open batches with `reason`."""
        self.sticky_open = NO_BATCH
        for queue in self._sender.queues.values():
            self.open_batches[queue.partition] = NO_BATCH
            if queue.linger is not None:
                queue.linger.cancel()
                queue.linger = None
            if queue.open is not None:
                batch, queue.open = queue.open, None
                self._sender.budget.release(batch.granted)
                for _, future in batch.futures:
                    if not future.done():
                        future.set_exception(own_copy(reason))
