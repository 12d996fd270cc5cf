"""Brokers whose volume is gone or damaged: they get a new one after a while, and fill it from the others.

A claim is lost when its volume went away under it. Kubernetes leaves it so for ever, and the pod waits for
ever. A volume that was only out of sight comes back within the grace time. A volume is damaged when its
broker ends again and again because the metadata on it has rotted, or it was put back from a copy (R19): the
broker says so by its exit code. People have the grace time to look at it. One at a time is replaced, and
none while another broker is away, nor one that holds the only copy in sync of some partition, nor while most
voters are gone: as long as the claim is there, so is the way back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from tidelog.model import PartitionDescription
from tidelog_operator.actions import ClusterAction, DeleteObject
from tidelog_operator.model import BrokerPod, Claim, ClusterObject, ObjectKey
from tidelog_operator.plan.placement import BrokersView

LOST: Final = "Lost"
TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
NAMED_MAX: Final = 3
UP_STATES: Final = ("active", "cordoned")
"""States of a broker that is up, and has what it holds."""


@dataclass(frozen=True, slots=True)
class Volumes:
    actions: tuple[ClusterAction, ...] = ()
    problem: str = ""
    lost: Mapping[int, str] = field(default_factory=dict)
    """By broker: since when (RFC 3339)."""


def plan_volumes(
    cluster: ClusterObject,
    claims: Sequence[Claim],
    pods: Sequence[BrokerPod],
    view: BrokersView | None,
    now: str,
) -> Volumes:
    """`now`: RFC 3339; since when a volume is gone stands in the Cluster's status."""
    told = {
        one["id"]: one["volumeLostSince"]
        for one in cluster.status.get("brokers", ())
        if "volumeLostSince" in one
    }
    damaged = _damaged(pods, view)
    lost = {
        one.broker_id: told.get(one.broker_id, now)
        for one in claims
        if one.phase == LOST or one.broker_id in damaged
    }
    over = [
        one
        for one in claims
        if one.broker_id in lost
        and _seconds(lost[one.broker_id], now) * 1000 >= cluster.spec.replace_after_ms
    ]
    problem = ""
    # Whose claim goes already is seen to first: two are never replaced at once.
    for one in [one for one in over if one.deleting] or over:
        gone = f"the volume of broker {one.broker_id} is {'gone' if one.phase == LOST else 'damaged'}"
        why_not = _why_not(one.broker_id, gone, lost, view)
        if not why_not:
            return Volumes(_replaced(cluster, one, pods), problem, lost)
        problem = problem or why_not
    return Volumes((), problem, lost)


def _replaced(cluster: ClusterObject, claim: Claim, pods: Sequence[BrokerPod]) -> tuple[ClusterAction, ...]:
    """The claim goes when no pod uses it any more; with the next pod comes a new one."""
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
    """Whose broker says so, and is not up by what the others know."""
    up = set() if view is None else {one.broker_id for one in view.cluster.brokers if one.state in UP_STATES}
    return {pod.broker_id for pod in pods if pod.damaged and not pod.ready} - up


def _why_not(broker: int, gone: str, lost: Collection[int], view: BrokersView | None) -> str:
    if view is None:
        return f"{gone}; it is replaced when the other brokers answer"
    if view.cluster.controller is None:
        return f"{gone}; it is replaced when the other brokers have a controller"
    here = {one.broker_id for one in view.cluster.brokers if one.state in UP_STATES} - set(lost)
    voters = view.cluster.voters
    if 2 * len(here.intersection(voters)) <= len(voters):
        return (
            f"{gone}, and of the voters {_listed(voters)} too few are here without it: bring a volume back, "
            'or see "When most voters are lost" in docs/operations.md'
        )
    away = [
        one.broker_id
        for one in view.cluster.brokers
        if one.broker_id not in lost and one.broker_id not in here
    ]
    if away:
        return f"{gone}; it is replaced when every other broker is here, and {_listed(away)} is not"
    only = [
        f"{name}/{one.partition}"
        for name, one in _partitions(view)
        if broker in {*one.isr, *one.replicas} and not here.intersection(one.isr)
    ]
    if not only:
        return ""
    return (
        f"{gone}, and nobody else has all of {_listed(only)}: bring the volume back, or give up what it held "
        "by deleting the claim and the pod yourself"
    )


def _partitions(view: BrokersView) -> Iterator[tuple[str, PartitionDescription]]:
    """With the brokers' own streams, as far as those are in trouble."""
    for name, stream in sorted(view.streams.items()):
        for one in stream.partitions:
            yield name, one
    for standing in view.cluster.troubled:
        if standing.name not in view.streams:
            yield standing.name, standing.partition


def _listed(some: Sequence[int | str]) -> str:
    more = f" and {len(some) - NAMED_MAX} more" if len(some) > NAMED_MAX else ""
    return ", ".join(map(str, some[:NAMED_MAX])) + more


def _seconds(since: str, now: str) -> float:
    def read(text: str) -> datetime:
        return datetime.strptime(text, TIME).replace(tzinfo=UTC)

    return (read(now) - read(since)).total_seconds()
