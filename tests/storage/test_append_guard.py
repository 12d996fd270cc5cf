"""The append guard answers as R8 and R9 say, and is a function of the log."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.crash_model import guard_state
from storage.guard_twin import Twin
from tidelog.errors import (
    DuplicateSequence,
    FencedProducer,
    OutOfOrderSequence,
    ResourceExhausted,
    TidelogError,
    UnexpectedOffset,
    UnknownProducer,
)
from tidelog.records import NO_PRODUCER_ID, BatchHeader
from tidelog.records.layout import MAGIC
from tidelog_broker.storage.guard.append_guard import (
    LOG_TIME_STEP_US_MAX,
    PRODUCER_EXPIRY_US,
    PRODUCER_IDLE_US,
    AppendGuard,
    GuardLimits,
)

WORDS: dict[type[TidelogError], str] = {
    UnknownProducer: "unknown",
    ResourceExhausted: "exhausted",
    FencedProducer: "fenced",
    OutOfOrderSequence: "order",
    DuplicateSequence: "duplicate",
    UnexpectedOffset: "unexpected",
}
TOP = (1 << 32) - 1


def header(
    offset: int,
    producer: int = NO_PRODUCER_ID,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    at: int = 0,
) -> BatchHeader:
    return BatchHeader(
        magic=MAGIC,
        length=80,
        base_offset=offset,
        append_time_us=at,
        leader_epoch=1,
        header_crc=0,
        body_crc=0,
        attributes=0,
        schema_version=1,
        record_count=count,
        last_offset_delta=count - 1,
        producer_id=producer,
        base_sequence=sequence,
        producer_epoch=epoch,
        reserved=0,
        timestamp_min_us=0,
        timestamp_max_us=0,
    )


class Step(NamedTuple):
    producer: int
    epoch: int
    sequence: int | None
    """None: the one that is next, as the twin knows it."""
    records: int
    pause_us: int
    ids: tuple[str, ...]
    expected: int | None
    """Relative to the log's end."""
    outcome: str
    """What becomes of the write: it is made, fails, or is cut off by another start."""


STEPS = st.builds(
    Step,
    producer=st.sampled_from([NO_PRODUCER_ID, 1, 2, 3, 4]),
    epoch=st.integers(0, 2),
    sequence=st.one_of(st.none(), st.none(), st.sampled_from([0, 1, 2, 5, 9, TOP - 2, TOP])),
    records=st.integers(1, 3),
    pause_us=st.sampled_from([0, 0, 1_000_000, 20_000_000, 61_000_000]),
    ids=st.one_of(
        st.just(()), st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True).map(tuple)
    ),
    expected=st.sampled_from([None, None, None, 0, -1]),
    outcome=st.sampled_from(["made", "made", "made", "made", "fails", "restart"]),
)
LIMITS = GuardLimits(producers_max=3, dedupe_window_us=90_000_000, dedupe_count_max=4)


def answer_of(guard: AppendGuard, batch: BatchHeader, expected: int | None) -> str | int:
    try:
        repeat = guard.check(batch, expected)
    except tuple(WORDS) as error:
        return WORDS[type(error)]
    return "append" if repeat is None else repeat.base_offset


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=60), st.sampled_from([0, TOP - 3]))
def test_it_answers_like_its_slow_twin(steps: list[Step], far: int) -> None:
    guard, twin, now = AppendGuard(LIMITS), Twin(LIMITS), 1
    if far:
        # A producer whose sequences are about to wrap around at 2³².
        for first in (0, 1):
            batch = header(first, 1, 0, first, 1 if first == 0 else far - 1)._replace(last_offset_delta=0)
            guard.record(batch)
            twin.record(batch, [])
    for step in steps:
        now += step.pause_us
        sequence = step.sequence
        if sequence is None:
            seen = twin.producers.get(step.producer)
            sequence = (seen[-1].last + 1) % (1 << 32) if seen and seen[-1].epoch == step.epoch else 0
        producer_epoch = step.epoch if step.producer != NO_PRODUCER_ID else 0
        sequence = sequence if step.producer != NO_PRODUCER_ID else 0
        batch = header(twin.end, step.producer, producer_epoch, sequence, step.records, now)
        expected = None if step.expected is None else twin.end + step.expected
        answer = answer_of(guard, batch, expected)
        assert answer == twin.answer(batch, expected)
        if answer == "append":
            before = guard_state(guard)
            guard.stage(batch)
            guard.unstage()
            assert guard_state(guard) == before
            if step.outcome != "fails":
                ids = [(twin.end + at, name) for at, name in enumerate(step.ids[: step.records])]
                guard.record(batch, ids)
                twin.record(batch, ids)
        if step.outcome == "restart":
            restored = AppendGuard.restore(guard.snapshot(), LIMITS)
            assert restored is not None
            assert guard_state(restored) == guard_state(guard)
            guard = restored
        assert guard.offset == twin.end
        for name in "abcdef":
            assert guard.find_message(name, now) == twin.find(name, now)


@given(st.lists(STEPS, max_size=30), st.data())
def test_a_replay_from_any_snapshot_gives_the_same_state(steps: list[Step], data: st.DataObject) -> None:
    whole, now, log, snapshots = AppendGuard(LIMITS), 1, [], [AppendGuard(LIMITS).snapshot()]
    for step in steps:
        now += step.pause_us
        batch = header(whole.offset, step.producer, step.epoch, step.sequence or 0, step.records, now)
        ids = [(whole.offset + at, name) for at, name in enumerate(step.ids[: step.records])]
        whole.record(batch, ids)
        log.append((batch, ids))
        snapshots.append(whole.snapshot())

    start = data.draw(st.integers(0, len(log)))
    replayed = AppendGuard.restore(snapshots[start], LIMITS)

    assert replayed is not None
    for batch, ids in log[start:]:
        replayed.record(batch, ids)
    assert guard_state(replayed) == guard_state(whole)


def test_what_is_staged_counts_for_the_checks_behind_it_until_it_is_unstaged() -> None:
    guard = AppendGuard(LIMITS)
    first, second = header(0, 9, 0, 0, 2), header(2, 9, 0, 2, 1)
    guard.stage(first)

    assert answer_of(guard, first, None) == 0
    assert answer_of(guard, second, 2) == "append"
    guard.unstage()
    assert answer_of(guard, second, None) == "unknown"
    assert guard.empty


def test_a_repeat_is_known_within_the_last_five_batches_and_refused_before() -> None:
    guard = AppendGuard(LIMITS)
    for offset in range(6):
        guard.record(header(offset, 9, 0, offset))

    assert [answer_of(guard, header(6, 9, 0, s), None) for s in range(7)] == [
        "duplicate",
        1,
        2,
        3,
        4,
        5,
        "append",
    ]


def test_a_retry_of_a_conditional_append_is_a_duplicate_and_not_a_refusal() -> None:
    guard = AppendGuard(LIMITS)
    guard.record(header(0, 9, 0, 0, 1))

    assert answer_of(guard, header(1, 9, 0, 0, 1), 0) == 0


def test_log_time_moves_by_a_minute_at_most_so_a_clock_jump_expires_no_producer() -> None:
    guard = AppendGuard(LIMITS)
    for producer in range(3):
        guard.record(header(producer, producer, at=producer))
    year = 365 * 86_400_000_000

    guard.record(header(3, at=year))

    assert answer_of(guard, header(4, 77, at=year), None) == "exhausted"


def test_an_idle_producer_makes_room_only_when_the_room_is_needed() -> None:
    guard, at, offset = AppendGuard(LIMITS), 0, 3
    for producer in range(3):
        guard.record(header(producer, producer))
    while at < PRODUCER_IDLE_US:
        at += LOG_TIME_STEP_US_MAX
        guard.record(header(offset, 2, 0, offset - 2, at=at))
        offset += 1

    assert set(guard.producers) == {0, 1, 2}
    guard.record(header(offset, 3, at=at))
    assert set(guard.producers) == {1, 2, 3}


def test_a_producer_that_did_not_write_for_a_week_of_log_time_is_forgotten() -> None:
    guard, at = AppendGuard(GuardLimits()), 0
    guard.record(header(0, 1))
    for offset in range(1, PRODUCER_EXPIRY_US // LOG_TIME_STEP_US_MAX + 1):
        at += LOG_TIME_STEP_US_MAX
        guard.record(header(offset, at=at))

    guard.record(header(guard.offset, 2, at=at))

    assert set(guard.producers) == {2}


def test_an_id_seen_again_after_its_window_does_not_hold_up_the_forgetting_of_others() -> None:
    guard = AppendGuard(GuardLimits(dedupe_window_us=10, dedupe_count_max=100))
    guard.record(header(0, at=0), [(0, "again"), (1, "once")])
    guard.record(header(2, at=20), [(2, "again")])

    assert len(guard._ids) == 1
    assert guard.find_message("again", 20) == 2


def test_ids_that_are_not_utf_8_survive_a_snapshot() -> None:
    guard = AppendGuard(GuardLimits())
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    guard.record(header(0), [(0, name)])

    restored = AppendGuard.restore(guard.snapshot(), GuardLimits())

    assert restored is not None
    assert restored.find_message(name, 0) == 0


@pytest.mark.parametrize("cut", [0, 3, 4, 10, -1])
def test_a_damaged_snapshot_is_as_good_as_none(cut: int) -> None:
    assert AppendGuard.restore(AppendGuard(LIMITS).snapshot()[:cut], LIMITS) is None
