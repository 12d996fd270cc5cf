"""The plan of a Cluster: the objects in each situation, their order, and the same result wherever the
operator is killed."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from support.kube.imagined import SET, Kubernetes, kinds
from support.kube.situations import CLUSTER, CLUSTER_UID, Brokers, stream, without_controller
from tidelog_operator import actions as do
from tidelog_operator.resources.naming import manifest_id
from tidelog_operator.resources.stateful_set import Pods

MARKER = ("ConfigMap", f"{CLUSTER}-formation")


# --- creation


def test_a_new_cluster_gets_its_marker_first_and_its_pods_last() -> None:
    kube = Kubernetes()

    decision = kube.plan()

    first, *_, last = decision.actions
    assert isinstance(first, do.CreateObject)
    assert json.loads(first.manifest["data"]["formation.json"]) == {
        "state": "never formatted",
        "clusterId": CLUSTER_UID,
    }
    assert isinstance(last, do.ApplyObject)
    assert (last.manifest["kind"], last.manifest["spec"]["replicas"]) == (SET[0], 3)
    assert kinds(decision) == [
        *("ConfigMap", "ConfigMap", "Service", "Service", "PodDisruptionBudget"),
        *("SetLowestCount", "StatefulSet"),
    ]


def test_nothing_is_planned_in_the_desired_state() -> None:
    kube, brokers = Kubernetes(), Brokers(3)
    kube.settle(brokers)

    assert kube.plan(brokers.view()).actions == ()


def test_the_marker_says_formatted_once_the_brokers_serve() -> None:
    kube = Kubernetes()
    kube.settle()
    assert json.loads(kube.objects[MARKER]["data"]["formation.json"])["state"] == "never formatted"

    kube.settle(Brokers(3))

    said = json.loads(kube.objects[MARKER]["data"]["formation.json"])
    assert said == {"state": "formatted", "clusterId": CLUSTER_UID}


@pytest.mark.parametrize("left", ["volumes", "pods"])
def test_brokers_that_may_have_data_never_get_a_marker_to_form_a_cluster(left: str) -> None:
    kube, brokers = Kubernetes(), Brokers(3)
    kube.settle(brokers)
    kube.objects = {SET: kube.objects[SET]} if left == "pods" else {}
    if left == "pods":
        kube.claims = []

    assert not any(isinstance(one, do.CreateObject) for one in kube.plan().actions)

    view = replace(brokers.view(), cluster=replace(brokers.view().cluster, cluster_id=UUID(int=7).bytes))
    (made,) = [one for one in kube.plan(view).actions if isinstance(one, do.CreateObject)]
    assert json.loads(made.manifest["data"]["formation.json"]) == {
        "state": "formatted",
        "clusterId": str(UUID(int=7)),
    }


def test_an_invalid_marker_stops_everything_and_is_explained() -> None:
    kube = Kubernetes()
    kube.settle()
    kube.objects[MARKER]["data"] = {"formation.json": "perhaps"}

    decision = kube.plan()

    assert decision.actions == ()
    assert "does not say whether the brokers have formed a cluster" in decision.problem


def test_nothing_is_created_for_a_cluster_that_is_being_deleted() -> None:
    assert Kubernetes(deleting=True).plan().actions == ()


# --- changes


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ({"image": "tidelog:2"}, True),
        ({"settings": {"logLevel": "debug"}}, True),
        ({"nats": {"url": "nats://nats:4222"}}, True),
        ({"resources": {"requests": {"cpu": "500m"}}}, True),
        ({"settings": {"catchUpBytesPerSecond": "8Mi"}}, False),
        ({"moves": {"atOnce": 1, "balance": False}}, False),
        ({"replaceAfter": "1h"}, False),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_change_restarts_brokers_only_where_it_must(change: dict[str, Any], restarts: bool) -> None:
    kube, brokers = Kubernetes(), Brokers(3)
    kube.settle(brokers)
    before = copy.deepcopy(kube.objects[SET])

    kube.manifest["spec"] |= change
    for action in kube.plan(brokers.view()).actions:
        kube.do(action, brokers)

    assert (kube.objects[SET]["spec"]["template"] != before["spec"]["template"]) == restarts
    assert kube.objects[SET]["spec"]["replicas"] == 3


def test_a_throttle_is_sent_to_the_brokers_only_if_it_changed() -> None:
    kube, brokers = Kubernetes(settings={"catchUpBytesPerSecond": "8Mi"}), Brokers(3)
    kube.settle()
    view = brokers.view()
    assert do.Throttle(8 << 20) in kube.plan(view).actions

    kube.manifest["spec"]["brokers"] = 5
    assert kube.plan(view).actions[-1] == do.Throttle(8 << 20), "a refusal stops nothing else"

    slowed = replace(view, cluster=replace(view.cluster, throttle_bytes_per_second=8 << 20))
    assert not any(isinstance(one, do.Throttle) for one in kube.plan(slowed).actions)


def test_manual_changes_are_reverted() -> None:
    kube, brokers = Kubernetes(), Brokers(3)
    kube.settle(brokers)
    kube.objects["Service", f"{CLUSTER}-brokers"]["spec"]["publishNotReadyAddresses"] = False
    del kube.objects["PodDisruptionBudget", CLUSTER]
    kube.objects[SET]["spec"]["template"]["spec"]["containers"][0]["image"] = "mine:1"

    assert kinds(kube.plan(brokers.view())) == ["Service", "PodDisruptionBudget", "StatefulSet"]


def test_a_mutated_object_is_not_applied_again_and_stops_nothing() -> None:
    kube, brokers = Kubernetes(), Brokers(3, stream("orders", [(0, 1, 2)] * 6))
    kube.settle(brokers)
    kube.objects[SET]["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror/tidelog:1"
    (again,) = kube.plan(brokers.view()).actions
    assert isinstance(again, do.ApplyObject)

    kube.mutated = {manifest_id(again.manifest): "spec.template.spec.containers[0].image"}
    kube.manifest["spec"]["brokers"] = 5

    assert kinds(kube.plan(brokers.view())) == ["SetLowestCount", "StatefulSet"]


# --- more and fewer brokers


def test_the_lowest_count_rises_before_pods_and_falls_after_them() -> None:
    kube, brokers = Kubernetes(), Brokers(3, stream("orders", [(0, 1, 2)] * 6))
    kube.settle(brokers)
    kube.history.clear()

    kube.manifest["spec"]["brokers"] = 5
    kube.settle(brokers)
    kube.manifest["spec"]["brokers"] = 3
    kube.settle(brokers)

    assert kube.pods == Pods(3)
    assert kube.lowest == "3"
    for count, lowest in kube.history:
        assert int(lowest or 0) >= count
    assert max(count for count, _ in kube.history) == 5
    assert set(brokers.states) == {0, 1, 2}


@pytest.mark.parametrize("crash_at", range(40))
def test_wherever_the_operator_is_killed_the_end_is_the_same(crash_at: int) -> None:
    kube, brokers = Kubernetes(), Brokers(3)
    kube.settle(brokers, crash_at=crash_at)
    brokers.streams["orders"] = stream("orders", [(0, 1, 2)] * 6)
    for wanted, image in ((5, "tidelog:1"), (5, "tidelog:2"), (3, "tidelog:2"), (5, "tidelog:2")):
        kube.manifest["spec"] |= {"brokers": wanted, "image": image}
        kube.settle(brokers, crash_at=crash_at)
        assert kube.pods == Pods(wanted)
        assert kube.lowest == str(wanted)
        assert set(brokers.states) == set(range(wanted))
        assert {one.broker_id for one in kube.claims} == set(range(wanted))
        assert all(state == "active" for state in brokers.states.values())
        held = [one.target for one in brokers.streams["orders"].partitions]
        assert all(len(set(each)) == 3 and set(each) <= set(range(wanted)) for each in held)
    assert kube.objects[SET]["spec"]["template"]["spec"]["containers"][0]["image"] == "tidelog:2"


def test_an_operator_killed_after_each_action_reaches_the_desired_state() -> None:
    kube, brokers = Kubernetes(), Brokers(3)
    brokers.streams["orders"] = stream("orders", [(0, 1, 2)] * 6)
    for wanted in (3, 5, 4, 3, 5):
        kube.manifest["spec"]["brokers"] = wanted
        kube.crawl(brokers)
        assert (kube.pods, kube.lowest) == (Pods(wanted), str(wanted))
        assert set(brokers.states) == set(range(wanted))
        assert {one.broker_id for one in kube.claims} == set(range(wanted))


@pytest.mark.parametrize("instant", [True, False])
@pytest.mark.parametrize("turns_after", range(20))
def test_a_change_of_the_spec_at_any_moment_takes_effect(turns_after: int, instant: bool) -> None:
    kube, brokers = Kubernetes(), Brokers(3, instant=instant)
    brokers.streams["orders"] = stream("orders", [(0, 1, 2)] * 6)
    for wanted in (3, 5):
        kube.manifest["spec"]["brokers"] = wanted
        kube.crawl(brokers)
    for wanted in (3, 5, 3, 5):
        kube.manifest["spec"]["brokers"] = wanted
        kube.crawl(brokers, turns_after)
    kube.crawl(brokers)

    assert (kube.pods, kube.lowest) == (Pods(5), "5")
    assert brokers.states == dict.fromkeys(range(5), "active")
    assert {one.broker_id for one in kube.claims} == set(range(5))
    held = [set(one.target) for one in brokers.streams["orders"].partitions]
    assert all(len(each) == 3 and each <= set(range(5)) for each in held)


def test_brokers_that_do_not_answer_are_neither_removed_nor_drained() -> None:
    kube = Kubernetes(brokers=5)
    kube.settle(Brokers(5))
    kube.manifest["spec"]["brokers"] = 3

    assert kube.plan(None).actions == ()


def test_removed_pods_come_back_even_if_no_broker_answers() -> None:
    kube, brokers = Kubernetes(brokers=5), Brokers(5)
    kube.settle(brokers)

    for view in (None, without_controller(brokers.view()), brokers.view()):
        kube.objects[SET]["spec"]["replicas"] = 2
        for _ in range(2):
            (change,) = kube.plan(view).actions
            kube.do(change)
        assert kube.pods == Pods(5)
        assert kube.plan(view).actions == ()


def test_an_invalid_annotation_removes_no_pods_or_volumes() -> None:
    kube, brokers = Kubernetes(brokers=5), Brokers(5)
    kube.settle(brokers)
    kube.objects[SET]["metadata"]["annotations"]["tidelog.io/emptying"] = "4,all, -1,x3"

    kube.settle(brokers)

    assert kube.pods == Pods(5)
    assert brokers.states == dict.fromkeys(range(5), "active")
