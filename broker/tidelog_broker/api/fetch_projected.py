"""Makes the projected answers of one Fetch call, beside producers and other readers.

For each answer it takes room (`limits.answer_room`) and leases memory (`limits.projections`). Then it reads a
chunk, and a thread projects it. `projection_threads` bounds the chunks that are projected at a time, for all
calls together, and each turn of a thread has a bound of its own (`projected_chunk`). The memory is given back
before the answer is passed on, so a client that does not read holds only the answer.

The less of a chunk is sent, the larger the next chunk is: an answer costs the broker much the same, however
little is in it.

Where no record matches, only the position is sent: at the end of the log, and after `SILENT_BYTES_MAX`.

Neighbours: `fetch` runs the call, `fetch_leases` waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, NamedTuple, Protocol

from tidelog.model import OFFSET_MAX
from tidelog.records.projected import pack_projected
from tidelog.records.projecting import Projector
from tidelog_broker.api.fetch_leases import Heartbeats, check_fits, granted
from tidelog_broker.api.fetch_reading import Reading
from tidelog_broker.api.projected_chunk import ChunkDone, ChunkWork, project_chunk
from tidelog_broker.api.verbatim import EncodedAnswer
from tidelog_broker.limits.answer_room import SMALL_ANSWER_BYTES, AnswerRoom, Held
from tidelog_broker.limits.byte_budget import Lease
from tidelog_broker.limits.projections import Projections
from tidelog_broker.storage.segments.reading import Chunk
from tidelog_proto import log_pb2

ANSWER_BYTES_MAX: Final = 1 << 20
"""Of one answer, about; a larger batch still comes whole."""

CHUNK_BYTES_MAX: Final = 4 << 20
"""Read at a time, about, if little of it is sent."""

SHARES: Final = 8
"""A chunk has at most one of so many shares of the memory for all calls."""

LITTLE: Final = 8
"""Little of a chunk is sent: at most one of so many parts of what an answer may have."""

WORK_BYTES: Final = 4 << 20
"""Leased to filter in, before anything is known of what will be read."""

SILENT_BYTES_MAX: Final = 16 << 20
"""Read without a match before the client is told the position:
a reader that reconnects reads them again."""

FACTS_BYTES: Final = 1 << 10
"""Of an answer beside its projected batches, at most."""

_COPIES: Final = 2
"""Of a chunk at a time: as it was read, and what is sent of it."""

Answers = AsyncGenerator[log_pb2.FetchResponse | EncodedAnswer]


class ProjectedCall(Heartbeats, Protocol):
    """What the answers need of their call."""

    async def read(self, reading: Reading, bytes_max: int) -> Chunk | None:
        """The next chunk of a partition, of about so many bytes."""

    def read_ahead(self, reading: Reading) -> None:
        """Begins to read the chunk behind the position from disk, if there is room."""

    def facts(self, reading: Reading) -> bytes:
        """A serialized answer that says where the partition's log stands, without item and position."""

    def response(self, reading: Reading, **item: object) -> log_pb2.FetchResponse:
        """An answer with the position."""

    def until_granted(self, room: Held, reading: Reading) -> AsyncGenerator[log_pb2.FetchResponse]:
        """Waits for the turn of one large answer, with heartbeats. Raises `ResourceExhausted`."""


class _Found(NamedTuple):
    """A chunk of which some was projected."""

    done: ChunkDone
    bytes: int
    """Of the chunk."""
    place: tuple[int, int] | None
    """Where the next read may begin, if known."""


class ProjectedAnswers:
    """Makes projected answers for one call."""

    def __init__(
        self,
        projector: Projector,
        projections: Projections,
        room: AnswerRoom,
        client: str,
        call: ProjectedCall,
        *,
        bytes_max: int,
    ) -> None:
        self._projector = projector
        self._projections = projections
        self._room = room
        self._client = client
        self._call = call
        self._bytes_max = bytes_max
        self._found: _Found | None = None
        """What the last turn of a thread came to; None: there was nothing to read, or too little memory."""

    async def answers(self, reading: Reading) -> Answers:
        """The next answer, if a record of the next chunk matches; `reading` then stands behind it."""
        room = reading.take_ahead_room() or self._room.take(self._client, reading.chunk_bytes)
        try:
            while True:
                async with aclosing(self._project(reading, room)) as heartbeats:
                    async for response in heartbeats:
                        yield response
                if self._found is None:
                    return
                answer = self._found.done.answer
                if answer is None or answer.bytes_to_send <= _room_bytes(room):
                    break
                # One large batch. Nothing is held while it waits, and it is projected again.
                needed, answer, self._found = answer.bytes_to_send, None, None
                if room is not None:
                    room.release()
                room = self._room.request(self._client, needed)
                async with aclosing(self._call.until_granted(room, reading)) as heartbeats:
                    async for response in heartbeats:
                        yield response
            if room is not None:
                room.shrink(0 if answer is None else answer.bytes_to_send)
            self._pass(reading, self._found)
            self._found = None
            if answer is not None:
                yield answer
            if _position_is_due(reading):
                yield self._position(reading)
        finally:
            self._found = None
            if room is not None:
                room.release()

    async def _project(self, reading: Reading, room: Held | None) -> Answers:
        """Reads a chunk and projects it, with heartbeats while it waits for memory."""
        self._found = None
        budget = self._projections.budget
        size = max(reading.decoded_bytes, 2 * reading.chunk_bytes + WORK_BYTES)
        lease = budget.request(min(size, budget.bytes_max))
        try:
            async with aclosing(granted(lease, self._call)) as heartbeats:
                async for response in heartbeats:
                    yield response
            if lease.ended():
                return
            chunk = await self._call.read(reading, min(_room_bytes(room), reading.chunk_bytes))
            if chunk is None:
                return
            work = self._work(reading, chunk, lease, min(_room_bytes(room), self._bytes_max))
            turn = self._projections.submit(lease, project_chunk, work, chunk.parts)
            try:
                async with aclosing(self._until_done(turn, lease)) as waiting:
                    async for heartbeat in waiting:
                        yield heartbeat
                if lease.ended():
                    return
                done = turn.result()
            finally:
                turn.cancel()
            reading.decoded_bytes = 0
            if not done.bytes_needed:
                self._found = _Found(
                    done, chunk.bytes, chunk.place if done.next_offset >= chunk.next_offset else None
                )
                return
            if reading.chunk_bytes > self._bytes_max:
                # A smaller chunk may need no more than there is.
                reading.chunk_bytes = self._bytes_max
                return
            # The next lease of the partition will be for it.
            reading.decoded_bytes = _COPIES * chunk.bytes + done.bytes_needed
            check_fits(
                budget,
                reading.decoded_bytes,
                f"offset {reading.offset} lies in a batch that needs {reading.decoded_bytes} bytes of memory "
                f"to be filtered",
            )
        finally:
            lease.release()

    async def _until_done(self, turn: asyncio.Future[ChunkDone], lease: Lease) -> Answers:
        """Waits for a thread, with heartbeats. Afterwards the lease may be over."""

        def drop() -> None:
            turn.cancel()

        while not (await asyncio.wait((turn,), timeout=self._call.seconds_until_heartbeat()))[0]:
            # A client that does not take its heartbeat must not keep the memory meanwhile.
            lease.idle(drop)
            for response in self._call.heartbeats():
                yield response
            if not lease.busy():
                return

    def _work(self, reading: Reading, chunk: Chunk, lease: Lease, answer_bytes_max: int) -> ChunkWork:
        return ChunkWork(
            self._projector,
            reading.partition.stream_id,
            reading.partition.partition,
            reading.offset,
            OFFSET_MAX if reading.end is None else reading.end,
            reading.told_offset,
            lease.bytes - _COPIES * chunk.bytes,
            answer_bytes_max - FACTS_BYTES,
            self._call.facts(reading),
        )

    def _pass(self, reading: Reading, found: _Found) -> None:
        """The reading passes what was projected, and the next chunk is read ahead."""
        done = found.done
        reading.stands_behind(done.next_offset, done.leader_epoch or reading.epoch, found.place)
        reading.silent_bytes += found.bytes
        if done.answer is not None:
            reading.is_told(done.told_offset)
        reading.chunk_bytes = self._chunk_bytes(reading.chunk_bytes, found)
        self._call.read_ahead(reading)

    def _chunk_bytes(self, now: int, found: _Found) -> int:
        """How much to read at a time, after a chunk was passed, as a whole or in part."""
        if found.place is None:
            # The rest of the chunk is read again.
            return self._bytes_max
        sent = 0 if found.done.answer is None else found.done.answer.bytes_to_send
        if sent > self._bytes_max // LITTLE:
            return now
        return max(
            self._bytes_max, min(2 * now, CHUNK_BYTES_MAX, self._projections.budget.bytes_max // SHARES)
        )

    def _position(self, reading: Reading) -> log_pb2.FetchResponse:
        """An answer without records, which tells the position."""
        partition = reading.partition
        nothing = pack_projected(
            partition.stream_id,
            partition.partition,
            (),
            start_offset=reading.told_offset,
            next_offset=reading.offset,
            leader_epoch=reading.epoch or 0,
        )
        reading.is_told(reading.offset)
        return self._call.response(reading, projected=nothing)


def _position_is_due(reading: Reading) -> bool:
    """Whether the client must be told how far it has read, although no record matched."""
    return reading.told_offset < reading.offset and (
        reading.finished() or reading.offset >= reading.limit() or reading.silent_bytes >= SILENT_BYTES_MAX
    )


def _room_bytes(room: Held | None) -> int:
    return SMALL_ANSWER_BYTES if room is None else room.bytes
