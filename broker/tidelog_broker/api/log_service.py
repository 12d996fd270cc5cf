"""The `Log` service: writing and reading records (proto/tidelog_proto/log.proto)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from itertools import count
from typing import ClassVar

from tidelog.errors import (
    BatchTooLarge,
    InvalidRequest,
    ResourceExhausted,
    StreamNotFound,
    TidelogError,
    TimedOut,
)
from tidelog.model.access import Operation
from tidelog.records.limits import BATCH_OVERHEAD_BYTES
from tidelog.wire import error_to_proto
from tidelog_broker.api.access import ACCESS, stream_with
from tidelog_broker.api.fetch import FetchAnswer, FetchCall
from tidelog_broker.api.fetch_start import check_newest_known, resolve_start
from tidelog_broker.api.forwarding import Forwarding
from tidelog_broker.api.produce import ProduceCall
from tidelog_broker.api.publish_records import (
    PUBLISH_RECORDS_MAX,
    WORK_PER_BYTE,
    WORK_PER_RECORD,
    LargePublish,
    PublishMessage,
    Shares,
    parse_publish,
    shares_of,
)
from tidelog_broker.api.sinks import SinkRequests
from tidelog_broker.api.verbatim import parse_produce
from tidelog_broker.core.metadata.image import StreamImage
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_broker.storage.guard.append_guard import PRODUCER_WINDOW_BATCHES
from tidelog_broker.writing.append_requests import Acks, RecordsAppend, RecordsAppended
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.record_columns import RecordColumns
from tidelog_proto import log_pb2

OFFSETS_PARTITIONS_MAX = 10_000
"""Partitions of one Offsets request."""

AT_ONCE_MAX = 500
"""Partitions asked about, or receipts made, in one turn of the event loop."""

FETCH_CALLS_MAX = 5_000
"""Fetch calls at a time."""


class LogService:
    """The rpcs of the service; every method raises `TidelogError`."""

    request_parsers: ClassVar = {"Produce": parse_produce, "Publish": parse_publish}
    """Requests that the generated code does not parse (`grpc_door`)."""

    def __init__(self, broker: Broker, quorum: QuorumController) -> None:
        self._broker = broker
        self._sinks = SinkRequests(broker, quorum)
        self.forwarding = Forwarding(broker, quorum, self._sinks.at_controller())
        """For rpcs that only the controller can serve."""
        self._sticky = count()
        self._fetches = 0

    def produce(self, send: Callable[[log_pb2.ProduceResponse], None]) -> ProduceCall:
        return ProduceCall(self._broker, send)

    async def fetch(self, request: log_pb2.FetchRequest) -> AsyncGenerator[FetchAnswer]:
        if self._fetches >= FETCH_CALLS_MAX:
            raise ResourceExhausted(
                f"{FETCH_CALLS_MAX} Fetch calls run on this broker already; try again", retry_after_ms=1000
            )
        self._fetches += 1
        self._broker.metrics.fetch_calls.set(self._fetches)
        try:
            async with aclosing(FetchCall(self._broker, request).responses()) as responses:
                async for response in responses:
                    yield response
        finally:
            self._fetches -= 1
            self._broker.metrics.fetch_calls.set(self._fetches)

    async def publish(self, message: PublishMessage | LargePublish) -> log_pb2.PublishResponse:
        if isinstance(message, LargePublish):
            message = await self._parsed(message)
        request = message.request
        if not 1 <= len(request.records) <= PUBLISH_RECORDS_MAX:
            raise InvalidRequest(
                f"a Publish has {len(request.records)} records; give 1 to {PUBLISH_RECORDS_MAX}"
            )
        Acks.checked(request.acks)
        usage = ACCESS.get().usage
        await usage.pace(usage.produced, message.bytes, "bytes of records")
        # The stream may be deleted, or hidden, during the wait.
        stream = self._stream(request)
        # Everything is checked before anything is queued, so that a refusal has had no effect.
        shares = []
        for number, (indexes, records) in (await self._by_partition(stream, message)).items():
            partition = self._broker.leading(stream.id, number)
            self._check_size(partition, records)
            self._broker.check_room(partition, records.bytes)
            shares.append((indexes, partition, records))
        waiting = [
            (indexes, partition, self._submit(partition, records, request))
            for indexes, partition, records in shares
        ]
        response = log_pb2.PublishResponse()
        receipts: list[log_pb2.PublishReceipt | None] = [None] * len(request.records)
        done = await asyncio.gather(*(future for _, _, future in waiting), return_exceptions=True)
        failed = [outcome for outcome in done if isinstance(outcome, BaseException)]
        if failed:
            raise failed[0] if len(failed) == len(done) else _in_part(failed[0], len(failed), len(done))
        for (indexes, partition, _), outcome in zip(waiting, done, strict=True):
            assert isinstance(outcome, RecordsAppended)
            for place, index in enumerate(indexes):
                if place % AT_ONCE_MAX == AT_ONCE_MAX - 1:
                    await asyncio.sleep(0)
                receipts[index] = log_pb2.PublishReceipt(
                    partition=partition.partition,
                    offset=outcome.offsets[place],
                    leader_epoch=outcome.leader_epoch,
                    duplicate=place in outcome.duplicates,
                )
        response.receipts.extend(receipt for receipt in receipts if receipt is not None)
        return response

    async def _parsed(self, message: LargePublish) -> PublishMessage:
        found: PublishMessage = await self._broker.checks.run(object(), len(message.data), message.parsed)
        return found

    async def _by_partition(self, stream: StreamImage, message: PublishMessage) -> Shares:
        """The records by partition; of a large request in a thread."""
        checks, sticky = self._broker.checks, next(self._sticky) % len(stream.partitions)
        clock = self._broker.clock
        work = partial(shares_of, message.request, stream, sticky, clock.append_us(), clock.wall())
        work_bytes = max(message.bytes * WORK_PER_BYTE, len(message.request.records) * WORK_PER_RECORD)
        if checks.here(work_bytes):
            return work()
        found: Shares = await checks.run(object(), message.bytes, work)
        return found

    def _stream(self, request: log_pb2.PublishRequest) -> StreamImage:
        image, access = self._broker.controller.image, ACCESS.get()
        kind = request.WhichOneof("stream")
        if kind is None:
            raise InvalidRequest("the Publish names no stream; give stream_id or name")
        if kind == "name":
            access.check_named(request.name, Operation.PRODUCE)
            stream = image.stream_named(request.name)
            if stream is None:
                raise StreamNotFound(f"there is no stream {request.name[:200]!r}")
            return stream
        access.check_stream(request.stream_id, Operation.PRODUCE)
        return stream_with(image, request.stream_id)

    @staticmethod
    def _check_size(partition: Partition, records: RecordColumns) -> None:
        """Raises `BatchTooLarge` for what may not fit into one batch."""
        size = records.bytes
        if size + BATCH_OVERHEAD_BYTES > partition.limits.batch_bytes_max:
            raise BatchTooLarge(
                f"the records for partition {partition.partition} (there are {len(records)}) take up to "
                f"{size + BATCH_OVERHEAD_BYTES} bytes; this stream accepts "
                f"{partition.limits.batch_bytes_max} "
                f"at a time (batch_bytes_max)",
                batch_bytes_max=partition.limits.batch_bytes_max,
            )

    def _submit(
        self, partition: Partition, records: RecordColumns, request: log_pb2.PublishRequest
    ) -> asyncio.Future[RecordsAppended]:
        future: asyncio.Future[RecordsAppended] = asyncio.get_running_loop().create_future()

        def done(outcome: RecordsAppended | TidelogError) -> None:
            if future.done():
                return
            if isinstance(outcome, TidelogError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        timeout_ms = request.timeout_ms if request.HasField("timeout_ms") else None
        append = RecordsAppend(
            records,
            done,
            Acks(request.acks),
            self._broker.deadline(timeout_ms),
        )
        try:
            self._broker.append(partition, append)
        except TidelogError as error:
            done(error)
        return future

    async def offsets(self, request: log_pb2.OffsetsRequest) -> log_pb2.OffsetsResponse:
        if len(request.partitions) > OFFSETS_PARTITIONS_MAX:
            raise InvalidRequest(
                f"the request has {len(request.partitions)} partitions; give at most {OFFSETS_PARTITIONS_MAX}"
            )
        response = log_pb2.OffsetsResponse()
        for number, wanted in enumerate(request.partitions, 1):
            response.partitions.append(await self._offsets(wanted))
            if number % AT_ONCE_MAX == 0:
                await asyncio.sleep(0)
        return response

    async def _offsets(self, wanted: log_pb2.FetchPartition) -> log_pb2.PartitionOffsets:
        try:
            ACCESS.get().check_stream(wanted.stream_id, Operation.DESCRIBE)
            partition = self._broker.leading(wanted.stream_id, wanted.partition)
            offset, epoch = await resolve_start(self._broker, partition, wanted)
            # The answer says where readers stop, whatever it was that they asked.
            check_newest_known(partition)
        except TidelogError as error:
            return log_pb2.PartitionOffsets(error=error_to_proto(error))
        log = partition.log
        return log_pb2.PartitionOffsets(
            log_start_offset=log.start_offset,
            high_watermark=partition.high_watermark,
            log_end_offset=log.end_offset,
            leader_epoch=partition.leader_epoch,
            position=log_pb2.Position(offset=offset, leader_epoch=epoch),
        )

    async def init_producer(self, request: log_pb2.InitProducerRequest) -> log_pb2.InitProducerResponse:
        if request.HasField("producer_id"):
            raise InvalidRequest(
                "a producer starts again without a producer id; the use of an earlier id is not supported yet"
            )
        return log_pb2.InitProducerResponse(
            producer_id=await self._broker.controller.allocate_producer_id(),
            producer_epoch=0,
            inflight_batches_max=PRODUCER_WINDOW_BATCHES,
        )

    # --- sinks

    async def begin_sink_run(self, request: log_pb2.BeginSinkRunRequest) -> log_pb2.BeginSinkRunResponse:
        response: log_pb2.BeginSinkRunResponse = await self.forwarding.at_controller("BeginSinkRun", request)
        return response

    async def open_sink(self, request: log_pb2.OpenSinkRequest) -> log_pb2.OpenSinkResponse:
        response: log_pb2.OpenSinkResponse = await self.forwarding.at_controller("OpenSink", request)
        return response

    async def close_sink(self, request: log_pb2.CloseSinkRequest) -> log_pb2.CloseSinkResponse:
        if not self._sinks.check_close(request.name):
            # As for a sink that does not exist (A8).
            return log_pb2.CloseSinkResponse()
        response: log_pb2.CloseSinkResponse = await self.forwarding.at_controller("CloseSink", request)
        return response

    async def describe_sink(self, request: log_pb2.DescribeSinkRequest) -> log_pb2.DescribeSinkResponse:
        return await self._sinks.describe(request)

    # --- deleting

    async def delete_records(self, request: log_pb2.DeleteRecordsRequest) -> log_pb2.DeleteRecordsResponse:
        partition = self._broker.leading(request.stream_id, request.partition)
        check_newest_known(partition)
        reached = partition.high_watermark
        before = request.before_offset if request.HasField("before_offset") else reached
        if before > reached:
            raise InvalidRequest(
                f"before_offset is {before}, but the high watermark is {reached}; records from there on "
                f"cannot be deleted"
            )
        return log_pb2.DeleteRecordsResponse(
            log_start_offset=await self._broker.delete_records(partition, before)
        )


def _in_part(error: BaseException, failed: int, shares: int) -> BaseException:
    """What a request is told of which a part was stored: whatever went wrong, it is not without effect."""
    if not isinstance(error, TidelogError) or not error.definite:
        return error
    return TimedOut(
        f"the records for {failed} of {shares} partitions were not stored, all other records were: "
        f"{error.message}",
        cause=error.code,
    )
