"""Names to stream ids, partitions and leaders: asked once per stream, again when it proves wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog import wire
from tidelog._channels import Broker, Channels, on
from tidelog._retry import RetryPolicy, retrying
from tidelog.errors import NotLeader, PartitionNotFound, StreamNotFound
from tidelog.model import BrokerDescription, StreamDescription, id_text
from tidelog_proto import metadata_pb2

T = TypeVar("T")


class Metadata:
    """A client's view of the cluster; bounded by the streams that it uses."""

    def __init__(
        self, channels: Channels, *, timeout_s: float, policy: RetryPolicy, rng: random.Random
    ) -> None:
        self._channels = channels
        self._timeout_s = timeout_s
        self._policy = policy
        self._rng = rng
        self._streams: dict[str, StreamDescription] = {}
        self._addresses: dict[int, str] = {}
        self._asking: dict[str, asyncio.Task[StreamDescription]] = {}

    def __repr__(self) -> str:
        return f"<Metadata streams={len(self._streams)} brokers={len(self._addresses)}>"

    async def stream(self, name: str) -> StreamDescription:
        """What is known of the stream; asks the cluster the first time.

        Raises `StreamNotFound`, or `Unavailable` when no broker answers.
        """
        return self._streams.get(name) or await self.refresh(name)

    async def refresh(self, name: str) -> StreamDescription:
        """Asks the cluster again; who asks at the same time shares the answer."""
        asking = self._asking.get(name)
        if asking is None:
            asking = self._asking[name] = asyncio.create_task(self._resolve(name), name=f"resolve {name}")
            asking.add_done_callback(lambda task: self._asked(name, task))
        return await asyncio.shield(asking)

    async def same_stream(self, name: str, stream_id: bytes) -> StreamDescription:
        """`refresh`, but never another stream that was created under the same name."""
        found = await self.refresh(name)
        if found.stream_id != stream_id:
            raise StreamNotFound(
                f"stream {name} with id {id_text(stream_id)} was deleted; another one has its name now",
                stream=name,
            )
        return found

    def leader_address(self, stream: StreamDescription, partition: int) -> str:
        """Where the partition's leader listens.

        Raises `PartitionNotFound`, and `NotLeader` (retriable) while it has none.
        """
        self.check_partition(stream, partition)
        leader = stream.partitions[partition].leader
        if leader is None:
            raise NotLeader(f"{stream.name}/{partition} has no leader now")
        address = self._addresses.get(leader)
        if address is None:
            raise NotLeader(
                f"{stream.name}/{partition} is led by broker {leader}, which has no known address"
            )
        return address

    async def at_leader(
        self, stream: StreamDescription, partition: int, call: Callable[[Broker], Awaitable[T]]
    ) -> T:
        """The answer of the partition's leader to one call."""
        return await on(self._channels.broker(self.leader_address(stream, partition)), call)

    def forget(self, name: str) -> None:
        """The stream has changed; ask again when it is needed."""
        self._streams.pop(name, None)

    @staticmethod
    def check_partition(stream: StreamDescription, partition: int) -> None:
        if not 0 <= partition < len(stream.partitions):
            raise PartitionNotFound(
                f"stream {stream.name} has partitions 0–{len(stream.partitions) - 1}, not {partition}"
            )

    async def close(self) -> None:
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _asked(self, name: str, task: asyncio.Task[StreamDescription]) -> None:
        self._asking.pop(name, None)
        if not task.cancelled():
            # Whoever asked may have been cancelled; the error is then nobody's.
            task.exception()

    async def _resolve(self, name: str) -> StreamDescription:
        answer = await retrying(
            lambda: self._channels.anywhere(lambda broker: self._ask(broker, name)),
            timeout_s=self._timeout_s,
            repeat_indefinite=True,
            policy=self._policy,
            rng=self._rng,
        )
        brokers = [wire.broker_from_proto(broker) for broker in answer.brokers]
        self._addresses = {
            broker.broker_id: self._reachable(broker) for broker in brokers if broker.listeners
        }
        self._channels.learn(list(self._addresses.values()))
        if not answer.streams:
            self._streams.pop(name, None)
            raise StreamNotFound(f"there is no stream {name}", stream=name)
        stream = wire.stream_from_proto(answer.streams[0])
        self._streams[name] = stream
        return stream

    def _reachable(self, broker: BrokerDescription) -> str:
        """The listener that this client was pointed at, if it is one of the broker's, else its first."""
        targets = [listener.target for listener in broker.listeners]
        return next((target for target in targets if target in self._channels.bootstrap), targets[0])

    async def _ask(self, broker: Broker, name: str) -> metadata_pb2.ResolveResponse:
        return await broker.metadata.Resolve(
            metadata_pb2.ResolveRequest(names=[name]), timeout=self._channels.request_timeout_s
        )
