"""The status of a Stream in each situation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.kube.situations import stream, stream_object
from tidelog.model import StreamDescription
from tidelog_operator.model import StreamObject
from tidelog_operator.plan.streams import Finding, Reason
from tidelog_operator.reporting.conditions import Status
from tidelog_operator.reporting.stream_status import PARTITIONS_SHOWN_MAX, stream_status

NOW, LATER = "2026-02-01T00:00:00Z", "2026-02-01T00:00:09Z"
CLAIM = "kubernetes:shop/orders/uid-of-orders"


def status_of(
    existing: StreamDescription | None,
    one: StreamObject | None = None,
    *,
    finding: Finding | None = None,
    error: str = "",
    unreachable: str = "",
    now: str = NOW,
) -> Status:
    one = one or stream_object()
    return stream_status(
        one,
        one.status,
        existing,
        finding=finding,
        error=error,
        unreachable=unreachable,
        now=now,
    )


def ready(status: Status) -> tuple[str, str, str]:
    (found,) = (one for one in status["conditions"] if one["type"] == "Ready")
    return found["status"], found["reason"], found["message"]


def with_partition(number: int, **changes: Any) -> StreamDescription:
    before = stream(owner=CLAIM, replicas=((0, 1, 2), (1, 2, 0), (2, 0, 1)))
    parts = list(before.partitions)
    parts[number] = replace(parts[number], **changes)
    return replace(before, partitions=tuple(parts))


def test_the_status_of_a_healthy_stream_lists_its_replicas() -> None:
    status = status_of(stream(owner=CLAIM, replicas=((0, 1, 2), (1, 2, 0))))

    assert status == {
        "observedGeneration": 1,
        "phase": "Ready",
        "streamId": "6f726465-7273-2d2d-2d2d-2d2d2d2d2d2d",
        "partitionCount": 2,
        "replicationFactor": 3,
        "moving": 0,
        "partitions": [
            {"id": 0, "leader": 0, "replicas": [0, 1, 2], "isr": [0, 1, 2]},
            {"id": 1, "leader": 1, "replicas": [1, 2, 0], "isr": [1, 2, 0]},
        ],
        "conditions": [
            {
                "type": "Ready", "status": "True", "reason": "Serving", "observedGeneration": 1,
                "message": "All 2 partitions can be written and read.", "lastTransitionTime": NOW,
            },
            {
                "type": "InSync", "status": "True", "reason": "InSync", "observedGeneration": 1,
                "message": "All replicas are in sync.", "lastTransitionTime": NOW,
            },
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("existing", "phase", "reason", "sentence"),
    [
        (with_partition(1, isr=(1, 2)), "Degraded", "Serving", "All 3 partitions can be written and read."),
        (
            with_partition(1, isr=(1,)),
            "Degraded",
            "TooFewInSync",
            "Partition 1 has fewer than 2 in-sync replicas (minInsyncReplicas) and can be read, but not "
            "written",
        ),
        (
            with_partition(2, leader=None),
            "Degraded",
            "NoLeader",
            "Partition 2 has no leader and can be neither written nor read.",
        ),
        (
            with_partition(0, replicas=(0, 1, 2, 3), adding=(3,)),
            "Moving",
            "Serving",
            "All 3 partitions can be written and read.",
        ),
    ],
)
def test_each_problem_has_a_message(
    existing: StreamDescription, phase: str, reason: str, sentence: str
) -> None:
    status = status_of(existing)

    assert status["phase"] == phase
    assert ready(status)[1] == reason
    assert ready(status)[2].startswith(sentence)


@pytest.mark.parametrize(
    ("finding", "phase"),
    [
        (Finding(Reason.CONFLICT, "another has it"), "Conflict"),
        (Finding(Reason.INVALID, "it can never be"), "Invalid"),
        (Finding(Reason.WAITING, "two are there"), "Pending"),
    ],
)
@pytest.mark.parametrize("existing", [None, stream(owner=CLAIM)])
def test_findings_of_the_plan_are_reported(
    finding: Finding, phase: str, existing: StreamDescription | None
) -> None:
    status = status_of(existing, finding=finding)

    assert (status["phase"], ready(status)) == (phase, ("False", finding.reason, finding.message))
    assert ("streamId" in status) == (existing is not None)


def test_an_error_is_reported_until_the_action_succeeds() -> None:
    assert ready(status_of(None, error="no controller is known")) == (
        "False",
        "Creating",
        "no controller is known",
    )
    assert ready(status_of(None)) == ("False", "Creating", "The stream is being created.")
    changing = status_of(stream(owner=CLAIM), error="no controller is known")
    assert (changing["phase"], ready(changing)[1]) == ("Degraded", "CannotChange")


def test_without_an_answer_the_last_known_status_is_unknown() -> None:
    known = status_of(stream(owner=CLAIM))
    one = replace(stream_object(), status=known)

    status = status_of(None, one, unreachable="no broker answers", now=LATER)

    assert ready(status) == ("Unknown", "BrokersUnreachable", "no broker answers")
    assert (status["streamId"], status["partitions"]) == (known["streamId"], known["partitions"])
    (in_sync,) = (one for one in status["conditions"] if one["type"] == "InSync")
    assert (in_sync["status"], in_sync["message"]) == (
        "Unknown",
        "The brokers do not answer. When they answered last, this condition was True.",
    )
    again = status_of(None, replace(one, status=status), unreachable="no broker answers", now="much later")
    assert again == status


def test_a_condition_has_the_time_of_its_last_change() -> None:
    first = status_of(stream(owner=CLAIM))
    same = status_of(stream(owner=CLAIM), replace(stream_object(), status=first), now=LATER)
    worse = status_of(with_partition(0, leader=None), replace(stream_object(), status=first), now=LATER)

    assert same == first
    assert {one["type"]: one["lastTransitionTime"] for one in worse["conditions"]} == {
        "Ready": LATER,
        "InSync": NOW,
    }


def test_a_deleted_stream_has_the_phase_deleting() -> None:
    one = stream_object(deleting=True)

    assert status_of(stream(owner=CLAIM), one)["phase"] == "Deleting"
    assert ready(status_of(stream(owner=CLAIM), one, error="it is at version 9"))[2] == "it is at version 9"


def test_only_the_first_partitions_are_shown() -> None:
    status = status_of(stream(owner=CLAIM, replicas=[(0, 1)] * 300))

    assert status["partitionCount"] == 300
    assert len(status["partitions"]) == PARTITIONS_SHOWN_MAX
