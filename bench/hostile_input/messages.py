"""Large messages, and messages of very many parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc.aio

from bench.hostile_input.bombs import Case
from support.api import Api, Refusal, batch, start_of
from support.broker import BrokerProcess
from tidelog_broker.api.protobuf_writing import bytes_tag, varint
from tidelog_proto import common_pb2, log_pb2


def large_batches(count: int, size: int) -> Case:
    """Batches that are written by four calls at a time, and read as they are."""

    async def case(broker: BrokerProcess, api: Api) -> str:
        stream, data = await api.create(batch_bytes_max=size + (1 << 20)), batch(bytes(size))

        async def produce() -> None:
            call = api.produce()
            for _ in range(count // 4):
                response = await call.produce(stream, data)
                while not response.HasField("receipt"):
                    # Two of the largest do not fit into a partition's queue.
                    assert response.error.retriable, response.error
                    await asyncio.sleep(response.error.retry_after_ms / 1000)
                    response = await call.produce(stream, data, reset=True)

        await asyncio.gather(*(produce() for _ in range(4)))
        async for response in api.fetch(start_of(stream), format=log_pb2.VERBATIM):
            assert response.WhichOneof("item") != "error"
        return ""

    return case


def raw_requests(rpc: str, data: Callable[[], bytes], count: int) -> Case:
    """The same bytes on four calls at a time; the note names the errors that refuse them."""

    async def case(broker: BrokerProcess, api: Api) -> str:
        codes, body = set[str](), data()
        await api.create("s")
        # The stubs of grpc ask for a serializer; without one a message is the bytes.
        channel: Any = api.channel

        async def send() -> None:
            for _ in range(count // 4):
                try:
                    await channel.unary_unary(f"/tidelog.v1.Log/{rpc}")(body)
                except grpc.aio.AioRpcError as error:
                    codes.add(Refusal(error).code if error.trailing_metadata() else error.code().name)

        await asyncio.gather(*(send() for _ in range(4)))
        return f"refused: {', '.join(codes)}" if codes else ""

    return case


def publish_of_headers() -> bytes:
    """A record with eight million empty headers."""
    return _nested(_nested(_nested(b"", 3) * (8 << 20), 1), 5)


def publish_of_records() -> bytes:
    """As many records as a request may have, all as small as can be."""
    records = [log_pb2.PublishRecord(record=common_pb2.Record(value=b"x"))] * 10_000
    return log_pb2.PublishRequest(name="s", records=records).SerializeToString()


def publish_of_many_headers() -> bytes:
    """Records with as many headers as a record may have, and as many records as fit into a batch."""
    headers = [common_pb2.Header(name="a")] * 1000
    records = [log_pb2.PublishRecord(record=common_pb2.Record(value=b"x", headers=headers))] * 70
    return log_pb2.PublishRequest(name="s", records=records).SerializeToString()


def offsets_of_nothing(size: int) -> bytes:
    """A request for the offsets of partitions that are all empty messages."""
    return _nested(b"", 1) * (size // 2)


def _nested(content: bytes, number: int) -> bytes:
    return bytes_tag(number) + varint(len(content)) + content
