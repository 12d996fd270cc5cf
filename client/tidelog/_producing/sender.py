"""Sealed batches to receipts: the half of a producer that talks to brokers.

One `SendWindow` a partition decides what to send and what an answer means; `ProduceStream`
moves bytes; `Unfinished` knows who waits for results. This module joins them: it finds
leaders, gets held lanes going again and keeps deadlines.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from tidelog import wire
from tidelog._connecting import status as _status
from tidelog._connecting.broker_channel import BrokerChannel
from tidelog._connecting.channels import Channels
from tidelog._connecting.metadata import Metadata
from tidelog._connecting.retry import may_repeat, of_a_leader, retrying
from tidelog._options import ACKS, ProducerOptions
from tidelog._producing.batching import Batch
from tidelog._producing.buffer_budget import Budget
from tidelog._producing.calls import ProduceCalls
from tidelog._producing.send_window import ANONYMOUS, Failed, ProducerIdentity, SendWindow
from tidelog._producing.stream import Pending, ProduceStream
from tidelog._producing.unfinished import Unfinished
from tidelog.errors import FencedProducer, InternalError, InvalidRequest, TidelogError
from tidelog.model import StreamDescription
from tidelog_proto import log_pb2


class Delivery:
    """What the sender keeps for a partition."""

    __slots__ = ("expiry", "lane", "may_redirect", "recovering", "redirected", "stream")

    def __init__(self, lane: SendWindow) -> None:
        self.lane = lane
        self.stream: ProduceStream | None = None
        self.recovering = False
        self.redirected = False
        """The broker that refused has named the leader: ask there, at once."""
        self.may_redirect = True
        """Once, until there was a pause: two brokers may each take the other for the leader."""
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
        self.unfinished = Unfinished(self.budget)
        self.description: StreamDescription
        self._options = options
        self._channels = channels
        self._metadata = metadata
        self._rng = rng
        self._on_room = on_room
        self._deliveries: dict[int, Delivery] = {}
        self._calls = ProduceCalls(channels, self._call_to, timeout_s=options.request_timeout_s)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._identity = ANONYMOUS
        self._window = options.inflight_batches_max
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop

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
            lane = SendWindow(partition, self._identity, self._window)
            found = self._deliveries[partition] = Delivery(lane)
        return found

    def new_batch(self, partition: int, count: int, held_bytes: int) -> Batch:
        """A batch without its data yet; `held_bytes` of the budget are its own from now on."""
        deadline = self._loop.time() + self._options.delivery_timeout_s
        return self.unfinished.begin(partition, count, held_bytes, deadline)

    def submit(self, delivery: Delivery, batch: Batch) -> None:
        """Takes an encoded batch of `new_batch`; its futures hear of the result."""
        if len(batch.data) < batch.held_bytes:
            self.budget.release(batch.held_bytes - len(batch.data))
            batch.held_bytes = len(batch.data)
        delivery.lane.push(batch)
        if delivery.expiry is None:
            delivery.expiry = self._loop.call_at(batch.deadline, self._expire, delivery)
        self._pump(delivery)

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

    def _transmit(self, stream: ProduceStream, lane: SendWindow, batch: Batch) -> None:
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
                self.unfinished.deliver(batch, wire.receipt_from_proto(answer.receipt, lane.partition))
            case "error":
                error = of_a_leader(_status.error_from_message(answer.error), self._where(lane))
                if delivery.may_redirect and self._metadata.redirected(
                    self.description, lane.partition, error
                ):
                    delivery.redirected, delivery.may_redirect = True, False
                self._report_all(lane.refused(batch, error))
            case _:
                unknown = InternalError("the broker's answer holds neither a receipt nor an error")
                self._report_all(lane.refused(batch, unknown))
        self._pump(delivery)

    def _broken(self, stream: ProduceStream, unanswered: list[Pending], error: TidelogError) -> None:
        self._calls.forget(stream)
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

    def _late(self, stream: ProduceStream) -> None:
        """Answers are overdue: perhaps the broker hangs, and another one leads by now."""
        if not self._stopped:
            self._spawn(self._check_leaders(stream), f"check the leaders of {self.stream}")

    async def _check_leaders(self, stream: ProduceStream) -> None:
        try:
            description = await self._metadata.same_stream(self.stream, self.description.stream_id)
        except TidelogError:
            return
        self.description = description
        for partition, delivery in self._deliveries.items():
            if delivery.stream is not stream or not delivery.lane.inflight:
                continue
            try:
                address = self._metadata.leader_address(description, partition)
            except TidelogError:
                continue
            if address != stream.address:
                stream.give_up(f"does not answer, and {address} leads {self._where(delivery.lane)} now")
                return

    async def _recover(self, delivery: Delivery) -> None:
        """Brings a held lane to the leader of its partition, with an identity that works there."""
        lane = delivery.lane
        try:
            while not lane.idle:
                try:
                    await self._pause(delivery)
                    if lane.identity_spent:
                        self._report_all(lane.adopt(await self._new_identity()))
                    address = self._metadata.leader_address(self.description, lane.partition)
                    stream = await self._calls.to(address, lane.failures_in_a_row)
                except TidelogError as error:
                    if not may_repeat(error, repeat_indefinite=True):
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

    async def _pause(self, delivery: Delivery) -> None:
        """After a failure: waits a little and asks again who leads, unless that was told."""
        lane = delivery.lane
        if delivery.redirected:
            delivery.redirected = False
        elif lane.failures_in_a_row:
            await asyncio.sleep(
                self._options.retry.pause_s(lane.last_error, lane.failures_in_a_row, self._rng)
            )
            delivery.may_redirect = True
            self.description = await self._metadata.same_stream(self.stream, self.description.stream_id)

    def _call_to(self, broker: BrokerChannel) -> ProduceStream:
        return ProduceStream(
            broker,
            timeout_s=self._options.request_timeout_s,
            on_answer=self._answered,
            on_late=self._late,
            on_broken=self._broken,
        )

    def _where(self, lane: SendWindow) -> str:
        return f"{self.stream}/{lane.partition}"

    async def _new_identity(self) -> ProducerIdentity:
        async def ask(broker: BrokerChannel) -> log_pb2.InitProducerResponse:
            return await broker.log.InitProducer(
                log_pb2.InitProducerRequest(), timeout=self._channels.request_timeout_s
            )

        answer = await retrying(
            lambda: self._channels.anywhere(ask),
            timeout_s=self._options.delivery_timeout_s,
            repeat_indefinite=True,
            policy=self._options.retry,
            rng=self._rng,
            leader=True,
        )
        if answer.inflight_batches_max:
            self._window = min(self._options.inflight_batches_max, answer.inflight_batches_max)
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    # --- results

    def _report_all(self, failed: list[Failed]) -> None:
        for failure in failed:
            self.unfinished.fail(failure)
            if isinstance(failure.error, FencedProducer) and self.fatal is None:
                self.fatal = failure.error
        if self.fatal is not None and failed:
            for delivery in self._deliveries.values():
                if not delivery.lane.idle:
                    for failure in delivery.lane.fail_all(self.fatal):
                        self.unfinished.fail(failure)

    def _expire(self, delivery: Delivery) -> None:
        delivery.expiry = None
        self._report_all(delivery.lane.expire(self._loop.time()))
        deadline = self.unfinished.deadline(delivery.lane.partition)
        if deadline is not None:
            delivery.expiry = self._loop.call_at(deadline, self._expire, delivery)
        self._pump(delivery)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

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
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._calls.close()
        self.budget.wake_all()
