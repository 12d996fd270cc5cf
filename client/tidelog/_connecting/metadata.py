"""Streams, partitions and leaders by stream name: requested once, and again when they prove wrong.

A broker may be behind the others, or cut off from them. So the client uses the newest version of the
metadata. When a broker refuses a request and names the leader, the client uses that leader until the next
answer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from tidelog import wire
from tidelog._connecting.broker_channel import BrokerChannel, on
from tidelog._connecting.channels import Channels
from tidelog._connecting.hedging import cancelled, first_answer
from tidelog._connecting.retry import RetryPolicy, retrying
from tidelog.errors import (
    InternalError,
    InvalidRequest,
    NotLeader,
    PartitionNotFound,
    PermissionDenied,
    StreamNotFound,
    TidelogError,
)
from tidelog.model import StreamDescription, id_text
from tidelog_proto import metadata_pb2

T = TypeVar("T")

NAMES_MAX: Final = 1_000
"""The most streams of one request."""

ANSWER_S_MAX: Final = 2.0
"""Brokers answer from memory; after this time another broker is asked."""

CONFIRM_S_MAX: Final = 1.0
"""The time to wait for the other brokers when an answer is out of date."""

DOUBT_S_MAX: Final = 0.25
"""The same when an answer may be out of date: usually no newer one exists yet, and the client soon asks
again."""


class Metadata:
    """The metadata of the streams that one client uses."""

    def __init__(
        self, channels: Channels, *, timeout_s: float, policy: RetryPolicy, rng: random.Random
    ) -> None:
        self._channels = channels
        self._timeout_s = timeout_s
        self._policy = policy
        self._rng = rng
        self._version = 0
        """The metadata version of the newest answer."""
        self._streams: dict[str, StreamDescription] = {}
        self._addresses: dict[int, str] = {}
        self._told: dict[tuple[bytes, int], int] = {}
        """Leaders by (stream id, partition) that a broker named when it refused a request."""
        self._wanted: dict[str, asyncio.Future[StreamDescription]] = {}
        """The streams to ask about, each with the future that its callers wait for."""
        self._asking: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return (
            f"<Metadata version={self._version} streams={len(self._streams)} brokers={len(self._addresses)}>"
        )

    async def stream(self, name: str) -> StreamDescription:
        """The known description of the stream; the first time it is requested from the cluster.

        Raises `StreamNotFound`, or `Unavailable` when no broker answers.
        """
        return self._streams.get(name) or await self.refresh(name)

    async def refresh(self, name: str) -> StreamDescription:
        """Requests the description again. Simultaneous requests for one stream share the answer."""
        future = self._wanted.get(name)
        if future is None:
            future = self._wanted[name] = asyncio.get_running_loop().create_future()
            # All callers may have been cancelled; then no one retrieves the error.
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask_all(), name="resolve streams")
        return await asyncio.shield(future)

    async def same_stream(self, name: str, stream_id: bytes) -> StreamDescription:
        """As `refresh`, but raises `StreamNotFound` for another stream that has the same name now."""
        found = await self.refresh(name)
        if found.stream_id != stream_id:
            raise StreamNotFound(
                f"stream {name} with id {id_text(stream_id)} was deleted; another stream has its name now",
                stream=name,
            )
        return found

    # --- leaders

    def leader_address(self, stream: StreamDescription, partition: int) -> str:
        """The address of the partition's leader.

        Raises `PartitionNotFound`, and `NotLeader` (retriable) while it has none.
        """
        self.check_partition(stream, partition)
        leader = self._leader(stream, partition)
        if leader is None:
            raise NotLeader(f"{stream.name}/{partition} has no leader now; try again")
        address = self._addresses.get(leader)
        if address is None:
            raise NotLeader(
                f"{stream.name}/{partition} is led by broker {leader}, which has no known address"
            )
        return address

    def redirected(self, stream: StreamDescription, partition: int, error: TidelogError) -> bool:
        """Whether `error` names another leader that can be tried at once, without `refresh`."""
        if not isinstance(error, NotLeader) or not 0 <= partition < len(stream.partitions):
            return False
        text = error.details.get("leader", "")
        if not text.isdecimal() or int(text) not in self._addresses:
            return False
        if int(text) == self._leader(stream, partition):
            return False
        self._told[stream.stream_id, partition] = int(text)
        return True

    def _leader(self, stream: StreamDescription, partition: int) -> int | None:
        told = self._told.get((stream.stream_id, partition))
        return stream.partitions[partition].leader if told is None else told

    async def at_leader(
        self, stream: StreamDescription, partition: int, call: Callable[[BrokerChannel], Awaitable[T]]
    ) -> T:
        """The answer of the partition's leader to one call."""
        return await on(self._channels.to(self.leader_address(stream, partition)), call)

    def forget(self, name: str) -> None:
        """Drops the description of a stream that was changed; it is requested when it is next needed."""
        self._streams.pop(name, None)

    @staticmethod
    def check_partition(stream: StreamDescription, partition: int) -> None:
        count = len(stream.partitions)
        if not 0 <= partition < count:
            raise PartitionNotFound.numbered(partition, stream=stream.name, count=count)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    # --- requests

    async def _ask_all(self) -> None:
        """Sends requests until no stream is wanted. Streams added meanwhile share the next request."""
        failure: TidelogError = InvalidRequest("the client is closed")
        try:
            while self._wanted:
                names = list(self._wanted)[:NAMES_MAX]
                try:
                    answer = await retrying(
                        lambda names=names: self._newest(names),  # type: ignore[misc]
                        timeout_s=self._timeout_s,
                        repeat_indefinite=True,
                        policy=self._policy,
                        rng=self._rng,
                        leader=True,
                    )
                    self._take(names, answer)
                except TidelogError as error:
                    for name in names:
                        self._wanted.pop(name).set_exception(error)
        except Exception as error:
            failure = InternalError(f"the metadata in the cluster's answer could not be read: {error!r}")
            raise
        finally:
            self._asking = None
            for future in self._wanted.values():
                future.set_exception(failure)
            self._wanted.clear()

    async def _newest(self, names: list[str]) -> metadata_pb2.ResolveResponse:
        """The answer of the first broker; if it is out of date or incomplete, the newest of all brokers."""
        channels = [self._channels.to(address) for address in self._channels.addresses]

        async def ask(
            channel: BrokerChannel, timeout_s: float = ANSWER_S_MAX
        ) -> metadata_pb2.ResolveResponse:
            timeout_s = min(timeout_s, self._channels.request_timeout_s)
            return await channel.metadata.Resolve(metadata_pb2.ResolveRequest(names=names), timeout=timeout_s)

        address, answer = await first_answer(channels, ask)
        # A known stream is requested again only because its description proved wrong. If the answer has the
        # same version, the broker may be cut off from the other brokers, but not from this client.
        doubtful = answer.version == self._version and any(name in self._streams for name in names)
        if answer.version < self._version or answer.missing or doubtful:
            others = [channel for channel in channels if channel.address != address]
            seconds = DOUBT_S_MAX if doubtful and not answer.missing else CONFIRM_S_MAX
            found = await self._newer(others, partial(ask, timeout_s=seconds))
            if found is not None and found[1].version > answer.version:
                address, answer = found
        self._channels.prefer(address)
        return answer

    async def _newer(
        self,
        channels: list[BrokerChannel],
        ask: Callable[[BrokerChannel], Awaitable[metadata_pb2.ResolveResponse]],
    ) -> tuple[str, metadata_pb2.ResolveResponse] | None:
        """The first answer that is newer than the known metadata and complete; else the newest of all."""
        newest: tuple[str, metadata_pb2.ResolveResponse] | None = None
        asking = {asyncio.create_task(on(channel, ask)): channel.address for channel in channels}
        try:
            while asking:
                done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                for task in [one for one in asking if one in done]:
                    address = asking.pop(task)
                    failure = task.exception()
                    if failure is not None and not isinstance(failure, TidelogError):
                        raise failure
                    if failure is None and (newest is None or task.result().version > newest[1].version):
                        newest = (address, task.result())
                if newest is not None and newest[1].version > self._version and not newest[1].missing:
                    break
        finally:
            await cancelled(asking)
        return newest

    def _take(self, names: list[str], answer: metadata_pb2.ResolveResponse) -> None:
        brokers = [wire.broker_from_proto(broker) for broker in answer.brokers]
        self._addresses = self._channels.listeners.reachable(brokers)
        self._version = answer.version
        self._channels.learn(list(self._addresses.values()))
        found = {message.name: message for message in answer.streams}
        denied = set(answer.denied)
        for name in names:
            future = self._wanted.pop(name)
            if name not in found:
                self._streams.pop(name, None)
                future.set_exception(_missing(name, denied=name in denied))
                continue
            stream = wire.stream_from_proto(found[name])
            for partition in range(len(stream.partitions)):
                self._told.pop((stream.stream_id, partition), None)
            self._streams[name] = stream
            future.set_result(stream)


def _missing(name: str, *, denied: bool) -> TidelogError:
    if denied:
        return PermissionDenied(f"this client may not describe stream {name!r}", stream=name)
    return StreamNotFound(f"there is no stream {name}", stream=name)
