"""The reader: a stream's records in order per partition, one by one or as Arrow batches.

`_fetching` checks and cuts what arrives. Here are the calls: one to each leader, a few
answers ahead of the consumer, begun again where they stood when a connection breaks.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

import grpc
import grpc.aio
import pyarrow as pa

from tidelog import wire
from tidelog._channels import Broker, Channels, FetchCall
from tidelog._consuming import Consumed
from tidelog._fetching import FetchedBatch, Progress
from tidelog._framing import FetchAnswer
from tidelog._metadata import Metadata
from tidelog._options import ReaderOptions
from tidelog._retry import retrying
from tidelog._status import error_from_message, error_from_rpc
from tidelog._timestamps import as_us
from tidelog.errors import (
    ConnectionLost,
    InternalError,
    InvalidRequest,
    LogTruncated,
    OffsetOutOfRange,
    TidelogError,
    Unavailable,
)
from tidelog.model import Position, Record, StreamDescription
from tidelog_proto import log_pb2

Start = Literal["earliest", "latest"] | int | Position | datetime
"""Where to begin: the log's start, its high watermark, an offset, a position, or the
first record with that timestamp or a later one."""

End = Literal["latest"] | int
"""The first offset not to read; latest: the high watermark when the reader began."""

PARTITIONS_PER_CALL_MAX: Final = 500


class _Ending(NamedTuple):
    error: TidelogError | None
    """None: all partitions have ended."""


class Reader:
    """Reads one stream; made by `Client.reader`.

    It is an iterator of records, and its batch iterators continue where it stands. It
    begins with the first item asked for. Close it, or leave ``async with``, to end its
    calls; closing the client does too. Positions are the consumer's: what was fetched
    ahead does not count.
    """

    def __init__(
        self,
        stream: str,
        channels: Channels,
        metadata: Metadata,
        options: ReaderOptions,
        rng: random.Random,
        *,
        start: Start | Mapping[int, Start],
        end: End | Mapping[int, End] | None,
        partitions: Sequence[int] | None,
        stream_id: bytes | None,
    ) -> None:
        self.stream = stream
        self.options = options
        self._channels = channels
        self._metadata = metadata
        self._rng = rng
        self._start = start
        self._end = end
        self._wanted = partitions
        self._stream_id = stream_id
        self._description: StreamDescription
        self._progress: dict[int, Progress] = {}
        self._consumed = Consumed()
        self._arrived: asyncio.Queue[list[FetchedBatch] | TidelogError | None] = asyncio.Queue(
            options.answers_ahead_max
        )
        self._set_aside: _Ending | None = None
        """Came behind batches that were taken together; it is the next thing to tell."""
        self._batches: deque[FetchedBatch] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unended = 0
        self._begun = False
        self._ended = False
        self._closed = False

    def __repr__(self) -> str:
        where = ", ".join(f"{n}:{p.offset}" for n, p in sorted(self.positions.items()))
        return f"<Reader {self.stream} [{where}]{' closed' if self._closed else ''}>"

    # --- where it stands

    @property
    def positions(self) -> dict[int, Position]:
        """Where to read on, by partition, with the epoch of the last record read (R13)."""
        return self._consumed.positions

    @property
    def high_watermarks(self) -> dict[int, int]:
        """The newest that the brokers said, by partition."""
        return {number: progress.high_watermark for number, progress in self._progress.items()}

    # --- records and batches

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """The next record; the iteration ends at `end`, or without `follow` at the high watermark."""
        while (row := self._consumed.next_row()) is None:
            batch = await self._next()
            if batch is None:
                raise StopAsyncIteration
            self._consumed.open(batch)
        return row

    async def fetched_batches(self) -> AsyncIterator[FetchedBatch]:
        """The batches with their places in the log, as the leader stored them."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def batches(self, *, with_offsets: bool = False) -> AsyncIterator[pa.RecordBatch]:
        """The columns of the batches: key, value, headers, subject, timestamp, as present.

        `with_offsets` adds the column ``offset`` (int64).
        """
        while (batch := await self.next_batch()) is not None:
            yield batch.with_offsets() if with_offsets else batch.columns

    async def next_batch(self) -> FetchedBatch | None:
        """The next batch, None after the last."""
        rest = self._consumed.rest()
        if rest is not None:
            return rest
        batch = await self._next()
        return None if batch is None else self._consumed.take(batch)

    async def arrived(self) -> list[FetchedBatch]:
        """All batches that are here, after waiting for the first; empty after the last.

        For who hands them on (`tidelog.blocking`): they do not count as consumed.
        """
        first = await self._next()
        if first is None:
            return []
        found = [first, *self._batches]
        self._batches.clear()
        while self._set_aside is None and not self._arrived.empty():
            item = self._arrived.get_nowait()
            if isinstance(item, list):
                found.extend(item)
            else:
                self._set_aside = _Ending(item)
        return found

    async def _next(self) -> FetchedBatch | None:
        while not self._batches:
            if self._closed:
                raise InvalidRequest("the reader is closed")
            if self._ended:
                return None
            if not self._begun:
                await self._begin()
                continue
            if self._set_aside is not None:
                item: list[FetchedBatch] | TidelogError | None = self._set_aside.error
            else:
                item = await self._arrived.get()
            if item is None:
                self._ended = True
            elif isinstance(item, TidelogError):
                await self.aclose()
                raise item
            else:
                self._batches.extend(item)
        return self._batches.popleft()

    # --- life

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the calls; nothing can be read any more."""
        self._closed = True
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- the beginning

    async def _begin(self) -> None:
        self._begun = True
        if self._stream_id is None:
            self._description = await self._metadata.refresh(self.stream)
        else:
            self._description = await self._metadata.same_stream(self.stream, self._stream_id)
        count = len(self._description.partitions)
        numbers = list(range(count)) if self._wanted is None else sorted(set(self._wanted))
        for number in numbers:
            self._metadata.check_partition(self._description, number)
        places = [await self._place(number) for number in numbers]
        for number, (start, end) in zip(numbers, places, strict=True):
            self._progress[number] = Progress(self.stream, self._description.stream_id, number, start, end)
            self._consumed.begin(number, start)
        unended = [progress for progress in self._progress.values() if not progress.ended]
        self._unended = len(unended)
        if not unended:
            self._ended = True
        for at in range(0, len(unended), PARTITIONS_PER_CALL_MAX):
            self._spawn(unended[at : at + PARTITIONS_PER_CALL_MAX])

    async def _place(self, number: int) -> tuple[Position, int | None]:
        """Where to begin and to end in one partition; the broker is asked only if it must be."""
        start = self._start.get(number, "earliest") if isinstance(self._start, Mapping) else self._start
        end = self._end.get(number) if isinstance(self._end, Mapping) else self._end
        to_latest = end == "latest" or (end is None and not self.options.follow)
        position = _known_position(start)
        if position is not None and not to_latest and (self.options.follow or end is None):
            return position, _checked_end(end)
        found = await self._offsets(number, start)
        if to_latest:
            last: int | None = found.high_watermark
        else:
            last = _checked_end(end)
            if last is not None and not self.options.follow:
                last = min(last, found.high_watermark)
        return wire.position_from_proto(found.position), last

    async def _offsets(self, number: int, start: Start) -> log_pb2.PartitionOffsets:
        """Where a partition stands and what `start` means there, with the policy for lost positions."""
        try:
            return await self._ask_offsets(number, start)
        except (OffsetOutOfRange, LogTruncated) as error:
            return await self._ask_offsets(number, self._elsewhere(error))

    async def _ask_offsets(self, number: int, start: Start) -> log_pb2.PartitionOffsets:
        wanted = log_pb2.FetchPartition(stream_id=self._description.stream_id, partition=number)
        _set_start(wanted, start)
        tries = 0

        async def ask(broker: Broker) -> log_pb2.OffsetsResponse:
            request = log_pb2.OffsetsRequest(partitions=[wanted])
            return await broker.log.Offsets(request, timeout=self._channels.request_timeout_s)

        async def attempt() -> log_pb2.PartitionOffsets:
            nonlocal tries
            tries += 1
            if tries > 1:
                await self._refresh()
            answer = (await self._metadata.at_leader(self._description, number, ask)).partitions[0]
            if answer.HasField("error"):
                raise error_from_message(answer.error)
            return answer

        return await retrying(
            attempt,
            timeout_s=self.options.retry_timeout_s,
            repeat_indefinite=True,
            policy=self.options.retry,
            rng=self._rng,
        )

    async def _refresh(self) -> None:
        self._description = await self._metadata.same_stream(self.stream, self._description.stream_id)

    def _elsewhere(self, error: OffsetOutOfRange | LogTruncated) -> Start:
        """Where to go on when a position is lost; raises `error` if that is the policy."""
        match self.options.on_truncated:
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
        # Below the log's start there is only its start; beyond its end, its end.
        start, end = error.details.get("log_start_offset"), error.details.get("log_end_offset")
        asked = error.details.get("offset")
        if start is None or end is None or asked is None:
            return "earliest"
        return int(start) if int(asked) < int(start) else int(end)

    # --- the calls

    def _spawn(self, group: list[Progress], failures: int = 0) -> None:
        name = f"fetch {self.stream}/{','.join(str(progress.partition) for progress in group[:8])}"
        task = asyncio.create_task(self._run(group, failures), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, group: list[Progress], failures: int) -> None:
        """Reads a group of partitions until they end; whatever ends it is told to the consumer."""
        try:
            await self._read_group(group, failures)
        except asyncio.CancelledError:
            raise
        except TidelogError as error:
            await self._arrived.put(error)
        except Exception as error:
            await self._arrived.put(InternalError(f"reading {self.stream} failed: {error!r}"))

    async def _read_group(self, group: list[Progress], failures: int) -> None:
        loop = asyncio.get_running_loop()
        good_at = loop.time()
        error: TidelogError | None = None
        while group:
            if failures:
                hint = error.retry_after_ms if error is not None else None
                await asyncio.sleep(self.options.retry.delay_s(failures, self._rng, hint))
            before = {progress.partition: progress.next_offset for progress in group}
            try:
                if failures:
                    await self._refresh()
                address, group = self._one_leader(group)
                await self._one_call(self._channels.broker(address), group)
            except TidelogError as failure:
                error = failure
                if not error.retriable:
                    raise
            if any(progress.next_offset != before[progress.partition] for progress in group):
                failures, good_at = 0, loop.time()
            failures += 1
            group = [progress for progress in group if not progress.ended]
            if group and loop.time() - good_at > self.options.retry_timeout_s:
                raise error or ConnectionLost(f"no call for {self.stream} lasts")

    def _one_leader(self, group: list[Progress]) -> tuple[str, list[Progress]]:
        """The partitions of `group` that share the first one's leader; the others get a call of their own."""
        by_leader: dict[str, list[Progress]] = {}
        for progress in group:
            address = self._metadata.leader_address(self._description, progress.partition)
            by_leader.setdefault(address, []).append(progress)
        (address, ours), *others = by_leader.items()
        for _, theirs in others:
            self._spawn(theirs)
        return address, ours

    async def _one_call(self, broker: Broker, group: list[Progress]) -> None:
        """One Fetch call; returns when all of `group` have ended, raises what ended it early.

        A partition that goes wrong alone is taken out of `group`.
        """
        # Always following: where a reader stops is known before it begins (`_place`).
        request = log_pb2.FetchRequest(
            partitions=[progress.request() for progress in group],
            follow=True,
            response_bytes_max=self.options.response_bytes_max,
            heartbeat_ms=self.options.heartbeat_ms,
        )
        asked = list(group)
        reading = set(range(len(asked)))
        call = broker.fetch(request)
        try:
            while reading:
                answer = await self._answer(call, broker)
                index = answer.facts.index
                if index not in reading:
                    continue
                progress = asked[index]
                batches: list[FetchedBatch] = []
                failure: TidelogError | None = None
                try:
                    batches.extend(progress.accept(answer))
                except TidelogError as error:
                    failure = error
                if batches:
                    await self._arrived.put(batches)
                if failure is not None:
                    reading.discard(index)
                    failure = await self._mended(progress, failure)
                    if not reading:
                        raise failure
                    group.remove(progress)
                    self._spawn([progress], failures=1)
                elif progress.ended:
                    reading.discard(index)
                    await self._one_ended()
        except grpc.RpcError as error:
            raise error_from_rpc(error, broker.address) from None
        finally:
            call.cancel()

    async def _answer(self, call: FetchCall, broker: Broker) -> FetchAnswer:
        try:
            async with asyncio.timeout(self.options.silence_timeout_s):
                answer = await call.read()
        except TimeoutError:
            raise ConnectionLost(
                f"{broker.address} said nothing for {self.options.silence_timeout_s:g} s"
            ) from None
        if not isinstance(answer, FetchAnswer):
            raise ConnectionLost(f"{broker.address} ended the call")
        return answer

    async def _one_ended(self) -> None:
        self._unended -= 1
        if not self._unended:
            await self._arrived.put(None)

    async def _mended(self, progress: Progress, error: TidelogError) -> TidelogError:
        """A retriable error instead of `error`: a lost position was put right by the policy.

        Raises what cannot be mended.
        """
        if isinstance(error, OffsetOutOfRange | LogTruncated):
            error.details.setdefault("offset", str(progress.next_offset))
            found = await self._offsets(progress.partition, self._elsewhere(error))
            progress.jump(wire.position_from_proto(found.position))
            return Unavailable(
                f"{self.stream}/{progress.partition} goes on at {progress.next_offset}: {error}"
            )
        if not error.retriable:
            raise error
        return error


def _known_position(start: Start) -> Position | None:
    """The position that needs no broker to be known."""
    if isinstance(start, Position):
        return start
    if isinstance(start, int) and not isinstance(start, bool):
        if start < 0:
            raise InvalidRequest(f"start is {start}; an offset is 0 or greater")
        return Position(start)
    return None


def _checked_end(end: object) -> int | None:
    if end is None:
        return None
    if isinstance(end, int) and not isinstance(end, bool) and end >= 0:
        return end
    raise InvalidRequest(f"end is {end!r}; it must be an offset (0 or greater) or 'latest'")


def _set_start(wanted: log_pb2.FetchPartition, start: Start) -> None:
    position = _known_position(start)
    if position is not None:
        wanted.position.CopyFrom(wire.position_to_proto(position))
    elif start == "earliest":
        wanted.earliest = True
    elif start == "latest":
        wanted.latest = True
    elif isinstance(start, datetime):
        wanted.timestamp_us = as_us(start)
    else:
        raise InvalidRequest(
            f"start is {start!r}; it must be 'earliest', 'latest', an offset, a Position or a datetime"
        )
