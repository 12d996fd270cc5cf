"""Reads one broker's own copy of a partition piece by piece, with everything that is wrong with it.

A reader of the library asks the leader. Here each broker is asked for its own copy, from its disk
(`own_replica` in proto/tidelog_proto/log.proto). Neighbour: `replicas` compares the copies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing

import grpc

from tidelog._connecting.broker_channel import BrokerChannel
from tidelog._connecting.framing import FetchAnswer
from tidelog._connecting.status import error_from_message, error_from_rpc
from tidelog._reading.fetching import FetchedBatch, FetchState
from tidelog.errors import (
    ConnectionLost,
    CorruptBatch,
    DataCorrupt,
    LogTruncated,
    OffsetOutOfRange,
    TidelogError,
)
from tidelog.history.replicas import Lack, Piece
from tidelog.model import Position, StreamDescription
from tidelog_proto import log_pb2

ANSWER_SECONDS_MAX = 30.0
RETRY_SECONDS = 0.1
RESPONSE_BYTES = 1 << 20


class ReplicaReading:
    """The pieces of one replica, from the offset `start` up to `end`."""

    def __init__(
        self,
        broker: BrokerChannel,
        stream: StreamDescription,
        partition: int,
        start: int,
        end: int,
        deadline: float,
    ) -> None:
        """`deadline`, on the event loop's clock: until then a replica may catch up and is asked again."""
        self._broker = broker
        self._end = end
        self._deadline = deadline
        self._at = start
        self._progress = FetchState(stream.name, stream.stream_id, partition, Position(start), end)

    async def pieces(self) -> AsyncGenerator[Piece]:
        """The pieces in order, without gaps, up to the end at least."""
        while self._at < self._end:
            before = self._at
            try:
                async with aclosing(self._one_call()) as batches:
                    async for batch in batches:
                        yield self._records(batch)
                error: TidelogError | None = None
            except TidelogError as failure:
                error = failure
            if self._at >= self._end:
                return
            lack = self._known_lack(error)
            if lack is not None:
                yield lack
            elif self._at == before:
                if asyncio.get_running_loop().time() > self._deadline or (error and not error.retriable):
                    yield self._missing(error)
                    return
                await asyncio.sleep(RETRY_SECONDS)

    def _records(self, batch: FetchedBatch) -> Piece:
        # A compacted batch may begin and end with offsets whose records were removed.
        piece = Piece(
            self._at, batch.next_offset, batch.leader_epoch, batch.append_time_us, batch.with_offsets()
        )
        self._at = batch.next_offset
        return piece

    def _known_lack(self, error: TidelogError | None) -> Piece | None:
        """Offsets that this replica certainly lacks, after which reading goes on; None: there are none."""
        match error:
            case OffsetOutOfRange() if int(error.details.get("log_start_offset", 0)) > self._at:
                return self._skip(int(error.details["log_start_offset"]), Lack.RETIRED, error)
            case DataCorrupt() if "damaged_end" in error.details:
                return self._skip(int(error.details["damaged_end"]), Lack.CORRUPT, error)
            case DataCorrupt() | CorruptBatch():
                return self._skip(self._end, Lack.CORRUPT, error)
            case LogTruncated():
                return self._skip(self._end, Lack.DIVERGENT, error)
        return None

    def _missing(self, error: TidelogError | None) -> Piece:
        if error is not None:
            return self._skip(self._end, Lack.MISSING, error)
        known = self._progress.high_watermark
        return Piece(self._at, self._end, why=f"its broker knows committed records only below offset {known}")

    def _skip(self, to: int, lack: Lack, error: TidelogError) -> Piece:
        piece = Piece(self._at, min(to, self._end), lack=lack, why=str(error))
        self._at = piece.end
        self._progress.jump(Position(self._at))
        return piece

    async def _one_call(self) -> AsyncGenerator[FetchedBatch]:
        request = log_pb2.FetchRequest(
            partitions=[self._progress.request()], own_replica=True, response_bytes_max=RESPONSE_BYTES
        )
        call = self._broker.fetch(request)
        try:
            while True:
                answer = await self._answer(call.read())
                for batch in self._progress.accept(answer):
                    yield batch
                # Compaction may have removed the records before the end.
                self._at = max(self._at, self._progress.next_offset if self._progress.ended else 0)
                if answer.facts.HasField("end") or self._progress.ended:
                    return
        except grpc.RpcError as error:
            raise error_from_rpc(error, self._broker.address) from None
        finally:
            call.cancel()

    async def _answer(self, reading: Awaitable[object]) -> FetchAnswer:
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                answer = await reading
        except TimeoutError:
            raise ConnectionLost(
                f"{self._broker.address} did not answer for {ANSWER_SECONDS_MAX:g} s"
            ) from None
        if not isinstance(answer, FetchAnswer):
            raise ConnectionLost(f"{self._broker.address} ended the call")
        return answer


async def extent(broker: BrokerChannel, stream: StreamDescription, partition: int) -> tuple[int, int]:
    """The log start offset and the high watermark of a broker's own copy. Raises `TidelogError`."""
    wanted = log_pb2.FetchPartition(
        stream_id=stream.stream_id, partition=partition, earliest=True, end_offset=0
    )
    call = broker.fetch(log_pb2.FetchRequest(partitions=[wanted], own_replica=True))
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            answer = await call.read()
    except grpc.RpcError as error:
        raise error_from_rpc(error, broker.address) from None
    except TimeoutError:
        raise ConnectionLost(f"{broker.address} did not answer for {ANSWER_SECONDS_MAX:g} s") from None
    finally:
        call.cancel()
    if not isinstance(answer, FetchAnswer):
        raise ConnectionLost(f"{broker.address} ended the call")
    if answer.facts.HasField("error"):
        raise error_from_message(answer.facts.error)
    return answer.facts.log_start_offset, answer.facts.high_watermark
