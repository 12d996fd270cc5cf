"""One Produce call: pipelined batches in, receipts out, in order per partition.

Rules of the call (DESIGN section 8): every request is answered once; answers of one
partition come in the order of its requests; after an error later batches of that
partition are refused until one comes with `reset`. Storage keeps the order among what
it was given (`Sender`); what is refused before it gets there is kept in order here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tidelog.errors import InvalidRequest, PrecedingFailed, ResourceExhausted, TidelogError
from tidelog.records import validate_batch
from tidelog.wire import error_to_proto
from tidelog_broker.api.verbatim import ProduceMessage
from tidelog_broker.runtime.appends import Acks, BatchAppend
from tidelog_broker.runtime.broker import Broker
from tidelog_broker.runtime.partition import Partition
from tidelog_broker.storage.log import Appended, AppendItem, Sender
from tidelog_proto import log_pb2

CALL_BYTES_MAX = 64 << 20
"""Unanswered bytes of one call; over it the broker stops reading the call (HTTP/2 flow control)."""

CALL_REQUESTS_MAX = 10_000
"""Unanswered requests of one call."""

CALL_PARTITIONS_MAX = 10_000
"""Partitions that one call may write to."""


class _Slot:
    """A request that waits for its answer, or for its turn to be answered."""

    __slots__ = ("bytes", "request_id", "response")

    def __init__(self, request_id: int, size: int) -> None:
        self.request_id = request_id
        self.bytes = size
        self.response: log_pb2.ProduceResponse | None = None


class _Lane:
    """One partition of a call."""

    __slots__ = ("refused", "sender", "slots")

    def __init__(self) -> None:
        self.sender = Sender()
        self.refused = False
        """A request was refused before it reached the partition's queue."""
        self.slots: deque[_Slot] = deque()


class ProduceCall:
    """See the module. `send` takes the answers, in the order in which they may go out."""

    def __init__(self, broker: Broker, send: Callable[[log_pb2.ProduceResponse], None]) -> None:
        self._broker = broker
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[tuple[bytes, int], _Lane] = {}
        self._bytes = 0
        self._requests = 0
        self._room: asyncio.Future[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        """Finds out whether the producer of the last batch may write; the call is not read meanwhile."""

    @property
    def unanswered(self) -> int:
        return self._requests

    @property
    def full(self) -> bool:
        return (
            self._bytes > CALL_BYTES_MAX or self._requests > CALL_REQUESTS_MAX or self._checking is not None
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for answers until `condition` holds."""
        while not condition():
            self._room = self._loop.create_future()
            await self._room

    def receive(self, message: ProduceMessage) -> None:
        """Takes one request; it is answered through `send`, sooner or later.

        Raises `ResourceExhausted`, which ends the call, for one partition too many.
        """
        request, batch = message
        key = (request.stream_id, request.partition)
        lane = self._lanes.get(key)
        if lane is None:
            if len(self._lanes) >= CALL_PARTITIONS_MAX:
                raise ResourceExhausted(
                    f"{CALL_PARTITIONS_MAX} partitions in one call (call_partitions_max); open another"
                )
            lane = self._lanes[key] = _Lane()
        slot = _Slot(request.request_id, len(batch))
        lane.slots.append(slot)
        self._bytes += slot.bytes
        self._requests += 1
        try:
            self._submit(request, batch, lane, slot)
        except TidelogError as error:
            lane.refused = True
            self._answer(lane, slot, error)

    def _submit(
        self, request: log_pb2.ProduceRequest, batch: bytes | memoryview, lane: _Lane, slot: _Slot
    ) -> None:
        if lane.refused:
            if not request.reset:
                raise PrecedingFailed(
                    "an earlier batch of this partition failed on the call; send it again, the first one "
                    "with reset"
                )
            lane.refused = False
        broker = self._broker
        partition = broker.leading(request.stream_id, request.partition)
        header = validate_batch(
            batch,
            partition.limits,
            now_us=broker.clock.wall(),
            timestamp_ahead_us_max=partition.config.timestamp_ahead_ms_max * 1000,
        )
        acks = request.acks
        if acks not in (0, 1, 2):
            raise InvalidRequest(f"acks is {acks}; it is 0 (all), 1 (leader) or 2 (none)")
        expected = request.expected_offset if request.HasField("expected_offset") else None
        timeout_ms = request.timeout_ms if request.HasField("timeout_ms") else None
        append = BatchAppend(
            AppendItem(batch, header, expected, sender=lane.sender, reset=request.reset),
            lambda outcome: self._answer(lane, slot, outcome),
            Acks(acks),
            broker.deadline(timeout_ms),
        )
        if broker.producer_ids.is_known(header.producer_id):
            broker.append(partition, append)
        else:
            self._checking = self._loop.create_task(self._append_checked(partition, append, lane, slot))

    async def _append_checked(
        self, partition: Partition, append: BatchAppend, lane: _Lane, slot: _Slot
    ) -> None:
        """Appends a batch of a producer of whom this broker has not heard, if there is one."""
        try:
            await self._broker.producer_ids.check(append.item.header.producer_id)
            self._broker.append(partition, append)
        except TidelogError as error:
            lane.refused = True
            self._answer(lane, slot, error)
        finally:
            self._checking = None
            self._wake()

    def _answer(self, lane: _Lane, slot: _Slot, outcome: Appended | TidelogError) -> None:
        response = log_pb2.ProduceResponse(request_id=slot.request_id)
        if isinstance(outcome, TidelogError):
            response.error.CopyFrom(error_to_proto(outcome))
        else:
            receipt = response.receipt
            receipt.base_offset = outcome.base_offset
            receipt.last_offset = outcome.last_offset
            receipt.leader_epoch = outcome.leader_epoch
            receipt.append_time_us = outcome.append_time_us
            receipt.duplicate = outcome.duplicate
        slot.response = response
        slots = lane.slots
        while slots and slots[0].response is not None:
            ready = slots.popleft()
            assert ready.response is not None
            self._bytes -= ready.bytes
            self._requests -= 1
            self._send(ready.response)
        self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
