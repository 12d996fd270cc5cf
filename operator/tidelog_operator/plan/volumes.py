"""Plans the replacement of lost and damaged volumes: after a grace time the broker gets a new volume, and
copies its replicas from the other brokers.

A claim is lost when its volume was deleted. Kubernetes leaves the claim in this phase for ever, and the pod
waits for ever. A volume that is only unreachable for a while comes back within the grace time. A volume is
damaged when its broker exits again and again because the metadata on it is corrupt, or because the volume was
restored from a copy (R19); the broker says so by its exit code. The grace time lets an administrator look at
the volume. One volume is replaced at a time, and none while another broker is away, none with the only
in-sync replica of a partition, and none while most voters are unavailable: as long as the claim exists, the
volume can be restored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from tidelog.model import PartitionDescription
from tidelog.wording import listed
from tidelog_operator.actions import ClusterAction, DeleteObject
from tidelog_operator.model import BrokerPod, Claim, ClusterObject, ObjectKey
from tidelog_operator.plan.placement import BrokersView

LOST_PHASE: Final = "Lost"
TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
NAMED_MAX: Final = 3
UP_STATES: Final = ("active", "cordoned")
"""States of a broker that runs and has its replicas."""


@dataclass(frozen=True, slots=True)
class Volumes:
    actions: tuple[ClusterAction, ...] = ()
    problem: str = ""
    lost: Mapping[int, str] = field(default_factory=dict)
    """By broker: the time since when its volume is lost or damaged (RFC 3339)."""


def plan_volumes(
    cluster: ClusterObject,
    claims: Sequence[Claim],
    pods: Sequence[BrokerPod],
    view: BrokersView | None,
    now: str,
) -> Volumes:
    """`now`: RFC 3339. The Cluster's status keeps the time since when a volume is lost."""
    known_since = {
        one["id"]: one["volumeLostSince"]
        for one in cluster.status.get("brokers", ())
        if "volumeLostSince" in one
    }
    damaged = _damaged(pods, view)
    lost = {
        one.broker_id: known_since.get(one.broker_id, now)
        for one in claims
        if one.phase == LOST_PHASE or one.broker_id in damaged
    }
    over = [
        one
        for one in claims
        if one.broker_id in lost
        and _seconds(lost[one.broker_id], now) * 1000 >= cluster.spec.replace_after_ms
    ]
    problem = ""
    # A claim that is already being deleted comes first: two are never replaced at once.
    for one in [one for one in over if one.deleting] or over:
        gone = f"The volume of broker {one.broker_id} is {'lost' if one.phase == LOST_PHASE else 'damaged'}"
        why_not = _why_not(one.broker_id, gone, lost, view)
        if not why_not:
            return Volumes(_replaced(cluster, one, pods), problem, lost)
        problem = problem or why_not
    return Volumes((), problem, lost)


def _replaced(cluster: ClusterObject, claim: Claim, pods: Sequence[BrokerPod]) -> tuple[ClusterAction, ...]:
    """Deletes claim and pod. The claim is removed when no pod uses it any more; the next pod gets a new
    one."""
    space = cluster.key.namespace
    actions: list[ClusterAction] = []
    if not claim.deleting:
        actions.append(DeleteObject("PersistentVolumeClaim", ObjectKey(space, claim.name), claim.uid))
    actions += [
        DeleteObject("Pod", ObjectKey(space, pod.name), pod.uid)
        for pod in pods
        if pod.broker_id == claim.broker_id and not pod.deleting
    ]
    return tuple(actions)


def _damaged(pods: Sequence[BrokerPod], view: BrokersView | None) -> set[int]:
    """Returns the brokers that report a damaged volume and that the other brokers do not see running."""
    up = set() if view is None else {one.broker_id for one in view.cluster.brokers if one.state in UP_STATES}
    return {pod.broker_id for pod in pods if pod.damaged and not pod.ready} - up


def _why_not(broker: int, gone: str, lost: Collection[int], view: BrokersView | None) -> str:
    if view is None:
        return f"{gone}. It will be replaced when the other brokers answer."
    if view.cluster.controller is None:
        return f"{gone}. It will be replaced when the other brokers have a controller."
    here = {one.broker_id for one in view.cluster.brokers if one.state in UP_STATES} - set(lost)
    voters = view.cluster.voters
    if 2 * len(here.intersection(voters)) <= len(voters):
        return (
            f"{gone}, and without it too few of the voters {listed(voters, at_most=NAMED_MAX)} are "
            'available. Restore a volume, or see "When most voters are lost" in docs/operations.md.'
        )
    away = [
        one.broker_id
        for one in view.cluster.brokers
        if one.broker_id not in lost and one.broker_id not in here
    ]
    if away:
        return (
            f"{gone}. It will be replaced when all other brokers are available; unavailable: "
            f"{listed(away, at_most=NAMED_MAX)}."
        )
    only = [
        f"{name}/{one.partition}"
        for name, one in _partitions(view)
        if broker in {*one.isr, *one.replicas} and not here.intersection(one.isr)
    ]
    if not only:
        return ""
    return (
        f"{gone}, and no other broker has all records of {listed(only, at_most=NAMED_MAX)}. Restore the "
        "volume. To give up the records that only this volume has, delete the claim and the pod of the "
        "broker."
    )


def _partitions(view: BrokersView) -> Iterator[tuple[str, PartitionDescription]]:
    """Yields all partitions, and those of the brokers' internal streams that are degraded."""
    for name, stream in sorted(view.streams.items()):
        for one in stream.partitions:
            yield name, one
    for standing in view.cluster.troubled:
        if standing.name not in view.streams:
            yield standing.name, standing.partition


def _seconds(since: str, now: str) -> float:
    def read(text: str) -> datetime:
        return datetime.strptime(text, TIME).replace(tzinfo=UTC)

    return (read(now) - read(since)).total_seconds()
