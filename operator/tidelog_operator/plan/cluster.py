"""A Cluster as its object says against what stands for it in Kubernetes and what its brokers say.

Said once more, whatever was done before: each pass looks at everything, so it does not matter where the one
before it ended. Order matters within a pass: the marker of formation before the first pod (M1), the count
that nobody may go below before pods are added, and after they were taken away (K1). The volume of a broker
that went goes after its pod, and before there may be another pod in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelog_operator.actions import (
    ApplyObject,
    ClusterAction,
    CreateObject,
    DeleteObject,
    SetBrokerCount,
    SetLowestCount,
    Throttle,
)
from tidelog_operator.model import Claim, ClusterObject, Manifest, ObjectKey
from tidelog_operator.plan.balancing import plan_balancing
from tidelog_operator.plan.listeners import plan_listeners
from tidelog_operator.plan.owned import Owned
from tidelog_operator.plan.placement import BrokersView
from tidelog_operator.plan.scaling import plan_scaling
from tidelog_operator.plan.volumes import NAMED_MAX, plan_volumes
from tidelog_operator.resources.formation import (
    FORMATTED,
    NEVER,
    Formation,
    chosen_id,
    formation_map,
)
from tidelog_operator.resources.services import client_service, disruption_budget, headless_service
from tidelog_operator.resources.settings import settings_map
from tidelog_operator.resources.stateful_set import Pods, read_pods, stateful_set


@dataclass(frozen=True, slots=True)
class ClusterDecision:
    actions: tuple[ClusterAction, ...] = ()
    """In this order, and none after one that fails."""
    independent: tuple[ClusterAction, ...] = ()
    """After these, and each of them whatever becomes of the others."""
    problem: str = ""
    """Why it cannot be as it is to be."""
    lost: Mapping[int, str] = field(default_factory=dict)
    """Brokers whose volume is gone, and since when (RFC 3339)."""


def plan_cluster(cluster: ClusterObject, owned: Owned, view: BrokersView | None, now: str) -> ClusterDecision:
    """`view` None: the brokers do not answer. `now`: RFC 3339."""
    if cluster.deleting:
        return ClusterDecision()
    try:
        formation = owned.formation(cluster)
    except ValueError as error:
        return ClusterDecision(problem=str(error))
    there = owned.stateful_set(cluster)
    actions: list[ClusterAction] = [*_formation(cluster, formation, owned, view), *_objects(cluster, owned)]
    pods = Pods(cluster.spec.brokers) if there is None else read_pods(there)
    if owned.lowest_count != str(max(pods.count, cluster.spec.brokers)):
        # It is above the count while pods are about to come, and rises no later than they do.
        actions += _lowest_count(cluster, owned, pods.count)
    wanted = stateful_set(cluster, pods)
    silence = _silence(formation, owned, view)
    volumes = plan_volumes(cluster, owned.claims, owned.pods, view, now)
    # Last: that one cannot be made, because somebody has its port, leaves nothing else undone.
    independent = plan_listeners(cluster, owned, pods.count)
    if there is None or not owned.has(wanted):
        # What follows would rest on a version that is over.
        actions.append(ApplyObject(wanted, _version(there)))
        return ClusterDecision(tuple(actions), independent, silence, volumes.lost)
    assert there is not None
    actions += volumes.actions
    scaling = plan_scaling(cluster.spec.brokers, pods, view, cluster.spec.moves_at_once)
    problem = scaling.problem or volumes.problem or silence
    left = _left_over(owned, pods, view)
    for action in scaling.actions:
        if not isinstance(action, SetBrokerCount):
            actions.append(action)
        elif not any(one.broker_id < action.count for one in left):
            actions += _resized(cluster, owned, there, action)
        elif action.draining != pods.draining:
            # Pods wait for volumes that are in the way; whom to cordon is no question of that.
            actions += _resized(cluster, owned, there, replace(action, count=pods.count))
    if view is not None and view.cluster.controller is not None:
        actions += _without(left, cluster, owned)
        if cluster.spec.balance and not scaling.actions and not problem and _is_whole(there, pods):
            actions += plan_balancing(view, cluster.spec.moves_at_once)
        # The last one: if the brokers refuse it, everything else is done.
        actions += _throttle(cluster, view)
    return ClusterDecision(tuple(actions), independent, problem, volumes.lost)


def _silence(formation: Formation | None, owned: Owned, view: BrokersView | None) -> str:
    if formation is not None or view is not None or not owned.claims:
        return ""
    names = sorted(one.name for one in owned.claims)
    named = ", ".join(names[:NAMED_MAX]) + (", …" if len(names) > NAMED_MAX else "")
    return (
        f"volumes of an earlier Cluster are here ({named}) and no broker answers yet; if they hold nothing, "
        "delete this Cluster and them, and apply it again"
    )


def _left_over(owned: Owned, pods: Pods, view: BrokersView | None) -> list[Claim]:
    """Volumes of brokers that went, for as long as it is sure that they did."""
    if view is None or view.cluster.controller is None:
        # Below the lowest count it was not the operator who took pods away.
        lowest = owned.lowest_count or ""
        brokers = range(int(lowest) if lowest.isdecimal() else 0)
        return [one for one in owned.claims if one.broker_id >= pods.count and one.broker_id not in brokers]
    registered = {one.broker_id for one in view.cluster.brokers}
    return [one for one in owned.claims if one.broker_id >= pods.count and one.broker_id not in registered]


def _without(left: Sequence[Claim], cluster: ClusterObject, owned: Owned) -> list[ClusterAction]:
    """They go once no pod can write to them any more."""
    used = {one.broker_id for one in owned.pods}
    return [
        DeleteObject("PersistentVolumeClaim", ObjectKey(cluster.key.namespace, one.name), one.uid)
        for one in left
        if not one.deleting and one.broker_id not in used
    ]


def _formation(
    cluster: ClusterObject, formation: Formation | None, owned: Owned, view: BrokersView | None
) -> list[ClusterAction]:
    """The marker (M1): only where there never was a pod or a volume may a cluster begin."""
    if formation is None:
        if owned.stateful_set(cluster) is None and not owned.claims:
            return [CreateObject(formation_map(cluster, Formation(NEVER, chosen_id(cluster))))]
        if view is None:
            return []
        return [CreateObject(formation_map(cluster, Formation(FORMATTED, view.cluster.cluster_id)))]
    if not formation.formatted and view is not None:
        return [ApplyObject(formation_map(cluster, Formation(FORMATTED, formation.cluster_id)))]
    return []


def _objects(cluster: ClusterObject, owned: Owned) -> list[ClusterAction]:
    wanted = [
        settings_map(cluster),
        headless_service(cluster),
        client_service(cluster),
        disruption_budget(cluster),
    ]
    return [ApplyObject(one) for one in wanted if not owned.has(one)]


def _lowest_count(cluster: ClusterObject, owned: Owned, count: int) -> list[ClusterAction]:
    if owned.lowest_count == str(count):
        return []
    return [SetLowestCount(cluster.key, count)]


def _resized(
    cluster: ClusterObject, owned: Owned, there: Manifest, action: SetBrokerCount
) -> list[ClusterAction]:
    change = ApplyObject(stateful_set(cluster, Pods(action.count, action.draining)), _version(there))
    if action.count > action.expected:
        return [*_lowest_count(cluster, owned, action.count), change]
    return [change]


def _throttle(cluster: ClusterObject, view: BrokersView) -> list[ClusterAction]:
    wanted = cluster.spec.throttle_bytes_per_second
    if wanted is None or wanted == view.cluster.throttle_bytes_per_second:
        return []
    return [Throttle(wanted)]


def _is_whole(there: Manifest, pods: Pods) -> bool:
    """Every pod is there and ready, and none is about to be replaced."""
    status = there.get("status") or {}
    return bool(
        status.get("observedGeneration") == there["metadata"]["generation"]
        and status.get("readyReplicas", 0) == pods.count
        and status.get("updateRevision") == status.get("currentRevision")
    )


def _version(there: Manifest | None) -> str:
    return "" if there is None else there["metadata"]["resourceVersion"]
