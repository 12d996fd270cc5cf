"""The two calls that carry batches, in memory: the broker's side of Produce and Fetch."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import Any, Final

import grpc
import grpc.aio
import pyarrow as pa

from tidelog import wire
from tidelog._connecting.framing import FetchAnswer, parse_fetch_answer
from tidelog.errors import ConnectionLost, NotLeader, TidelogError
from tidelog.model import PipelineOrder
from tidelog.records import HEADER_BYTES
from tidelog.records.projected import pack_projected
from tidelog.records.projecting import BytesNeeded, Projector
from tidelog.testing import _status
from tidelog.testing._brokers import MemoryBroker
from tidelog.testing._log import Stored
from tidelog_proto import log_pb2

EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]
RESPONSE_BYTES_DEFAULT: Final = 1 << 20
HEARTBEAT_MS_DEFAULT: Final = 5_000
PROJECTION_BYTES_MAX: Final = 1 << 40
"""No batch needs so much."""


class ProduceCall:
    """A Produce call. A request is executed when its answer is read."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._requests: deque[log_pb2.ProduceRequest] = deque()
        self._more = asyncio.Event()
        self._orders: defaultdict[tuple[bytes, int], PipelineOrder] = defaultdict(PipelineOrder)
        """By stream id and partition."""

    async def wait_for_connection(self) -> None:
        await self._broker.unless_broken(asyncio.sleep(0))

    async def write(self, request: bytes) -> None:
        self._broker.check_up()
        self._requests.append(log_pb2.ProduceRequest.FromString(request))
        self._more.set()

    async def read(self) -> log_pb2.ProduceResponse:
        return await self._broker.unless_broken(self._next())

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK

    def cancel(self) -> bool:
        return True

    async def _next(self) -> log_pb2.ProduceResponse:
        while not self._requests:
            self._more.clear()
            await self._more.wait()
        request = self._requests.popleft()
        try:
            receipt = await self._append(request)
        except TidelogError as error:
            if isinstance(error, ConnectionLost):
                raise _status.refused(error) from None
            self._orders[request.stream_id, request.partition].failed = True
            return log_pb2.ProduceResponse(request_id=request.request_id, error=wire.error_to_proto(error))
        return log_pb2.ProduceResponse(request_id=request.request_id, receipt=receipt)

    async def _append(self, request: log_pb2.ProduceRequest) -> log_pb2.ProduceReceipt:
        self._orders[request.stream_id, request.partition].check(reset=request.reset)
        fault = await self._broker.faults.met("produce", request.partition)
        if fault is not None and not fault.landed:
            raise fault.error
        receipt = self._broker.services.append(request)
        if fault is not None:
            raise fault.error
        return wire.receipt_to_proto(receipt)


class _Reading:
    """The state of a Fetch call for one partition."""

    def __init__(self, index: int, wanted: log_pb2.FetchPartition, offset: int, leader_epoch: int) -> None:
        self.index = index
        self.wanted = wanted
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.end = wanted.end_offset if wanted.HasField("end_offset") else None

    @property
    def finished(self) -> bool:
        return self.end is not None and self.offset >= self.end


class FetchCall:
    """A Fetch call. Answers are made when they are read; no answer is made ahead."""

    def __init__(self, broker: MemoryBroker, request: log_pb2.FetchRequest) -> None:
        self._broker = broker
        self._request = request
        self._bytes_max = request.response_bytes_max or RESPONSE_BYTES_DEFAULT
        self._projector: Projector | None = None
        """None: batches are sent as they are stored."""
        if request.format == log_pb2.PROJECTED:
            wanted = wire.projection_from_proto(request.projection)
            self._projector = Projector(wanted.columns, wanted.subject_filter, wanted.keys)
        self._heartbeat_s = (request.heartbeat_ms or HEARTBEAT_MS_DEFAULT) / 1000
        self._active: dict[int, _Reading] | None = None
        """By index; None: the call has not begun."""
        self._ready: deque[log_pb2.FetchResponse] = deque()

    async def read(self) -> FetchAnswer:
        answer: FetchAnswer = await self._broker.unless_broken(self._next())
        return answer

    def cancel(self) -> bool:
        return True

    async def _next(self) -> Any:
        while not self._ready:
            if self._active is None:
                self._begin_all()
            elif not self._active:
                return EOF
            else:
                await self._round(self._active)
        return parse_fetch_answer(self._ready.popleft().SerializeToString())

    def _begin_all(self) -> None:
        self._active = {}
        for index, wanted in enumerate(self._request.partitions):
            try:
                self._active[index] = self._begin(index, wanted)
            except TidelogError as error:
                self._ready.append(log_pb2.FetchResponse(index=index, error=wire.error_to_proto(error)))

    async def _round(self, active: dict[int, _Reading]) -> None:
        """The new records of each partition; a heartbeat if there are none for a while."""
        changed = self._broker.services.changed
        for reading in list(active.values()):
            response = await self._advance(reading)
            if response is None:
                continue
            self._ready.append(response)
            if response.HasField("error") or response.HasField("end"):
                del active[reading.index]
        if not self._ready and not await self._wait(changed):
            self._ready.extend(
                self._response(reading, heartbeat=log_pb2.Heartbeat()) for reading in active.values()
            )

    async def _wait(self, changed: asyncio.Event) -> bool:
        try:
            async with asyncio.timeout(self._heartbeat_s):
                await changed.wait()
        except TimeoutError:
            return False
        return True

    def _begin(self, index: int, wanted: log_pb2.FetchPartition) -> _Reading:
        leadership, log = self._broker.services.led(wanted.stream_id, wanted.partition)
        position = self._broker.services.start_of(log, wanted)
        reading = _Reading(index, wanted, position.offset, leadership.leader_epoch)
        if not self._request.follow:
            reading.end = log.end if reading.end is None else min(reading.end, log.end)
        return reading

    async def _advance(self, reading: _Reading) -> log_pb2.FetchResponse | None:
        """The next answer for the partition; None: there are no new records."""
        fault = await self._broker.faults.met("fetch", reading.wanted.partition)
        try:
            if fault is not None:
                raise fault.error
            leadership, log = self._broker.services.led(reading.wanted.stream_id, reading.wanted.partition)
            if leadership.leader_epoch != reading.leader_epoch:
                raise NotLeader("the partition has a new leader epoch", leader=leadership.leader)
        except ConnectionLost as error:
            raise _status.refused(error) from None
        except TidelogError as error:
            return log_pb2.FetchResponse(index=reading.index, error=wire.error_to_proto(error))
        if reading.finished:
            return self._response(reading, end=log_pb2.EndOfPartition())
        stored = log.read(reading.offset, reading.end, self._bytes_max)
        if not stored:
            return None
        if self._projector is not None:
            projected = self._projected(self._projector, reading, stored)
            return self._response(reading, projected=projected)
        reading.offset = stored[-1].header.next_offset
        return self._response(reading, batches=b"".join(batch.data for batch in stored))

    @staticmethod
    def _projected(projector: Projector, reading: _Reading, stored: list[Stored]) -> bytes:
        """Projected batches, one for each stored batch; `reading` then stands behind them."""
        parts: list[bytes | memoryview] = []
        for header, data in stored:
            end = header.next_offset if reading.end is None else min(reading.end, header.next_offset)
            body = pa.py_buffer(data).slice(HEADER_BYTES)
            found = projector.project(header, body, reading.offset, end, PROJECTION_BYTES_MAX)
            assert not isinstance(found, BytesNeeded), "a batch may be as large as it can be"
            facts = (
                {}
                if found is None
                else {
                    "append_time_us": header.append_time_us,
                    "attributes": found.attributes,
                    "record_count": found.record_count,
                }
            )
            message = [] if found is None else found.parts
            head = pack_projected(
                reading.wanted.stream_id,
                reading.wanted.partition,
                message,
                start_offset=reading.offset,
                next_offset=end,
                leader_epoch=header.leader_epoch,
                **facts,
            )
            parts += (head, *message)
            reading.offset = end
        return b"".join(parts)

    def _response(self, reading: _Reading, **item: Any) -> log_pb2.FetchResponse:
        log = self._broker.services.log_of(reading.wanted.stream_id, reading.wanted.partition)
        return log_pb2.FetchResponse(
            index=reading.index,
            log_start_offset=log.start,
            high_watermark=log.end,
            log_end_offset=log.end,
            next=log_pb2.Position(offset=reading.offset, leader_epoch=log.epoch_before(reading.offset)),
            **item,
        )
