"""Serves one Produce call: pipelined batches in, receipts out, in order for each partition.

Rules of the call (DESIGN section 8): every request is answered once; answers of one
partition come in the order of its requests; after an error, later batches of that
partition are refused until a batch comes with `reset`. Storage keeps the order of the batches that
it receives (`PipelineOrder`); the order of batches that are refused earlier is kept here.

A batch that takes long to check is checked in a thread (`limits.checks`). Later batches
of the same partition wait for it; other partitions do not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import structlog

from tidelog.errors import ResourceExhausted, TidelogError
from tidelog.model import PipelineOrder
from tidelog.model.access import Operation
from tidelog.records import BatchClaims, BatchHeader, check_contents, read_claims, validate_batch
from tidelog.wire import error_to_proto
from tidelog_broker.api.access import ACCESS
from tidelog_broker.api.status import internal_error
from tidelog_broker.api.verbatim import ProduceMessage
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.limits.checks import INLINE_BYTES_MAX
from tidelog_broker.storage.log.write_batch import Appended, AppendItem
from tidelog_broker.writing.append_requests import Acks, BatchAppend
from tidelog_broker.writing.partition import Partition
from tidelog_proto import log_pb2

log = structlog.get_logger(__name__)

CALL_BYTES_MAX = 64 << 20
"""Unanswered bytes of one call; over it the broker stops reading the call (HTTP/2 flow control)."""

CALL_REQUESTS_MAX = 10_000
"""Unanswered requests of one call."""

CALL_PARTITIONS_MAX = 10_000
"""Partitions that one call may write to."""

WAITED_AT_ONCE_MAX = 64
"""Requests that waited behind a large batch and are taken in one turn of the event loop."""


class _Slot:
    """A request that waits for its answer, or for its turn to be answered."""

    __slots__ = ("bytes", "request_id", "response")

    def __init__(self, request_id: int, size: int) -> None:
        self.request_id = request_id
        self.bytes = size
        self.response: log_pb2.ProduceResponse | None = None


class _Request(NamedTuple):
    """What there is to do for a slot."""

    facts: log_pb2.ProduceRequest
    batch: bytes | memoryview
    slot: _Slot
    deadline: float
    """On the event loop's clock. It runs while the batch waits to be checked, too."""


class _Pipeline:
    """One partition of a call."""

    __slots__ = ("checking", "order", "sender", "slots", "waiting")

    def __init__(self) -> None:
        self.order = PipelineOrder()
        """Of the requests on their way to the partition's queue."""
        self.sender = PipelineOrder()
        """Of the batches in the queue, kept by the log."""
        self.slots: deque[_Slot] = deque()
        self.checking = False
        """A batch is checked in a thread; later ones wait."""
        self.waiting: deque[_Request] = deque()


class ProduceCall:
    """The call. `send` takes the answers, in the order in which they may be sent."""

    def __init__(self, broker: Broker, send: Callable[[log_pb2.ProduceResponse], None]) -> None:
        self._broker = broker
        self._access = ACCESS.get()
        self._usage = self._access.usage
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._pipelines: dict[tuple[bytes, int], _Pipeline] = {}
        self._bytes = 0
        self._requests = 0
        self._room: asyncio.Future[None] | None = None
        self._asking: dict[asyncio.Task[None], None] = {}
        """Whether the producer of a batch may write; its pipeline waits meanwhile."""

    @property
    def unanswered(self) -> int:
        return self._requests

    @property
    def full(self) -> bool:
        return self._bytes > CALL_BYTES_MAX or self._requests > CALL_REQUESTS_MAX

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for answers until `condition` holds."""
        while not condition():
            self._room = self._loop.create_future()
            await self._room

    def pause(self) -> float:
        """How long to wait before the call is read again, because of the caller's quota (A10). s."""
        usage = self._usage
        if usage.quota is None:
            return 0.0
        now = self._loop.time()
        return max(usage.produced.wait(now), usage.requests.wait(now))

    def receive(self, message: ProduceMessage) -> None:
        """Takes one request; it is answered through `send`, sooner or later.

        Raises `ResourceExhausted`, which ends the call, for one partition too many.
        """
        request, batch = message
        key = (request.stream_id, request.partition)
        pipeline = self._pipelines.get(key)
        if pipeline is None:
            if len(self._pipelines) >= CALL_PARTITIONS_MAX:
                raise ResourceExhausted(
                    f"the call has {CALL_PARTITIONS_MAX} partitions already; open another call"
                )
            pipeline = self._pipelines[key] = _Pipeline()
        slot = _Slot(request.request_id, len(batch))
        pipeline.slots.append(slot)
        self._bytes += slot.bytes
        self._requests += 1
        usage = self._usage
        if usage.quota is not None:
            usage.used(usage.produced, slot.bytes)
            usage.used(usage.requests, 1)
        timeout_ms = request.timeout_ms if request.HasField("timeout_ms") else None
        pipeline.waiting.append(_Request(request, batch, slot, self._broker.deadline(timeout_ms)))
        if not pipeline.checking:
            self._take(pipeline)

    def _take(self, pipeline: _Pipeline) -> None:
        """Submits what waits in the pipeline, up to a batch that must be checked in a thread first."""
        for _ in range(WAITED_AT_ONCE_MAX):
            pipeline.checking = False
            if not pipeline.waiting:
                return
            request = pipeline.waiting.popleft()
            try:
                pipeline.checking = self._check(request, pipeline)
            except TidelogError as error:
                self._refuse(pipeline, request.slot, error)
            if pipeline.checking:
                return
        pipeline.checking = True
        self._loop.call_soon(self._take, pipeline)

    def _check(self, request: _Request, pipeline: _Pipeline) -> bool:
        """Checks a batch and submits it; True: that takes a while, and then the pipeline continues."""
        pipeline.order.check(reset=request.facts.reset)
        partition, batch = self._leading(request), request.batch
        checks, now_us = self._broker.checks, self._broker.clock.wall()
        ahead_us_max = partition.config.timestamp_ahead_ms_max * 1000
        done = partial(self._checked, request, pipeline)
        if len(batch) > INLINE_BYTES_MAX:
            check = partial(validate_batch, now_us=now_us, timestamp_ahead_us_max=ahead_us_max)
            checks.submit(self, len(batch), partial(check, batch, partition.limits), done)
            return True
        claims = read_claims(batch, partition.limits)
        check_rest = partial(_check_rest, claims, now_us, ahead_us_max)
        if not checks.here(claims.decoded_bytes):
            checks.submit(self, len(batch), check_rest, done)
            return True
        return self._submit(partition, request, pipeline, check_rest())

    def _leading(self, request: _Request) -> Partition:
        self._access.check_stream(request.facts.stream_id, Operation.PRODUCE)
        return self._broker.leading(request.facts.stream_id, request.facts.partition)

    def _checked(self, request: _Request, pipeline: _Pipeline, outcome: BatchHeader | BaseException) -> None:
        """A thread has checked a batch: it is submitted, and what waited for it comes next."""
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            # The leadership may have ended meanwhile.
            if self._submit(self._leading(request), request, pipeline, outcome):
                return
        except TidelogError as error:
            self._refuse(pipeline, request.slot, error)
        except Exception as error:
            log.error("a batch could not be checked because of an internal error", exc_info=error)
            self._refuse(pipeline, request.slot, internal_error(error))
        self._take(pipeline)

    def _refuse(self, pipeline: _Pipeline, slot: _Slot, error: TidelogError) -> None:
        pipeline.order.failed = True
        self._answer(pipeline, slot, error)

    def _submit(
        self, partition: Partition, request: _Request, pipeline: _Pipeline, header: BatchHeader
    ) -> bool:
        """Appends a checked batch; True: it is not known yet whether its producer may write (R8)."""
        facts = request.facts
        acks = Acks.checked(facts.acks)
        expected = facts.expected_offset if facts.HasField("expected_offset") else None
        append = BatchAppend(
            AppendItem(
                request.batch,
                header,
                expected,
                sender=pipeline.sender,
                reset=facts.reset,
                sink_run=facts.sink_run,
            ),
            lambda outcome: self._answer(pipeline, request.slot, outcome),
            acks,
            request.deadline,
        )
        if self._may_write(header, facts.sink_run):
            self._broker.append(partition, append)
            return False
        asking = self._loop.create_task(self._ask_and_append(request, append, pipeline))
        self._asking[asking] = None
        asking.add_done_callback(self._asking.pop)
        return True

    def _may_write(self, header: BatchHeader, sink_run: int) -> bool:
        """Whether the image here says that the producer may write; False: it may be too old to know."""
        if not self._broker.sink_runs.is_newest(header, sink_run):
            return False
        return header.of_sink or self._broker.producer_ids.is_known(header.producer_id)

    async def _ask_and_append(self, request: _Request, append: BatchAppend, pipeline: _Pipeline) -> None:
        """Appends a batch of a producer or run of which this broker has not heard, if there is one."""
        try:
            header, run = append.item.header, append.item.sink_run
            if header.of_sink:
                await self._broker.sink_runs.check(header, run)
            else:
                await self._broker.producer_ids.check(header.producer_id)
            self._broker.append(self._leading(request), append)
        except TidelogError as error:
            self._refuse(pipeline, request.slot, error)
        self._take(pipeline)

    def _answer(self, pipeline: _Pipeline, slot: _Slot, outcome: Appended | TidelogError) -> None:
        response = log_pb2.ProduceResponse(request_id=slot.request_id)
        if isinstance(outcome, TidelogError):
            response.error.CopyFrom(error_to_proto(outcome))
        else:
            receipt = response.receipt
            receipt.base_offset = outcome.base_offset
            receipt.last_offset = outcome.last_offset
            receipt.leader_epoch = outcome.leader_epoch
            receipt.append_time_us = outcome.append_time_us
            receipt.duplicate = outcome.duplicate
        slot.response = response
        slots = pipeline.slots
        while slots and slots[0].response is not None:
            ready = slots.popleft()
            assert ready.response is not None
            self._bytes -= ready.bytes
            self._requests -= 1
            self._send(ready.response)
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


def _check_rest(claims: BatchClaims, now_us: int, ahead_us_max: int) -> BatchHeader:
    check_contents(claims, now_us=now_us, timestamp_ahead_us_max=ahead_us_max)
    return claims.header
