"""R14: which reports together replace a leader."""

from __future__ import annotations

import pytest

from metadata.samples import applied, created, identifier, quorum_cluster, registered
from tidelog_broker.core.metadata.commands import ChangeBroker, ChangePartitions, PartitionChange
from tidelog_broker.core.metadata.controller.liveness import HEARTBEAT_MS, Sessions
from tidelog_broker.core.metadata.controller.reports import (
    BACKOFF_MS,
    BACKOFF_MS_MAX,
    REPORT_WINDOW_MS,
    Evidence,
    FailureReports,
)
from tidelog_broker.core.metadata.image import ClusterImage

S = identifier(1)
DUE = [(S, 0)]


def cluster() -> ClusterImage:
    return applied(quorum_cluster(3), [created(1, replicas=(0, 1, 2))])


def heard(image: ClusterImage, now_ms: int) -> Sessions:
    sessions = Sessions()
    for broker in image.brokers.values():
        sessions.heard(image, broker.id, broker.incarnation, now_ms)
    return sessions


def told(
    reports: FailureReports, image: ClusterImage, reporter: int, now_ms: int,
    evidence: Evidence = Evidence.REFUSED, *, reported: int = 0, run: int = 1,
) -> bool:  # fmt: skip
    return reports.report(
        image,
        reporter=reporter,
        reporter_run=image.brokers[reporter].incarnation,
        reported=reported,
        reported_run=identifier(1000 * reported + run),
        evidence=evidence,
        now_ms=now_ms,
    )


@pytest.mark.parametrize("evidence", [Evidence.REFUSED, Evidence.RESET])
def test_r14_a_majority_of_the_others_in_the_isr_replaces_a_leader_that_is_gone(evidence: Evidence) -> None:
    image, reports = cluster(), FailureReports()
    sessions = heard(image, 0)

    assert told(reports, image, 1, 0, evidence)
    assert reports.due(image, sessions, 10) == []
    assert told(reports, image, 2, 10, evidence)
    assert reports.due(image, sessions, 10) == DUE


def test_r14_one_other_member_is_a_majority_of_itself() -> None:
    image = applied(cluster(), [ChangePartitions((PartitionChange(S, 0, isr=(0, 1)),))])
    reports = FailureReports()
    told(reports, image, 2, 0)
    assert reports.due(image, heard(image, 0), 0) == []

    told(reports, image, 1, 0)

    assert reports.due(image, heard(image, 0), 0) == DUE


def test_r14_a_leader_alone_in_its_isr_is_never_replaced_by_report() -> None:
    image = applied(cluster(), [ChangePartitions((PartitionChange(S, 0, isr=(0,)),))])
    reports = FailureReports()
    told(reports, image, 1, 0)
    told(reports, image, 2, 0)

    assert reports.due(image, heard(image, 0), 0) == []


def test_r14_silence_counts_only_when_the_controller_misses_heartbeats_too() -> None:
    image, reports = cluster(), FailureReports()
    told(reports, image, 1, 600, Evidence.SILENT)
    told(reports, image, 2, 600, Evidence.REFUSED)

    assert reports.due(image, heard(image, 600 - 2 * HEARTBEAT_MS), 600) == []
    assert reports.due(image, heard(image, 599 - 2 * HEARTBEAT_MS), 600) == DUE


def test_r14_a_later_silence_does_not_take_back_what_is_sure() -> None:
    image, reports = cluster(), FailureReports()
    for reporter in (1, 2):
        told(reports, image, reporter, 0)
        told(reports, image, reporter, 10, Evidence.SILENT)

    assert reports.due(image, heard(image, 10), 10) == DUE


def test_r14_reports_that_are_too_far_apart_do_not_count_together() -> None:
    image, reports = cluster(), FailureReports()
    told(reports, image, 1, 0)
    told(reports, image, 2, REPORT_WINDOW_MS + 1)

    assert reports.due(image, heard(image, 0), REPORT_WINDOW_MS + 1) == []


def test_r14_reports_about_a_run_that_is_over_are_forgotten() -> None:
    image, reports = cluster(), FailureReports()
    told(reports, image, 1, 0)
    told(reports, image, 2, 0)
    after = applied(image, [registered(0, 2), ChangePartitions((PartitionChange(S, 0, leader=0),))])

    assert reports.due(after, heard(after, 0), 0) == []
    assert not told(reports, after, 1, 0)
    assert told(reports, after, 1, 0, run=2)


def test_r14_nobody_reports_itself_and_fenced_brokers_report_nothing() -> None:
    image, reports = applied(cluster(), [ChangeBroker(2, fenced=True)]), FailureReports()

    assert not told(reports, image, 0, 0)
    assert not told(reports, image, 2, 0)
    assert not told(reports, image, 1, 0, reported=2)


def test_r14_after_each_election_by_report_reports_are_ignored_twice_as_long() -> None:
    image, reports = cluster(), FailureReports()
    now = 0
    for length in (BACKOFF_MS, 2 * BACKOFF_MS, 4 * BACKOFF_MS):
        reports.elected(image, DUE, now)
        for at, due in ((now + length - 1, []), (now + length, DUE)):
            told(reports, image, 1, at)
            told(reports, image, 2, at)
            assert reports.due(image, heard(image, at), at) == due
        now += length


def test_r14_the_back_off_is_bounded_and_begins_anew_after_a_quiet_time() -> None:
    image, reports = cluster(), FailureReports()
    for _ in range(20):
        reports.elected(image, DUE, 0)
    told(reports, image, 1, BACKOFF_MS_MAX)
    told(reports, image, 2, BACKOFF_MS_MAX)
    assert reports.due(image, heard(image, 0), BACKOFF_MS_MAX) == DUE

    later = 2 * BACKOFF_MS_MAX
    reports.due(image, heard(image, later), later)
    reports.elected(image, DUE, later)
    told(reports, image, 1, later + BACKOFF_MS)
    told(reports, image, 2, later + BACKOFF_MS)

    assert reports.due(image, heard(image, later), later + BACKOFF_MS) == DUE


def test_r14_a_report_that_proved_to_be_right_needs_no_backoff() -> None:
    image, reports = cluster(), FailureReports()
    now = 0
    for run in (2, 3, 4, 5):
        told(reports, image, 1, now, run=run - 1)
        told(reports, image, 2, now, run=run - 1)
        assert reports.due(image, heard(image, now), now) == DUE
        reports.elected(image, DUE, now)
        # Its process was started again, and it leads again: only the run that was reported is over.
        image = applied(
            image,
            [registered(0, run), ChangePartitions((PartitionChange(S, 0, isr=(0, 1, 2), leader=0),))],
        )
        now += BACKOFF_MS // 2


def test_r14_a_fenced_leader_that_returns_in_the_same_run_keeps_its_backoff() -> None:
    image, reports = cluster(), FailureReports()
    reports.elected(image, DUE, 0)
    image = applied(image, [ChangeBroker(0, fenced=True), ChangeBroker(0, fenced=False)])
    image = applied(image, [ChangePartitions((PartitionChange(S, 0, isr=(0, 1, 2), leader=0),))])

    told(reports, image, 1, 10)
    told(reports, image, 2, 10)

    assert reports.due(image, heard(image, 10), 10) == []
