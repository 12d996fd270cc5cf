"""A broker in the test's own process that does what the test scripts it to do.

It speaks the real protocol over a real socket and keeps the rules that a client relies
on: sequences and repeats (R8), PRECEDING_FAILED until reset, offsets without gaps. What
goes wrong, and when, is the test's decision: `script` holds a step for each batch that
arrives; without one a batch is appended and acknowledged.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from support.hosts import HOST
from tidelog import errors, wire
from tidelog.model import BrokerDescription, Listener, PartitionDescription, StreamConfig, StreamDescription
from tidelog.records import NO_PRODUCER_ID, BatchHeader, stamp
from tidelog.records.limits import BATCH_BYTES_HARD_MAX
from tidelog_proto import (
    admin_pb2,
    admin_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
    metadata_pb2,
    metadata_pb2_grpc,
)

WINDOW = 5


@dataclass(frozen=True)
class Fail:
    """Answer with an error, after the batch was appended or not."""

    error: errors.TidelogError
    landed: bool = False


@dataclass(frozen=True)
class Break:
    """End the call without an answer, after the batch was appended or not."""

    landed: bool = False


@dataclass(frozen=True)
class Silence:
    """Never answer, nor anything behind it."""

    landed: bool = False


@dataclass(frozen=True)
class Hold:
    """Answer as usual once the event is set."""

    until: asyncio.Event


Step = Fail | Break | Silence | Hold | None


@dataclass
class FakeLog:
    """One partition."""

    stream_id: bytes
    partition: int
    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    start: int = 0
    epoch: int = 1
    producers: dict[int, tuple[int, int, list[tuple[int, int, int]]]] = field(default_factory=dict)
    """producer id → (epoch, next sequence, window of (base sequence, count, base offset))"""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def end(self) -> int:
        return self.batches[-1][0].next_offset if self.batches else self.start

    def append(self, batch: bytes) -> log_pb2.ProduceReceipt:
        header = BatchHeader.unpack(batch)
        if header.producer_id != NO_PRODUCER_ID:
            first_copy = self._check(header)
            if first_copy is not None:
                return self._receipt(first_copy, header.record_count, duplicate=True)
        base = self.end
        head = stamp(
            batch,
            stream_id=self.stream_id,
            partition=self.partition,
            base_offset=base,
            append_time_us=time.time_ns() // 1000,
            leader_epoch=self.epoch,
        )
        whole = head + batch[80:]
        self.batches.append((BatchHeader.unpack(whole), whole))
        if header.producer_id != NO_PRODUCER_ID:
            following = (header.base_sequence + header.record_count) % (1 << 32)
            window = self.producers.get(header.producer_id, (0, 0, []))[2]
            window = [*window, (header.base_sequence, header.record_count, base)][-WINDOW:]
            self.producers[header.producer_id] = (header.producer_epoch, following, window)
        self.changed.set()
        self.changed = asyncio.Event()
        return self._receipt(base, header.record_count)

    def _check(self, header: BatchHeader) -> int | None:
        known = self.producers.get(header.producer_id)
        if known is None:
            if header.base_sequence:
                raise errors.UnknownProducer(f"producer {header.producer_id} is unknown")
            return None
        epoch, following, window = known
        if header.producer_epoch < epoch:
            raise errors.FencedProducer(f"epoch {header.producer_epoch} is fenced by {epoch}")
        for sequence, count, base in window:
            if (sequence, count) == (header.base_sequence, header.record_count):
                return base
        if header.base_sequence != following:
            raise errors.OutOfOrderSequence(f"{header.base_sequence} came, {following} is next")
        return None

    def _receipt(self, base: int, count: int, duplicate: bool = False) -> log_pb2.ProduceReceipt:
        return log_pb2.ProduceReceipt(
            base_offset=base,
            last_offset=base + count - 1,
            leader_epoch=self.epoch,
            append_time_us=1,
            duplicate=duplicate,
        )


class FakeBroker:
    """A broker that answers as the test says.

    ``async with FakeBroker() as broker``; `address` says where it listens.
    """

    def __init__(self, broker_id: int = 0) -> None:
        self.broker_id = broker_id
        self.address = ""
        self.peers: list[FakeBroker] = [self]
        self.logs: dict[bytes, list[FakeLog]] = {}
        self.streams: dict[str, StreamDescription] = {}
        self.script: deque[Step] = deque()
        self.produced: list[log_pb2.ProduceRequest] = []
        """Every Produce request, in order of arrival."""
        self.calls: dict[str, int] = {}
        self.fetch_script: deque[Any] = deque()
        """Functions from a FetchResponse to the one to send instead (or an exception to raise, or
        `Silence`)."""
        self.fetches: list[log_pb2.FetchRequest] = []
        self.unary_script: deque[errors.TidelogError | grpc.StatusCode | None] = deque()
        self.next_producer_id = 1000
        self.version = 0
        """Of its view of the metadata."""
        self.more_listeners: list[Listener] = []
        """In front of the one that it listens at."""
        self.offsets_refused: errors.TidelogError | None = None
        """What Offsets answers for each partition."""
        self.window = WINDOW
        self._server: grpc.aio.Server | None = None
        self._port = 0

    async def __aenter__(self) -> FakeBroker:
        await self.start()
        return self

    async def __aexit__(self, *ignored: object) -> None:
        await self.stop()

    async def start(self) -> None:
        size = BATCH_BYTES_HARD_MAX + (1 << 20)
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", size),
                ("grpc.max_send_message_length", size),
                ("grpc.so_reuseport", 0),
                ("grpc.http2.max_ping_strikes", 0),
            ]
        )
        # What the classes lack answers UNIMPLEMENTED at run time, which is what these tests want.
        log_pb2_grpc.add_LogServicer_to_server(_Log(self), self._server)  # type: ignore[abstract]
        metadata_pb2_grpc.add_MetadataServicer_to_server(_Metadata(self), self._server)  # type: ignore[abstract]
        admin_pb2_grpc.add_AdminServicer_to_server(_Admin(self), self._server)  # type: ignore[abstract]
        self._port = self._server.add_insecure_port(f"{HOST}:{self._port}")
        self.address = f"{HOST}:{self._port}"
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def add_stream(self, name: str, partitions: int = 1, **config: Any) -> list[FakeLog]:
        """A stream led by this broker on every fake that knows it; its logs."""
        settings = StreamConfig(partitions=partitions, **config)
        stream_id = uuid.uuid4().bytes
        stream = StreamDescription(
            name,
            stream_id,
            settings,
            1,
            0,
            tuple(
                PartitionDescription(number, self.broker_id, 1, 0, (self.broker_id,), (self.broker_id,))
                for number in range(partitions)
            ),
        )
        logs = [FakeLog(stream_id, number) for number in range(partitions)]
        for peer in self.peers:
            peer.streams[name] = stream
            peer.logs[stream_id] = logs
        return logs

    def lead(
        self, name: str, partition: int, broker_id: int | None, seen_by: Sequence[FakeBroker] | None = None
    ) -> None:
        """From now on metadata says that `broker_id` leads the partition: on all peers, or on some."""
        for peer in self.peers if seen_by is None else seen_by:
            stream = peer.streams[name]
            parts = list(stream.partitions)
            epoch = parts[partition].leader_epoch + 1
            parts[partition] = PartitionDescription(partition, broker_id, epoch, 0, (0, 1), (0, 1))
            peer.streams[name] = replace(stream, partitions=tuple(parts))
            peer.version += 1
            peer.logs[stream.stream_id][partition].epoch = epoch

    def log(self, stream_id: bytes, partition: int) -> FakeLog:
        """The log, if this broker leads it."""
        name = next((name for name, one in self.streams.items() if one.stream_id == stream_id), None)
        if name is None:
            raise errors.StreamNotFound("there is no such stream")
        leader = self.streams[name].partitions[partition].leader
        if leader != self.broker_id:
            known: dict[str, Any] = {} if leader is None else {"leader": leader}
            raise errors.NotLeader(f"broker {self.broker_id} does not lead {name}/{partition}", **known)
        return self.logs[stream_id][partition]

    def count(self, call: str) -> None:
        self.calls[call] = self.calls.get(call, 0) + 1

    async def scripted(self, context: Any) -> None:
        """The next scripted failure of a unary call, if there is one."""
        step = self.unary_script.popleft() if self.unary_script else None
        if isinstance(step, grpc.StatusCode):
            await context.abort(step, "scripted")
        elif step is not None:
            await abort(context, step)


async def abort(context: Any, error: errors.TidelogError) -> None:
    """Ends a unary call the way a broker does (DESIGN section 8)."""
    info = error_details_pb2.ErrorInfo(
        reason=error.code,
        domain="tidelog.io",
        metadata={
            "retriable": str(error.retriable).lower(),
            "definite": str(error.definite).lower(),
            **error.details,
        },
    )
    details = [any_pb2.Any()]
    details[0].Pack(info)
    if error.retry_after_ms is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(error.retry_after_ms)
        details.append(any_pb2.Any())
        details[1].Pack(retry)
    status = status_pb2.Status(code=grpc.StatusCode.ABORTED.value[0], message=error.message, details=details)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    await context.abort(grpc.StatusCode.ABORTED, error.message)


class _Log(log_pb2_grpc.LogServicer):
    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    async def InitProducer(self, request: Any, context: Any) -> log_pb2.InitProducerResponse:  # noqa: N802
        broker = self._broker
        broker.count("InitProducer")
        await broker.scripted(context)
        broker.next_producer_id += 1
        return log_pb2.InitProducerResponse(
            producer_id=broker.next_producer_id, producer_epoch=0, inflight_batches_max=broker.window
        )

    async def Produce(self, requests: Any, context: Any) -> AsyncIterator[log_pb2.ProduceResponse]:  # noqa: N802
        broker = self._broker
        broker.count("Produce")
        refused: set[int] = set()
        async for request in requests:
            broker.produced.append(request)
            if request.reset:
                refused.discard(request.partition)
            if request.partition in refused:
                yield _failed(request, errors.PrecedingFailed("an earlier batch failed"))
                continue
            step = broker.script.popleft() if broker.script else None
            if isinstance(step, Hold):
                await step.until.wait()
            receipt = None
            try:
                log = broker.log(request.stream_id, request.partition)
                if step is None or isinstance(step, Hold) or step.landed:
                    expected = request.expected_offset if request.HasField("expected_offset") else None
                    if expected is not None and expected != log.end:
                        raise errors.UnexpectedOffset(f"the log ends at {log.end}")
                    receipt = log.append(request.batch)
            except errors.TidelogError as error:
                refused.add(request.partition)
                yield _failed(request, error)
                continue
            match step:
                case Fail(scripted):
                    refused.add(request.partition)
                    yield _failed(request, scripted)
                case Break():
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "scripted break")
                case Silence():
                    # Answers keep their order, so that nothing behind it is answered either.
                    await asyncio.Event().wait()
                case _:
                    yield log_pb2.ProduceResponse(request_id=request.request_id, receipt=receipt)

    async def Offsets(self, request: Any, context: Any) -> log_pb2.OffsetsResponse:  # noqa: N802
        self._broker.count("Offsets")
        await self._broker.scripted(context)
        return log_pb2.OffsetsResponse(partitions=[self._offsets(wanted) for wanted in request.partitions])

    def _offsets(self, wanted: log_pb2.FetchPartition) -> log_pb2.PartitionOffsets:
        try:
            if self._broker.offsets_refused is not None:
                raise self._broker.offsets_refused
            log = self._broker.log(wanted.stream_id, wanted.partition)
            position = _start(log, wanted)
        except errors.TidelogError as error:
            return log_pb2.PartitionOffsets(error=wire.error_to_proto(error))
        return log_pb2.PartitionOffsets(
            log_start_offset=log.start, high_watermark=log.end, log_end_offset=log.end, position=position
        )

    async def Fetch(self, request: Any, context: Any) -> AsyncIterator[log_pb2.FetchResponse]:  # noqa: N802
        broker = self._broker
        broker.count("Fetch")
        broker.fetches.append(request)
        answers: asyncio.Queue[log_pb2.FetchResponse] = asyncio.Queue(1)
        tasks = [
            asyncio.create_task(self._follow(index, wanted, request, answers))
            for index, wanted in enumerate(request.partitions)
        ]
        try:
            left = len(tasks)
            while left:
                answer = await answers.get()
                left -= answer.HasField("end") or answer.HasField("error")
                change = broker.fetch_script.popleft() if broker.fetch_script else None
                if isinstance(change, Silence):
                    await asyncio.Event().wait()
                if isinstance(change, BaseException):
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "scripted break")
                yield change(answer) if change is not None else answer
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(
        self, index: int, wanted: log_pb2.FetchPartition, request: Any, answers: asyncio.Queue[Any]
    ) -> None:
        try:
            log = self._broker.log(wanted.stream_id, wanted.partition)
            at = _start(log, wanted).offset
        except errors.TidelogError as error:
            await answers.put(log_pb2.FetchResponse(index=index, error=wire.error_to_proto(error)))
            return
        end = wanted.end_offset if wanted.HasField("end_offset") else None
        while end is None or at < end:
            changed = log.changed
            for header, data in log.batches:
                if header.next_offset > at and (end is None or at < end):
                    at = header.next_offset
                    await answers.put(self._facts(index, log, at, batches=data))
            if end is not None and at >= end:
                break
            try:
                async with asyncio.timeout(request.heartbeat_ms / 1000):
                    await changed.wait()
            except TimeoutError:
                await answers.put(self._facts(index, log, at, heartbeat=log_pb2.Heartbeat()))
        await answers.put(self._facts(index, log, at, end=log_pb2.EndOfPartition()))

    def _facts(self, index: int, log: FakeLog, at: int, **item: Any) -> log_pb2.FetchResponse:
        return log_pb2.FetchResponse(
            index=index,
            log_start_offset=log.start,
            high_watermark=log.end,
            log_end_offset=log.end,
            next=log_pb2.Position(offset=at, leader_epoch=log.epoch),
            **item,
        )


def _start(log: FakeLog, wanted: log_pb2.FetchPartition) -> log_pb2.Position:
    match wanted.WhichOneof("start"):
        case "latest":
            return log_pb2.Position(offset=log.end)
        case "timestamp_us":
            for header, _ in log.batches:
                if header.timestamp_max_us >= wanted.timestamp_us:
                    return log_pb2.Position(offset=header.base_offset)
            return log_pb2.Position(offset=log.end)
        case "position":
            offset = wanted.position.offset
            if not log.start <= offset <= log.end:
                raise errors.OffsetOutOfRange(
                    f"offset {offset} is not in {log.start}–{log.end}",
                    log_start_offset=log.start,
                    log_end_offset=log.end,
                )
            return wanted.position
    return log_pb2.Position(offset=log.start)


def _failed(request: log_pb2.ProduceRequest, error: errors.TidelogError) -> log_pb2.ProduceResponse:
    return log_pb2.ProduceResponse(request_id=request.request_id, error=wire.error_to_proto(error))


class _Metadata(metadata_pb2_grpc.MetadataServicer):
    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    async def Resolve(self, request: Any, context: Any) -> metadata_pb2.ResolveResponse:  # noqa: N802
        broker = self._broker
        broker.count("Resolve")
        await broker.scripted(context)
        brokers = []
        for peer in broker.peers:
            host, port = peer.address.rsplit(":", 1)
            listener = Listener("client", host, int(port))
            listeners = (*peer.more_listeners, listener)
            brokers.append(
                wire.broker_to_proto(BrokerDescription(peer.broker_id, bytes(16), bytes(16), listeners))
            )
        return metadata_pb2.ResolveResponse(
            version=broker.version,
            brokers=brokers,
            streams=[
                wire.stream_to_proto(broker.streams[name]) for name in request.names if name in broker.streams
            ],
            missing=[name for name in request.names if name not in broker.streams],
        )


class _Admin(admin_pb2_grpc.AdminServicer):
    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    async def CreateStream(self, request: Any, context: Any) -> admin_pb2.CreateStreamResponse:  # noqa: N802
        broker = self._broker
        broker.count("CreateStream")
        await broker.scripted(context)
        settings = wire.settings_from_proto(request.config)
        if request.name not in broker.streams:
            broker.add_stream(request.name, settings.partitions or 1)
        stream = wire.stream_to_proto(broker.streams[request.name])
        return admin_pb2.CreateStreamResponse(stream=stream, created=True)

    async def DeleteStream(self, request: Any, context: Any) -> admin_pb2.DeleteStreamResponse:  # noqa: N802
        broker = self._broker
        broker.count("DeleteStream")
        await broker.scripted(context)
        if request.name not in broker.streams:
            await abort(context, errors.StreamNotFound(f"there is no stream {request.name}"))
        stream = broker.streams.pop(request.name)
        del broker.logs[stream.stream_id]
        return admin_pb2.DeleteStreamResponse(stream_id=stream.stream_id)

    async def DescribeStream(self, request: Any, context: Any) -> admin_pb2.DescribeStreamResponse:  # noqa: N802
        await self._broker.scripted(context)
        if request.name not in self._broker.streams:
            await abort(
                context, errors.StreamNotFound(f"there is no stream {request.name}", name=request.name)
            )
        return admin_pb2.DescribeStreamResponse(
            stream=wire.stream_to_proto(self._broker.streams[request.name])
        )

    async def ListStreams(self, request: Any, context: Any) -> admin_pb2.ListStreamsResponse:  # noqa: N802
        # A page each, to see that all of them are asked for.
        names = sorted(self._broker.streams)
        at = int(request.page_token or 0)
        return admin_pb2.ListStreamsResponse(
            streams=[wire.stream_to_proto(self._broker.streams[name]) for name in names[at : at + 1]],
            next_page_token=str(at + 1) if at + 1 < len(names) else "",
        )
