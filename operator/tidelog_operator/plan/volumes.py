"""Brokers whose volume is gone: they get a new one after a while, and fill it from the others.

A claim is lost when its volume went away under it. Kubernetes leaves it so for ever, and the pod waits for
ever. A volume that was only out of sight comes back within the grace time. Nothing is replaced that holds
the only copy in sync of some partition: as long as the claim is there, so is the way back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from tidelog_operator.actions import ClusterAction, DeleteObject
from tidelog_operator.model import BrokerPod, Claim, ClusterObject, ObjectKey
from tidelog_operator.plan.brokers import BrokersView

LOST: Final = "Lost"
TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
NAMED_MAX: Final = 3


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
    lost = {one.broker_id: told.get(one.broker_id, now) for one in claims if one.phase == LOST}
    actions: list[ClusterAction] = []
    problem = ""
    for one in claims:
        if one.phase != LOST or _seconds(lost[one.broker_id], now) * 1000 < cluster.spec.replace_after_ms:
            continue
        why_not = _why_not(one.broker_id, view)
        if why_not:
            problem = why_not
            continue
        # The claim goes when no pod uses it any more; with the next pod comes a new one.
        if not one.deleting:
            claim = ObjectKey(cluster.key.namespace, one.name)
            actions.append(DeleteObject("PersistentVolumeClaim", claim, one.uid))
        actions += [
            DeleteObject("Pod", ObjectKey(cluster.key.namespace, pod.name), pod.uid)
            for pod in pods
            if pod.broker_id == one.broker_id and not pod.deleting
        ]
    return Volumes(tuple(actions), problem, lost)


def _why_not(broker: int, view: BrokersView | None) -> str:
    if view is None:
        return f"the volume of broker {broker} is gone; it is replaced when the other brokers answer"
    only = [
        f"{stream.name}/{one.partition}"
        for _, stream in sorted(view.streams.items())
        for one in stream.partitions
        if broker in one.target and not set(one.isr) - {broker}
    ]
    if not only:
        return ""
    named = ", ".join(only[:NAMED_MAX]) + (
        f" and {len(only) - NAMED_MAX} more" if len(only) > NAMED_MAX else ""
    )
    return (
        f"the volume of broker {broker} is gone, and nobody else has all of {named}: bring the volume back, "
        "or give up what it held by deleting the claim and the pod yourself"
    )


def _seconds(since: str, now: str) -> float:
    def read(text: str) -> datetime:
        return datetime.strptime(text, TIME).replace(tzinfo=UTC)

    return (read(now) - read(since)).total_seconds()
