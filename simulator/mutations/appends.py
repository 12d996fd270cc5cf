"""Bugs in the answers to producers: acknowledgements, repeats, expected offsets, refusals (R7, R8, R9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from simulator.mutations.plant import mutation, patched
from tidelog.errors import TidelogError, UnexpectedOffset
from tidelog_broker.storage.guard.append_guard import AppendGuard
from tidelog_broker.storage.log.write_batch import Appended
from tidelog_broker.storage.log.writer import LogWriter
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.uncommitted import answer


@mutation("R7")
def acks_all_is_answered_when_the_leader_alone_has_it() -> Iterator[None]:
    def hasty(self: Partition) -> None:
        self._uncommitted.answer_below(self.log.end_offset, self.log.durable_offset)

    with patched((Partition, "_answer_committed", hasty)):
        yield


@mutation("R7")
def what_was_written_is_refused_for_want_of_replicas() -> Iterator[None]:
    append = LogWriter.append

    def late(self: LogWriter, items: Any, *, refuse_new: TidelogError | None = None, **facts: Any) -> Any:
        outcomes = append(self, items, **facts)
        return outcomes if refuse_new is None else [refuse_new for _ in outcomes]

    with patched((LogWriter, "append", late)):
        yield


@mutation("R8")
def a_duplicate_is_answered_before_its_first_copy_is_committed() -> Iterator[None]:
    def hasty(self: Partition, outcomes: Any) -> None:
        for append, outcome in outcomes:
            if isinstance(outcome, Appended) and outcome.duplicate:
                answer(append.done, outcome)
        written(self, outcomes)

    written = Partition.written
    with patched((Partition, "written", hasty)):
        yield


@mutation("R8")
def followers_do_not_remember_producers() -> Iterator[None]:
    replicate = LogWriter.replicate

    def forgetful(self: LogWriter, *arguments: Any, **options: Any) -> Any:
        guard = self._guard.current
        with mock.patch.object(type(guard), "record"):
            done = replicate(self, *arguments, **options)
        self._guard.current.offset = self._state.end_offset
        return done

    with patched((LogWriter, "replicate", forgetful)):
        yield


@mutation("R9")
def an_expected_offset_is_not_looked_at() -> Iterator[None]:
    check = AppendGuard.check

    def lenient(self: AppendGuard, header: Any, expected_offset: int | None) -> Any:
        return check(self, header, None)

    with patched((AppendGuard, "check", lenient)):
        yield


@mutation("R9")
def a_repeat_of_the_batch_that_met_its_offset_is_refused() -> Iterator[None]:
    check = AppendGuard.check

    def strict(self: AppendGuard, header: Any, expected_offset: int | None) -> Any:
        if expected_offset is not None and expected_offset != self.offset:
            raise UnexpectedOffset(
                "another offset", expected_offset=expected_offset, log_end_offset=self.offset
            )
        return check(self, header, None)

    with patched((AppendGuard, "check", strict)):
        yield
