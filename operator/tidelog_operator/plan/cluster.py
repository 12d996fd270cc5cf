"""Plans one Cluster: compares its spec with its Kubernetes objects and with what its brokers report.

Each reconciliation looks at everything, so it does not matter where the previous one ended. The order within
one matters: the formation marker comes before the first pod (M1); the lowest number of pods that the policy
allows is raised before pods are added, and lowered after they were removed (K1). The volume of a removed
broker is deleted after its pod, and before another pod can take its place.
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
    """Executed in this order, until one fails."""
    independent: tuple[ClusterAction, ...] = ()
    """Executed after these; each runs whether the previous one succeeds or not."""
    problem: str = ""
    """Why the desired state cannot be reached; empty: it can."""
    lost: Mapping[int, str] = field(default_factory=dict)
    """Brokers whose volume is lost or damaged, with the time since when (RFC 3339)."""


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
        # The recorded number is higher than the count while pods are being added; it is raised no later than
        # the count.
        actions += _lowest_count(cluster, owned, pods.count)
    wanted = stateful_set(cluster, pods)
    silence = _unanswered(formation, owned, view)
    volumes = plan_volumes(cluster, owned.claims, owned.pods, view, now)
    # Independent: a service that cannot be created, because its port is taken, must not stop anything else.
    independent = plan_listeners(cluster, owned, pods.count)
    if there is None or not owned.has(wanted):
        # The following actions would depend on a version that this one replaces.
        actions.append(ApplyObject(wanted, _version(there)))
        return ClusterDecision(tuple(actions), independent, silence, volumes.lost)
    assert there is not None
    actions += volumes.actions
    scaling = plan_scaling(cluster.spec.brokers, pods, view, cluster.spec.moves_at_once)
    problem = scaling.problem or volumes.problem or silence
    left = _orphaned_claims(owned, pods, view)
    for action in scaling.actions:
        if not isinstance(action, SetBrokerCount):
            actions.append(action)
        elif not any(one.broker_id < action.count for one in left):
            actions += _resized(cluster, owned, there, action)
        elif action.draining != pods.draining:
            # New pods wait until the old volumes are gone; cordoning does not depend on that.
            actions += _resized(cluster, owned, there, replace(action, count=pods.count))
    if view is not None and view.cluster.controller is not None:
        actions += _delete_claims(left, cluster, owned)
        if cluster.spec.balance and not scaling.actions and not problem and _is_whole(there, pods):
            actions += plan_balancing(view, cluster.spec.moves_at_once)
        # Last: if the brokers reject it, everything else is done.
        actions += _throttle(cluster, view)
    return ClusterDecision(tuple(actions), independent, problem, volumes.lost)


def _unanswered(formation: Formation | None, owned: Owned, view: BrokersView | None) -> str:
    if formation is not None or view is not None or not owned.claims:
        return ""
    names = sorted(one.name for one in owned.claims)
    named = ", ".join(names[:NAMED_MAX]) + (", …" if len(names) > NAMED_MAX else "")
    return (
        f"Volumes of an earlier Cluster exist ({named}), and no broker answers yet. If you do not need their "
        "data, delete this Cluster and these claims, and create the Cluster again."
    )


def _orphaned_claims(owned: Owned, pods: Pods, view: BrokersView | None) -> list[Claim]:
    """Returns the claims of removed brokers, where it is certain that they were removed."""
    if view is None or view.cluster.controller is None:
        # Below the lowest allowed number, another client removed the pods.
        lowest = owned.lowest_count or ""
        brokers = range(int(lowest) if lowest.isdecimal() else 0)
        return [one for one in owned.claims if one.broker_id >= pods.count and one.broker_id not in brokers]
    registered = {one.broker_id for one in view.cluster.brokers}
    return [one for one in owned.claims if one.broker_id >= pods.count and one.broker_id not in registered]


def _delete_claims(left: Sequence[Claim], cluster: ClusterObject, owned: Owned) -> list[ClusterAction]:
    """Deletes these claims when no pod can write to them any more."""
    used = {one.broker_id for one in owned.pods}
    return [
        DeleteObject("PersistentVolumeClaim", ObjectKey(cluster.key.namespace, one.name), one.uid)
        for one in left
        if not one.deleting and one.broker_id not in used
    ]


def _formation(
    cluster: ClusterObject, formation: Formation | None, owned: Owned, view: BrokersView | None
) -> list[ClusterAction]:
    """Plans the marker (M1): a cluster may be formed only where no pod and no volume ever existed."""
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
    """Whether every pod exists and is ready, and no rollout is running."""
    status = there.get("status") or {}
    return bool(
        status.get("observedGeneration") == there["metadata"]["generation"]
        and status.get("readyReplicas", 0) == pods.count
        and status.get("updateRevision") == status.get("currentRevision")
    )


def _version(there: Manifest | None) -> str:
    return "" if there is None else there["metadata"]["resourceVersion"]
