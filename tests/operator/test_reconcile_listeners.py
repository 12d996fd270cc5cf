"""Reconciliations of listeners: services that fail, that are foreign, and that are deleted."""

from __future__ import annotations

from typing import Any

from support.kube.reconciling import MAIN, Kube, reconciler
from support.kube.situations import CLUSTER, NAMESPACE, Brokers, cluster_manifest

# --- listeners

OUTSIDE = {"name": "outside", "port": 9310, "type": "NodePort", "firstNodePort": 30000}
OPEN = cluster_manifest(listeners=[OUTSIDE])
PODS = [
    {
        "kind": "Pod",
        "metadata": {
            "namespace": NAMESPACE, "name": f"main-{number}", "uid": f"pod-{number}", "resourceVersion": "1",
            "labels": {"tidelog.io/cluster": CLUSTER},
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    for number in range(3)
]  # fmt: skip


async def test_a_failed_service_is_reported_and_stops_nothing_else() -> None:
    slow = cluster_manifest(listeners=[OUTSIDE], settings={"catchUpBytesPerSecond": "8Mi"})
    kube, brokers = Kube(Cluster=[slow], Pod=PODS), Brokers(3)
    kube.refused = {"main-outside-0": "provided port is already allocated", "main-outside-1": "neither"}
    operator, throttled = reconciler(kube, brokers), []

    class Client:
        async def throttle(self, speed: int) -> None:
            throttled.append(speed)

    async def client(ips: Any) -> Any:
        return Client()

    operator._brokers.client = client  # type: ignore[method-assign]
    await operator.reconcile()

    ready = kube.statuses[CLUSTER]["conditions"][0]
    assert (ready["status"], ready["reason"]) == ("False", "CannotChange")
    assert ready["message"].endswith("rejected the request: provided port is already allocated")
    assert kube.statuses[CLUSTER]["phase"] == "Degraded"
    assert "StatefulSet" in kube.applied
    assert kube.services == ["main-brokers", "main", "main-outside-2"]
    assert set(throttled) == {8 << 20}

    kube.refused = {}
    await operator.reconcile()
    assert kube.services[3:] == ["main-outside-0", "main-outside-1"]
    assert kube.statuses[CLUSTER]["conditions"][0]["reason"] == "Serving"


async def test_worse_problems_are_reported_before_a_failed_service() -> None:
    pod: dict[str, Any] = PODS[1]
    lost = {
        "kind": "PersistentVolumeClaim",
        "metadata": {**pod["metadata"], "name": "data-main-1"},
        "status": {"phase": "Lost"},
    }
    kube = Kube(Cluster=[OPEN], Pod=PODS, PersistentVolumeClaim=[lost])
    kube.refused = {"main-outside-0": "provided port is already allocated"}

    await reconciler(kube, Brokers(3)).reconcile()

    assert kube.statuses[CLUSTER]["conditions"][0]["reason"] == "VolumeLost"


async def test_a_cached_service_of_another_cluster_is_not_overwritten() -> None:
    """A Cluster `main-a` with a listener `b` has services with the same names."""
    kube = Kube(Cluster=[cluster_manifest(listeners=[{**OUTSIDE, "name": "a-b"}])], Pod=PODS)
    kube.foreign = {
        "kind": "Service",
        "metadata": {
            "namespace": NAMESPACE, "name": "main-a-b-0", "uid": "else", "resourceVersion": "1",
            "labels": {"tidelog.io/cluster": "main-a", "tidelog.io/listener": "b"},
            "ownerReferences": [{"uid": "another", "controller": True}],
        },
        "spec": {},
    }  # fmt: skip
    kube._kept["Service"] = [kube.foreign]

    await reconciler(kube, Brokers(3)).reconcile()

    assert kube.services == ["main-brokers", "main", "main-a-b-1", "main-a-b-2"]
    ready = kube.statuses[CLUSTER]["conditions"][0]
    assert "The Service main-a-b-0 already exists and does not belong to this Cluster" in ready["message"]


async def test_the_services_of_a_removed_listener_are_deleted_once() -> None:
    kube = Kube(Cluster=[OPEN], Pod=PODS)
    operator = reconciler(kube, Brokers(3))
    await operator.reconcile()

    operator._objects.cluster({**MAIN, "metadata": {**MAIN["metadata"], "resourceVersion": "3"}}, gone=False)
    await operator.reconcile()
    await operator.reconcile()

    names = [f"main-outside-{number}" for number in range(3)]
    assert kube.deleted == [f"{name} uid-of-{name}" for name in names]
