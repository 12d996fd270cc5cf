"""Records gather: the open batch of each partition, and when it is sealed.

A batch goes when it is full, or when it has lingered and its partition's window has room
(`Lane`); until then it grows. `Producer` chooses the partition and puts records in;
`Sender` delivers what is sealed here.
"""

from __future__ import annotations

import asyncio
from typing import Final

import pyarrow as pa

from tidelog._options import COMPRESSION, ProducerOptions
from tidelog._producing.batching import Batch, OpenBatch, encode
from tidelog._producing.partitioner import StickyPartition
from tidelog._producing.send_window import Failed
from tidelog._producing.sender import Delivery, Sender
from tidelog._producing.unfinished import own_copy
from tidelog.errors import TidelogError
from tidelog.model import Receipt

RIPE_S_MAX: Final = 1.0
"""How long a batch that could go grows while the window is closed."""

NO_BATCH: Final = OpenBatch()
"""Stands where there is no open batch: it has no room."""


class Gathering:
    """The open batch of a partition, and when it goes."""

    __slots__ = ("delivery", "linger", "open", "partition", "ripe")

    def __init__(self, partition: int, delivery: Delivery) -> None:
        self.partition = partition
        self.delivery = delivery
        self.open: OpenBatch | None = None
        self.linger: asyncio.TimerHandle | asyncio.Handle | None = None
        self.ripe = False
        """The open batch has waited long enough and goes as soon as the window allows."""


class Gatherings:
    """What gathers in the partitions of one producer.

    `sticky_open` and `open_batches` are for the producer's fast path, which knows a batch
    with room when it sees one and needs nothing else from here.
    """

    __slots__ = (
        "_batch_bytes_max",
        "_by_partition",
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
        """Where records without a key go."""
        self.sticky_open = NO_BATCH
        """The open batch that a record without a key goes to."""
        self.open_batches = [NO_BATCH]
        """By partition; `NO_BATCH` where none is open."""
        self._by_partition: dict[int, Gathering] = {}
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

    def of(self, partition: int) -> Gathering:
        found = self._by_partition.get(partition)
        if found is None:
            found = self._by_partition[partition] = Gathering(partition, self._sender.delivery(partition))
        return found

    def open(self, gathering: Gathering) -> OpenBatch:
        """A new batch, which lingers from now on."""
        batch = gathering.open = self.open_batches[gathering.partition] = OpenBatch()
        gathering.ripe = False
        gathering.linger = self._loop.call_later(self._linger_s, self._lingered, gathering)
        if gathering.partition == self.sticky.current:
            self.sticky_open = batch
        return batch

    def awaited(self, gathering: Gathering) -> None:
        """Somebody waits for a record of the open batch."""
        if gathering.delivery.lane.idle and not gathering.ripe:
            # Nothing to wait for; but whoever sends in this turn of the loop comes along.
            gathering.ripe = True
            if gathering.linger is not None:
                gathering.linger.cancel()
            gathering.linger = self._loop.call_soon(self._lingered, gathering)

    def window_opened(self, partition: int) -> None:
        """The partition can send again."""
        gathering = self._by_partition.get(partition)
        if gathering is not None and gathering.ripe and gathering.open is not None:
            self.seal(gathering)

    def _lingered(self, gathering: Gathering) -> None:
        gathering.linger = None
        if gathering.open is None:
            return
        lane = gathering.delivery.lane
        if lane.window_open or (lane.held and lane.idle) or gathering.ripe:
            self.seal(gathering)
        else:
            # It cannot go yet, so it may as well grow; but its delivery timeout must begin.
            gathering.ripe = True
            gathering.linger = self._loop.call_later(RIPE_S_MAX, self._lingered, gathering)

    def seal_all(self) -> None:
        for gathering in list(self._by_partition.values()):
            if gathering.open is not None:
                self.seal(gathering)

    def seal(self, gathering: Gathering) -> None:
        """The open batch is encoded and goes to its lane."""
        batch, gathering.open, gathering.ripe = gathering.open, None, False
        self.open_batches[gathering.partition] = NO_BATCH
        assert batch is not None
        if gathering.linger is not None:
            gathering.linger.cancel()
            gathering.linger = None
        if self.sticky_open is batch:
            self.sticky_open = NO_BATCH
            self.sticky.step()
        if not batch.values:
            self._sender.budget.release(batch.granted)
            return
        sealed = self._sender.new_batch(gathering.partition, len(batch.values), batch.granted)
        sealed.futures = batch.futures
        self._submit(gathering, sealed, batch)

    def send(
        self,
        partition: int,
        columns: pa.RecordBatch,
        held_bytes: int,
        *,
        future: asyncio.Future[Receipt] | None = None,
        expected_offset: int | None = None,
    ) -> None:
        """Sends a batch that is whole already, and has `held_bytes` of the budget.

        `future` gets its receipt or its error.
        """
        gathering = self.of(partition)
        if gathering.open is not None:
            # What was sent to the partition earlier stays in front.
            self.seal(gathering)
        batch = self._sender.new_batch(partition, columns.num_rows, held_bytes)
        batch.future, batch.expected_offset = future, expected_offset
        self._submit(gathering, batch, columns)

    def _submit(self, gathering: Gathering, batch: Batch, records: OpenBatch | pa.RecordBatch) -> None:
        lane = gathering.delivery.lane
        try:
            batch.data = encode(
                records,
                self._compression,
                self._batch_bytes_max,
                producer_id=lane.identity.producer_id,
                producer_epoch=lane.identity.producer_epoch,
                base_sequence=lane.next_sequence(),
            )
        except TidelogError as error:
            self._sender.unfinished.fail(Failed(batch, error))
        else:
            self._sender.submit(gathering.delivery, batch)

    def give_up(self, reason: TidelogError) -> None:
        """Fails what is not sealed."""
        self.sticky_open = NO_BATCH
        for gathering in self._by_partition.values():
            self.open_batches[gathering.partition] = NO_BATCH
            if gathering.linger is not None:
                gathering.linger.cancel()
                gathering.linger = None
            if gathering.open is not None:
                batch, gathering.open = gathering.open, None
                self._sender.budget.release(batch.granted)
                for _, future in batch.futures:
                    if not future.done():
                        future.set_exception(own_copy(reason))
