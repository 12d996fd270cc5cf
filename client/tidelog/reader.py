"""The public reader: the records of a stream in order per partition, one by one or as Arrow batches.

This module has the consumer's side: what the consumer asked for, and what it has taken (`Consumed`).
`Places` finds the start and the end in each partition; `FetchCalls` brings the batches.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

import pyarrow as pa

from tidelog._arguments import as_int, check_str, check_stream_id, wrong_type
from tidelog._connecting.channels import Channels
from tidelog._connecting.metadata import Metadata
from tidelog._options import ReaderOptions
from tidelog._reading.calls import FetchCalls
from tidelog._reading.consumed import Consumed
from tidelog._reading.fetching import FetchedBatch, FetchState
from tidelog._reading.start_and_end import End, Places, Start, in_parallel
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.model import Position, Projection, Record

__all__ = ["End", "Reader", "Start"]

T = TypeVar("T")


class _Ending(NamedTuple):
    error: TidelogError | None
    """None: all partitions have ended."""


class Reader:
    """Reads one stream. `Client.reader` makes it.

    It is an iterator of records, and its iterators of batches continue at the same position. Reading
    begins when the first record or batch is requested. Close the reader, or leave ``async with``, to
    end its calls; closing the client ends them, too. `positions` counts only records that the consumer
    has taken, not records that were fetched ahead.
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
        projection: Projection | None,
    ) -> None:
        self.stream = stream
        self.options = options
        self.projection = projection
        """Which columns of which records it reads; None: all of them."""
        check_str("stream", stream)
        check_stream_id(stream_id)
        self._start: Start | dict[int, Start] = _by_partition("start", start)
        self._end: End | dict[int, End | None] | None = _by_partition("end", end)
        self._wanted = None if partitions is None else _numbers(partitions)
        self._stream_id = stream_id
        self._places = Places(stream, channels, metadata, options, rng)
        self._calls = FetchCalls(self._places, channels, options, rng, projection)
        self._states: dict[int, FetchState] = {}
        self._consumed = Consumed()
        self._set_aside: _Ending | None = None
        """An end or error that arrived behind batches which were taken together; it is reported next."""
        self._batches: deque[FetchedBatch] = deque()
        self._begun = False
        self._ended = False
        self._closed = False

    def __repr__(self) -> str:
        where = ", ".join(f"{n}:{p.offset}" for n, p in sorted(self.positions.items()))
        return f"<Reader {self.stream} [{where}]{' closed' if self._closed else ''}>"

    # --- positions

    @property
    def positions(self) -> dict[int, Position]:
        """The next position by partition, with the epoch of the last record read (R13)."""
        return self._consumed.positions

    @property
    def high_watermarks(self) -> dict[int, int]:
        """The newest high watermark that a broker reported, by partition."""
        return {number: state.high_watermark for number, state in self._states.items()}

    # --- records and batches

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """The next record. It stops at `end`; without `follow` at the high watermark of the start."""
        self.check_whole_records()
        while (row := self._consumed.next_row()) is None:
            batch = await self._next()
            if batch is None:
                raise StopAsyncIteration
            self._consumed.open(batch)
        return row

    def check_whole_records(self) -> None:
        """Raises `InvalidRequest` if this reader gets only some columns."""
        if self.projection is not None and self.projection.columns:
            raise InvalidRequest(
                f"the reader has only the columns {', '.join(self.projection.columns)}, which make no whole "
                "records: read its batches, or leave out `columns`"
            )

    @property
    def gives_offsets(self) -> bool:
        """Whether the offset is one of the columns that it was asked for."""
        return self.projection is not None and "offset" in self.projection.columns

    async def fetched_batches(self) -> AsyncIterator[FetchedBatch]:
        """The batches with their offsets in the log, as the leader stored them."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def batches(self, *, with_offsets: bool = False) -> AsyncIterator[pa.RecordBatch]:
        """The columns of the batches: value and timestamp, and key, headers and subject if present.

        `with_offsets` adds the column ``offset`` (int64). A reader with `columns` gives only those.
        """
        with_offsets = with_offsets or self.gives_offsets
        while (batch := await self.next_batch()) is not None:
            yield batch.with_offsets() if with_offsets else batch.columns

    async def next_batch(self) -> FetchedBatch | None:
        """The next batch; None after the last."""
        rest = self._consumed.rest()
        if rest is not None:
            return rest
        batch = await self._next()
        return None if batch is None else self._consumed.take(batch)

    async def arrived(self) -> list[FetchedBatch]:
        """Waits for the first batch and returns all that have arrived; an empty list after the last.

        `tidelog.blocking` uses it. The batches do not count as consumed, and some may have no rows.
        """
        first = await self._next_arrived()
        if first is None:
            return []
        found = [first, *self._batches]
        self._batches.clear()
        while self._set_aside is None and not self._calls.arrived.empty():
            item = self._calls.arrived.get_nowait()
            if isinstance(item, list):
                found.extend(item)
            else:
                self._set_aside = _Ending(item)
        return found

    async def _next(self) -> FetchedBatch | None:
        """The next batch with rows; None after the last."""
        while (batch := await self._next_arrived()) is not None:
            if not self._consumed.passes(batch):
                return batch
        return None

    async def _next_arrived(self) -> FetchedBatch | None:
        while not self._batches:
            if self._closed:
                raise InvalidRequest("the reader is closed; make another one")
            if self._ended:
                return None
            if not self._begun:
                await self._begin()
                continue
            if self._set_aside is not None:
                item: list[FetchedBatch] | TidelogError | None = self._set_aside.error
            else:
                item = await self._calls.arrived.get()
            if item is None:
                self._ended = True
            elif isinstance(item, TidelogError):
                await self.aclose()
                raise item
            else:
                self._batches.extend(item)
        return self._batches.popleft()

    # --- closing

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the calls. After that the reader cannot be used."""
        self._closed = True
        await self._calls.close()

    # --- starting

    async def _begin(self) -> None:
        stream = await self._places.resolve(self._stream_id)
        count = len(stream.partitions)
        numbers = list(range(count)) if self._wanted is None else sorted(set(self._wanted))
        for number in numbers:
            Metadata.check_partition(stream, number)
        places = await in_parallel(
            [partial(self._places.between, number, *self._asked(number)) for number in numbers]
        )
        # If something fails before this line, the next read tries again.
        self._begun = True
        for number, (start, end) in zip(numbers, places, strict=True):
            self._states[number] = FetchState(self.stream, stream.stream_id, number, start, end)
            self._consumed.begin(number, start)
        unended = [state for state in self._states.values() if not state.ended]
        if unended:
            self._calls.begin(self, unended)
        else:
            self._ended = True

    def _asked(self, number: int) -> tuple[Start, End | None]:
        """The start and the end that the caller gave for one partition."""
        start = self._start.get(number, "earliest") if isinstance(self._start, Mapping) else self._start
        end = self._end.get(number) if isinstance(self._end, Mapping) else self._end
        return start, end


def _by_partition(name: str, given: T | Mapping[int, T]) -> T | dict[int, T]:
    if not isinstance(given, Mapping):
        return given
    return {as_int(number, f"a partition in {name}", name): place for number, place in given.items()}


def _numbers(partitions: object) -> list[int]:
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise wrong_type("partitions", partitions, "a sequence of ints")
    return [as_int(number, "a number in partitions", "partitions") for number in partitions]
