"""The append guard of a partition and sinks: what it takes, answers and refuses (S1, S2)."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import (
    DuplicateSequence,
    FencedProducer,
    IndeterminateReplay,
    OutOfOrderSequence,
    ResourceExhausted,
    TidelogError,
)
from tidelog.records import BatchHeader
from tidelog.records.checksum import crc32c
from tidelog.records.layout import MAGIC, SINK_BATCH_ID_MAX, SINK_NUMBER_MAX, SINK_TASK_MAX, SinkTask
from tidelog_broker.storage.guard import sink_batches
from tidelog_broker.storage.guard.append_guard import AppendGuard, BatchRef, GuardLimits
from tidelog_broker.storage.guard.sink_batches import KnownSinks

LIMITS = GuardLimits()


class Sent(NamedTuple):
    """A record batch of a task of a sink."""

    sink: int
    batch_id: int
    task: int
    sequence: int
    records: int
    crc: int

    def at(self, offset: int, time_us: int = 1) -> BatchHeader:
        return BatchHeader(
            magic=MAGIC,
            length=80,
            base_offset=offset,
            append_time_us=time_us,
            leader_epoch=1,
            header_crc=0,
            body_crc=self.crc,
            attributes=0,
            schema_version=1,
            record_count=self.records,
            last_offset_delta=self.records - 1,
            producer_id=SinkTask(self.sink, self.task).producer_id,
            base_sequence=self.sequence,
            producer_epoch=self.batch_id & 0xFFFF,
            reserved=self.batch_id >> 16,
            timestamp_min_us=0,
            timestamp_max_us=0,
        )


class Twin:
    """The rules as lists: obviously right, and slow."""

    def __init__(self) -> None:
        self.newest: dict[int, int] = {}
        self.written: dict[tuple[int, int], list[tuple[Sent, int]]] = {}
        self.end = 0

    def send(self, sent: Sent) -> str | int:
        """The offset at which it is, or the name of the error."""
        newest = self.newest.get(sent.sink, -1)
        if sent.batch_id < newest:
            return "fenced"
        of_task = self.written.get((sent.sink, sent.task), []) if sent.batch_id == newest else []
        rows = sum(one.records for one, _ in of_task)
        if sent.sequence > rows:
            return "order"
        if sent.sequence < rows:
            for one, offset in of_task[-5:]:
                if one.sequence == sent.sequence:
                    return offset if one == sent else "indeterminate"
            return "duplicate"
        if sent.batch_id > newest:
            self.newest[sent.sink] = sent.batch_id
            self.written = {key: found for key, found in self.written.items() if key[0] != sent.sink}
        self.written.setdefault((sent.sink, sent.task), []).append((sent, self.end))
        self.end += sent.records
        return self.end - sent.records

    def rows(self, sink: int) -> dict[int, tuple[int, int]]:
        found = {}
        for (of, task), batches in self.written.items():
            if of == sink:
                chain = 0
                for one, _ in batches:
                    chain = crc32c(chain.to_bytes(4, "little") + one.crc.to_bytes(4, "little"))
                found[task] = (sum(one.records for one, _ in batches), chain)
        return found


WORDS: dict[type[TidelogError], str] = {
    FencedProducer: "fenced",
    OutOfOrderSequence: "order",
    IndeterminateReplay: "indeterminate",
    DuplicateSequence: "duplicate",
}

small = st.integers(0, 2)
sends = st.builds(Sent, small, small, small, st.integers(0, 12), st.integers(1, 3), st.integers(0, 1))


def answer(guard: AppendGuard, sent: Sent, *, staged: bool) -> str | int:
    header = sent.at(guard.offset)
    found = checked(guard, header)
    if found is not None:
        return found
    if staged:
        guard.stage(header)
        guard.unstage()
    guard.record(header)
    return header.base_offset


@given(st.lists(sends, max_size=60), st.integers(0, 60), st.booleans())
@settings(max_examples=400, deadline=None)
def test_the_guard_answers_like_its_twin_and_survives_a_snapshot(
    sent: list[Sent], saved_at: int, staged: bool
) -> None:
    guard, twin = AppendGuard(LIMITS), Twin()

    for number, one in enumerate(sent):
        if number == saved_at:
            restored = AppendGuard.restore(guard.snapshot(), LIMITS)
            assert restored is not None
            guard = restored
        assert answer(guard, one, staged=staged) == twin.send(one), one

    for sink in range(3):
        known = guard.sinks.known.get(sink)
        tasks = {} if known is None else {task: (rows.rows, rows.chain) for task, rows in known.tasks.items()}
        assert tasks == twin.rows(sink)


def checked(guard: AppendGuard, header: BatchHeader) -> str | int | None:
    """None: the batch may be written. Else where its first copy is, or the name of the error."""
    try:
        found = guard.check(header, None)
    except TidelogError as error:
        return WORDS[type(error)]
    return None if found is None else found.base_offset


@given(st.lists(sends, min_size=1, max_size=12))
@settings(max_examples=300, deadline=None)
def test_batches_that_wait_for_one_write_are_checked_as_if_they_were_written(sent: list[Sent]) -> None:
    guard, twin = AppendGuard(LIMITS), Twin()
    headers = []
    end = 0
    for one in sent:
        expected = twin.send(one)
        header = one.at(end)
        found = checked(guard, header)
        assert (end if found is None else found) == expected
        if found is None:
            guard.stage(header)
            headers.append(header)
            end = header.next_offset
    guard.unstage()
    assert guard.sinks.known == {}
    for header in headers:
        guard.record(header)

    assert [guard.sinks.known[sink].batch_id for sink in sorted(twin.newest)] == [
        twin.newest[sink] for sink in sorted(twin.newest)
    ]


def test_a_write_that_failed_leaves_nothing_staged() -> None:
    guard = AppendGuard(LIMITS)
    header = Sent(1, 0, 0, 0, 2, 7).at(0)
    assert guard.check(header, None) is None
    guard.stage(header)

    guard.unstage()

    assert guard.check(Sent(1, 0, 0, 0, 2, 8).at(0), None) is None


def test_the_largest_numbers_fit_into_a_header() -> None:
    task = SinkTask(SINK_NUMBER_MAX, SINK_TASK_MAX)
    header = Sent(*task[:1], SINK_BATCH_ID_MAX, task.task, 0, 1, 0).at(0)
    again = BatchHeader.unpack(header.pack())

    assert again.of_sink
    assert (SinkTask.of(again.producer_id), again.sink_batch_id) == (task, SINK_BATCH_ID_MAX)


def test_sinks_do_not_expire_by_time() -> None:
    guard = AppendGuard(LIMITS)
    guard.record(Sent(1, 5, 0, 0, 2, 7).at(0))

    for day in range(1, 400):
        guard.record(Sent(2, day, 0, 0, 1, 7).at(guard.offset, day * 86_400_000_000))

    assert guard.check(Sent(1, 5, 0, 0, 2, 7).at(500), None) == BatchRef(0, 2, 0, 1)


def test_too_many_sinks_and_tasks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_batches, "SINKS_MAX", 2)
    monkeypatch.setattr(sink_batches, "TASKS_MAX", 3)
    guard = AppendGuard(LIMITS)
    for sink in range(2):
        for task in range(3):
            guard.record(Sent(sink, 0, task, 0, 1, 0).at(guard.offset))

    with pytest.raises(ResourceExhausted, match="2 sinks have written"):
        guard.check(Sent(2, 0, 0, 0, 1, 0).at(6), None)
    with pytest.raises(ResourceExhausted, match="use fewer Spark partitions"):
        guard.check(Sent(1, 0, 3, 0, 1, 0).at(6), None)
    assert guard.check(Sent(1, 1, 0, 0, 1, 0).at(6), None) is None


def test_sinks_that_the_cluster_has_forgotten_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_batches, "SINKS_MAX", 3)
    guard = AppendGuard(LIMITS)
    for sink in range(3):
        guard.record(Sent(sink, 0, 0, 0, 1, 0).at(guard.offset))

    guard.sinks.keep(KnownSinks(next_number=2, numbers={1}))

    assert sorted(guard.sinks.known) == [1, 2], "sink 2 is newer than what the cluster is known to have"
    assert guard.check(Sent(3, 0, 0, 0, 1, 0).at(3), None) is None


def test_a_snapshot_without_sinks_is_one_that_earlier_versions_read() -> None:
    guard = AppendGuard(LIMITS)
    assert guard.snapshot()[4:7] == b"\x97\x01\x00"
    guard.record(Sent(1, 0, 0, 0, 1, 0).at(0))

    assert guard.snapshot()[4:7] == b"\x97\x02\x01"
