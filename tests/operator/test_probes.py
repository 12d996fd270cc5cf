"""The probes of the simulated nodes: when a container has started, is ready, or must be killed."""

from __future__ import annotations

from support.kube.probes import LIVENESS, READINESS, STARTUP, Health, Probe

ALL = {
    STARTUP: {"periodSeconds": 1, "failureThreshold": 60},
    READINESS: {"periodSeconds": 5, "failureThreshold": 2},
    LIVENESS: {"periodSeconds": 5, "failureThreshold": 2},
}


def heard(probe: Probe, *answers: tuple[float, bool]) -> tuple[bool, bool]:
    """Returns whether the probe has passed, and whether it has failed, after answers at these seconds."""
    for now, good in answers:
        probe.hear(good, now)
    return probe.passed, probe.failed


def test_a_success_counts_at_once() -> None:
    assert heard(Probe.of({"periodSeconds": 10}, 0.0), (0.2, True)) == (True, False)


def test_a_failure_counts_after_the_allowed_number_of_periods() -> None:
    spec = {"periodSeconds": 2, "failureThreshold": 3}

    assert heard(Probe.of(spec, 0.0), (1.0, True), (6.9, False)) == (True, False)
    assert heard(Probe.of(spec, 0.0), (1.0, True), (7.0, False)) == (False, True)
    assert heard(Probe.of(spec, 0.0), (1.0, True), (7.0, False), (7.2, True)) == (True, False)


def test_a_probe_that_never_succeeded_has_the_initial_delay_on_top() -> None:
    spec = {"periodSeconds": 1, "failureThreshold": 2, "initialDelaySeconds": 5}

    assert heard(Probe.of(spec, 10.0), (16.9, False)) == (False, False)
    assert heard(Probe.of(spec, 10.0), (17.0, False)) == (False, True)


def test_a_period_may_be_shortened() -> None:
    assert heard(Probe.of({"periodSeconds": 10}, 0.0, 1.0), (3.0, False)) == (False, True)


def test_a_container_is_ready_only_after_its_probe_succeeded() -> None:
    health = Health(ALL)
    seen = [(health.due, health.started, health.ready)]

    for name in (STARTUP, READINESS):
        health.hear(name, True, 0.0)
        seen.append((health.due, health.started, health.ready))

    assert seen == [
        ([STARTUP], False, False),
        ([READINESS, LIVENESS], True, False),
        ([READINESS, LIVENESS], True, True),
    ]


def test_a_container_without_probes_is_ready() -> None:
    assert (Health({}).due, Health({}).started, Health({}).ready, Health({}).failed) == ([], True, True, "")


def test_a_container_is_killed_for_liveness_but_not_for_readiness() -> None:
    health = Health(ALL)
    health.hear(STARTUP, True, 0.0)
    for second in range(10):
        health.hear(READINESS, second < 5, float(second))
        health.hear(LIVENESS, False, float(second))
    assert (health.ready, health.failed) == (False, "")

    health.hear(LIVENESS, False, 10.0)

    assert health.failed == LIVENESS


def test_a_container_that_does_not_start_in_time_is_killed() -> None:
    health = Health(ALL)
    health.hear(STARTUP, False, 0.0)

    health.hear(STARTUP, False, 60.0)

    assert (health.started, health.failed) == (False, STARTUP)
