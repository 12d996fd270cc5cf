"""The first reconciliations of an operator: it acts on nothing before it knows every object."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from typing import Any

import pytest

from support.kube.reconciling import HELD, MAIN, Kube, manifest, owner_changes, reconciler
from support.kube.situations import CLUSTER, NAMESPACE, Brokers, cluster_manifest, stream
from tidelog.errors import InvalidRequest, Unavailable, VersionConflict
from tidelog_operator.kubernetes.api import Listed
from tidelog_operator.model import ObjectKey
from tidelog_operator.reconcile import ELECTION_DELAY_SECONDS, NO_CONTROLLER_SECONDS


async def test_a_claim_is_valid_before_its_object_is_in_the_cache() -> None:
    mine, yours = manifest("mine", 1), manifest("yours", 2)
    brokers = Brokers(3, stream("claimed", owner="kubernetes:shop/mine/uid-of-mine"))
    kube = Kube(Stream=[mine, yours], Cluster=[MAIN])

    await reconciler(kube, brokers, yours).reconcile()

    assert kube.statuses["yours"]["phase"] == "Conflict"
    assert brokers.streams["claimed"].owner == "kubernetes:shop/mine/uid-of-mine"


async def test_a_claim_is_valid_if_another_operator_has_not_seen_its_object() -> None:
    """Another operator has seen it and created the stream; the lists and watches of this one are behind."""
    mine, claim = manifest("mine", 1), "kubernetes:shop/mine/uid-of-mine"
    kube, brokers = Kube(Stream=[], Cluster=[MAIN]), Brokers(3, stream("claimed", owner=claim))
    operator = reconciler(kube, brokers)
    asked = owner_changes(operator, brokers)
    kube._kept["Stream"] = [mine]

    async def list_nothing(kind: str, namespace: str, label: str = "") -> Listed:
        return Listed([] if kind == "Stream" else kube._kept.get(kind, []), 1)

    kube.list = list_nothing  # type: ignore[method-assign]
    await operator.reconcile()
    assert asked == []

    kube._kept["Stream"] = [manifest("mine", 2, uid="of-one-that-came-later")]
    await operator.reconcile()
    assert asked == [("claimed", "retained:shop/mine", 7)]


async def test_a_stream_of_an_object_missing_in_the_cache_is_not_adopted() -> None:
    """It would take an existing object for a deleted one."""
    gone, there = manifest("mine", 1), manifest("mine", 2, uid="of-one-that-came-later")
    claim = "kubernetes:shop/mine/of-one-that-came-later"
    kube, brokers = Kube(Stream=[gone], Cluster=[MAIN]), Brokers(3, stream("claimed", owner=claim))
    operator = reconciler(kube, brokers)
    written = owner_changes(operator, brokers)

    async def find(kind: str, key: ObjectKey) -> dict[str, Any] | None:
        return there if kind == "Stream" else None

    kube.find = find  # type: ignore[method-assign]
    await operator.reconcile()

    assert written == []


async def test_streams_that_need_no_operator_are_deleted_without_brokers() -> None:
    free = manifest("free", 1, **HELD, deletionTimestamp="2026-01-02T00:00:00Z")
    kept, held = manifest("kept", 2, **HELD), manifest("held", 3, **HELD)
    held["spec"]["deletionPolicy"] = "Delete"
    kube = Kube(Stream=[free, kept, held], Cluster=[MAIN])

    await reconciler(kube, None).reconcile()

    assert sorted(kube.finalizers) == ["free", "kept"]


async def test_a_cluster_missing_in_the_cache_is_not_treated_as_deleted() -> None:
    leaving = manifest("leaving", 1, **HELD, deletionTimestamp="2026-01-02T00:00:00Z")
    leaving["spec"]["deletionPolicy"] = "Delete"
    kube = Kube(Stream=[leaving], Cluster=[])

    await reconciler(kube, None, leaving).reconcile()
    assert set(kube.finalizers) == {"leaving"}

    kube = Kube(Stream=[leaving], Cluster=[MAIN])
    kube.fails = True
    with pytest.raises(ConnectionRefusedError):
        await reconciler(kube, None, leaving).reconcile()
    assert kube.finalizers == []


async def test_a_stream_deleted_without_a_watch_is_not_created_again() -> None:
    """An interrupted watch does not deliver deletions."""
    gone = manifest("gone", 1)
    kube, brokers = Kube(Stream=[], Cluster=[MAIN]), Brokers(3)

    await reconciler(kube, brokers, gone).reconcile()

    assert "gone" not in kube.statuses
    assert brokers.streams == {}


async def test_a_foreign_object_is_not_overwritten() -> None:
    kube = Kube(Cluster=[MAIN])
    meta = {"namespace": NAMESPACE, "name": CLUSTER, "uid": "else", "resourceVersion": "1"}
    kube.foreign = {"kind": "PodDisruptionBudget", "metadata": meta}

    await reconciler(kube, None).reconcile()

    ready = kube.statuses[CLUSTER]["conditions"][0]
    assert (ready["status"], ready["reason"]) == ("False", "CannotChange")
    assert (
        "The PodDisruptionBudget main already exists and does not belong to this Cluster" in ready["message"]
    )
    assert "PodDisruptionBudget" not in kube.applied
    assert "StatefulSet" not in kube.applied


async def test_a_new_leader_lists_all_objects_and_writes_all_statuses() -> None:
    one = manifest("orders", 1)
    claimed = stream("claimed", owner="kubernetes:shop/orders/uid-of-orders")
    kube, brokers = Kube(Stream=[one], Cluster=[MAIN]), Brokers(3, claimed)
    operator = reconciler(kube, brokers)
    await operator.reconcile()
    kube.statuses.clear()
    kube._kept["Stream"] = []
    written = owner_changes(operator, brokers)

    operator.forget()
    await operator.reconcile()

    assert set(kube.statuses) == {CLUSTER}
    assert written == [("claimed", "retained:shop/orders", 7)]


async def test_an_object_that_a_webhook_changes_is_applied_once() -> None:
    kube = Kube(Cluster=[MAIN])
    apply = kube.apply

    async def changed(manifest: Any, version: str = "", manager: str = "") -> Any:
        found = await apply(manifest)
        if manifest["kind"] == "StatefulSet":
            found = copy.deepcopy(found)
            found["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror/tidelog:1"
        return found

    kube.apply = changed  # type: ignore[method-assign]
    operator = reconciler(kube, None)
    await operator.reconcile()
    await operator.reconcile()

    assert kube.applied.count("StatefulSet") == 1


async def test_without_a_controller_no_broker_is_changed() -> None:
    one = manifest("orders", 1)
    kube, brokers = Kube(Stream=[one], Cluster=[MAIN]), Brokers(3)
    operator, view = reconciler(kube, brokers), brokers.view()
    lost = replace(view, cluster=replace(view.cluster, controller=None))
    brokers.view = lambda: lost  # type: ignore[method-assign]

    # Without a client, every action on brokers would raise.
    await operator.reconcile()

    assert kube.statuses["orders"]["phase"] == "Pending"


async def test_metadata_without_a_controller_is_reported_for_ten_seconds() -> None:
    one = manifest("orders", 1)
    kube, brokers = Kube(Stream=[one], Cluster=[MAIN]), Brokers(3)
    brokers.streams["orders"] = stream(
        "orders", owner=f"kubernetes:{NAMESPACE}/orders/{one['metadata']['uid']}"
    )
    operator, view = reconciler(kube, brokers), brokers.view()
    lost = replace(view, cluster=replace(view.cluster, controller=None))
    brokers.view = lambda: lost  # type: ignore[method-assign]

    await operator.reconcile()
    (believed,) = [one for one in kube.statuses["orders"]["conditions"] if one["type"] == "Ready"]
    operator._no_controller_since = asyncio.get_running_loop().time() - NO_CONTROLLER_SECONDS
    await operator.reconcile()

    assert believed["reason"] != "BrokersUnreachable"
    for name in ("orders", "main"):
        (ready,) = [one for one in kube.statuses[name]["conditions"] if one["type"] == "Ready"]
        assert (name, ready["reason"]) == (name, "BrokersUnreachable")
        assert ready["status"] != "True"
        assert "Most of the voters (0, 1, 2) are unavailable" in ready["message"]

    assert operator._reportable(view, "") == (view, "")
    assert operator._no_controller_since is None


async def test_unreadable_objects_get_the_condition_invalid() -> None:
    one = manifest("orders", 1)
    one["spec"]["retention"] = {"age": "for ever"}
    kube = Kube(Stream=[one], Cluster=[MAIN])
    operator = reconciler(kube, Brokers(3))
    await operator.reconcile()
    before = kube.statuses[CLUSTER]

    kube._kept["Cluster"] = [cluster_manifest(replaceAfter="soon", status=before)]
    kube.applied.clear()
    written = kube.statuses["orders"]
    operator.forget()
    await operator.reconcile()

    assert (written["phase"], written["conditions"][0]["reason"]) == ("Invalid", "Invalid")
    assert "'for ever' is not a duration" in written["conditions"][0]["message"]
    ready = kube.statuses[CLUSTER]["conditions"][0]
    assert (ready["status"], ready["reason"]) == ("False", "Invalid")
    assert "'soon' is not a duration" in ready["message"]
    assert kube.statuses[CLUSTER]["brokers"] == before["brokers"]
    assert kube.applied == []


async def test_a_version_conflict_is_planned_again_and_reported_if_it_repeats() -> None:
    one = manifest("orders", 1)
    kube, brokers = Kube(Stream=[one], Cluster=[MAIN]), Brokers(3)
    operator = reconciler(kube, brokers)
    asked = 0

    class Overtaken:
        async def create_stream(self, *_: Any, **__: Any) -> None:
            nonlocal asked
            asked += 1
            raise VersionConflict("look at it again")

    async def client(ips: Any) -> Any:
        return Overtaken()

    operator._brokers.client = client  # type: ignore[method-assign]
    await operator.reconcile()
    await operator.reconcile()

    assert asked > 1
    ready = kube.statuses["orders"]["conditions"][0]
    assert (ready["reason"], ready["message"]) == ("Creating", "The stream is being created.")

    # Repeated conflicts are no coincidence.
    for _ in range(5):
        await operator.reconcile()
    ready = kube.statuses["orders"]["conditions"][0]
    assert ready["message"] == "Cannot create the stream claimed: look at it again"


async def test_replicas_are_not_placed_before_the_zones_are_known() -> None:
    one = manifest("orders", 1)
    index = {"tidelog.io/cluster": CLUSTER, "apps.kubernetes.io/pod-index": "0"}
    meta = {"namespace": NAMESPACE, "name": "main-0", "uid": "pod", "resourceVersion": "1", "labels": index}
    pod = {"kind": "Pod", "metadata": meta, "spec": {"nodeName": "node-1"}}
    kube, brokers = Kube(Stream=[one], Cluster=[MAIN], Pod=[pod]), Brokers(3)
    operator = reconciler(kube, brokers)
    made: list[str] = []

    class Client:
        async def create_stream(self, name: str, **_: Any) -> None:
            made.append(name)

    async def client(ips: Any) -> Any:
        return Client()

    operator._brokers.client = client  # type: ignore[method-assign]
    await operator.reconcile()
    assert made == []

    operator._objects.node({"metadata": {"name": "node-1"}}, gone=False)
    await operator.reconcile()
    assert set(made) == {"claimed"}


async def test_an_election_that_a_failure_prevented_follows_in_the_next_pass() -> None:
    home = stream("claimed", owner="kubernetes:shop/orders/uid-of-orders")
    away = replace(home.partitions[0], leader=1)
    brokers = Brokers(3, replace(home, partitions=(away,)))
    operator = reconciler(Kube(Stream=[manifest("orders", 1)], Cluster=[MAIN]), brokers)
    asked: list[str] = []

    class Client:
        async def throttle(self, speed: int) -> None:
            raise InvalidRequest("too slow")

        async def elect_preferred(self, names: Any) -> None:
            asked.extend(names)
            if len(asked) == 1:
                raise Unavailable("not now")

    async def client(ips: Any) -> Any:
        return Client()

    operator._brokers.client = client  # type: ignore[method-assign]
    await operator.reconcile()
    operator._leaders_since = -ELECTION_DELAY_SECONDS
    await operator.reconcile()
    await operator.reconcile()
    await operator.reconcile()

    assert asked == ["claimed", "claimed"]
