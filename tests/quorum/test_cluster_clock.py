"""R18: what time a broker writes down, of its own clock, the cluster's, and the time that passed."""

from __future__ import annotations

import pytest

from tidelog_broker.membership.cluster_clock import (
    HEARD_US_MAX,
    JUMP_HOLD_US,
    SKEW_US_MAX,
    YIELD_US,
    ClusterClock,
    SteadyClock,
    ahead_us,
)

T0 = 1_800_000_000_000_000
SECOND = 1_000_000
HOUR = 3600 * SECOND
MONTH = 30 * 24 * HOUR


class Machine:
    """Its clock, which can be set, and the time that passes."""

    def __init__(self) -> None:
        self.off_us = 0
        self.passed_us = 5

    def wall(self) -> int:
        return T0 + self.passed_us + self.off_us

    def elapsed(self) -> int:
        return self.passed_us

    def cluster_clock(self) -> ClusterClock:
        return ClusterClock(self.wall, self.elapsed)

    def steady_clock(self) -> SteadyClock:
        return SteadyClock(self.wall, self.elapsed)

    @property
    def right(self) -> int:
        return T0 + self.passed_us


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize(
    ("theirs", "round_trip", "ours", "ahead"),
    [(100, 0, 100, 0), (150, 100, 200, 0), (100, 100, 200, 0), (230, 100, 200, 30), (95, 100, 200, -5)],
)
def test_f7_only_what_the_round_trip_cannot_explain_is_skew(
    theirs: int, round_trip: int, ours: int, ahead: int
) -> None:
    assert ahead_us(theirs, round_trip, ours) == ahead


def test_r18_a_broker_that_nobody_told_the_time_goes_by_its_own_and_deletes_nothing(machine: Machine) -> None:
    clock = machine.cluster_clock()

    assert not clock.known
    assert clock.cluster_us() is None
    assert clock.append_us() == machine.right
    assert clock.retention_us() is None


def test_r18_a_broker_carries_on_what_it_was_told_whatever_its_own_clock_does(machine: Machine) -> None:
    clock = machine.cluster_clock()
    clock.heard(machine.right, machine.passed_us)
    machine.passed_us += HOUR
    machine.off_us = MONTH

    assert clock.known
    assert clock.cluster_us() == machine.right


def test_r18_a_clock_that_jumps_ahead_dates_nothing_by_its_jump(machine: Machine) -> None:
    clock = machine.cluster_clock()
    clock.heard(machine.right, machine.passed_us)
    machine.passed_us += SECOND
    machine.off_us = MONTH

    assert clock.append_us() == machine.right + SKEW_US_MAX
    assert clock.held_us == MONTH - SKEW_US_MAX
    assert clock.retention_us() == machine.right
    assert not clock.off
    clock.heard(machine.right, machine.passed_us)
    assert clock.off
    machine.off_us = 0
    assert clock.append_us() == machine.right
    assert clock.held_us == 0
    clock.heard(machine.right, machine.passed_us)
    assert not clock.off


def test_r18_a_jump_while_the_controller_is_asked_is_seen(machine: Machine) -> None:
    clock = machine.cluster_clock()
    asked, theirs = machine.passed_us, machine.right
    machine.passed_us += 10
    machine.off_us = MONTH

    clock.heard(theirs, asked)

    assert clock.ahead_us == -MONTH
    assert clock.retention_us() == machine.right


def test_r18_a_clock_that_is_behind_is_believed_by_retention_alone(machine: Machine) -> None:
    clock = machine.cluster_clock()
    clock.heard(machine.right + MONTH, machine.passed_us)

    assert clock.retention_us() == machine.right
    # Else it would be a month old to the next leader.
    assert clock.append_us() == machine.right + MONTH - SKEW_US_MAX
    assert clock.held_us == 0
    assert clock.off


def test_r18_without_a_word_of_the_controller_for_long_nothing_is_too_old(machine: Machine) -> None:
    clock = machine.cluster_clock()
    clock.heard(machine.right, machine.passed_us)
    machine.passed_us += HEARD_US_MAX
    assert clock.retention_us() == machine.right
    machine.passed_us += 1

    assert clock.retention_us() is None
    assert clock.append_us() == machine.right


def test_r18_a_broker_yields_when_its_clock_was_off_for_some_seconds(machine: Machine) -> None:
    clock = machine.cluster_clock()
    machine.off_us = 2 * SECOND
    clock.heard(machine.right, machine.passed_us)
    assert not clock.yields
    machine.passed_us += YIELD_US
    assert clock.yields

    machine.off_us = 0
    clock.heard(machine.right, machine.passed_us)
    assert not clock.yields


# --- a controller that has nobody to ask


def test_r18_a_lone_clock_that_jumps_ahead_is_not_followed_and_heals(machine: Machine) -> None:
    steady = machine.steady_clock()
    machine.off_us = MONTH
    for _ in range(100):
        machine.passed_us += SECOND
        assert steady.now() == machine.right
    machine.off_us = 1000

    assert steady.now() == machine.right + 1000


def test_r18_a_lone_clock_that_keeps_its_new_time_for_an_hour_is_believed(machine: Machine) -> None:
    steady = machine.steady_clock()
    machine.off_us = MONTH
    assert steady.now() == machine.right
    machine.passed_us += JUMP_HOLD_US - 1
    assert steady.now() == machine.right
    machine.passed_us += 1

    assert steady.now() == machine.right + MONTH


def test_r18_an_hour_of_one_jump_does_not_count_for_the_next(machine: Machine) -> None:
    steady = machine.steady_clock()
    machine.off_us = -MONTH
    assert steady.now() == machine.right - MONTH
    machine.passed_us += JUMP_HOLD_US - 1
    machine.off_us = MONTH
    assert steady.now() == machine.right
    machine.passed_us += 1

    assert steady.now() == machine.right


def test_r18_a_lone_clock_that_drifts_is_followed(machine: Machine) -> None:
    steady = machine.steady_clock()
    for _ in range(100):
        machine.passed_us += SECOND
        machine.off_us += SKEW_US_MAX // 2
        assert steady.now() == machine.wall()
