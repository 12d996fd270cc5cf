"""R18: nothing is deleted because one clock was wrong once, and nothing is kept for ever because of it."""

from __future__ import annotations

from simulator.disk import FakeDisk
from storage.batches import T0, item, records
from storage.logs import KEY, Bench
from tidelog_broker.storage.directory.checkpoint import Checkpoints
from tidelog_broker.storage.directory.retention import (
    RetentionBounds,
    SegmentFacts,
    Waited,
    start_after_retention,
    waited_for,
)
from tidelog_broker.storage.directory.retention_time import (
    RETENTION_SAVE_US,
    RETENTION_STEP_PAUSE_US,
    RetentionNow,
    RetentionTime,
)
from tidelog_broker.storage.points import RecoveryPoint

HOUR = 3_600_000_000
DAY = 24 * HOUR
YEAR = 365 * DAY
WEEK = RetentionBounds(age_us=7 * DAY)


def facts(bench: Bench) -> list[SegmentFacts]:
    for segment in bench.log.segments:
        segment.load_times()
    return [SegmentFacts(s.next_offset, s.size, s.last_append_us) for s in bench.log.segments]


def start(segments: list[SegmentFacts], now: RetentionNow | None, waited: Waited | None = None) -> int:
    end = segments[-1].next_offset
    return start_after_retention(segments, WEEK, start_offset=0, high_watermark=end, now=now, waited=waited)


# --- the time that retention goes by


def test_r18_the_time_follows_the_clock() -> None:
    time = RetentionTime(T0)

    assert [time.now(T0 + n * HOUR, n * HOUR).reached_us for n in (1, 2, 20)] == [
        T0 + HOUR,
        T0 + 2 * HOUR,
        T0 + 20 * HOUR,
    ]
    assert not time.jumped


def test_r18_a_clock_a_month_ahead_moves_the_time_by_a_day_an_hour() -> None:
    time = RetentionTime(T0)

    reached = [time.now(T0 + 30 * DAY, n * HOUR // 4).reached_us for n in range(9)]

    assert [(at - T0) // DAY for at in reached] == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert time.jumped


def test_r18_a_cluster_that_was_stopped_for_months_gets_there() -> None:
    time, hours = RetentionTime(T0), 0
    while time.now(T0 + 90 * DAY + hours * HOUR, hours * HOUR).behind_us:
        hours += 1

    assert 90 <= hours <= 95
    assert not time.jumped


def test_r18_restarts_with_a_wrong_clock_move_nothing() -> None:
    saved = T0
    for _ in range(100):
        run = RetentionTime(saved)
        assert run.now(T0 + 30 * DAY, 0).reached_us == T0
        assert run.now(T0 + 30 * DAY, RETENTION_STEP_PAUSE_US - 1).reached_us == T0
        assert not run.unsaved
        assert run.reached_us is not None
        saved = run.reached_us


def test_r18_a_clock_that_was_behind_is_believed_at_once_when_it_is_right_again() -> None:
    time = RetentionTime(T0)
    assert time.now(T0 - 50 * YEAR, 0).reached_us == T0 - 50 * YEAR

    assert time.now(T0 + HOUR, 1).reached_us == T0 + HOUR


def test_r18_without_a_saved_time_the_newest_append_stands_for_it() -> None:
    fresh, upgraded = RetentionTime(None), RetentionTime(None)
    fresh.begin(0)
    upgraded.begin(T0)

    assert fresh.now(T0 + YEAR, 0).reached_us == T0 + YEAR
    assert upgraded.now(T0 + YEAR, 0).reached_us == T0


def test_r18_the_time_is_saved_when_it_moved_by_an_hour() -> None:
    time = RetentionTime(None)
    time.now(T0, 0)
    assert time.unsaved
    time.saved()
    time.now(T0 + RETENTION_SAVE_US - 1, 0)
    assert not time.unsaved
    time.now(T0 + RETENTION_SAVE_US, 0)
    assert time.unsaved


def test_r18_a_saved_time_is_read_again_and_a_damaged_one_is_none() -> None:
    disk = FakeDisk()
    disk.make_dir("/c")
    disk.sync_dir("/")
    checkpoints = Checkpoints.load(disk, "/c")
    assert checkpoints.retention_time_us() is None
    checkpoints.save_retention_time(T0)
    assert Checkpoints.load(disk.crash(), "/c").retention_time_us() == T0

    file = disk.open("/c/retention-time")
    file.truncate(10)
    file.close()
    damaged = Checkpoints.load(disk, "/c")
    assert damaged.retention_time_us() is None
    assert damaged.unreadable == ["/c/retention-time"]


# --- what is old by it


def test_r18_a_clock_that_jumps_a_month_ahead_deletes_nothing() -> None:
    bench = Bench(segment_bytes=4096)
    for number in range(40):
        bench.append(item(records(3, 900)), now_us=T0 + number)
    time = RetentionTime(None)
    time.now(T0 + 40, 0)

    assert start(facts(bench), time.now(T0 + 30 * DAY, 1)) == 0


def test_r18_without_a_clock_to_believe_nothing_is_too_old() -> None:
    bench = Bench(segment_bytes=4096)
    bench.fill(40, size=900)

    assert start(facts(bench), None) == 0
    assert start(facts(bench), RetentionNow(T0 + YEAR, T0 + YEAR)) > 100


def poisoned() -> Bench:
    """A log of sixty days; the clock was ten years ahead for the second batch."""
    bench = Bench(segment_bytes=4096)
    bench.append(item(records(3, 40)), now_us=T0)
    bench.append(item(records(3, 40)), now_us=T0 + 10 * YEAR)
    for day in range(1, 60):
        bench.append(item(records(3, 900)), now_us=T0 + day * DAY)
    return bench


def test_r18_a_log_that_was_dated_years_ahead_once_is_still_forgotten() -> None:
    bench = poisoned()
    segments, end = facts(bench), bench.log.end_offset
    waited: Waited | None = None
    for hour in range(7 * 24 + 2):
        now = RetentionNow(T0 + 60 * DAY + hour * HOUR, T0 + 60 * DAY + hour * HOUR)
        assert start(segments, now, waited) == 0
        waited = waited_for(segments, waited, start_offset=0, high_watermark=end, now=now, elapsed_us=HOUR)

    assert waited == Waited(segments[-2].next_offset, 7 * DAY + HOUR)
    assert start(segments, now, waited) == segments[-2].next_offset


def test_r18_only_segments_that_were_there_when_the_wait_began_are_old_at_its_end() -> None:
    ahead = T0 + YEAR
    now = RetentionNow(T0, T0)
    segments = [SegmentFacts(end, 100, ahead) for end in (10, 20, 30, 40)]
    waited = waited_for(segments[:3], None, start_offset=0, high_watermark=40, now=now, elapsed_us=0)
    assert waited == Waited(20, 0)

    assert start(segments, now, Waited(20, 7 * DAY + 1)) == 20
    after = waited_for(
        segments, Waited(20, 8 * DAY), start_offset=20, high_watermark=40, now=now, elapsed_us=5
    )
    assert after == Waited(30, 0)


def test_r18_a_wait_ends_when_the_clock_has_passed_the_segments() -> None:
    segments = [SegmentFacts(10, 100, T0 + YEAR), SegmentFacts(20, 100, T0 + YEAR)]
    now = RetentionNow(T0 + YEAR, T0 + YEAR)

    assert (
        waited_for(segments, Waited(10, 6 * DAY), start_offset=0, high_watermark=20, now=now, elapsed_us=1)
        is None
    )
    assert start(segments, now, Waited(10, 8 * DAY)) == 0


def test_r18_a_wait_survives_a_restart_and_ends_when_its_offsets_are_cut_off() -> None:
    bench = poisoned()
    bench.sync()
    bench.checkpoint()
    bench.store.saved.save_waited({KEY: Waited(100, HOUR)})
    bench.reopen()
    assert bench.store.checkpoints.waited(KEY) == Waited(100, HOUR)

    bench.store.saved.save_recovery_point(bench.log, RecoveryPoint(100, 0, 50))
    assert bench.store.checkpoints.waited(KEY) == Waited(100, HOUR)
    bench.store.saved.save_recovery_point(bench.log, RecoveryPoint(99, 0, 50))
    assert bench.store.checkpoints.waited(KEY) is None
