"""What a Cluster is told of itself: from its pods, its brokers, and what was decided and tried. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.model import ClusterDescription, id_text
from tidelog_operator.model import BrokerPod, ClusterObject, Manifest, UnreadableCluster
from tidelog_operator.plan.cluster import ClusterDecision
from tidelog_operator.plan.owned import Owned
from tidelog_operator.plan.placement import BrokersView
from tidelog_operator.reporting.conditions import Status, condition, kept, timed
from tidelog_operator.resources.stateful_set import Pods, read_pods

BROKERS_SHOWN_MAX: Final = 100
ABSENT_SHOWN_MAX: Final = 3
"""Pods in a message that do not run."""


@dataclass(frozen=True, slots=True)
class _Situation:
    cluster: ClusterObject
    pods: Pods
    ready: int
    rolling: bool
    absent: str
    """Pods that do not run, and why; begins with a semicolon, and is empty where there are none."""
    view: BrokersView | None
    decision: ClusterDecision


def cluster_status(
    cluster: ClusterObject,
    before: Manifest,
    owned: Owned,
    pods: Sequence[BrokerPod],
    view: BrokersView | None,
    decision: ClusterDecision,
    *,
    error: str,
    independent_error: str = "",
    unreachable: str,
    now: str,
) -> Status:
    """Of a Cluster that was told `before`.

    `error`: what went wrong when something was tried, and is tried again; `error_apart`: the same, of what
    holds nothing else up; `unreachable`: why the brokers could not be asked. Empty: nothing. `now`: RFC 3339.
    """
    there = owned.stateful_set(cluster)
    wanted = Pods(0) if there is None else read_pods(there)
    found = _Situation(
        cluster,
        wanted,
        sum(pod.ready and not pod.deleting for pod in pods),
        there is not None and _rolls(there),
        _absent(cluster, wanted, pods),
        view,
        decision,
    )
    ready = _ready(found, error, independent_error, unreachable)
    in_sync = kept(before, "InSync") if view is None else _in_sync(view.cluster)
    conditions = [ready, *([in_sync] if in_sync else []), _scaled(found)]
    status: Status = {
        "observedGeneration": cluster.generation,
        "phase": _phase(found, ready, in_sync, unreachable),
        "brokersReady": found.ready,
        "conditions": [timed(one, before, cluster.generation, now) for one in conditions],
    }
    if view is not None:
        return status | _facts(found, view)
    known = ("clusterId", "controller", "voters", "streams", "underReplicated", "moving", "brokers")
    status |= {name: before[name] for name in known if name in before}
    if decision.lost:
        status["brokers"] = _with_lost_volumes(status.get("brokers", ()), decision.lost)
    return status


def unreadable_status(one: UnreadableCluster, before: Manifest, now: str) -> Status:
    """Of a Cluster that was told `before`: all else stays as it was known last, and nothing is done."""
    ready = timed(condition("Ready", False, "Invalid", one.why), before, one.generation, now)
    others = [each for each in before.get("conditions", ()) if each["type"] != "Ready"]
    told = {"observedGeneration": one.generation, "phase": "Degraded", "conditions": [ready, *others]}
    return {**before, **told}


def _facts(found: _Situation, view: BrokersView) -> Status:
    cluster = view.cluster
    controller = {} if cluster.controller is None else {"controller": cluster.controller}
    brokers = [
        {
            "id": one.broker_id,
            "state": one.state,
            **({"zone": view.zones[one.broker_id]} if view.zones.get(one.broker_id) else {}),
            "replicas": one.replicas,
            "leaders": one.leaders,
        }
        for one in cluster.standings[:BROKERS_SHOWN_MAX]
    ]
    return {
        "clusterId": id_text(cluster.cluster_id),
        **controller,
        "voters": list(cluster.voters),
        "streams": len(view.streams),
        "underReplicated": cluster.under_replicated_count,
        "moving": cluster.reassigning_count,
        "brokers": _with_lost_volumes(brokers, found.decision.lost),
    }


def _with_lost_volumes(brokers: Sequence[Manifest], lost: Mapping[int, str]) -> list[Status]:
    told = {one["id"]: {key: one[key] for key in one if key != "volumeLostSince"} for one in brokers}
    for broker, since in lost.items():
        told[broker] = {**told.get(broker, {"id": broker}), "volumeLostSince": since}
    return [told[broker] for broker in sorted(told)]


def _ready(found: _Situation, error: str, independent_error: str, unreachable: str) -> Status:
    wanted = found.cluster.spec.brokers
    if found.cluster.deleting:
        return condition("Ready", False, "Deleting", "the brokers go; their volumes stay")
    if error:
        return condition("Ready", False, "CannotChange", error)
    if found.decision.lost:
        since = ", ".join(f"{broker} (since {time})" for broker, time in sorted(found.decision.lost.items()))
        after = f"{found.cluster.spec.replace_after_ms // 1000} s"
        gone = f"the volume is gone or damaged of broker {since}; it gets a new one after {after}"
        return condition("Ready", False, "VolumeLost", found.decision.problem or gone)
    if found.decision.problem:
        return condition("Ready", False, "CannotChange", found.decision.problem)
    if unreachable:
        message = f"{unreachable}{found.absent}"
        return condition("Ready", None if found.ready else False, "BrokersUnreachable", message)
    if found.rolling:
        ready = f"{found.ready} of {found.pods.count} are ready"
        message = f"brokers are replaced one after the other; {ready}{found.absent}"
        return condition("Ready", False, "Rolling", message)
    if found.ready < min(wanted, found.pods.count):
        message = f"{found.ready} of {found.pods.count} brokers are ready{found.absent}"
        return condition("Ready", False, "BrokersMissing", message)
    if independent_error:
        return condition("Ready", False, "CannotChange", independent_error)
    return condition("Ready", True, "Serving", f"all {found.ready} brokers are ready")


def _in_sync(cluster: ClusterDescription) -> Status:
    if cluster.leaderless_count:
        count = cluster.leaderless_count
        message = f"{_partitions(count)} no leader: {_its(count)} neither written nor read"
        return condition("InSync", False, "NoLeader", message)
    if cluster.below_minimum_count:
        count = cluster.below_minimum_count
        message = (
            f"{_partitions(count)} fewer copies in sync than the minimum: {_its(count)} read and not written"
        )
        return condition("InSync", False, "TooFewInSync", message)
    if cluster.under_replicated_count:
        message = f"{_partitions(cluster.under_replicated_count)} a copy that is behind"
        return condition("InSync", False, "CatchingUp", message)
    return condition("InSync", True, "InSync", "every copy of every partition has everything")


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'} {'has' if count == 1 else 'have'}"


def _its(count: int) -> str:
    return "it can be" if count == 1 else "they can be"


def _scaled(found: _Situation) -> Status:
    wanted, count = found.cluster.spec.brokers, found.pods.count
    if found.decision.problem and count > wanted:
        return condition("Scaled", False, "CannotScale", found.decision.problem)
    if count > wanted:
        held = _held_by_leaving(found, wanted)
        what = f"; they still hold {held} copies" if held else ""
        return condition("Scaled", False, "Emptying", f"{count - wanted} of {count} brokers are to go{what}")
    if found.view is not None and len(found.view.cluster.brokers) < wanted:
        here = len(found.view.cluster.brokers)
        return condition("Scaled", False, "Starting", f"{here} of {wanted} brokers have joined")
    if found.view is not None and found.view.cluster.reassigning_count:
        moving = found.view.cluster.reassigning_count
        return condition(
            "Scaled", True, "Balancing", f"{_partitions(moving)} copies on the way to other brokers"
        )
    return condition("Scaled", True, "Scaled", f"there are {count} brokers")


def _held_by_leaving(found: _Situation, wanted: int) -> int:
    if found.view is None:
        return 0
    return sum(one.replicas for one in found.view.cluster.standings if one.broker_id >= wanted)


def _absent(cluster: ClusterObject, wanted: Pods, pods: Sequence[BrokerPod]) -> str:
    there = {pod.broker_id: pod for pod in pods}
    words = []
    for number in range(wanted.count):
        pod = there.get(number)
        if pod is None:
            words.append(f"there is no pod {cluster.key.name}-{number}")
        elif pod.waiting_reason:
            words.append(f"{pod.name} waits ({pod.waiting_reason})")
    if len(words) > ABSENT_SHOWN_MAX:
        words[ABSENT_SHOWN_MAX:] = [f"and {len(words) - ABSENT_SHOWN_MAX} more"]
    return "".join(f"; {one}" for one in words)


def _rolls(there: Manifest) -> bool:
    status = there.get("status") or {}
    return bool(
        status.get("updateRevision")
        and status.get("currentRevision")
        and status["updateRevision"] != status["currentRevision"]
    )


def _phase(found: _Situation, ready: Status, in_sync: Status | None, unreachable: str) -> str:
    if found.cluster.deleting:
        return "Deleting"
    if unreachable:
        return "Unreachable" if "clusterId" in found.cluster.status else "Pending"
    if ready["reason"] == "Rolling":
        return "Rolling"
    if found.pods.count != found.cluster.spec.brokers:
        return "Scaling"
    if ready["status"] != "True" or (in_sync is not None and in_sync["status"] != "True"):
        return "Degraded"
    return "Ready"
