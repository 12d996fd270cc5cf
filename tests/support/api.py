"""A broker as a client in any language sees it: generated stubs, and nothing of the library but batches."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio
import pyarrow as pa
from google.protobuf import any_pb2
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tidelog.records import NO_PRODUCER_ID, Columns, Compression, encode_batch, schema_of
from tidelog_proto import (
    admin_pb2,
    admin_pb2_grpc,
    common_pb2,
    log_pb2,
    log_pb2_grpc,
    metadata_pb2_grpc,
)

MESSAGE_BYTES_MAX = 128 << 20

_names = itertools.count()


def batch(
    *values: bytes | None,
    producer_id: int = NO_PRODUCER_ID,
    epoch: int = 0,
    sequence: int = 0,
    compression: Compression = Compression.NONE,
    timestamp_us: int | None = None,
) -> bytes:
    """A record batch as a client sends it."""
    at = int(time.time() * 1e6) if timestamp_us is None else timestamp_us
    schema = schema_of(Columns.NONE)
    columns = {"value": list(values), "timestamp": [at] * len(values)}
    arrays = [pa.array(columns[name], schema.field(name).type) for name in schema.names]
    return encode_batch(
        pa.record_batch(arrays, schema=schema),
        compression=compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def record(value: bytes | None = None, **fields: Any) -> log_pb2.PublishRecord:
    """A plain record for Publish; `message_id` and the fields of a record by name."""
    message_id = fields.pop("message_id", None)
    headers = [common_pb2.Header(name=name, value=content) for name, content in fields.pop("headers", ())]
    return log_pb2.PublishRecord(
        record=common_pb2.Record(value=value, headers=headers, **fields), message_id=message_id
    )


class ProduceCall:
    """One Produce call: `send`, then `answer` by answer."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self._ids = itertools.count(1)

    async def send(self, stream: common_pb2.StreamDescription, data: bytes, **fields: Any) -> int:
        """Sends a batch; the id of the request."""
        number = next(self._ids)
        fields.setdefault("stream_id", stream.stream_id)
        await self.call.write(log_pb2.ProduceRequest(request_id=number, batch=data, **fields))
        return number

    async def answer(self) -> log_pb2.ProduceResponse:
        response = await self.call.read()
        assert isinstance(response, log_pb2.ProduceResponse), "the call has ended"
        return response

    async def produce(
        self, stream: common_pb2.StreamDescription, data: bytes, **fields: Any
    ) -> log_pb2.ProduceResponse:
        """Sends a batch and waits for its answer."""
        number = await self.send(stream, data, **fields)
        response = await self.answer()
        assert response.request_id == number
        return response


class Api:
    """The services of one broker, and short forms of what tests say often."""

    def __init__(self, address: str) -> None:
        # The stubs of grpc know neither how a streaming call is read or written nor what may be left out.
        self.channel: Any = grpc.aio.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self.metadata: Any = metadata_pb2_grpc.MetadataStub(self.channel)
        self.log: Any = log_pb2_grpc.LogStub(self.channel)
        self.admin: Any = admin_pb2_grpc.AdminStub(self.channel)

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    async def create(self, name: str = "", **config: Any) -> common_pb2.StreamDescription:
        """A stream; without a name, one that no other test uses."""
        name = name or f"s{os.getpid()}-{next(_names)}"
        request = admin_pb2.CreateStreamRequest(name=name, config=common_pb2.StreamConfig(**config))
        response: admin_pb2.CreateStreamResponse = await self.admin.CreateStream(request)
        return response.stream

    async def publish(
        self, stream: common_pb2.StreamDescription, *records: bytes | log_pb2.PublishRecord, **fields: Any
    ) -> Sequence[log_pb2.PublishReceipt]:
        given = [record(one) if isinstance(one, bytes) else one for one in records]
        request = log_pb2.PublishRequest(stream_id=stream.stream_id, records=given, **fields)
        response: log_pb2.PublishResponse = await self.log.Publish(request)
        return response.receipts

    def produce(self) -> ProduceCall:
        return ProduceCall(self.log.Produce())

    def fetch(
        self, *partitions: log_pb2.FetchPartition, **fields: Any
    ) -> AsyncIterator[log_pb2.FetchResponse]:
        fields.setdefault("format", log_pb2.RECORDS)
        call: AsyncIterator[log_pb2.FetchResponse] = self.log.Fetch(
            log_pb2.FetchRequest(partitions=partitions, **fields)
        )
        return call

    async def read(
        self, stream: common_pb2.StreamDescription, partition: int = 0, **fields: Any
    ) -> list[log_pb2.FetchedRecord]:
        """All records of a partition."""
        found: list[log_pb2.FetchedRecord] = []
        async for response in self.fetch(start_of(stream, partition, **fields)):
            assert response.WhichOneof("item") != "error", response.error
            found += response.records.records
        return found

    async def values(self, stream: common_pb2.StreamDescription, partition: int = 0) -> list[bytes]:
        return [one.record.value for one in await self.read(stream, partition)]


def start_of(
    stream: common_pb2.StreamDescription, partition: int = 0, **fields: Any
) -> log_pb2.FetchPartition:
    """A partition to fetch, from its earliest record on unless told otherwise."""
    if not {"position", "latest", "timestamp_us"} & fields.keys():
        fields["earliest"] = True
    return log_pb2.FetchPartition(stream_id=stream.stream_id, partition=partition, **fields)


class Refusal:
    """What stands in the rich details of a refused call."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.status = error.code()
        self.message = error.details() or ""
        self.info = error_details_pb2.ErrorInfo()
        self.retry: error_details_pb2.RetryInfo | None = None
        status = rpc_status.from_call(error)  # type: ignore[arg-type]
        assert status is not None, f"no rich details: {error}"
        for detail in status.details:
            self._take(detail)

    def _take(self, detail: any_pb2.Any) -> None:
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            detail.Unpack(self.info)
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            self.retry = error_details_pb2.RetryInfo()
            detail.Unpack(self.retry)

    @property
    def code(self) -> str:
        return str(self.info.reason)

    @property
    def facts(self) -> dict[str, str]:
        return dict(self.info.metadata)


async def refusal(call: Any) -> Refusal:
    """Awaits a call that must be refused."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return Refusal(error)
    raise AssertionError(f"not refused: {answer}")


def code_of(error: common_pb2.Error) -> str:
    return common_pb2.ErrorCode.Name(error.code)
