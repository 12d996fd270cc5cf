"""Simulated producers: they send numbered records with the client library, and record the outcomes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

from simulator.clients.client import SimClient
from simulator.world import SECOND
from tidelog._options import ProducerOptions
from tidelog.client import Client
from tidelog.errors import TidelogError, UnexpectedOffset
from tidelog.history import STAMP_BYTES, Outcome, Write, stamp
from tidelog.history import Producer as HistoryProducer
from tidelog.producer import Producer

WINDOW: Final = 8
"""How many records of one producer may wait for an answer."""

WINDOW_IMPATIENT: Final = 40
"""More than the send window holds in flight, so that some records wait for room."""

IMPATIENT_S: Final = 1.5
"""The delivery timeout of impatient producers. Their requests may take longer, so records that wait for room
expire before they are sent."""

DELIVERY_S: Final = 8.0
"""How long a producer tries to send a record; after that its outcome is unknown."""

BEGIN_AGAIN_S: Final = 0.2


class Kind(StrEnum):
    """How a producer sends."""

    IDEMPOTENT = "idempotent"
    PLAIN = "plain"
    CONDITIONAL = "conditional"
    """Each record names the offset that it expects to get (R9)."""


class SimProducer(SimClient):
    """Sends numbered records to one partition, at a given pace, until it is stopped."""

    def __init__(
        self, *given: Any, kind: Kind, pause_us: int, impatient: float, acks_all: bool = True
    ) -> None:
        """`impatient`: the probability that it is impatient after each of its starts."""
        super().__init__(*given)
        self._kind = kind
        self._acks_all = acks_all
        self._pause_s = pause_us / SECOND
        self._impatient = impatient
        self._number = 0
        self._expected = 0
        """Where a conditional producer believes that the log ends."""
        self._sending: dict[asyncio.Task[None], None] = {}
        self.stopped = False
        self.idle = False
        """It was stopped, and waits for no answer."""
        self.acknowledged = 0
        self._doubtful = False
        """The outcome of a record was unknown, so that later records may stand before it."""
        self.history.producers[self.name] = HistoryProducer(f"producer {self.name}")
        self.run(self._main)

    async def _main(self) -> int:
        while not self.stopped:
            try:
                async with self.client() as client:
                    await self._with(client)
            except TidelogError:
                await asyncio.sleep(BEGIN_AGAIN_S)
        self.idle = True
        return 0

    async def _with(self, client: Client) -> None:
        impatient = self._impatient > 0 and self.rng.random() < self._impatient
        options = ProducerOptions(
            acks="all" if self._acks_all else "leader",
            idempotent=self._kind is not Kind.PLAIN,
            linger_ms=self.rng.choice((0.0, 1.0, 5.0)),
            delivery_timeout_s=IMPATIENT_S if impatient else DELIVERY_S,
            request_timeout_s=DELIVERY_S if impatient else 1.0,
        )
        producer = client.producer(self.stream, options=options)
        await producer.start()
        try:
            window = 1 if self._kind is Kind.CONDITIONAL else WINDOW_IMPATIENT if impatient else WINDOW
            while not self.stopped:
                if len(self._sending) < window:
                    task = asyncio.get_running_loop().create_task(self._send(producer, self._number))
                    self._number += 1
                    self._sending[task] = None
                    task.add_done_callback(self._sent)
                await asyncio.sleep(self.rng.uniform(0.5, 2.0) * self._pause_s)
            if self._sending:
                await asyncio.wait(list(self._sending))
        finally:
            await producer.abort()

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()

    async def _send(self, producer: Producer, number: int) -> None:
        size = STAMP_BYTES + self.rng.choice((8, 40, 400))
        expected = self._expected if self._kind is Kind.CONDITIONAL else None
        try:
            receipt = await producer.send(
                stamp(self.name, number, size), partition=self.partition, timestamp=self.now(),
                expected_offset=expected,
            )  # fmt: skip
        except TidelogError as error:
            self._failed(number, error)
            return
        if self._acks_all:
            self._note(number, Outcome.ACKNOWLEDGED, receipt.offset)
            self.acknowledged += 1
        else:
            # The leader alone has it: the cluster promised no more.
            self._note(number, Outcome.UNKNOWN, None)
        self._expected = receipt.offset + 1

    def _failed(self, number: int, error: TidelogError) -> None:
        if isinstance(error, UnexpectedOffset):
            self._expected = int(error.details["log_end_offset"])
        if not error.definite and not self._doubtful:
            # An attempt may still be on its way, and be appended behind later records.
            self._doubtful = True
            self.history.producers[self.name] = HistoryProducer(f"producer {self.name}", ordered=False)
        self._note(number, Outcome.REFUSED if error.definite else Outcome.UNKNOWN, None)

    def _note(self, number: int, outcome: Outcome, offset: int | None) -> None:
        self.history.writes.append(Write(self.name, self.place, number, 1, outcome, offset))


class SimSingleSend(SimClient):
    """Tries to send one record, and ends. It records no outcome; the checks see the broker's answer."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.run(self._main)

    async def _main(self) -> int:
        with suppress(TidelogError):
            async with self.client() as client:
                options = ProducerOptions(delivery_timeout_s=DELIVERY_S, request_timeout_s=1.0)
                producer = client.producer(self.stream, options=options)
                try:
                    await producer.start()
                    await producer.send(stamp(self.name, 0), partition=self.partition, timestamp=self.now())
                finally:
                    await producer.abort()
        return 0
