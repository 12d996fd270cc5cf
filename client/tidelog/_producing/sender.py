"""From sealed batches to receipts: the part of a producer that talks to brokers.

For each partition a `SendWindow` decides what to send and what an answer means; `ProduceStream` carries
the requests; `Unfinished` has the futures of the callers. This module joins them: it finds leaders,
releases held windows and enforces deadlines.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

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
from tidelog._producing.partition_queue import PartitionQueue
from tidelog._producing.send_window import ANONYMOUS, Failed, ProducerIdentity, SendWindow
from tidelog._producing.stream import Pending, ProduceStream
from tidelog._producing.unfinished import Unfinished
from tidelog.errors import FencedProducer, InternalError, InvalidRequest, TidelogError, UnknownProducer
from tidelog.model import StreamDescription
from tidelog_proto import log_pb2


class Stall(NamedTuple):
    """How long records have waited for a receipt, and why."""

    seconds: float
    """Since the producer's last receipt, or since the oldest of the records was batched if that is later."""
    error: TidelogError | None
    """The last failure of a partition, which sends its records again. None: no broker has answered yet."""


class SinkIdentity(NamedTuple):
    """The identity of a task of a sink, instead of one from InitProducer (S1)."""

    identity: ProducerIdentity
    run: int
    starts: Mapping[int, int]
    """By partition: the sequence of the first record that is sent."""


class Sender:
    """Delivers the batches of one producer, in order per partition."""

    def __init__(
        self,
        stream: str,
        channels: Channels,
        metadata: Metadata,
        options: ProducerOptions,
        rng: random.Random,
        on_room: Callable[[PartitionQueue], None],
        sink: SinkIdentity | None = None,
    ) -> None:
        """`sink`: the sender of a task of a sink; its batches are encoded with its identity."""
        self.stream = stream
        self.budget = Budget(options.buffer_bytes_max)
        """The memory of all records that are accepted and not yet acknowledged, including open batches."""
        self.fatal: TidelogError | None = None
        """The error after which nothing can be sent any more; None: there is none."""
        self.unfinished = Unfinished(self.budget)
        self.description: StreamDescription
        self.queues: dict[int, PartitionQueue] = {}
        """By partition; only the partitions that records were sent to."""
        self._options = options
        self._channels = channels
        self._metadata = metadata
        self._rng = rng
        self._on_room = on_room
        self._sink = sink
        self._calls = ProduceCalls(channels, self._call_to, timeout_s=options.request_timeout_s)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._identity = ANONYMOUS
        self._inflight_max = options.inflight_batches_max
        self._stopped = False
        self._last_receipt_at = 0.0
        """On the event loop's clock."""
        self._loop: asyncio.AbstractEventLoop

    async def start(self) -> None:
        """Finds the stream and, for an idempotent producer, gets a producer id."""
        self._loop = asyncio.get_running_loop()
        self.description = await self._metadata.refresh(self.stream)
        if self._sink is not None:
            self._identity = self._sink.identity
        elif self._options.idempotent:
            self._identity = await self._new_identity()

    # --- batches

    def queue(self, partition: int) -> PartitionQueue:
        """The queue of a partition; made when it is first needed."""
        found = self.queues.get(partition)
        if found is None:
            begins = 0 if self._sink is None else self._sink.starts.get(partition, 0)
            window = SendWindow(partition, self._identity, self._inflight_max, begins)
            found = self.queues[partition] = PartitionQueue(window)
        return found

    def new_batch(self, partition: int, count: int, held_bytes: int) -> Batch:
        """A batch without its data yet; `held_bytes` of the budget are its own from now on."""
        deadline = self._loop.time() + self._options.delivery_timeout_s
        return self.unfinished.begin(partition, count, held_bytes, deadline)

    def submit(self, queue: PartitionQueue, batch: Batch) -> None:
        """Takes a batch of `new_batch` that is encoded now; its futures get the result."""
        if len(batch.data) < batch.held_bytes:
            self.budget.release(batch.held_bytes - len(batch.data))
            batch.held_bytes = len(batch.data)
        queue.window.push(batch)
        if queue.expiry is None:
            queue.expiry = self._loop.call_at(batch.deadline, self._expire, queue)
        self._pump(queue)

    # --- brokers

    def _pump(self, queue: PartitionQueue) -> None:
        """Sends what the window allows; starts to look for the leader if the window is held."""
        window, stream = queue.window, queue.stream
        if stream is not None and not stream.closed:
            while window.ready:
                self._transmit(stream, window, window.take())
            if window.open:
                self._on_room(queue)
        if window.settled and not window.idle and not queue.recovering and not self._stopped:
            queue.recovering = True
            self._spawn(self._recover(queue), f"recover {self.stream}/{queue.partition}")

    def _transmit(self, stream: ProduceStream, window: SendWindow, batch: Batch) -> None:
        facts = log_pb2.ProduceRequest(
            stream_id=self.description.stream_id,
            partition=batch.partition,
            acks=ACKS[self._options.acks],
            timeout_ms=int(self._options.request_timeout_s * 1000),
        )
        if window.reset_next:
            facts.reset = True
            window.reset_next = False
        if batch.expected_offset is not None:
            facts.expected_offset = batch.expected_offset
        if self._sink is not None:
            facts.sink_run = self._sink.run
        stream.send(batch, facts)

    def _answered(self, stream: ProduceStream, pending: Pending, answer: log_pb2.ProduceResponse) -> None:
        batch = pending.batch
        queue = self.queues[batch.partition]
        window = queue.window
        match answer.WhichOneof("outcome"):
            case "receipt":
                window.acknowledged(batch)
                self._last_receipt_at = self._loop.time()
                self.unfinished.deliver(batch, wire.receipt_from_proto(answer.receipt, batch.partition))
            case "error":
                error = of_a_leader(_status.error_from_message(answer.error), self._where(queue))
                if queue.may_redirect and self._metadata.redirected(self.description, batch.partition, error):
                    queue.redirected, queue.may_redirect = True, False
                self._report_all(window.refused(batch, error))
            case _:
                unknown = InternalError("the broker's answer has neither a receipt nor an error")
                self._report_all(window.refused(batch, unknown))
        self._pump(queue)

    def _broken(self, stream: ProduceStream, unanswered: list[Pending], error: TidelogError) -> None:
        self._calls.forget(stream)
        written: dict[int, set[int]] = {}
        for pending in unanswered:
            numbers = written.setdefault(pending.batch.partition, set())
            if pending.written:
                numbers.add(pending.batch.number)
        for partition, queue in self.queues.items():
            if queue.stream is not stream:
                continue
            queue.stream = None
            self._report_all(queue.window.broken(written.get(partition, set()), error))
            self._pump(queue)

    def _late(self, stream: ProduceStream) -> None:
        """Answers are overdue: the broker may hang, and another broker may lead now."""
        if not self._stopped:
            self._spawn(self._check_leaders(stream), f"check the leaders of {self.stream}")

    async def _check_leaders(self, stream: ProduceStream) -> None:
        try:
            description = await self._metadata.same_stream(self.stream, self.description.stream_id)
        except TidelogError:
            return
        self.description = description
        for partition, queue in self.queues.items():
            if queue.stream is not stream or not queue.window.inflight:
                continue
            try:
                address = self._metadata.leader_address(description, partition)
            except TidelogError:
                continue
            if address != stream.address:
                stream.give_up(f"does not answer, and {address} leads {self._where(queue)} now")
                return

    async def _recover(self, queue: PartitionQueue) -> None:
        """Finds the partition's leader and an identity that works there, then releases the window."""
        window = queue.window
        try:
            while not window.idle:
                try:
                    await self._pause(queue)
                    if window.identity_spent and self._sink is not None:
                        # Another identity would be another task: an attempt that comes later continues.
                        spent = window.last_error or UnknownProducer("the task's rows are not known any more")
                        self._report_all(window.fail_all(spent))
                        return
                    if window.identity_spent:
                        self._report_all(window.adopt(await self._new_identity()))
                    address = self._metadata.leader_address(self.description, queue.partition)
                    stream = await self._calls.to(address, window.failures_in_a_row)
                except TidelogError as error:
                    if not may_repeat(error, repeat_indefinite=True):
                        self._report_all(window.fail_all(error))
                        return
                    window.noted(error)
                    continue
                if window.identity_spent:
                    # A deadline passed meanwhile, and the producer id cannot be used any more.
                    continue
                queue.stream = stream
                # The broker's side of the call may still refuse this partition after an earlier error.
                window.release(reset=window.last_error is not None)
                return
        except Exception as error:
            self._report_all(window.fail_all(InternalError(f"recovery of {self.stream} failed: {error!r}")))
            raise
        finally:
            queue.recovering = False
            self._pump(queue)

    async def _pause(self, queue: PartitionQueue) -> None:
        """After a failure: waits a little and asks for the leader again, unless the broker named it."""
        window = queue.window
        if queue.redirected:
            queue.redirected = False
        elif window.failures_in_a_row:
            await asyncio.sleep(
                self._options.retry.pause_s(window.last_error, window.failures_in_a_row, self._rng)
            )
            queue.may_redirect = True
            self.description = await self._metadata.same_stream(self.stream, self.description.stream_id)

    def _call_to(self, channel: BrokerChannel) -> ProduceStream:
        return ProduceStream(
            channel,
            timeout_s=self._options.request_timeout_s,
            on_answer=self._answered,
            on_late=self._late,
            on_broken=self._broken,
        )

    def _where(self, queue: PartitionQueue) -> str:
        return f"{self.stream}/{queue.partition}"

    async def _new_identity(self) -> ProducerIdentity:
        async def ask(channel: BrokerChannel) -> log_pb2.InitProducerResponse:
            return await channel.log.InitProducer(
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
            self._inflight_max = min(self._options.inflight_batches_max, answer.inflight_batches_max)
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    # --- results

    def _report_all(self, failed: list[Failed]) -> None:
        for failure in failed:
            self.unfinished.fail(failure)
            # An attempt of a task of a sink needs all its batches, and another attempt may be ahead.
            ends = self._sink is not None or isinstance(failure.error, FencedProducer)
            if ends and self.fatal is None:
                self.fatal = failure.error
        if self.fatal is not None and failed:
            for queue in self.queues.values():
                if not queue.window.idle:
                    for failure in queue.window.fail_all(self.fatal):
                        self.unfinished.fail(failure)

    def stall(self) -> Stall | None:
        """None: every batch has its result."""
        oldest = self.unfinished.oldest
        if oldest is None:
            return None
        begun = max(oldest.deadline - self._options.delivery_timeout_s, self._last_receipt_at)
        errors = (queue.window.repeats_after for queue in self.queues.values())
        return Stall(self._loop.time() - begun, next((error for error in errors if error is not None), None))

    def _expire(self, queue: PartitionQueue) -> None:
        queue.expiry = None
        self._report_all(queue.window.expire(self._loop.time()))
        deadline = self.unfinished.deadline(queue.partition)
        if deadline is not None:
            queue.expiry = self._loop.call_at(deadline, self._expire, queue)
        self._pump(queue)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def stop(self) -> None:
        """Fails the batches without a result and ends every task and call."""
        self._stopped = True
        reason = InvalidRequest("the producer was closed before the record was sent")
        for queue in self.queues.values():
            if queue.expiry is not None:
                queue.expiry.cancel()
                queue.expiry = None
            self._report_all(queue.window.fail_all(reason))
            queue.stream = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._calls.close()
        self.budget.wake_all()
