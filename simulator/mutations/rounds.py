"""Bugs in write rounds and flush rounds: when appends are written, flushed and answered (R3, R7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from simulator.mutations.plant import mutation, patched, uncaught
from tidelog.errors import TidelogError
from tidelog.model import PipelineOrder
from tidelog_broker.hosting.threads import WorkThreads
from tidelog_broker.storage.log.writer import LogWriter
from tidelog_broker.storage.points import RecoveryPoint
from tidelog_broker.writing.append_requests import Acks
from tidelog_broker.writing.flush_rounds import FlushRounds
from tidelog_broker.writing.partition import Partition
from tidelog_broker.writing.write_rounds import WriteRounds


@mutation("R7", "leader acks")
def acks_leader_is_answered_before_its_flush() -> Iterator[None]:
    def hasty(self: Partition) -> None:
        answer(self)
        self._uncommitted.answer_below(self.high_watermark, self.log.end_offset)

    answer = Partition._answer_committed
    with patched((Partition, "_answer_committed", hasty)):
        yield


@mutation("R3", "losses of power")
def a_flush_speaks_for_what_was_appended_while_it_ran() -> Iterator[None]:
    def generous(self: FlushRounds, flushed: list[Partition], *rest: Any) -> None:
        for one in flushed:
            active = one.log.active
            one.log._state.recovery_point = RecoveryPoint(active.next_offset, active.base_offset, active.size)
        ended(self, flushed, *rest)

    ended = FlushRounds._ended
    with patched((FlushRounds, "_ended", generous)):
        yield


@uncaught("R3", "one writer")
def a_flush_round_forgets_what_was_written_while_it_ran() -> Iterator[None]:
    def forgetful(self: FlushRounds, partitions: Iterable[Partition]) -> None:
        if not self._running:
            flush(self, partitions)

    flush = FlushRounds._flush
    with patched((FlushRounds, "_flush", forgetful)):
        yield


@mutation("R3")
def what_a_follower_writes_is_not_flushed() -> Iterator[None]:
    def leaders_only(self: FlushRounds, *wrote: Partition) -> None:
        note(self, *(one for one in wrote if one.leads))

    note = FlushRounds.wrote
    with patched((FlushRounds, "wrote", leaders_only)):
        yield


@mutation("I12")
def readers_are_not_woken_by_a_commit() -> Iterator[None]:
    with patched((Partition, "committed", lambda self, high_watermark: self._answer_committed())):
        yield


@mutation("R7", "deposals")
def who_waits_is_forgotten_when_a_leadership_ends() -> Iterator[None]:
    def silent(self: Partition, *, led: bool) -> None:
        with patched((Partition, "_answer_waiting", lambda self, ended: None)):
            ended(self, led=led)

    ended = Partition.role_ended
    with patched((Partition, "role_ended", silent)):
        yield


@mutation("R7", "takeovers")
def who_waits_when_a_leadership_ends_is_told_of_success() -> Iterator[None]:
    def sure(self: Partition, ended: Any) -> None:
        self._uncommitted.answer_below(self.log.end_offset, self.log.end_offset)
        answer(self, ended)

    answer = Partition._answer_waiting
    with patched((Partition, "_answer_waiting", sure)):
        yield


@mutation("R7", "deposals")
def what_was_written_as_a_leadership_ended_waits_for_the_next_one() -> Iterator[None]:
    def patient(self: Partition, outcomes: Any) -> None:
        left, self._left = self._left, None
        try:
            written(self, outcomes)
        finally:
            self._left = left
        self.replica.begin_when_idle()

    written = Partition.written
    with patched((Partition, "written", patient)):
        yield


@mutation("R7", "full disks")
def a_failed_write_is_answered_as_if_it_had_been_done() -> Iterator[None]:
    def hopeful(self: LogWriter, staged: Any, error: OSError) -> None:
        if self._state.files.files.exists(self._state.active.path):
            self._state.active.cut_back()

    with patched((LogWriter, "_take_back", hopeful)):
        yield


@uncaught("R7", "full disks")
def what_a_failed_write_left_is_not_cut_off() -> Iterator[None]:
    """Mostly harmless: the next write begins where this one began, and a start treats the bytes behind that
    as torn. Only a whole batch that is never overwritten could come back. That needs an error after the batch
    was written."""

    def careless(self: LogWriter, staged: Any, error: OSError) -> TidelogError:
        from tidelog_broker.storage.segments.segment import Segment

        with patched((Segment, "cut_back", lambda self: None)):
            return take_back(self, staged, error)

    take_back = LogWriter._take_back
    with patched((LogWriter, "_take_back", careless)):
        yield


@uncaught("R7", "minima")
def what_comes_behind_a_refused_batch_is_taken() -> Iterator[None]:
    """Harmless while clients hold back the batches behind a refused one. `what is behind a refused batch
    overtakes it` breaks both."""
    with patched((PipelineOrder, "check", lambda self, *, reset: None)):
        yield


@mutation("R7", "failed flushes")
def a_broker_that_fails_tells_those_who_wait_of_success() -> Iterator[None]:
    def sure(self: Partition, unwritten: TidelogError, uncommitted: TidelogError) -> None:
        self._uncommitted.answer_below(self.log.end_offset, self.log.end_offset)
        give_up(self, unwritten, uncommitted)

    give_up = Partition.give_up
    with patched((Partition, "give_up", sure)):
        yield


@uncaught("R3", "one writer")
def what_waits_behind_exclusive_work_is_not_woken() -> Iterator[None]:
    def held(self: WriteRounds, done: Any) -> None:
        if not done.cancelled():
            done.exception()
        self._busy = False

    with patched((WriteRounds, "_released", held)):
        yield


@mutation("R7")
def acks_all_waits_for_this_disk_alone() -> Iterator[None]:
    def mixed_up(self: Partition, outcomes: Any) -> None:
        for append, _ in outcomes:
            if append.acks is Acks.ALL:
                append.acks = Acks.LEADER
        written(self, outcomes)

    written = Partition.written
    with patched((Partition, "written", mixed_up)):
        yield


@uncaught("R6", "busy")
def an_unforeseen_error_of_one_write_ends_the_broker() -> Iterator[None]:
    """In a run no write raises an unexpected error, or I19 fails: there is no error to isolate.
    `tests/broker/test_isolation.py` makes writes raise one, and `tests/replicas/test_halted.py` checks the
    reaction of the cluster."""

    def made(self: WriteRounds, *parts: Any, **named: Any) -> None:
        make(self, *parts, **named)
        self._isolate = lambda partition, error: self._fail(error)

    make = WriteRounds.__init__
    with patched((WriteRounds, "__init__", made)):
        yield


@uncaught("I19", "stops")
def a_stop_answers_work_that_no_thread_began_with_an_error_of_its_own() -> Iterator[None]:
    """The answer is `INTERNAL`, although there is no error."""

    def submit(self: WorkThreads, function: Any, /, *arguments: Any, **options: Any) -> Any:
        if not self._stopped:
            return self._pool.submit(function, *arguments, **options)
        refused: Future[Any] = Future()
        refused.set_exception(RuntimeError("cannot schedule new futures after shutdown"))
        return refused

    with patched((WorkThreads, "submit", submit)):
        yield
