"""Simulated jobs with a sink: they repeat their batches after failures, and check each before they go on
(S1–S4).

A job writes batches of numbered rows to one partition. Its tasks have attempts that end in the middle,
attempts at the same time, and *stragglers*: attempts that write their rows much later, while a later run
writes the batch or after it counts. When a batch is repeated, the rows are sometimes divided into other
tasks; then the result must be right, or the run must end with `IndeterminateReplay`.

In the history each batch is a producer of its own: its rows have no order, and each stands in the log once if
the batch was committed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from simulator.checks import Checks, require
from simulator.clients.client import SimClient
from simulator.world import SECOND
from tidelog.client import Client
from tidelog.errors import FencedProducer, IndeterminateReplay, TidelogError, UnknownProducer
from tidelog.history import STAMP_BYTES, Outcome, Write, stamp
from tidelog.history import Producer as HistoryProducer
from tidelog.sink import OpenBatch, Sink, SinkAttempt, TaskRows

FIRST_BATCH: Final = 1_000_000
"""The producers of the history that are batches begin here."""

BATCHES_MAX: Final = 10_000
"""Of one job."""

ROWS_MAX: Final = 60
TASKS_MAX: Final = 3

RECORD_BATCH_ROWS: Final = 5
"""Rows of one record batch: a task has several."""

AGAIN_S: Final = 0.1

ONCE: Final = 0.4
"""The share of batches that are the only batch of their sink."""

LATE_S: Final = 2.5
"""The latest start of a straggler: brokers have dropped what an ended sink has written."""

ENDS_S: Final = 0.15
"""The driver of half of the runs ends within this time, in the middle of the batch or after it."""


class _Batch:
    """A batch of a job, until it is committed or given up."""

    def __init__(self, job: int, number: int, rng: random.Random) -> None:
        self.number = number
        self.producer = FIRST_BATCH + job * BATCHES_MAX + number
        self.once = rng.random() < ONCE
        """It is the only batch of its sink, as in a batch write of Spark."""
        self.rows = rng.randrange(1, ROWS_MAX)
        self._sizes = [STAMP_BYTES + rng.choice((0, 9, 300)) for _ in range(self.rows)]
        self._edges: list[int] = []
        """Task i has the rows from the edge i to the next."""
        self.divided_again = False
        """Its rows were divided differently in an earlier run."""
        self.divide(rng)

    def divide(self, rng: random.Random) -> None:
        """Divides the rows into tasks."""
        before, tasks = self._edges, rng.randrange(1, TASKS_MAX + 1)
        self._edges = [0, *sorted(rng.randrange(self.rows + 1) for _ in range(tasks - 1)), self.rows]
        self.divided_again |= bool(before) and before != self._edges

    @property
    def tasks(self) -> int:
        return len(self._edges) - 1

    def values(self, task: int) -> list[bytes]:
        """The values of the task's rows."""
        begin, end = self._edges[task], self._edges[task + 1]
        return [stamp(self.producer, number, self._sizes[number]) for number in range(begin, end)]


class SimSink(SimClient):
    """A job that writes batches to one partition until it is stopped."""

    def __init__(self, checks: Checks, *given: Any, pause_us: int) -> None:
        super().__init__(*given)
        self._checks = checks
        self._pause_s = pause_us / SECOND
        self._batch: _Batch | None = None
        self._numbers = 0
        self._query = 0
        """The sink gets another name when a batch was given up."""
        self._beside: dict[asyncio.Task[None], None] = {}
        """Attempts that end with the driver."""
        self._stragglers: dict[asyncio.Task[None], None] = {}
        """Attempts that outlive it."""
        self.stopped = False
        self.idle = False
        """It was stopped, and its last batch is committed."""
        self.committed = 0
        self.run(self._main)

    @property
    def _finished(self) -> bool:
        return self.stopped and self._batch is None

    async def _main(self) -> int:
        while not self._finished:
            try:
                async with self.client() as client:
                    try:
                        await self._with(client)
                    finally:
                        await _end(self._beside)
            except IndeterminateReplay as error:
                self._give_up(error)
            except (TidelogError, TimeoutError):
                await asyncio.sleep(self.rng.uniform(0, AGAIN_S))
        await _end(self._stragglers)
        self.idle = True
        return 0

    async def _with(self, client: Client) -> None:
        """Writes batches until something fails, or the driver ends."""
        sink = client.sink(self.stream)
        while not self._finished:
            batch = self._batch
            if batch is None:
                batch = self._begin()
            elif self.rng.random() < 0.25:
                batch.divide(self.rng)
            ends = self.rng.random() < 0.5
            async with asyncio.timeout(self.rng.uniform(0, ENDS_S) if ends else None):
                await self._write(sink, batch)
            self._note(batch, Outcome.ACKNOWLEDGED)
            self.committed += 1
            self._batch = None
            if batch.once:
                await self._close(sink, batch)
            await asyncio.sleep(self.rng.uniform(0.5, 2.0) * self._pause_s)

    def _begin(self) -> _Batch:
        batch = self._batch = _Batch(self.name, self._numbers, self.rng)
        self._numbers += 1
        self._is_producer(batch, repeats=False)
        return batch

    # --- one run

    async def _write(self, sink: Sink, batch: _Batch) -> None:
        """Writes the batch in a new run, and checks it. Raises `TidelogError`."""
        opened = await self._open(sink, batch)
        if self.rng.random() < 0.3:
            task = self.rng.randrange(batch.tasks)
            _start(self._stragglers, self._straggler(opened, batch.values(task), task))
        tasks = [self._task(sink, opened, batch, task) for task in range(batch.tasks)]
        reports = await asyncio.gather(*tasks, return_exceptions=True)
        for report in reports:
            if isinstance(report, BaseException):
                raise report
        last = await self._open(sink, batch)
        await sink.verify(last, {task: rows for task, rows in enumerate(reports) if isinstance(rows, dict)})
        self._checks.mark("S4 committed")

    async def _open(self, sink: Sink, batch: _Batch) -> OpenBatch:
        run = await sink.begin_run()
        name = self._name_of(batch)
        return await sink.open(name, run=run, batch_id=batch.number, once=batch.once)

    async def _close(self, sink: Sink, batch: _Batch) -> None:
        """The batch counts already, so that a failure leaves an open sink behind."""
        with suppress(TidelogError):
            last = await self._open(sink, batch)
            await sink.close(self._name_of(batch), last.run)
            self._checks.mark("S3 closed")

    def _name_of(self, batch: _Batch) -> str:
        own = f"-only-{batch.number}" if batch.once else ""
        return f"job-{self.name}-{self._query}{own}"

    async def _task(self, sink: Sink, opened: OpenBatch, batch: _Batch, task: int) -> dict[int, TaskRows]:
        """What one attempt of the task reports; a second attempt may run beside it."""
        chance = self.rng.random()
        if chance < 0.2:
            _start(self._beside, self._end_early(sink, opened, batch, task))
        elif chance < 0.4:
            _start(self._beside, self._attempt(sink, opened, batch.values(task), task))
        return await self._attempt(sink, opened, batch.values(task), task)

    async def _attempt(
        self, sink: Sink, opened: OpenBatch, values: list[bytes], task: int
    ) -> dict[int, TaskRows]:
        attempt = await sink.attempt(opened, task, rows_max=RECORD_BATCH_ROWS)
        try:
            if any(rows.rows for rows in attempt.there.values()):
                self._checks.mark("S2 rows were there")
            await self._put(attempt, values)
            return await attempt.finish()
        finally:
            await attempt.close()

    async def _end_early(self, sink: Sink, opened: OpenBatch, batch: _Batch, task: int) -> None:
        """An attempt that ends after some of its rows."""
        values = batch.values(task)
        attempt = await sink.attempt(opened, task, rows_max=RECORD_BATCH_ROWS)
        try:
            await self._put(attempt, values[: self.rng.randrange(len(values) + 1)])
            await asyncio.sleep(self.rng.uniform(0, 0.02))
        finally:
            await attempt.close()

    async def _put(self, attempt: SinkAttempt, values: list[bytes]) -> None:
        """Writes the rows in pieces of any size."""
        at = 0
        while at < len(values):
            count = self.rng.randrange(1, 2 * RECORD_BATCH_ROWS)
            rows = pa.record_batch({"value": pa.array(values[at : at + count], pa.binary())})
            await attempt.write(rows, self.partition)
            at += count

    async def _straggler(self, opened: OpenBatch, values: list[bytes], task: int) -> None:
        """An attempt on another machine, which writes its rows late."""
        async with self.client() as client:
            attempt = await client.sink(self.stream).attempt(opened, task, rows_max=RECORD_BATCH_ROWS)
            try:
                await asyncio.sleep(self.rng.uniform(0, LATE_S))
                await self._put(attempt, values)
                await attempt.finish()
            except FencedProducer:
                self._checks.mark("S3 straggler fenced")
                raise
            except UnknownProducer:
                self._checks.mark("S1 ended sink refused")
                raise
            finally:
                await attempt.close()

    # --- outcomes

    def _give_up(self, error: IndeterminateReplay) -> None:
        """The batch is not exact: this must not happen if its rows were divided once only."""
        batch = self._batch
        assert batch is not None
        require(
            batch.divided_again,
            "S2",
            f"job {self.name} gives up batch {batch.number}, whose rows are the same in every run: {error}",
        )
        self._checks.mark("S4 found out")
        self._is_producer(batch, repeats=True)
        self._note(batch, Outcome.UNKNOWN)
        self._query += 1
        self._batch = None

    def _is_producer(self, batch: _Batch, *, repeats: bool) -> None:
        name = f"batch {batch.number} of job {self.name}"
        self.history.producers[batch.producer] = HistoryProducer(name, repeats=repeats, ordered=False)

    def _note(self, batch: _Batch, outcome: Outcome) -> None:
        self.history.writes.append(Write(batch.producer, self.place, 0, batch.rows, outcome))


def _start(tasks: dict[asyncio.Task[None], None], work: Coroutine[Any, Any, object]) -> None:
    """Runs `work` beside the job; its errors do not matter."""

    async def run() -> None:
        with suppress(TidelogError):
            await work

    task = asyncio.get_running_loop().create_task(run())
    tasks[task] = None
    task.add_done_callback(tasks.pop)


async def _end(tasks: dict[asyncio.Task[None], None]) -> None:
    running = list(tasks)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
