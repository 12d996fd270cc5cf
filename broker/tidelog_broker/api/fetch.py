"""Serves one Fetch call: records of one or many partitions, as stored batches or as plain records.

A call reads each partition as far as it may, from memory if possible, otherwise in the
catch-up threads, one read ahead of the answer that is being sent. It waits for commits without a
task or timer for each partition. An error in one partition ends that partition, not
the call (DESIGN section 8).

Neighbours: `fetch_start` decides where the reading of a partition begins, `fetch_reading` is its position,
`fetch_plain` turns batches into plain records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from tidelog.errors import InvalidRequest, ResourceExhausted, TidelogError, Unavailable
from tidelog.model.access import Operation
from tidelog.records.projecting import Projector
from tidelog.wire import error_to_proto, projection_from_proto
from tidelog_broker.api.access import ACCESS
from tidelog_broker.api.admission import CLIENT
from tidelog_broker.api.chunk_batches import cut_behind
from tidelog_broker.api.fetch_plain import PlainAnswers
from tidelog_broker.api.fetch_projected import ANSWER_BYTES_MAX as PROJECTED_BYTES_MAX
from tidelog_broker.api.fetch_projected import ProjectedAnswers
from tidelog_broker.api.fetch_reading import Reading
from tidelog_broker.api.fetch_start import check_newest_known, resolve_start
from tidelog_broker.api.usage import PAUSE_SECONDS_MAX
from tidelog_broker.api.verbatim import EncodedAnswer, VerbatimAnswer, size_of
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.limits.answer_room import SMALL_ANSWER_BYTES, Held
from tidelog_broker.limits.decoding import LARGE_WAIT_SECONDS_MAX
from tidelog_broker.storage.segments.reading import Chunk
from tidelog_broker.writing.partition import Partition
from tidelog_proto import log_pb2

PARTITIONS_MAX = 1000
"""Partitions of one call."""

RESPONSE_BYTES_DEFAULT = 1 << 20
RESPONSE_BYTES_MAX = 16 << 20
AHEAD_BYTES_MAX = 8 << 20
"""What one call reads ahead at most; one chunk is always allowed."""

STARTED_AT_ONCE_MAX = 100
"""Partitions of one call, in one turn of the event loop."""

ENCODE_HERE_BYTES_MAX = 4 << 20
"""Larger answers are copied together in a thread."""

HEARTBEAT_MS_DEFAULT = 5000
HEARTBEAT_MS_MIN = 50


FetchAnswer = log_pb2.FetchResponse | VerbatimAnswer | EncodedAnswer


class FetchCall:
    """The call, with a `Reading` for each partition."""

    def __init__(self, broker: Broker, request: log_pb2.FetchRequest) -> None:
        if len(request.partitions) > PARTITIONS_MAX:
            raise InvalidRequest(
                f"the call names {len(request.partitions)} partitions; give at most {PARTITIONS_MAX}"
            )
        if not request.partitions:
            raise InvalidRequest("the call names no partition; give at least one")
        if request.format not in log_pb2.FetchFormat.values():
            raise InvalidRequest(
                f"format is {request.format}; give 0 (verbatim), 1 (records) or 2 (projected)"
            )
        if request.HasField("projection") and request.format != log_pb2.PROJECTED:
            raise InvalidRequest("a projection needs the format 2 (projected)")
        if request.own_replica and request.follow:
            raise InvalidRequest("a fetch with own_replica ends at the high watermark; leave follow out")
        self._broker = broker
        self._request = request
        self._bytes_max = min(request.response_bytes_max or RESPONSE_BYTES_DEFAULT, RESPONSE_BYTES_MAX)
        self._plain: PlainAnswers | None = None
        self._projected: ProjectedAnswers | None = None
        """Both None: batches are sent as they are stored."""
        if request.format == log_pb2.RECORDS:
            self._plain = PlainAnswers(broker.decoding, self._bytes_max, self)
        elif request.format == log_pb2.PROJECTED:
            projection = projection_from_proto(request.projection)
            self._bytes_max = min(self._bytes_max, PROJECTED_BYTES_MAX)
            self._projected = ProjectedAnswers(
                Projector(projection.columns, projection.subject_filter, projection.keys),
                broker.projections,
                broker.answers,
                CLIENT.get(),
                self,
                bytes_max=self._bytes_max,
            )
        heartbeat_ms = request.heartbeat_ms or HEARTBEAT_MS_DEFAULT
        self._heartbeat = max(heartbeat_ms, HEARTBEAT_MS_MIN) / 1000
        self._active: dict[int, Reading] = {}
        """The partitions that have not ended, by their index in the request."""
        self._ready: dict[int, Reading] = {}
        self._by_partition: dict[Partition, list[Reading]] = {}
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._answers = broker.answers
        self._client = CLIENT.get()
        self._access = ACCESS.get()
        self._usage = self._access.usage
        self._ahead_bytes = 0
        """Of the chunks that are read ahead."""

    def on_commit(self, partition: Partition) -> None:
        """A partition has more to read (`writing.partition.TailReader`)."""
        for reading in self._by_partition.get(partition, ()):
            self._ready[reading.index] = reading
        self._wake.set()

    async def responses(self) -> AsyncGenerator[FetchAnswer]:
        """The answers, until every partition has ended."""
        unwatch = self._access.watch(self._permissions_changed)
        try:
            for index, wanted in enumerate(self._request.partitions):
                if index % STARTED_AT_ONCE_MAX == STARTED_AT_ONCE_MAX - 1:
                    await asyncio.sleep(0)
                try:
                    reading = await self._start(index, wanted)
                except TidelogError as error:
                    yield log_pb2.FetchResponse(index=index, error=error_to_proto(error))
                    continue
                self._active[index] = self._ready[index] = reading
                self._by_partition.setdefault(reading.partition, []).append(reading)
                reading.partition.follow(self)
            while self._active:
                while self._ready:
                    async for told in self._paced():
                        yield told
                    for index in list(self._ready):
                        reading = self._ready.pop(index)
                        async with aclosing(self._advance(reading)) as responses:
                            async for response in responses:
                                if self._usage.quota is not None:
                                    self._usage.used(self._usage.fetched, size_of(response))
                                yield response
                        if reading.done:
                            self._forget(self._active.pop(index))
                    for heartbeat in self.heartbeats():
                        yield heartbeat
                if self._active and not await self._more():
                    for heartbeat in self.heartbeats():
                        yield heartbeat
        finally:
            unwatch()
            if self._plain is not None:
                self._plain.close()
            for reading in self._active.values():
                reading.close()
            for partition in self._by_partition:
                partition.unfollow(self)
            self._by_partition.clear()

    async def _paced(self) -> AsyncGenerator[log_pb2.FetchResponse]:
        """Waits as long as the caller's quota wants before the next answers (A10), and meanwhile tells what
        must not wait: heartbeats, and the end of partitions that the caller may not read any more (A9)."""
        version = self._access.version
        while self._active and (left := self._usage.fetched.wait(self._loop.time())) > 0:
            await self._usage.slept(min(left, PAUSE_SECONDS_MAX))
            if self._access.version is not version:
                version = self._access.version
                for reading in list(self._active.values()):
                    try:
                        self._access.check_stream(reading.partition.stream_id, Operation.CONSUME)
                    except TidelogError as error:
                        yield self._last(reading, error=error_to_proto(error))
                        self._forget(self._active.pop(reading.index))
            for heartbeat in self.heartbeats():
                yield heartbeat

    def _permissions_changed(self) -> None:
        """Looks at each partition again, also where nothing happens (A9)."""
        self._ready.update(self._active)
        self._wake.set()

    async def _more(self) -> bool:
        """Waits for a commit; False when a heartbeat is due first."""
        due = self._loop.time() + self.seconds_until_heartbeat()
        self._wake.clear()
        try:
            async with asyncio.timeout_at(due):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def seconds_until_heartbeat(self) -> float:
        due = min(reading.told_at for reading in self._active.values()) + self._heartbeat
        return max(0.0, due - self._loop.time())

    def heartbeats(self) -> Iterator[log_pb2.FetchResponse]:
        """For each partition of which the client was told nothing for that long, even if others are busy."""
        latest = self._loop.time() - self._heartbeat
        for reading in [one for one in self._active.values() if one.told_at <= latest]:
            yield self.response(reading, heartbeat=log_pb2.Heartbeat())

    def _forget(self, reading: Reading) -> None:
        reading.close()
        # A commit may have put it back into the queue meanwhile.
        self._ready.pop(reading.index, None)
        readings = self._by_partition[reading.partition]
        readings.remove(reading)
        if not readings:
            del self._by_partition[reading.partition]
            reading.partition.unfollow(self)

    async def _start(self, index: int, wanted: log_pb2.FetchPartition) -> Reading:
        self._access.check_stream(wanted.stream_id, Operation.CONSUME)
        here = self._broker.replica if self._request.own_replica else self._broker.leading
        partition = here(wanted.stream_id, wanted.partition)
        offset, epoch = await resolve_start(self._broker, partition, wanted)
        end = wanted.end_offset if wanted.HasField("end_offset") else None
        if not self._request.follow:
            if not self._request.own_replica:
                check_newest_known(partition)
            end = partition.high_watermark if end is None else min(end, partition.high_watermark)
        return Reading(index, partition, offset, epoch, end, chunk_bytes=self._bytes_max)

    async def _advance(self, reading: Reading) -> AsyncGenerator[FetchAnswer]:
        """The next chunk of one partition; the partition returns to the queue if there may be more."""
        reading.dry = False
        try:
            if not reading.finished():
                self._access.check_stream(reading.partition.stream_id, Operation.CONSUME)
                self._check_leader(reading)
                if reading.offset >= reading.limit():
                    return
                async with aclosing(self._answers_of(reading)) as responses:
                    async for response in responses:
                        yield response
        except TidelogError as error:
            yield self._last(reading, error=error_to_proto(error))
            return
        except OSError as error:
            failure = Unavailable(f"the broker could not read its disk: {error.strerror or error}")
            yield self._last(reading, error=error_to_proto(failure))
            return
        if reading.finished():
            yield self._last(reading, end=log_pb2.EndOfPartition())
        elif not reading.dry:
            self._ready[reading.index] = reading

    def _answers_of(self, reading: Reading) -> AsyncGenerator[FetchAnswer]:
        """The next answers of a partition, in the format of the call."""
        if self._plain is not None:
            return self._plain.answers(reading)
        if self._projected is not None:
            return self._projected.answers(reading)
        return self._verbatim(reading)

    async def _verbatim(self, reading: Reading) -> AsyncGenerator[FetchAnswer]:
        """The next chunk as it is stored, or less if there is not enough room (`limits.answer_room`)."""
        room = reading.take_ahead_room() or self._answers.take(self._client, self._bytes_max)
        try:
            chunk = await self.read(reading, SMALL_ANSWER_BYTES if room is None else self._bytes_max)
            if chunk is None:
                return
            needed = chunk.bytes
            if needed > (SMALL_ANSWER_BYTES if room is None else room.bytes):
                # One large batch.
                if room is not None:
                    room.release()
                room = self._answers.request(self._client, needed)
                if not await room.granted(0):
                    # Nothing is held while it waits.
                    del chunk
                    async with aclosing(self.until_granted(room, reading)) as heartbeats:
                        async for heartbeat in heartbeats:
                            yield heartbeat
                    chunk = await self.read(reading, SMALL_ANSWER_BYTES)
                    if chunk is None or chunk.bytes > needed:
                        # The batch was deleted meanwhile: the next turn reads what is there now.
                        return
            if room is not None:
                room.shrink(chunk.bytes)
            answer = await self._answer_with(chunk, reading)
            del chunk
            yield answer
        finally:
            if room is not None:
                room.release()

    async def _answer_with(self, chunk: Chunk, reading: Reading) -> VerbatimAnswer | EncodedAnswer:
        """Makes an answer of a chunk; `reading` then stands behind it."""
        parts, reached, epoch = chunk.parts, chunk.next_offset, chunk.leader_epoch
        if reading.end is not None and reached > reading.end:
            parts, epoch = cut_behind(b"".join(parts), reading.end)
            reached = reading.end
        reading.stands_behind(reached, epoch, chunk.place)
        self.read_ahead(reading)
        answer = VerbatimAnswer(self.response(reading), parts)
        if sum(map(len, parts)) <= ENCODE_HERE_BYTES_MAX:
            return answer
        return await self._broker.in_catch_up_thread(answer.encoded)

    async def until_granted(self, room: Held, reading: Reading) -> AsyncGenerator[log_pb2.FetchResponse]:
        """Waits for the turn of one large batch, with heartbeats. Raises `ResourceExhausted`."""
        deadline = self._loop.time() + LARGE_WAIT_SECONDS_MAX
        while not await room.granted(min(deadline - self._loop.time(), self.seconds_until_heartbeat())):
            if self._loop.time() >= deadline:
                raise ResourceExhausted(
                    f"the batch at offset {reading.offset} has {room.bytes} bytes, for which there was no "
                    f"room within {LARGE_WAIT_SECONDS_MAX:g} s: in answers that were not taken yet this "
                    f"client holds {self._answers.used_by(self._client)} bytes, and all clients hold "
                    f"{self._answers.used}; "
                    f"a client may hold {self._answers.client_bytes_max}, and all {self._answers.bytes_max} "
                    f"(fetch_answer_bytes_max). End calls that nothing reads, or try again",
                    retry_after_ms=1000,
                    limit="fetch_answer_bytes_max",
                )
            for heartbeat in self.heartbeats():
                yield heartbeat

    def _check_leader(self, reading: Reading) -> None:
        """Raises an error if this broker no longer leads the partition in the same epoch, or lost it."""
        partition = reading.partition
        if self._request.own_replica:
            # Below its high watermark nothing changes when the leader changes.
            self._broker.replica(partition.stream_id, partition.partition)
            return
        if not partition.leads or partition.stopped:
            self._broker.leading(partition.stream_id, partition.partition)
        if partition.leader_epoch != reading.leader_epoch:
            raise partition.not_leader()

    async def read(self, reading: Reading, bytes_max: int) -> Chunk | None:
        """The next chunk of a partition, of about so many bytes; None: there is nothing now."""
        if reading.ahead is not None:
            ahead, reading.ahead = reading.ahead, None
            self._ahead_bytes -= reading.chunk_bytes
            chunk, source = await ahead, "disk"
        else:
            # A client that compares replicas wants what is on the disk.
            from_memory = not self._request.own_replica
            log = reading.partition.log
            chunk = (
                log.reader.read_cached(reading.offset, bytes_max, reading.limit()) if from_memory else None
            )
            source = "memory"
            if chunk is None:
                chunk, source = await self._from_disk(reading, bytes_max), "disk"
        if chunk is None:
            reading.dry = True
        else:
            self._broker.metrics.fetched_bytes.labels(source).inc(chunk.bytes)
        return chunk

    def _from_disk(self, reading: Reading, bytes_max: int) -> asyncio.Future[Chunk | None]:
        log = reading.partition.log
        return self._broker.in_catch_up_thread(
            log.reader.read, reading.offset, bytes_max, reading.limit(), reading.place
        )

    def read_ahead(self, reading: Reading) -> None:
        """Starts reading the next chunk from disk while this one is sent."""
        log = reading.partition.log
        if reading.finished() or self._ahead_bytes >= AHEAD_BYTES_MAX:
            return
        if reading.offset < reading.limit() and not log.reader.is_cached(reading.offset):
            reading.ahead_room = self._answers.take(self._client, reading.chunk_bytes)
            if reading.ahead_room is None:
                return
            self._ahead_bytes += reading.chunk_bytes
            reading.ahead = self._from_disk(reading, reading.chunk_bytes)
            # Its error is raised when it is awaited; if the call ends first, the error stays unseen.
            reading.ahead.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _last(self, reading: Reading, **item: object) -> log_pb2.FetchResponse:
        reading.done = True
        return self.response(reading, **item)

    def response(self, reading: Reading, **item: object) -> log_pb2.FetchResponse:
        position = log_pb2.Position(offset=reading.offset, leader_epoch=reading.epoch)
        return self._standing(reading, next=position, **item)

    def facts(self, reading: Reading) -> bytes:
        """A serialized answer with the log start offset and the high watermark, without item and position."""
        return self._standing(reading).SerializeToString()

    def _standing(self, reading: Reading, **more: object) -> log_pb2.FetchResponse:
        partition = reading.partition
        reading.told_at = self._loop.time()
        return log_pb2.FetchResponse(
            index=reading.index,
            log_start_offset=partition.log.start_offset,
            high_watermark=partition.high_watermark,
            log_end_offset=partition.log.end_offset,
            **more,  # type: ignore[arg-type]
        )
