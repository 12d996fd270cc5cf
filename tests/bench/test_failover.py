"""The gap in acknowledgements, and how the load reports its acknowledgements."""

import sys
from signal import SIGKILL, SIGSTOP, SIGTERM

import pytest
from bench.clusters.failover import FAULTS, Failover, sample
from bench.clusters.steady_load import RATE, Load, NotInTime, flow, widest_gap_s
from bench.harness.processes import Failed

SECOND = 10**9

EVEN = f"""
import sys, time
now = time.time_ns()
for back in range({RATE}, 0, -1):
    print("A", now - back * {SECOND // RATE}, flush=True)
print("E DiskFull: no room", flush=True)
print("neither", flush=True)
sys.stdin.read()
"""


def load(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_the_gap_is_the_longest_time_between_two_acknowledgements() -> None:
    moments = [0, SECOND, 4 * SECOND, 5 * SECOND]

    assert widest_gap_s(moments, event_ns=SECOND) == 3.0


def test_the_gap_begins_with_the_last_acknowledgement_before_the_event() -> None:
    assert widest_gap_s([0, 10 * SECOND], event_ns=9 * SECOND) == 10.0


def test_a_gap_that_was_over_before_the_event_does_not_count() -> None:
    moments = [0, 8 * SECOND, 9 * SECOND, 10 * SECOND]

    assert widest_gap_s(moments, event_ns=9 * SECOND) == 1.0


def test_acknowledgements_reported_out_of_order_make_no_gap() -> None:
    assert widest_gap_s([3 * SECOND, SECOND, 2 * SECOND, 0], event_ns=0) == 1.0


def test_of_many_failovers_the_median_counts_and_the_worst_is_reported() -> None:
    found = sample(
        [
            Failover(0.3, 0, 70.0, 0.1),
            Failover(0.2, 2, 15.0, 0.0),
            Failover(61.0, 1, 60.0, 0.0, given_up=True),
        ]
    )

    assert found.value == 0.3
    assert found.facts["max_s"] == 61.0
    assert found.facts["gaps_s"] == [0.2, 0.3, 61.0]
    assert found.facts["given_up"] == 1
    assert found.facts["client_errors"] == 3
    assert (found.facts["idle_cpu_percent_min"], found.facts["enough_idle_cpu"]) == (15.0, False)


def test_each_fault_has_its_signal_and_its_victim() -> None:
    assert {name: (fault.signal, fault.role) for name, fault in FAULTS.items()} == {
        "kill": (SIGKILL, "leader"),
        "stop": (SIGTERM, "leader"),
        "hang": (SIGSTOP, "leader"),
        "follower": (SIGKILL, "follower"),
        "controller": (SIGKILL, "controller"),
    }


def test_a_load_reports_until_its_input_ends() -> None:
    with Load(load(EVEN)) as running:
        running.wait(lambda: bool(running.errors()), 20.0, "hearing of the error")
        acknowledged = running.acknowledged()

    assert len(acknowledged) == RATE
    assert running.errors() == ["DiskFull: no room"]


@pytest.mark.parametrize(("kept", "flows"), [(1.0, True), (0.85, True), (0.7, False), (0.0, False)])
def test_acknowledgements_flow_while_they_come_at_nearly_the_full_rate(kept: float, flows: bool) -> None:
    moments = [SECOND + number * SECOND // RATE for number in range(round(kept * RATE))]

    assert flow(moments, 2 * SECOND, 1.0) is flows


def test_an_old_burst_is_no_flow() -> None:
    assert flow([0] * RATE, 2 * SECOND, 1.0) is False


def test_a_load_that_ends_too_early_fails_at_once() -> None:
    with (
        Load(load("raise SystemExit('no broker answers')")) as running,
        pytest.raises(Failed, match=r"(?s)ended with 1.*no broker answers"),
    ):
        running.wait(lambda: False, 20.0, "anything")


def test_a_condition_that_never_holds_is_given_up() -> None:
    with Load(load(EVEN)) as running, pytest.raises(NotInTime, match="going on took more than"):
        running.wait(lambda: False, 0.1, "going on")
