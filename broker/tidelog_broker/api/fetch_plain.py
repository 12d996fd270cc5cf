"""Makes the plain records of one Fetch call, as far as memory and the client allow.

For each chunk of a partition it leases the memory for decoding (`limits.decoding`), reads the chunk, decodes
it and writes its records in a thread, and passes on one piece at a time. While a piece waits for the client,
the lease is idle and may be taken back: then the call continues from its position, as if it began there. So
between pieces it keeps nothing that another call could need.

Neighbours: `fetch` runs the call, `plain_records` writes the records.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from typing import Protocol

from tidelog.errors import BatchTooLarge, ResourceExhausted
from tidelog_broker.api.fetch_leases import Heartbeats, check_fits, granted
from tidelog_broker.api.fetch_reading import Reading
from tidelog_broker.api.plain_records import LargeRecord, Piece, PlainChunk
from tidelog_broker.api.verbatim import EncodedAnswer
from tidelog_broker.limits.byte_budget import Lease
from tidelog_broker.limits.decoding import ANSWER_BYTES_MAX, LARGE_WAIT_SECONDS_MAX, Decoding
from tidelog_broker.storage.segments.reading import Chunk
from tidelog_proto import log_pb2

READ_BYTES = 64 << 10
"""Read at a time, about; a larger batch still comes whole."""

LEASE_BYTES = 4 * READ_BYTES
"""Leased before anything is known of what will be read."""

COPIES = 2
"""Of a large answer at a time: the answer, and what gRPC makes of it."""

Answers = AsyncGenerator[log_pb2.FetchResponse | EncodedAnswer]


class PlainCall(Heartbeats, Protocol):
    """What the answers need of their call."""

    async def read(self, reading: Reading, bytes_max: int) -> Chunk | None:
        """The next chunk of a partition, of about so many bytes."""

    def facts(self, reading: Reading) -> bytes:
        """A serialized answer that says where the partition's log stands, without item and position."""


class PlainAnswers:
    """Makes plain answers for one call. `close` must be called when the call ends, however it ends."""

    def __init__(self, decoding: Decoding, response_bytes_max: int, call: PlainCall) -> None:
        self._decoding = decoding
        self._piece_bytes = min(response_bytes_max, ANSWER_BYTES_MAX)
        self._call = call
        self._large: Lease | None = None
        """For an answer with one large record. A call has one at most, so it never waits holding another."""

    def close(self) -> None:
        if self._large is not None:
            self._large.release()
            self._large = None

    async def answers(self, reading: Reading) -> Answers:
        """The records of the next chunk, or some of them; `reading` then stands behind those."""
        budget = self._decoding.budget
        lease = budget.request(min(reading.decoded_bytes + LEASE_BYTES, budget.bytes_max))
        try:
            async with aclosing(granted(lease, self._call)) as heartbeats:
                async for heartbeat in heartbeats:
                    yield heartbeat
            if lease.ended():
                return
            chunk = await self._call.read(reading, READ_BYTES)
            if chunk is None:
                return
            next_offset: int = chunk.next_offset
            epoch: int | None = chunk.leader_epoch
            place: tuple[int, int] | None = chunk.place
            plain = PlainChunk(chunk.parts, reading.offset, reading.end, bytes_max=budget.bytes_max)
            stopped_at = plain.stopped_at
            # `plain` has what is still needed of it, and lets it go when it is told to.
            del chunk
            if not self._covered(lease, plain, reading):
                return
            async with aclosing(self._pieces(reading, plain, lease)) as pieces:
                async for response in pieces:
                    yield response
            if lease.ended():
                return
            if stopped_at is not None:
                next_offset, epoch, place = stopped_at, reading.epoch, None
            elif reading.end is not None and next_offset > reading.end:
                next_offset, epoch = reading.end, reading.epoch
            reading.stands_behind(next_offset, epoch, place)
        finally:
            lease.release()

    def _covered(self, lease: Lease, plain: PlainChunk, reading: Reading) -> bool:
        """Whether there is room to decode it now; if not, the next lease of the partition will be for it."""
        check_fits(
            self._decoding.budget,
            plain.bytes,
            f"offset {reading.offset} lies in a batch that needs {plain.bytes} bytes of memory to be decoded",
        )
        if lease.grow(plain.bytes):
            reading.decoded_bytes = 0
            return True
        reading.decoded_bytes = plain.bytes
        return False

    async def _pieces(self, reading: Reading, plain: PlainChunk, lease: Lease) -> Answers:
        """Until there is nothing left of `plain`, or the lease was taken back."""
        while (piece := await self._piece(reading, plain, (lease,), self._piece_bytes)) is not None:
            large = piece if isinstance(piece, LargeRecord) else None
            if large is not None:
                async with aclosing(self._room_for(large, reading, plain, lease)) as heartbeats:
                    async for response in heartbeats:
                        yield response
                if lease.ended():
                    return
                assert self._large is not None, "there is room"
                piece = await self._piece(reading, plain, (lease, self._large), large.bytes)
            assert isinstance(piece, Piece), "there is room, and there is a record"
            reading.offset, reading.epoch = piece.next_offset, piece.leader_epoch
            lease.idle(plain.drop)
            yield piece.answer
            # It was taken.
            if large is not None:
                self.close()
            if not lease.busy():
                return

    def _piece(
        self, reading: Reading, plain: PlainChunk, leases: Sequence[Lease], bytes_max: int
    ) -> Awaitable[Piece | LargeRecord | None]:
        return self._decoding.run(leases, plain.piece, self._call.facts(reading), bytes_max)

    async def _room_for(
        self, record: LargeRecord, reading: Reading, plain: PlainChunk, lease: Lease
    ) -> Answers:
        """Waits until an answer with one large record may be made. What is decoded may be dropped meanwhile:
        then the room is kept for the next attempt."""
        if record.bytes > self._decoding.record_bytes_max:
            raise BatchTooLarge(
                f"the record at offset {reading.offset} or after it has {record.bytes} bytes; an answer "
                f"with plain records may have {self._decoding.record_bytes_max} (message_bytes_max). Read "
                f"it in the format VERBATIM, or raise message_bytes_max",
                bytes_needed=record.bytes,
                bytes_max=self._decoding.record_bytes_max,
            )
        size, budget = COPIES * record.bytes, self._decoding.large_answers
        check_fits(
            budget,
            size,
            f"the record at offset {reading.offset} or after it needs {size} bytes of memory to be sent",
        )
        if self._large is None or not self._large.grow(size):
            self.close()
            self._large = budget.request(size)
        lease.idle(plain.drop)
        async with aclosing(granted(self._large, self._call, LARGE_WAIT_SECONDS_MAX)) as heartbeats:
            async for response in heartbeats:
                yield response
        if not self._large.turn.done():
            raise ResourceExhausted(
                f"the record at offset {reading.offset} or after it needs {size} bytes of memory to be "
                f"sent; other readers did not take {budget.used} bytes of large records within "
                f"{LARGE_WAIT_SECONDS_MAX:g} s, and the broker has {budget.bytes_max} bytes for them "
                f"(half of fetch_decoded_bytes_max). Read it in the format VERBATIM, or try again",
                retry_after_ms=1000,
            )
        if self._large.ended():
            self._large = None
            lease.release()
        lease.busy()
