"""F7: append time never goes back, and a log that is dated ahead of the clock does not stand still."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storage.batches import T0, item, records
from storage.logs import Bench
from tidelog_broker.storage.guard.append_guard import PRODUCER_IDLE_US, GuardLimits
from tidelog_broker.storage.guard.append_time import AHEAD_US_MAX, AppendTime
from tidelog_broker.storage.log.write_batch import Appended, LogConfig

MINUTE = 60_000_000
DAY = 86_400_000_000
YEAR = 365 * DAY


@given(st.lists(st.integers(-3 * YEAR, 3 * YEAR), max_size=30))
def test_f7_append_time_never_goes_back_whatever_the_clock_does(steps: list[int]) -> None:
    time, now, before = AppendTime(), 100 * YEAR, 0
    for step in steps:
        now += step
        at = time.at(now)
        assert at >= before
        time.appended(at)
        before = at


def test_f7_a_log_that_is_a_little_ahead_waits_for_the_clock() -> None:
    time = AppendTime()
    time.appended(T0 + AHEAD_US_MAX)

    assert time.at(T0) == time.at(T0 + MINUTE // 2) == T0 + AHEAD_US_MAX
    assert time.at(T0 + 2 * MINUTE) == T0 + 2 * MINUTE


def test_f7_a_log_far_ahead_advances_at_half_the_pace_of_the_clock() -> None:
    time = AppendTime()
    time.appended(T0 + DAY)
    assert time.at(T0) == T0 + DAY

    for hour in range(1, 47):
        at = time.at(T0 + hour * DAY // 24)
        assert at - (T0 + DAY) == hour * DAY // 48
        time.appended(at)
    assert time.at(T0 + 3 * DAY) == T0 + 3 * DAY


def test_f7_appends_that_follow_at_once_do_not_keep_a_log_from_going_on() -> None:
    time = AppendTime()
    time.appended(T0 + YEAR)

    for now_us in range(T0, T0 + 1000):
        time.appended(time.at(now_us))

    assert time.last_us == T0 + YEAR + 499


def test_f7_a_clock_that_goes_back_does_not_stop_a_log_that_is_ahead() -> None:
    time = AppendTime()
    time.appended(T0 + YEAR)
    assert time.at(T0) == T0 + YEAR
    assert time.at(T0 - DAY) == T0 + YEAR

    assert time.at(T0 - DAY + MINUTE) == T0 + YEAR + MINUTE // 2


def test_f7_the_segment_of_a_log_that_is_dated_ahead_is_rolled_by_age() -> None:
    bench = Bench()
    bench.log.configure(LogConfig(segment_age_us=DAY))
    bench.append(item([b"x"]), now_us=T0 + YEAR)
    assert not bench.log.writer.is_due(T0)
    assert not bench.log.writer.is_due(T0 + DAY)
    assert bench.log.writer.is_due(T0 + 2 * DAY)


def test_r8_producers_of_a_log_that_is_dated_ahead_still_become_idle() -> None:
    bench = Bench(guard=GuardLimits(producers_max=1))
    bench.append(item(records(1), producer_id=1), now_us=T0 + YEAR)
    for minute in range(2 * PRODUCER_IDLE_US // MINUTE + 1):
        bench.append(item([b"x"]), now_us=T0 + minute * MINUTE)

    assert bench.append(item(records(1), producer_id=2), now_us=T0 + DAY)


def test_n3_message_ids_of_a_log_that_is_dated_ahead_are_forgotten() -> None:
    bench = Bench(guard=GuardLimits(dedupe_window_us=2 * MINUTE))
    bench.append(item([b"x"], ids=["m"]), now_us=T0 + YEAR)
    assert bench.log.guard.find_message("m", bench.log.writer.time_at(T0)) == 0

    assert bench.log.guard.find_message("m", bench.log.writer.time_at(T0 + 4 * MINUTE)) == 0
    assert bench.log.guard.find_message("m", bench.log.writer.time_at(T0 + 5 * MINUTE)) is None


def test_r8_one_batch_that_is_dated_years_ahead_makes_no_producer_idle() -> None:
    bench = Bench(guard=GuardLimits(producers_max=1))
    bench.append(item(records(1), producer_id=1), now_us=T0)
    bench.append(item([b"x"]), now_us=T0 + YEAR)

    (outcome,) = bench.log.writer.append(
        [item(records(1), producer_id=2)], leader_epoch=bench.epoch, now_us=T0 + YEAR
    )

    assert not isinstance(outcome, Appended)
