"""The start and the end of reading a partition, and the next position when one is lost (R13).

An offset or a position needs no request; for the ends of a log and for times, the partition's leader is
asked. `FetchCalls` reads from there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final, Literal, TypeVar

from tidelog import wire
from tidelog._arguments import as_int, as_us
from tidelog._connecting.broker_channel import BrokerChannel
from tidelog._connecting.channels import Channels
from tidelog._connecting.metadata import Metadata
from tidelog._connecting.retry import of_a_leader, retrying
from tidelog._connecting.status import error_from_message
from tidelog._options import ReaderOptions
from tidelog.errors import InvalidRequest, LogTruncated, OffsetOutOfRange, TidelogError
from tidelog.model import OFFSET_MAX, AfterBytes, Position, StreamDescription
from tidelog_proto import log_pb2

T = TypeVar("T")

Start = Literal["earliest", "latest"] | int | Position | datetime | AfterBytes
"""The start of reading: the log's start ("earliest"), its high watermark ("latest"), an offset, a position,
the first record with this timestamp or a later one (a datetime with a time zone), or the edge of a batch
behind some bytes (`AfterBytes`)."""

End = Literal["latest"] | int | datetime
"""The first offset not to read; "latest": the high watermark when the reader starts; a datetime with a time
zone: the first record with this timestamp or a later one, or the high watermark if there is none yet."""

BYTES_MAX: Final = (1 << 63) - 1
"""Bytes of `AfterBytes`."""

PLACES_AT_ONCE_MAX: Final = 50
"""The partitions whose start and end are requested at a time."""

ANSWER_S_MAX: Final = 5.0
"""When a leader takes longer to report its offsets, another broker may lead already."""


class Places:
    """Finds positions in the partitions of one stream, and keeps the description of the stream."""

    def __init__(
        self,
        stream: str,
        channels: Channels,
        metadata: Metadata,
        options: ReaderOptions,
        rng: random.Random,
    ) -> None:
        self.stream = stream
        self.description: StreamDescription
        """Set by `resolve`, replaced by `refresh`."""
        self._channels = channels
        self._metadata = metadata
        self._options = options
        self._rng = rng

    async def resolve(self, stream_id: bytes | None) -> StreamDescription:
        """Finds the stream by name; `StreamNotFound` if its id is another than the given `stream_id`."""
        if stream_id is None:
            self.description = await self._metadata.refresh(self.stream)
        else:
            self.description = await self._metadata.same_stream(self.stream, stream_id)
        return self.description

    def redirected(self, partition: int, error: TidelogError) -> bool:
        """Whether `error` names another leader that can be tried at once."""
        return self._metadata.redirected(self.description, partition, error)

    async def refresh(self) -> None:
        """Requests the leaders again; raises `StreamNotFound` if the name belongs to another stream now."""
        self.description = await self._metadata.same_stream(self.stream, self.description.stream_id)

    def leader_address(self, partition: int) -> str:
        return self._metadata.leader_address(self.description, partition)

    async def between(self, partition: int, start: Start, end: End | None) -> tuple[Position, int | None]:
        """The start and the end in one partition. A broker is asked only if it is necessary."""
        follow = self._options.follow
        to_latest = end == "latest" or (end is None and not follow)
        position = _known_position(start)
        if isinstance(end, datetime):
            as_us(end, "end")
            end = (await self.position_of(partition, end)).offset
        elif position is not None and not to_latest and (follow or end is None):
            return position, _checked_end(end)
        found = await self._offsets(partition, start)
        if to_latest:
            last: int | None = found.high_watermark
        else:
            last = _checked_end(end)
            if last is not None and not follow:
                last = min(last, found.high_watermark)
        return wire.position_from_proto(found.position), last

    async def position_of(self, partition: int, start: Start) -> Position:
        """The position that a start means now. The partition's leader is asked."""
        return wire.position_from_proto((await self._offsets(partition, start)).position)

    async def instead(self, partition: int, error: OffsetOutOfRange | LogTruncated) -> Position:
        """The next position when one is lost, or raises `error`, by the policy `on_truncated`."""
        return await self.position_of(partition, self._elsewhere(error))

    async def _offsets(self, partition: int, start: Start) -> log_pb2.PartitionOffsets:
        """The offsets of a partition and the position of `start`, with the policy for lost positions."""
        try:
            return await self._ask_offsets(partition, start)
        except (OffsetOutOfRange, LogTruncated) as error:
            return await self._ask_offsets(partition, self._elsewhere(error))

    async def _ask_offsets(self, partition: int, start: Start) -> log_pb2.PartitionOffsets:
        wanted = log_pb2.FetchPartition(stream_id=self.description.stream_id, partition=partition)
        set_start(wanted, start)
        fresh = True

        async def ask(channel: BrokerChannel) -> log_pb2.OffsetsResponse:
            request = log_pb2.OffsetsRequest(partitions=[wanted])
            timeout_s = min(self._channels.request_timeout_s, ANSWER_S_MAX)
            return await channel.log.Offsets(request, timeout=timeout_s)

        async def attempt() -> log_pb2.PartitionOffsets:
            nonlocal fresh
            if not fresh:
                await self.refresh()
            fresh = False
            answer = (await self._metadata.at_leader(self.description, partition, ask)).partitions[0]
            if not answer.HasField("error"):
                return answer
            error = of_a_leader(error_from_message(answer.error), f"{self.stream}/{partition}")
            fresh = self.redirected(partition, error)
            raise error

        return await retrying(
            attempt,
            timeout_s=self._options.retry_timeout_s,
            repeat_indefinite=True,
            policy=self._options.retry,
            rng=self._rng,
            leader=True,
        )

    def _elsewhere(self, error: OffsetOutOfRange | LogTruncated) -> Start:
        match self._options.on_truncated:
            case "error":
                raise error
            case "latest":
                return "latest"
            case "earliest":
                return "earliest"
        divergence = error.details.get("divergence_offset")
        if divergence is not None:
            epoch = error.details.get("divergence_epoch")
            return Position(int(divergence), None if epoch is None else int(epoch))
        # A position below the log's start goes to its start, a position beyond its end to its end.
        start, end = error.details.get("log_start_offset"), error.details.get("log_end_offset")
        asked = error.details.get("offset")
        if start is None or end is None or asked is None:
            return "earliest"
        return int(start) if int(asked) < int(start) else int(end)


async def in_parallel(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """The results of some calls, `PLACES_AT_ONCE_MAX` at a time; raises the first error."""
    results: list[T] = []
    for at in range(0, len(calls), PLACES_AT_ONCE_MAX):
        some = calls[at : at + PLACES_AT_ONCE_MAX]
        for result in await asyncio.gather(*(call() for call in some), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            results.append(result)
    return results


def _known_position(start: Start) -> Position | None:
    """The position of `start`, if no broker must be asked for it."""
    if isinstance(start, Position):
        offset = start.offset
    elif isinstance(start, int) and not isinstance(start, bool):
        offset = start
    else:
        return None
    if not 0 <= offset <= OFFSET_MAX:
        raise InvalidRequest(f"start is {offset}; an offset must lie in 0–{OFFSET_MAX}")
    return start if isinstance(start, Position) else Position(offset)


def _checked_end(end: object) -> int | None:
    if end is None:
        return None
    if isinstance(end, int) and not isinstance(end, bool) and 0 <= end <= OFFSET_MAX:
        return end
    raise InvalidRequest(f"end is {end!r}; it must be an offset (0–{OFFSET_MAX}), 'latest' or a datetime")


def set_start(wanted: log_pb2.FetchPartition, start: Start) -> None:
    """Writes `start` into a request; raises `InvalidRequest` for a value that is no start."""
    position = _known_position(start)
    if position is not None:
        wanted.position.CopyFrom(wire.position_to_proto(position))
    elif start == "earliest":
        wanted.earliest = True
    elif start == "latest":
        wanted.latest = True
    elif isinstance(start, datetime):
        wanted.timestamp_us = as_us(start, "start")
    elif isinstance(start, AfterBytes):
        wanted.after_bytes.CopyFrom(_after_bytes(start))
    else:
        raise InvalidRequest(
            f"start is {start!r}; it must be 'earliest', 'latest', an offset, a Position, a datetime or "
            "AfterBytes"
        )


def _after_bytes(start: AfterBytes) -> log_pb2.AfterBytes:
    position = _known_position(start.start)
    if position is None:
        raise InvalidRequest(f"the bytes of {start!r} are counted from {start.start!r}; give a Position")
    size = as_int(start.bytes, "bytes of AfterBytes")
    if not 0 < size <= BYTES_MAX:
        raise InvalidRequest(f"bytes is {size} in {start!r}; it must lie in 1–{BYTES_MAX}")
    return log_pb2.AfterBytes(start=wire.position_to_proto(position), bytes=size)
