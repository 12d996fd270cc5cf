"""What sinks have written to a partition: makes the replay of a sink's batch exact (S1–S4, docs/sink.md).

For each sink the guard keeps its newest batch, and for each task of it the number of rows in the log and
their chained CRC. It is a function of the log, like the rest of the append guard, and it does not expire by
time: a query may be started again after months. Only sinks that the cluster has forgotten are dropped: their
numbers are never given out again, so nobody can ask for them.

Neighbours: `append_guard` asks here for batches whose producer id belongs to a sink; `records.layout` says
what the header of such a batch holds.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from tidelog.errors import (
    DuplicateSequence,
    FencedProducer,
    IndeterminateReplay,
    OutOfOrderSequence,
    ResourceExhausted,
)
from tidelog.records import BatchHeader
from tidelog.records.checksum import chained
from tidelog.records.layout import SinkTask

SINKS_MAX: Final = 1_000
"""Sinks that are remembered per partition."""

TASKS_MAX: Final = 10_000
"""Tasks of one sink's batch that may write to a partition: so many are listed in a turn of an event loop."""

WINDOW_BATCHES: Final = 5
"""Batches remembered, and allowed in flight, per task and partition (R8)."""


class WrittenBatch(NamedTuple):
    """One of the newest batches of a task in the log."""

    base_sequence: int
    records: int
    body_crc: int
    base_offset: int
    append_time_us: int


class TaskRows(NamedTuple):
    """The rows of one task in the log."""

    rows: int = 0
    """Also the sequence of the next row."""
    chain: int = 0
    window: tuple[WrittenBatch, ...] = ()
    """The newest batches, oldest first."""


class SinkBatch(NamedTuple):
    """The newest batch of one sink."""

    batch_id: int
    tasks: dict[int, TaskRows]


class KnownSinks(NamedTuple):
    """The sinks that the cluster knows, at some moment. Numbers ascend, and none is given out twice."""

    next_number: int = 0
    """Of the next new sink."""
    numbers: Container[int] = ()

    def lack(self, sink: int) -> bool:
        """Whether the cluster had this sink and has forgotten it; this stays so."""
        return sink < self.next_number and sink not in self.numbers


class SinkBatches:
    """The newest batch of each sink, after all records below the guard's offset.

    Batches that will be written next are only staged, as in `AppendGuard`.
    """

    __slots__ = ("_known", "_staged")

    def __init__(self, known: dict[int, SinkBatch] | None = None) -> None:
        self._known = {} if known is None else known
        self._staged: dict[int, SinkBatch] = {}
        """By sink. Holds only the tasks that were staged, unless it is a newer batch than the known one."""

    def __repr__(self) -> str:
        return f"<SinkBatches sinks={len(self._known)}>"

    @property
    def known(self) -> dict[int, SinkBatch]:
        """By sink number; the dicts must not be changed."""
        return self._known

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """Returns None if the batch may be appended, or the batch in the log that it repeats.

        Raises `FencedProducer`, `IndeterminateReplay`, `DuplicateSequence`, `OutOfOrderSequence` and
        `ResourceExhausted`, all of them definite.
        """
        sink, task = SinkTask.of(header.producer_id)
        newest, rows = self._newest(sink, task)
        if newest is None:
            self._check_sinks(sink)
        elif header.sink_batch_id < newest:
            raise FencedProducer(
                f"sink {sink} writes batch {header.sink_batch_id}, but its batch {newest} is in the log "
                f"already; only the newest batch of a sink can be written",
                batch_id=newest,
            )
        if newest != header.sink_batch_id:
            rows = TaskRows()
        elif not rows.rows:
            self._check_tasks(sink)
        return _place_of(header, rows)

    def stage(self, header: BatchHeader) -> None:
        """Stages a batch that will be written next, so that the next `check` takes it into account."""
        sink, task = SinkTask.of(header.producer_id)
        newest, rows = self._newest(sink, task)
        batch_id = header.sink_batch_id
        rows = _after(rows if newest == batch_id else TaskRows(), header)
        staged = self._staged.get(sink)
        if staged is None or staged.batch_id != batch_id:
            staged = self._staged[sink] = SinkBatch(batch_id, {})
        staged.tasks[task] = rows

    def unstage(self) -> None:
        """Drops the staged batches: they were recorded, or never written."""
        if self._staged:
            self._staged = {}

    def record(self, header: BatchHeader) -> None:
        """Takes an appended batch into account."""
        sink, task = SinkTask.of(header.producer_id)
        known = self._known.get(sink)
        if known is None or known.batch_id != header.sink_batch_id:
            known = self._known[sink] = SinkBatch(header.sink_batch_id, {})
        known.tasks[task] = _after(known.tasks.get(task, TaskRows()), header)

    def keep(self, known: KnownSinks) -> None:
        """Drops the sinks that the cluster has forgotten."""
        for sink in [one for one in self._known if known.lack(one)]:
            del self._known[sink]

    def _newest(self, sink: int, task: int) -> tuple[int | None, TaskRows]:
        """The id of the sink's newest batch (None: there is none), and the rows of a task of it."""
        known, staged = self._known.get(sink), self._staged.get(sink)
        if staged is not None and (known is None or staged.batch_id > known.batch_id):
            return staged.batch_id, staged.tasks.get(task, TaskRows())
        if known is None:
            return None, TaskRows()
        found = staged.tasks.get(task) if staged is not None else None
        return known.batch_id, found or known.tasks.get(task, TaskRows())

    def _check_sinks(self, sink: int) -> None:
        others = len(self._known) + sum(staged not in self._known for staged in self._staged)
        if others >= SINKS_MAX:
            raise ResourceExhausted(
                f"{others} sinks have written to this partition, and no more may (sink {sink} is new); "
                f"write to another stream, or use the sinkId of a sink that has written here"
            )

    def _check_tasks(self, sink: int) -> None:
        known = self._known.get(sink)
        if known is not None and len(known.tasks) >= TASKS_MAX:
            raise ResourceExhausted(
                f"{TASKS_MAX} tasks of sink {sink} have written to this partition in one batch, and no more "
                f"may; use fewer Spark partitions"
            )


def _place_of(header: BatchHeader, rows: TaskRows) -> WrittenBatch | None:
    """The batch that `header` repeats; None: it is the next batch after `rows`."""
    sequence = header.base_sequence
    if sequence == rows.rows:
        return None
    task = SinkTask.of(header.producer_id)
    if sequence > rows.rows:
        raise OutOfOrderSequence(
            f"task {task.task} of sink {task.sink} sends row {sequence}, {rows.rows} is next",
            expected=rows.rows,
        )
    for written in rows.window:
        if written.base_sequence == sequence:
            if (written.records, written.body_crc) == (header.record_count, header.body_crc):
                return written
            raise IndeterminateReplay(
                f"task {task.task} of sink {task.sink} writes batch {header.sink_batch_id} again with other "
                f"rows: the log has other rows from row {sequence} on"
            )
    raise DuplicateSequence(
        f"task {task.task} of sink {task.sink} sends row {sequence} of batch {header.sink_batch_id}, but "
        f"the log has {rows.rows} rows of the task: another attempt of the task is ahead"
    )


def _after(rows: TaskRows, header: BatchHeader) -> TaskRows:
    written = WrittenBatch(
        header.base_sequence, header.record_count, header.body_crc, header.base_offset, header.append_time_us
    )
    return TaskRows(
        header.base_sequence + header.record_count,
        chained(rows.chain, header.body_crc),
        (*rows.window[-(WINDOW_BATCHES - 1) :], written),
    )
