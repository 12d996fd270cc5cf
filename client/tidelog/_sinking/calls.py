"""The requests about a sink: runs, batches, and what is in the log (S3)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from tidelog import wire
from tidelog._connecting.broker_channel import BrokerChannel, on
from tidelog._connecting.channels import Channels
from tidelog._connecting.metadata import Metadata
from tidelog._connecting.retry import of_a_leader, retrying
from tidelog._options import ClientOptions
from tidelog.errors import StreamNotFound
from tidelog.model import StreamDescription, id_text
from tidelog_proto import log_pb2

T = TypeVar("T")

ASKED_MAX: Final = 100
"""Partitions of one DescribeSink request. The answer has some bytes for each task in each of them."""


class TaskRows(NamedTuple):
    """The rows of one task of a sink's batch in one partition."""

    rows: int = 0
    chain: int = 0
    """The chained CRC of its record batches (`chained`)."""


class SinkPartition(NamedTuple):
    """The newest batch of a sink in one partition."""

    batch_id: int | None
    """None: the sink has written nothing there."""
    tasks: Mapping[int, TaskRows]
    """By task."""


class OpenBatch(NamedTuple):
    """A batch of a sink that a run may write."""

    sink: int
    """The number of the sink."""
    run: int
    batch_id: int
    time_us: int
    """The timestamp of rows without a timestamp: the same in each run that writes the batch. µs."""
    partitions: int
    """The rows are spread over so many partitions, in each run that writes the batch."""
    stream_id: bytes


class SinkCalls:
    """The requests of one client about sinks."""

    def __init__(
        self, channels: Channels, metadata: Metadata, options: ClientOptions, rng: random.Random
    ) -> None:
        self._channels = channels
        self._metadata = metadata
        self._options = options
        self._rng = rng

    async def begin_run(self) -> int:
        async def ask(channel: BrokerChannel) -> log_pb2.BeginSinkRunResponse:
            return await channel.log.BeginSinkRun(
                log_pb2.BeginSinkRunRequest(), timeout=self._options.request_timeout_s
            )

        return (await self._anywhere(ask)).run

    async def open(
        self, stream: str, stream_id: bytes, name: str, *, run: int, batch_id: int, once: bool
    ) -> OpenBatch:
        request = log_pb2.OpenSinkRequest(
            name=name, run=run, batch_id=batch_id, stream_id=stream_id, once=once
        )

        async def ask(channel: BrokerChannel) -> log_pb2.OpenSinkResponse:
            return await channel.log.OpenSink(request, timeout=self._options.request_timeout_s)

        found = await self._anywhere(ask)
        return OpenBatch(found.sink, run, batch_id, found.batch_time_us, found.partitions, stream_id)

    async def close(self, name: str, run: int) -> None:
        request = log_pb2.CloseSinkRequest(name=name, run=run)

        async def ask(channel: BrokerChannel) -> log_pb2.CloseSinkResponse:
            return await channel.log.CloseSink(request, timeout=self._options.request_timeout_s)

        await self._anywhere(ask)

    async def describe(
        self, stream: StreamDescription, batch: OpenBatch, task: int | None = None
    ) -> dict[int, SinkPartition]:
        """What the sink's newest batch has written to each partition, or what one task of it has.

        No earlier run of the sink writes after the answer.
        """
        found: dict[int, SinkPartition] = {}

        async def attempt() -> None:
            fresh = await self._metadata.refresh(stream.name)
            if fresh.stream_id != batch.stream_id:
                raise StreamNotFound(
                    f"stream {stream.name} with id {id_text(batch.stream_id)} was deleted; another stream "
                    f"has its name now",
                    stream=stream.name,
                )
            by_leader: dict[str, list[int]] = {}
            for number in range(len(fresh.partitions)):
                if number not in found:
                    by_leader.setdefault(self._metadata.leader_address(fresh, number), []).append(number)
            asked = [
                self._at(address, numbers[at : at + ASKED_MAX], batch, task, found)
                for address, numbers in by_leader.items()
                for at in range(0, len(numbers), ASKED_MAX)
            ]
            failures = [
                error for error in await asyncio.gather(*asked, return_exceptions=True) if error is not None
            ]
            if failures:
                raise failures[0]

        await self._repeated(attempt, leader=True)
        return found

    async def _at(
        self,
        address: str,
        numbers: list[int],
        batch: OpenBatch,
        task: int | None,
        found: dict[int, SinkPartition],
    ) -> None:
        """Adds the partitions of one leader to `found`; raises the first error."""
        request = log_pb2.DescribeSinkRequest(
            sink=batch.sink, run=batch.run, stream_id=batch.stream_id, partitions=numbers, task=task
        )

        async def ask(channel: BrokerChannel) -> log_pb2.DescribeSinkResponse:
            return await channel.log.DescribeSink(request, timeout=self._options.request_timeout_s)

        answer = await on(self._channels.to(address), ask)
        failed: log_pb2.SinkPartition | None = None
        for number, said in zip(numbers, answer.partitions, strict=True):
            if said.HasField("error"):
                failed = failed or said
                continue
            found[number] = SinkPartition(
                said.batch_id if said.HasField("batch_id") else None,
                {one.task: TaskRows(one.rows, one.chain) for one in said.tasks},
            )
        if failed is not None:
            raise of_a_leader(wire.error_from_proto(failed.error), f"a partition at {address}")

    async def _anywhere(self, call: Callable[[BrokerChannel], Awaitable[T]]) -> T:
        return await self._repeated(lambda: self._channels.anywhere(call))

    async def _repeated(self, attempt: Callable[[], Awaitable[T]], *, leader: bool = False) -> T:
        # Every request has the same effect twice as once; BeginSinkRun only leaves a number unused.
        return await retrying(
            attempt,
            timeout_s=self._options.retry_timeout_s,
            repeat_indefinite=True,
            policy=self._options.retry,
            rng=self._rng,
            leader=leader,
        )
