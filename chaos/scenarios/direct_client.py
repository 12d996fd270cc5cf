"""A client without the library: it writes to one broker and never looks for another leader.

It sends one record after the other with acks=all, each with a short deadline. A record without an
acknowledgement has an unknown outcome.
"""

from __future__ import annotations

import asyncio
from typing import Final

import grpc.aio

from chaos.load import VALUE_BYTES
from chaos.recording import Recording
from tidelog.history import Outcome, Write, stamp
from tidelog_proto import common_pb2, log_pb2, log_pb2_grpc

ANSWER_SECONDS: Final = 0.1
"""The deadline of a record. On one machine an acknowledgement takes a hundredth of this time."""


class DirectClient:
    """Writes to one partition at one broker."""

    def __init__(
        self, server: str, stream: str, stream_id: bytes, partition: int, recording: Recording
    ) -> None:
        self._server = server
        self._stream = stream
        self._stream_id = stream_id
        self._partition = partition
        self._recording = recording
        self._number = recording.new_producer(stream, "direct client")
        self.asked = 0
        self.acknowledged = 0

    async def send_for(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        async with grpc.aio.insecure_channel(self._server) as channel:
            log = log_pb2_grpc.LogStub(channel)
            while loop.time() < end:
                began_at = loop.time()
                await self._ask(log)
                # A refusal comes at once. Without a pause the client would flood the broker.
                await asyncio.sleep(max(0.0, began_at + ANSWER_SECONDS - loop.time()))

    async def _ask(self, log: log_pb2_grpc.LogAsyncStub) -> None:
        value = stamp(self._number, self.asked, VALUE_BYTES)
        request = log_pb2.PublishRequest(
            stream_id=self._stream_id,
            partition=self._partition,
            acks=common_pb2.ACKS_ALL,
            records=[log_pb2.PublishRecord(record=common_pb2.Record(value=value))],
        )
        offset: int | None = None
        try:
            answer = await log.Publish(request, timeout=ANSWER_SECONDS)
            offset = answer.receipts[0].offset
            self.acknowledged += 1
        except grpc.aio.AioRpcError:
            pass
        outcome = Outcome.UNKNOWN if offset is None else Outcome.ACKNOWLEDGED
        write = Write(self._number, self._partition, self.asked, 1, outcome, offset)
        self.asked += 1
        self._recording.wrote(self._stream, write, asyncio.get_running_loop().time())

    def stored(self) -> int:
        """How many of its records a reader has read."""
        reads = self._recording.history(self._stream).reads
        return len({read.first for read in reads if read.producer == self._number})
