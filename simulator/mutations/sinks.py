"""Bugs of sinks: rows that are not compared, runs that are not fenced, state that is forgotten (S1–S4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from msgspec.structs import replace

from simulator.mutations.plant import mutation, patched
from tidelog._sinking.attempt import SinkAttempt
from tidelog._sinking.calls import TaskRows
from tidelog.records.layout import SinkTask
from tidelog.sink import Sink
from tidelog_broker.core.metadata.decisions import sinks as decide
from tidelog_broker.hosting.sink_runs import SinkRuns
from tidelog_broker.storage.guard import sink_batches
from tidelog_broker.storage.guard.sink_batches import SinkBatches
from tidelog_broker.storage.log.guarding import LogGuard
from tidelog_broker.storage.log.writer import LogWriter


@mutation("S1", profile="sinks")
def a_partition_keeps_the_rows_of_one_task_only() -> Iterator[None]:
    record = SinkBatches.record

    def forgetful(self: SinkBatches, header: Any) -> None:
        record(self, header)
        for batch in self.known.values():
            for task in list(batch.tasks)[:-1]:
                del batch.tasks[task]

    with patched((SinkBatches, "record", forgetful)):
        yield


@mutation("S1", profile="sinks")
def followers_do_not_remember_sinks() -> Iterator[None]:
    replicate = LogWriter.replicate

    def forgetful(self: LogWriter, *arguments: Any, **options: Any) -> Any:
        with mock.patch.object(SinkBatches, "record"):
            return replicate(self, *arguments, **options)

    with patched((LogWriter, "replicate", forgetful)):
        yield


@mutation("S1", profile="sinks")
def a_partition_drops_sinks_that_may_write_again() -> Iterator[None]:
    def all_of_them(self: SinkBatches, known: Any) -> None:
        self.known.clear()

    with patched((SinkBatches, "keep", all_of_them)):
        yield


@mutation("S1", profile="sinks")
def an_ended_sink_may_write() -> Iterator[None]:
    is_newest = SinkRuns.is_newest

    def trusting(self: SinkRuns, header: Any, run: int) -> bool:
        known = self._controller.image.sink_numbered(SinkTask.of(header.producer_id).sink)
        return known is None or is_newest(self, header, run)

    with patched((SinkRuns, "is_newest", trusting), (LogGuard, "check_sink_run", lambda *arguments: None)):
        yield


@mutation("S2", profile="sinks")
def a_task_is_taken_at_any_row() -> Iterator[None]:
    with patched((sink_batches, "_place_of", lambda header, rows: None)):
        yield


@mutation("S2", profile="sinks")
def an_attempt_begins_at_the_first_row_of_the_batch() -> Iterator[None]:
    attempt = Sink.attempt

    async def from_the_start(self: Sink, *arguments: Any, **options: Any) -> SinkAttempt:
        made = await attempt(self, *arguments, **options)
        for progress in made._partitions.values():
            progress.there = TaskRows()
        return made

    with patched((Sink, "attempt", from_the_start)):
        yield


@mutation("S3", profile="sinks")
def runs_do_not_end_earlier_runs() -> Iterator[None]:
    def lenient(self: SinkRuns, header: Any, run: int) -> bool:
        return True

    with patched((SinkRuns, "is_newest", lenient), (LogGuard, "check_sink_run", lambda *arguments: None)):
        yield


@mutation("S3", profile="sinks")
def each_run_decides_the_time_of_the_batch() -> Iterator[None]:
    opened = decide.open_sink

    def timed(image: Any, name: str, **facts: Any) -> Any:
        command = opened(image, name, **facts)
        if command is None:
            return None
        return replace(command, batch_us=facts["now_us"])

    with patched((decide, "open_sink", timed)):
        yield


@mutation("S4", profile="sinks")
def a_batch_counts_when_its_tasks_have_reported() -> Iterator[None]:
    async def trusting(self: Sink, *arguments: Any) -> None:
        return None

    with patched((Sink, "verify", trusting)):
        yield


@mutation("S4", profile="sinks")
def the_commit_looks_only_at_the_tasks_that_reported() -> Iterator[None]:
    verify, written = Sink.verify, Sink.written

    async def narrow(self: Sink, batch: Any, expected: Any) -> None:
        async def of_these(self: Sink, batch: Any) -> Any:
            return {
                number: found._replace(
                    tasks={task: rows for task, rows in found.tasks.items() if task in expected}
                )
                for number, found in (await written(self, batch)).items()
            }

        with mock.patch.object(Sink, "written", of_these):
            await verify(self, batch, expected)

    with patched((Sink, "verify", narrow)):
        yield
