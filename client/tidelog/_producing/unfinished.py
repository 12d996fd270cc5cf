"""The batches without a result: the futures of their callers, and the records that were lost.

It serves a producer's receipts, `flush` and buffer bound. The `SendWindow` decides the result of a batch,
and the `Sender` reports it here.
"""

from __future__ import annotations

import asyncio

from tidelog._producing.batching import Batch
from tidelog._producing.buffer_budget import Budget
from tidelog._producing.send_window import Failed
from tidelog.errors import TidelogError
from tidelog.model import Receipt


class Unfinished:
    """The batches of one producer without a result."""

    __slots__ = ("_batches", "_budget", "_flushes", "_lost_first", "_lost_records", "_next_number")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._next_number = 0
        self._batches: dict[int, Batch] = {}
        """By number, oldest first."""
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        """The futures of callers that wait for all batches up to a number."""
        self._lost_records = 0
        self._lost_first: TidelogError | None = None
        """The first failure of records that no caller waits for, since the last flush. An indefinite failure
        replaces a definite one."""

    def __len__(self) -> int:
        return len(self._batches)

    def begin(self, partition: int, count: int, held_bytes: int, deadline: float) -> Batch:
        """A batch without its data yet; `held_bytes` of the budget are its own from now on."""
        batch = Batch(b"", count, number=self._next_number, partition=partition, deadline=deadline)
        self._next_number += 1
        batch.held_bytes = held_bytes
        self._batches[batch.number] = batch
        return batch

    @property
    def oldest(self) -> Batch | None:
        return next(iter(self._batches.values()), None)

    def deadline(self, partition: int) -> float | None:
        """The next deadline of a batch of the partition; None: there is no batch."""
        of_it = (batch.deadline for batch in self._batches.values() if batch.partition == partition)
        return min(of_it, default=None)

    def deliver(self, batch: Batch, receipt: Receipt) -> None:
        """Ends a batch with its receipt."""
        if not self._finish(batch):
            return
        if batch.future is not None and not batch.future.done():
            batch.future.set_result(receipt)
        for index, future in batch.futures:
            if not future.done():
                offset = receipt.offset + index
                future.set_result(receipt._replace(offset=offset, last_offset=offset))

    def fail(self, failure: Failed) -> None:
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

    async def all_finished(self) -> None:
        """Waits until every batch so far has a result.

        Raises the first failure of records that no caller waits for, since the last call.
        """
        if self._batches:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._flushes.append((self._next_number - 1, future))
            await future
        first, lost = self._lost_first, self._lost_records
        self._lost_first, self._lost_records = None, 0
        if first is not None:
            records = "record was" if lost == 1 else "records were"
            error = type(first)(f"{lost} {records} not acknowledged; the first error: {first}")
            error.details.update(first.details, records_lost=str(lost))
            raise error from first

    def _finish(self, batch: Batch) -> bool:
        """Removes `batch`; false if it had a result already."""
        if self._batches.pop(batch.number, None) is None:
            return False
        self._budget.release(batch.held_bytes)
        if self._flushes:
            oldest = next(iter(self._batches), self._next_number)
            waiting, self._flushes = self._flushes, []
            for last, future in waiting:
                if oldest <= last:
                    self._flushes.append((last, future))
                elif not future.done():
                    future.set_result(None)
        return True


def own_copy(error: TidelogError) -> TidelogError:
    """A copy of the error to raise at one place: one object would mix the tracebacks of several places."""
    copy = error.__class__.__new__(error.__class__, error.message)
    copy.args = (error.message,)
    vars(copy).update(vars(error))
    copy.details = dict(error.details)
    copy.__cause__ = error.__cause__
    return copy
