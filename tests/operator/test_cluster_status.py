"""The status of a Cluster: what it reports about brokers and pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.kube.imagined import NOW, Kubernetes
from support.kube.situations import CLUSTER, NAMESPACE, Brokers
from tidelog_broker import __main__ as command
from tidelog_operator.kubernetes.objects import Objects
from tidelog_operator.kubernetes.pods import WAITING_REASON_CHARACTERS_MAX
from tidelog_operator.model import BrokerPod, ObjectKey
from tidelog_operator.reporting.cluster_status import ABSENT_SHOWN_MAX, cluster_status
from tidelog_operator.resources.naming import EXIT_DAMAGED

NO_ROOM = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."


def whole(**spec: Any) -> tuple[Kubernetes, Brokers]:
    """A Cluster in its desired state."""
    kube, brokers = Kubernetes(**spec), Brokers()
    kube.settle(brokers)
    return kube, brokers


def ready(kube: Kubernetes, brokers: Brokers | None, unreachable: str = "") -> tuple[str, str, str]:
    """Returns status, reason and message of Ready."""
    view = None if brokers is None else kube.view(brokers)
    status = cluster_status(
        kube.cluster, {}, kube.owned, kube.pods_there, view, kube.plan(view),
        error="", unreachable=unreachable, now=NOW,
    )  # fmt: skip
    (found,) = (one for one in status["conditions"] if one["type"] == "Ready")
    return found["status"], found["reason"], found["message"]


def lacking(kube: Kubernetes, *numbers: int, waiting_reason: str = "") -> None:
    """Makes these pods not ready."""
    kube.pods_there = [
        replace(pod, ready=False, waiting_reason=waiting_reason) if pod.broker_id in numbers else pod
        for pod in kube.pods_there
    ]


def rolls(kube: Kubernetes) -> None:
    kube.objects["StatefulSet", CLUSTER]["status"]["updateRevision"] = "another one"


def test_the_status_says_that_all_brokers_are_ready() -> None:
    assert ready(*whole()) == ("True", "Serving", "All 3 brokers are ready.")


def test_a_starting_pod_is_counted_but_not_named() -> None:
    kube, brokers = whole()
    lacking(kube, 1)

    assert ready(kube, brokers) == ("False", "BrokersMissing", "2 of 3 brokers are ready.")


def test_a_waiting_pod_is_named_with_the_reason() -> None:
    kube, brokers = whole()
    lacking(kube, 1, waiting_reason=f"Unschedulable: {NO_ROOM}")

    assert ready(kube, brokers) == (
        "False",
        "BrokersMissing",
        f"2 of 3 brokers are ready. The pod main-1 does not run: Unschedulable: {NO_ROOM}",
    )  # fmt: skip


def test_a_blocked_rollout_names_the_pod() -> None:
    kube, brokers = whole()
    rolls(kube)
    lacking(kube, 2, waiting_reason="ImagePullBackOff")

    assert ready(kube, brokers) == (
        "False", "Rolling",
        "The brokers are being replaced one after the other: 2 of 3 brokers are ready. "
        "The pod main-2 does not run: ImagePullBackOff.",
    )  # fmt: skip


def test_a_pod_that_cannot_be_created_is_reported_as_missing() -> None:
    """As with a quota, or a missing priority class: only the events of the StatefulSet show it."""
    kube, brokers = whole()
    kube.pods_there = kube.pods_there[:2]

    assert ready(kube, brokers)[2] == "2 of 3 brokers are ready. The pod main-2 does not exist."


def test_if_no_pod_runs_the_status_says_why_no_broker_answers() -> None:
    kube, _ = whole()
    lacking(kube, 0, 1, 2, waiting_reason="Unschedulable")

    said = ready(kube, None, unreachable="No broker answers")

    assert said == (
        "False", "BrokersUnreachable",
        "No broker answers. The pod main-0 does not run: Unschedulable. The pod main-1 does not run: "
        "Unschedulable. The pod main-2 does not run: Unschedulable.",
    )  # fmt: skip


def test_only_the_first_of_many_pods_are_named() -> None:
    kube, brokers = whole(brokers=9)
    lacking(kube, *range(2, 9), waiting_reason="Unschedulable")

    message = ready(kube, brokers)[2]

    assert message.count("The pod ") == ABSENT_SHOWN_MAX
    assert message.endswith("The pod main-4 does not run: Unschedulable. 4 more pods do not run.")


def pod(**status: Any) -> BrokerPod:
    """Returns the operator's view of a pod with this status."""
    known = Objects(lambda cluster: None)
    labels = {"tidelog.io/cluster": CLUSTER}
    meta = {
        "namespace": NAMESPACE,
        "name": f"{CLUSTER}-0",
        "uid": "one",
        "resourceVersion": "1",
        "labels": labels,
    }
    known.pod({"metadata": meta, "spec": {}, "status": status}, gone=False)
    (found,) = known.pods_of(ObjectKey(NAMESPACE, CLUSTER))
    return found


def scheduled(status: str, **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": "PodScheduled", "status": status, **more}]}


def waiting(**state: str) -> dict[str, Any]:
    return {**scheduled("True"), "containerStatuses": [{"name": "broker", "state": {"waiting": state}}]}


@pytest.mark.parametrize(
    ("status", "waiting_reason"),
    [
        ({}, ""),
        (scheduled("True"), ""),
        (scheduled("False", reason="Unschedulable", message=NO_ROOM), f"Unschedulable: {NO_ROOM}"),
        (waiting(reason="ContainerCreating"), ""),
        (waiting(), ""),
        (waiting(reason="ImagePullBackOff"), "ImagePullBackOff"),
        (waiting(reason="CrashLoopBackOff", message="back-off 10s"), "CrashLoopBackOff: back-off 10s"),
        ({"containerStatuses": [{"name": "broker", "state": {"running": {}}}]}, ""),
        (
            {
                "initContainerStatuses": [{"name": "mesh", "state": {"waiting": {"reason": "ErrImagePull"}}}],
                "containerStatuses": [
                    {"name": "broker", "state": {"waiting": {"reason": "PodInitializing"}}}
                ],
            },
            "ErrImagePull",
        ),
        (waiting(reason="X", message="y" * 1000), f"X: {'y' * (WAITING_REASON_CHARACTERS_MAX - 4)}…"),
    ],
)
def test_the_waiting_reason_comes_from_conditions_or_containers(
    status: dict[str, Any], waiting_reason: str
) -> None:
    assert pod(**status).waiting_reason == waiting_reason


def ended(
    code: int, *, ready: bool = False, name: str = "broker", where: str = "lastState"
) -> dict[str, Any]:
    state = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {}}
    container = {"name": name, "ready": ready, **state, where: {"terminated": {"exitCode": code}}}
    return {"containerStatuses": [container]}


@pytest.mark.parametrize(
    ("status", "damaged"),
    [
        (ended(EXIT_DAMAGED), True),
        (ended(EXIT_DAMAGED, where="state"), True),
        (ended(EXIT_DAMAGED, ready=True), False),
        (ended(EXIT_DAMAGED, name="mesh"), False),
        (ended(1), False),
        (ended(137, where="state"), False),
        ({}, False),
    ],
)
def test_the_exit_code_of_the_broker_marks_a_volume_as_damaged(status: dict[str, Any], damaged: bool) -> None:
    assert pod(**status).damaged == damaged


def test_broker_and_operator_use_the_same_exit_code() -> None:
    assert command.EXIT_DAMAGED == EXIT_DAMAGED
