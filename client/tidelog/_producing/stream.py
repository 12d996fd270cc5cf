"""One Produce call to one broker: sends requests in order and matches answers by request id.

It has no state of partitions: `Sender` gets every answer and, when the call ends, the unanswered requests
and whether each was written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import grpc
import grpc.aio

from tidelog._connecting.broker_channel import BrokerChannel, ProduceCall
from tidelog._connecting.framing import produce_request
from tidelog._connecting.status import error_from_rpc
from tidelog._producing.batching import Batch
from tidelog.errors import ConnectionLost, InternalError, TidelogError, Unavailable
from tidelog_proto import log_pb2

ANSWER_GRACE: Final = 1.5
"""A broker answers within the timeout of a request; after this many timeouts the call is ended."""

LATE_S: Final = 1.0
"""When an answer takes longer, the producer checks whether the broker still leads, at this interval."""


class Pending:
    """A request without an answer yet."""

    __slots__ = ("batch", "facts", "sent_at", "written")

    def __init__(self, batch: Batch, facts: log_pb2.ProduceRequest, sent_at: float) -> None:
        self.batch = batch
        self.facts = facts
        self.sent_at = sent_at
        self.written = False
        """The request may have reached the broker."""


class ProduceStream:
    """A Produce call: `open` it, then `send`. `closed` becomes true once; then `on_broken` is called."""

    def __init__(
        self,
        channel: BrokerChannel,
        *,
        timeout_s: float,
        on_answer: Callable[[ProduceStream, Pending, log_pb2.ProduceResponse], None],
        on_late: Callable[[ProduceStream], None],
        on_broken: Callable[[ProduceStream, list[Pending], TidelogError], None],
    ) -> None:
        self._channel = channel
        self._timeout_s = timeout_s
        self._on_answer = on_answer
        self._on_late = on_late
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._outbox: deque[Pending] = deque()
        self._more = asyncio.Event()
        self._unanswered: dict[int, Pending] = {}
        self._next_request_id = 1
        self._tasks: list[asyncio.Task[None]] = []
        self._watch: asyncio.TimerHandle | None = None
        self.closed = False

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<ProduceStream {self._channel.address} unanswered={len(self._unanswered)}{state}>"

    @property
    def address(self) -> str:
        return self._channel.address

    async def open(self, timeout_s: float) -> None:
        """Begins the call; raises `Unavailable` if there is no connection within `timeout_s`."""
        call = self._channel.produce()
        try:
            async with asyncio.timeout(timeout_s):
                await call.wait_for_connection()
        except grpc.RpcError as error:
            failure = error_from_rpc(error, self._channel.address)
            # Nothing was sent yet, so the error is definite.
            raise failure if failure.definite else Unavailable(failure.message) from None
        except TimeoutError:
            call.cancel()
            raise Unavailable(f"no connection to {self._channel.address} within {timeout_s:g} s") from None
        except asyncio.CancelledError:
            call.cancel()
            raise
        self._tasks = [
            self._loop.create_task(self._write(call), name=f"produce to {self._channel.address}"),
            self._loop.create_task(self._read(call), name=f"receipts from {self._channel.address}"),
        ]

    def send(self, batch: Batch, facts: log_pb2.ProduceRequest) -> None:
        """Queues a request. The send windows and the producer's buffer bound the queue."""
        assert not self.closed
        facts.request_id = self._next_request_id
        self._next_request_id += 1
        pending = Pending(batch, facts, self._loop.time())
        self._unanswered[facts.request_id] = pending
        self._outbox.append(pending)
        self._more.set()
        if self._watch is None:
            self._watch = self._loop.call_later(LATE_S, self._check_silence)

    async def close(self) -> None:
        """Ends the call at once; `on_broken` gets the unanswered requests."""
        self._fail(
            ConnectionLost(f"the connection to {self._channel.address} was closed before an answer came")
        )
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self, call: ProduceCall) -> None:
        try:
            while True:
                while self._outbox:
                    pending = self._outbox.popleft()
                    pending.written = True
                    await call.write(produce_request(pending.facts, pending.batch.data))
                self._more.clear()
                await self._more.wait()
        except grpc.RpcError as error:
            self._fail(error_from_rpc(error, self._channel.address))
        except asyncio.InvalidStateError:
            # The call has ended; `_read` reports why.
            return

    async def _read(self, call: ProduceCall) -> None:
        try:
            while True:
                answer = await call.read()
                if not isinstance(answer, log_pb2.ProduceResponse):
                    # gRPC marks the end of the stream with another object.
                    break
                pending = self._unanswered.pop(answer.request_id, None)
                if pending is not None:
                    self._on_answer(self, pending, answer)
            code = await call.code()
            reason = f"{self._channel.address} ended the call ({code.name})"
            self._fail(ConnectionLost(reason))
        except grpc.RpcError as error:
            self._fail(error_from_rpc(error, self._channel.address))
        except Exception as error:
            self._fail(
                InternalError(f"the client could not handle an answer of {self._channel.address}: {error!r}")
            )
            raise
        finally:
            call.cancel()

    def _check_silence(self) -> None:
        self._watch = None
        if not self._unanswered:
            return
        oldest = next(iter(self._unanswered.values()))
        now = self._loop.time()
        if now >= oldest.sent_at + self._timeout_s * ANSWER_GRACE:
            self.give_up(f"did not answer a request within {self._timeout_s * ANSWER_GRACE:g} s")
            return
        if now >= oldest.sent_at + LATE_S:
            self._on_late(self)
        self._watch = self._loop.call_later(LATE_S, self._check_silence)

    def give_up(self, reason: str) -> None:
        """Ends the call because of the broker; `on_broken` gets the unanswered requests."""
        self._fail(ConnectionLost(f"{self._channel.address} {reason}"))

    def _fail(self, error: TidelogError) -> None:
        if self.closed:
            return
        self.closed = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        unanswered, self._unanswered = list(self._unanswered.values()), {}
        self._outbox.clear()
        this = asyncio.current_task() if self._loop.is_running() else None
        for task in self._tasks:
            if task is not this:
                task.cancel()
        self._on_broken(self, unanswered, error)
