"""K1 (the chart's policy.yaml): only the operator may remove brokers, through either subresource."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.kube import chart
from support.kube.chart import NAMESPACE
from support.kube.control_plane import ControlPlane
from support.waiting import wait_until

pytestmark = pytest.mark.slow

GUARDED, FREE, UNCOUNTED = "guarded", "free", "uncounted"
"""Namespaces: with label and counts; without the label; with the label, but without counts."""

NAME = "tidelog-system.tidelog-broker-count"
POLICY = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{NAME}"
DRY = "--dry-run=server"
"""Requests that are checked but not executed."""


def stateful_set(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 3,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "broker", "image": "tidelog"}]},
            },
        },
    }


def counts(namespace: str = GUARDED, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "tidelog-broker-counts", "namespace": namespace},
        "data": data,
    }


def scaled(
    plane: ControlPlane, count: int, *words: str, name: str = "orders", namespace: str = GUARDED
) -> str:
    """Returns the error of a scale request; empty: none. Through `statefulsets/scale`, as autoscalers do."""
    return plane.refusal(
        "scale", "statefulset", name, "--namespace", namespace, "--replicas", str(count), *words
    )


def patched(
    plane: ControlPlane, patch: dict[str, Any], *words: str, name: str = "orders", namespace: str = GUARDED
) -> str:
    return plane.refusal(
        "patch", "statefulset", name, "--namespace", namespace, "--type", "merge",
        "--patch", json.dumps(patch), *words,
    )  # fmt: skip


def replicas(count: int) -> dict[str, Any]:
    return {"spec": {"replicas": count}}


def patched_by_operator(plane: ControlPlane, namespace: str) -> str:
    """The account may not get the object, which `kubectl patch` would do."""
    account = plane.account(NAMESPACE, "tidelog-operator")
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/orders"
    return plane.patched_by(account, path, replicas(2))


@pytest.fixture(scope="module")
def guard(plane: ControlPlane, programs: Path) -> ControlPlane:
    """An API server with `orders`, which must keep 3 brokers, and `shop`, a foreign StatefulSet."""
    plane.apply_all(chart.operators_account(programs), chart.policy(programs))
    for name in (GUARDED, FREE, UNCOUNTED, NAMESPACE):
        labels = {"tidelog.io/brokers": "true"} if name in (GUARDED, UNCOUNTED) else {}
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        plane.apply(stateful_set("orders", name), stateful_set("shop", name))
    plane.apply(counts(orders="3"))
    # Policies and their parameters take effect a moment after they were created.
    wait_until(lambda: "needs at least" in scaled(plane, 2, DRY), "the policy is in force")
    for name in (UNCOUNTED, NAMESPACE):
        counts_are_missing = partial(scaled, plane, 2, DRY, namespace=name)
        wait_until(counts_are_missing, "it is in force where counts are missing")
    wait_until(lambda: not scaled(plane, 2, DRY, name="shop"), "the counts are known")
    return plane


SENTENCE = (
    "the Cluster orders needs at least 3 broker pods now, because the operator must move replicas away from "
    "a broker before it is removed. Lower spec.brokers of the Cluster instead: kubectl patch "
    'clusters.tidelog.io orders --namespace guarded --type merge --patch \'{"spec": {"brokers": 2}}\''
)


def test_scaling_down_is_denied_on_both_paths_with_a_remedy(guard: ControlPlane) -> None:
    at_scale, at_object = scaled(guard, 2), patched(guard, replicas(2))

    assert SENTENCE in at_scale
    assert SENTENCE in at_object
    assert f"ValidatingAdmissionPolicy '{NAME}'" in at_scale
    assert guard.object("StatefulSet", "orders", GUARDED)["spec"]["replicas"] == 3


def test_scaling_to_zero_is_denied_too(guard: ControlPlane) -> None:
    """A Scale without pods has no field `replicas`."""
    for refused in (scaled(guard, 0), patched(guard, replicas(0))):
        assert "needs at least" in refused
        assert '{"brokers": 1}' in refused


def test_all_other_changes_are_allowed(guard: ControlPlane) -> None:
    assert not patched(guard, {"metadata": {"annotations": {"note": "one"}}})
    assert not patched(guard, {**replicas(3), "metadata": {"annotations": {"note": "two"}}})
    assert not scaled(guard, 3)
    assert not scaled(guard, 5)
    # Fewer than now, but not below the lowest allowed number.
    assert not patched(guard, replicas(4))
    assert not scaled(guard, 3)


def test_a_foreign_stateful_set_is_not_affected(guard: ControlPlane) -> None:
    assert not scaled(guard, 1, name="shop")
    assert not patched(guard, replicas(0), name="shop")
    assert not scaled(guard, 3, name="shop")


def test_the_operator_may_remove_brokers(guard: ControlPlane) -> None:
    assert not patched_by_operator(guard, GUARDED)

    # The number is below the lowest allowed one and cannot be lowered further, but all other changes are
    # allowed.
    assert "needs at least" in scaled(guard, 1)
    assert not patched(guard, {"metadata": {"annotations": {"note": "three"}}})
    assert not scaled(guard, 3)


def test_without_counts_every_change_is_denied(guard: ControlPlane) -> None:
    for refused in (
        scaled(guard, 2, namespace=UNCOUNTED),
        scaled(guard, 5, namespace=UNCOUNTED),
        patched(guard, replicas(2), namespace=UNCOUNTED),
        patched(guard, replicas(2), name="shop", namespace=UNCOUNTED),
        # The API server looks for the parameter before it evaluates conditions: the operator must write it
        # first.
        patched_by_operator(guard, UNCOUNTED),
    ):
        assert "no params found" in refused


def test_a_count_that_is_not_a_number_denies_every_change(guard: ControlPlane) -> None:
    guard.apply(counts(orders="3", shop="many"))

    wait_until(lambda: scaled(guard, 2, DRY, name="shop"), "the count is known")

    assert SENTENCE in scaled(guard, 2, DRY)
    guard.apply(counts(orders="3"))
    wait_until(lambda: not scaled(guard, 2, DRY, name="shop"), "it is deleted")


def test_a_namespace_without_the_label_is_not_guarded(guard: ControlPlane) -> None:
    assert not scaled(guard, 2, namespace=FREE)
    assert not patched(guard, replicas(1), namespace=FREE)


def test_the_namespace_of_a_release_with_a_cluster_needs_no_label(guard: ControlPlane) -> None:
    assert "no params found" in scaled(guard, 5, name="shop", namespace=NAMESPACE)

    guard.apply(counts(NAMESPACE, orders="3"))
    wait_until(lambda: not scaled(guard, 5, name="shop", namespace=NAMESPACE), "the counts are known")

    assert "needs at least" in scaled(guard, 2, namespace=NAMESPACE)


def test_the_type_check_reports_nothing(guard: ControlPlane) -> None:
    policy = json.loads(guard.get(POLICY))

    assert policy.get("status", {}).get("typeChecking", {}).get("expressionWarnings", []) == []
