"""Sealed batches to receipts: the half of a producer that talks to brokers.

One `Lane` a partition decides what to send and what an answer means; `ProduceStream`
moves bytes; this module joins them: it finds leaders, gets held lanes going again, keeps
deadlines and hands results to whoever waits for them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from tidelog import _status, wire
from tidelog._batching import Batch
from tidelog._budget import Budget
from tidelog._channels import Broker, Channels
from tidelog._lane import ANONYMOUS, Failed, Identity, Lane
from tidelog._metadata import Metadata
from tidelog._options import ACKS, ProducerOptions
from tidelog._produce_stream import Pending, ProduceStream
from tidelog._retry import retrying
from tidelog.errors import ConnectionLost, FencedProducer, InternalError, InvalidRequest, TidelogError
from tidelog.model import Receipt, StreamDescription
from tidelog_proto import log_pb2


class Delivery:
    """What the sender keeps for a partition."""

    __slots__ = ("expiry", "lane", "recovering", "stream")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.stream: ProduceStream | None = None
        self.recovering = False
        self.expiry: asyncio.TimerHandle | None = None


class Sender:
    """Delivers batches in order per partition; see the module."""

    def __init__(
        self,
        stream: str,
        channels: Channels,
        metadata: Metadata,
        options: ProducerOptions,
        rng: random.Random,
        on_room: Callable[[int], None],
    ) -> None:
        self.stream = stream
        self.budget = Budget(options.buffer_bytes_max)
        """Of everything accepted and not yet acknowledged; shared with the open batches."""
        self.fatal: TidelogError | None = None
        """Why nothing can be sent any more."""
        self.description: StreamDescription
        self._options = options
        self._channels = channels
        self._metadata = metadata
        self._rng = rng
        self._on_room = on_room
        self._deliveries: dict[int, Delivery] = {}
        self._streams: dict[str, asyncio.Task[ProduceStream]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_number = 0
        self._unfinished: dict[int, Batch] = {}
        """Handed in and not yet finished, by number, oldest first."""
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._lost_records = 0
        self._lost_first: TidelogError | None = None
        self._identity = ANONYMOUS
        self._window = options.inflight_batches_max
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop

    @property
    def unfinished(self) -> int:
        """Batches without a result."""
        return len(self._unfinished)

    async def start(self) -> None:
        """Finds the stream and gets a producer id."""
        self._loop = asyncio.get_running_loop()
        self.description = await self._metadata.refresh(self.stream)
        if self._options.idempotent:
            self._identity = await self._new_identity()

    # --- batches in

    def delivery(self, partition: int) -> Delivery:
        found = self._deliveries.get(partition)
        if found is None:
            lane = Lane(partition, self._identity, self._window)
            found = self._deliveries[partition] = Delivery(lane)
        return found

    def new_batch(self, partition: int, count: int, held_bytes: int) -> Batch:
        """A batch without its data yet; `held_bytes` of the budget are its own from now on."""
        batch = Batch(
            b"",
            count,
            number=self._next_number,
            partition=partition,
            deadline=self._loop.time() + self._options.delivery_timeout_s,
        )
        self._next_number += 1
        batch.held_bytes = held_bytes
        self._unfinished[batch.number] = batch
        return batch

    def submit(self, delivery: Delivery, batch: Batch) -> None:
        """Takes an encoded batch of `new_batch`; its futures hear of the result."""
        if len(batch.data) < batch.held_bytes:
            self.budget.release(batch.held_bytes - len(batch.data))
            batch.held_bytes = len(batch.data)
        delivery.lane.push(batch)
        if delivery.expiry is None:
            delivery.expiry = self._loop.call_at(batch.deadline, self._expire, delivery)
        self._pump(delivery)

    async def finished(self) -> None:
        """Waits until every batch handed in so far has a result.

        Raises the first failure of records that nobody waited for, since the last call.
        """
        if self._unfinished:
            future: asyncio.Future[None] = self._loop.create_future()
            self._flushes.append((self._next_number - 1, future))
            await future
        first, lost = self._lost_first, self._lost_records
        self._lost_first, self._lost_records = None, 0
        if first is not None:
            error = type(first)(f"{lost} records were not acknowledged; the first: {first}")
            error.details.update(first.details, records_lost=str(lost))
            raise error from first

    # --- to brokers and back

    def _pump(self, delivery: Delivery) -> None:
        """Sends what the lane allows; gets the lane going if it is held."""
        lane, stream = delivery.lane, delivery.stream
        if stream is not None and not stream.closed:
            while lane.ready:
                self._transmit(stream, lane, lane.take())
            if lane.window_open:
                self._on_room(lane.partition)
        if lane.settled and not lane.idle and not delivery.recovering and not self._stopped:
            delivery.recovering = True
            self._spawn(self._recover(delivery), f"recover {self.stream}/{lane.partition}")

    def _transmit(self, stream: ProduceStream, lane: Lane, batch: Batch) -> None:
        facts = log_pb2.ProduceRequest(
            stream_id=self.description.stream_id,
            partition=lane.partition,
            acks=ACKS[self._options.acks],
            timeout_ms=int(self._options.request_timeout_s * 1000),
        )
        if lane.reset_next:
            facts.reset = True
            lane.reset_next = False
        if batch.expected_offset is not None:
            facts.expected_offset = batch.expected_offset
        stream.send(lane, batch, facts)

    def _answered(self, stream: ProduceStream, pending: Pending, answer: log_pb2.ProduceResponse) -> None:
        lane, batch = pending.lane, pending.batch
        delivery = self._deliveries[lane.partition]
        match answer.WhichOneof("outcome"):
            case "receipt":
                lane.acknowledged(batch)
                self._deliver(batch, wire.receipt_from_proto(answer.receipt, lane.partition))
            case "error":
                self._report_all(lane.refused(batch, _status.error_from_message(answer.error)))
            case _:
                error = InternalError("the broker's answer holds neither a receipt nor an error")
                self._report_all(lane.refused(batch, error))
        self._pump(delivery)

    def _broken(self, stream: ProduceStream, unanswered: list[Pending], error: TidelogError) -> None:
        for address, opening in list(self._streams.items()):
            if (
                opening.done()
                and not opening.cancelled()
                and not opening.exception()
                and opening.result() is stream
            ):
                del self._streams[address]
        written: dict[int, set[int]] = {}
        for pending in unanswered:
            numbers = written.setdefault(pending.lane.partition, set())
            if pending.written:
                numbers.add(pending.batch.number)
        for partition, delivery in self._deliveries.items():
            if delivery.stream is not stream:
                continue
            delivery.stream = None
            self._report_all(delivery.lane.broken(written.get(partition, set()), error))
            self._pump(delivery)

    async def _recover(self, delivery: Delivery) -> None:
        """Brings a held lane to the leader of its partition, with an identity that works there."""
        lane = delivery.lane
        try:
            while not lane.idle:
                if lane.failures_in_a_row:
                    hint = lane.last_error.retry_after_ms if lane.last_error is not None else None
                    await asyncio.sleep(self._options.retry.delay_s(lane.failures_in_a_row, self._rng, hint))
                try:
                    if lane.identity_spent:
                        self._report_all(lane.adopt(await self._new_identity()))
                    stream = await self._leader_stream(lane)
                except TidelogError as error:
                    if not error.retriable:
                        self._report_all(lane.fail_all(error))
                        return
                    lane.noted(error)
                    continue
                if lane.identity_spent:
                    # A deadline passed meanwhile, and took the sequences with it.
                    continue
                delivery.stream = stream
                # The call may remember an error of this partition from long ago.
                lane.release(reset=lane.last_error is not None)
                return
        except Exception as error:
            self._report_all(lane.fail_all(InternalError(f"recovery of {self.stream} failed: {error!r}")))
            raise
        finally:
            delivery.recovering = False
            self._pump(delivery)

    async def _leader_stream(self, lane: Lane) -> ProduceStream:
        if lane.failures_in_a_row:
            self.description = await self._metadata.same_stream(self.stream, self.description.stream_id)
        address = self._metadata.leader_address(self.description, lane.partition)
        opening = self._streams.get(address)
        if opening is None:
            opening = self._streams[address] = self._loop.create_task(self._open_stream(address))
        try:
            stream = await asyncio.shield(opening)
        except TidelogError:
            if self._streams.get(address) is opening:
                del self._streams[address]
            raise
        if stream.closed:
            raise ConnectionLost(f"the connection to {address} broke again")
        return stream

    async def _open_stream(self, address: str) -> ProduceStream:
        stream = ProduceStream(
            self._channels.broker(address),
            timeout_s=self._options.request_timeout_s,
            on_answer=self._answered,
            on_broken=self._broken,
        )
        await stream.open(self._options.request_timeout_s)
        return stream

    async def _new_identity(self) -> Identity:
        async def ask(broker: Broker) -> log_pb2.InitProducerResponse:
            return await broker.log.InitProducer(
                log_pb2.InitProducerRequest(), timeout=self._channels.request_timeout_s
            )

        answer = await retrying(
            lambda: self._channels.anywhere(ask),
            timeout_s=self._options.delivery_timeout_s,
            repeat_indefinite=True,
            policy=self._options.retry,
            rng=self._rng,
        )
        if answer.inflight_batches_max:
            self._window = min(self._options.inflight_batches_max, answer.inflight_batches_max)
        return Identity(answer.producer_id, answer.producer_epoch)

    # --- results

    def _deliver(self, batch: Batch, receipt: Receipt) -> None:
        if not self._finish(batch):
            return
        if batch.future is not None and not batch.future.done():
            batch.future.set_result(receipt)
        for index, future in batch.futures:
            if not future.done():
                offset = receipt.offset + index
                future.set_result(receipt._replace(offset=offset, last_offset=offset))

    def _report_all(self, failed: list[Failed]) -> None:
        for failure in failed:
            self.report(failure)
            if isinstance(failure.error, FencedProducer) and self.fatal is None:
                self.fatal = failure.error
        if self.fatal is not None and failed:
            for delivery in self._deliveries.values():
                if not delivery.lane.idle:
                    for failure in delivery.lane.fail_all(self.fatal):
                        self.report(failure)

    def report(self, failure: Failed) -> None:
        """Ends a batch with an error."""
        batch, error = failure
        if not self._finish(batch):
            return
        batch.failure = error
        if batch.future is not None and not batch.future.done():
            batch.future.set_exception(own_copy(error))
        for _, future in batch.futures:
            if not future.done():
                future.set_exception(own_copy(error))
        if batch.unwatched:
            self._lost_records += batch.unwatched
            if self._lost_first is None or (self._lost_first.definite and not error.definite):
                self._lost_first = error

    def _finish(self, batch: Batch) -> bool:
        """Whether `batch` was unfinished until now."""
        if self._unfinished.pop(batch.number, None) is None:
            return False
        self.budget.release(batch.held_bytes)
        if self._flushes:
            oldest = next(iter(self._unfinished), self._next_number)
            waiting, self._flushes = self._flushes, []
            for last, future in waiting:
                if oldest <= last:
                    self._flushes.append((last, future))
                elif not future.done():
                    future.set_result(None)
        return True

    def _expire(self, delivery: Delivery) -> None:
        delivery.expiry = None
        self._report_all(delivery.lane.expire(self._loop.time()))
        partition = delivery.lane.partition
        left = [batch.deadline for batch in self._unfinished.values() if batch.partition == partition]
        if left:
            delivery.expiry = self._loop.call_at(min(left), self._expire, delivery)
        self._pump(delivery)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Fails what has no result yet and ends every task and call."""
        self._stopped = True
        reason = InvalidRequest("the producer was closed before the record was sent")
        for delivery in self._deliveries.values():
            if delivery.expiry is not None:
                delivery.expiry.cancel()
                delivery.expiry = None
            self._report_all(delivery.lane.fail_all(reason))
            delivery.stream = None
        tasks = list(self._tasks)
        openings, self._streams = list(self._streams.values()), {}
        for task in (*tasks, *openings):
            if not task.done():
                task.cancel()
        ended = await asyncio.gather(*tasks, *openings, return_exceptions=True)
        for stream in ended:
            if isinstance(stream, ProduceStream):
                await stream.close()
        self.budget.wake_all()


def own_copy(error: TidelogError) -> TidelogError:
    """A copy to be raised at one place: tracebacks of several places would mix in one object."""
    copy = error.__class__.__new__(error.__class__, error.message)
    copy.args = (error.message,)
    vars(copy).update(vars(error))
    copy.details = dict(error.details)
    copy.__cause__ = error.__cause__
    return copy
