"""The status of a Cluster: from its pods, its brokers, the decisions of the plan, and the errors of actions.
Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.model import ClusterDescription, id_text
from tidelog_operator.model import BrokerPod, ClusterObject, Manifest, UnreadableCluster
from tidelog_operator.plan.cluster import ClusterDecision
from tidelog_operator.plan.owned import Owned
from tidelog_operator.plan.placement import BrokersView
from tidelog_operator.reporting.conditions import Status, condition, kept, sentence, timed
from tidelog_operator.resources.stateful_set import Pods, read_pods

BROKERS_SHOWN_MAX: Final = 100
ABSENT_SHOWN_MAX: Final = 3
"""Pods that a message names because they do not run."""


@dataclass(frozen=True, slots=True)
class _Situation:
    cluster: ClusterObject
    pods: Pods
    ready: int
    rolling: bool
    absent: str
    """Sentences about pods that do not run, with the reasons; begins with a space, and is empty if there are
    none."""
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
    """Returns the new status of a Cluster; `before` is the previous one.

    `error`: of an action, which is tried again; `independent_error`: of an action that stops no other;
    `unreachable`: why the brokers do not answer. An empty text means none. `now`: RFC 3339.
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
    """Returns the new status of a Cluster that cannot be read: the operator changes nothing, and all else
    stays as last known."""
    ready = timed(condition("Ready", False, "Invalid", one.why), before, one.generation, now)
    others = [each for each in before.get("conditions", ()) if each["type"] != "Ready"]
    merged = {"observedGeneration": one.generation, "phase": "Degraded", "conditions": [ready, *others]}
    return {**before, **merged}


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
    merged = {one["id"]: {key: one[key] for key in one if key != "volumeLostSince"} for one in brokers}
    for broker, since in lost.items():
        merged[broker] = {**merged.get(broker, {"id": broker}), "volumeLostSince": since}
    return [merged[broker] for broker in sorted(merged)]


def _ready(found: _Situation, error: str, independent_error: str, unreachable: str) -> Status:
    wanted = found.cluster.spec.brokers
    if found.cluster.deleting:
        message = "The brokers are being deleted. Their volumes are kept."
        return condition("Ready", False, "Deleting", message)
    if error:
        return condition("Ready", False, "CannotChange", error)
    if found.decision.lost:
        return condition("Ready", False, "VolumeLost", found.decision.problem or _lost_volumes(found))
    if found.decision.problem:
        return condition("Ready", False, "CannotChange", found.decision.problem)
    if unreachable:
        message = f"{sentence(unreachable)}{found.absent}" if found.absent else unreachable
        return condition("Ready", None if found.ready else False, "BrokersUnreachable", message)
    ready = f"{found.ready} of {_count(found.pods.count, 'broker')} {_are(found.pods.count)} ready"
    if found.rolling:
        message = f"The brokers are being replaced one after the other: {ready}.{found.absent}"
        return condition("Ready", False, "Rolling", message)
    if found.ready < min(wanted, found.pods.count):
        return condition("Ready", False, "BrokersMissing", f"{ready}.{found.absent}")
    if independent_error:
        return condition("Ready", False, "CannotChange", independent_error)
    message = "The broker is ready." if found.ready == 1 else f"All {found.ready} brokers are ready."
    return condition("Ready", True, "Serving", message)


def _lost_volumes(found: _Situation) -> str:
    lost = ", ".join(
        f"broker {broker} (since {time})" for broker, time in sorted(found.decision.lost.items())
    )
    after = f"{found.cluster.spec.replace_after_ms // 1000} s"
    return f"Lost or damaged volumes: {lost}. The operator replaces a volume after {after} (replaceAfter)."


def _in_sync(cluster: ClusterDescription) -> Status:
    if cluster.leaderless_count:
        what = _partitions_have(cluster.leaderless_count)
        return condition(
            "InSync", False, "NoLeader", f"{what} no leader and can be neither written nor read."
        )
    if cluster.below_minimum_count:
        message = (
            f"{_partitions_have(cluster.below_minimum_count)} fewer in-sync replicas than minInsyncReplicas "
            "and can be read, but not written."
        )
        return condition("InSync", False, "TooFewInSync", message)
    if cluster.under_replicated_count:
        message = f"{_partitions_have(cluster.under_replicated_count)} a replica that is behind."
        return condition("InSync", False, "CatchingUp", message)
    return condition("InSync", True, "InSync", "All replicas of all partitions are in sync.")


def _partitions_have(count: int) -> str:
    return f"{_count(count, 'partition')} {'has' if count == 1 else 'have'}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _scaled(found: _Situation) -> Status:
    wanted, count = found.cluster.spec.brokers, found.pods.count
    if found.decision.problem and count > wanted:
        return condition("Scaled", False, "CannotScale", found.decision.problem)
    if count > wanted:
        leaving, held = count - wanted, _held_by_leaving(found, wanted)
        hold = "It still holds" if leaving == 1 else "They still hold"
        what = f" {hold} {_count(held, 'replica')}." if held else ""
        message = f"{leaving} of {count} brokers will be removed.{what}"
        return condition("Scaled", False, "Draining", message)
    if found.view is not None and len(found.view.cluster.brokers) < wanted:
        joined = f"{len(found.view.cluster.brokers)} of {_count(wanted, 'broker')}"
        have = "has" if wanted == 1 else "have"
        return condition("Scaled", False, "Starting", f"{joined} {have} joined the cluster.")
    if found.view is not None and found.view.cluster.reassigning_count:
        what = _partitions_have(found.view.cluster.reassigning_count)
        return condition("Scaled", True, "Balancing", f"{what} replicas that are moving to other brokers.")
    return condition("Scaled", True, "Scaled", f"The cluster has {_count(count, 'broker')}.")


def _held_by_leaving(found: _Situation, wanted: int) -> int:
    if found.view is None:
        return 0
    return sum(one.replicas for one in found.view.cluster.standings if one.broker_id >= wanted)


def _absent(cluster: ClusterObject, wanted: Pods, pods: Sequence[BrokerPod]) -> str:
    there = {pod.broker_id: pod for pod in pods}
    absent = []
    for number in range(wanted.count):
        pod = there.get(number)
        if pod is None:
            absent.append(f"The pod {cluster.key.name}-{number} does not exist.")
        elif pod.waiting_reason:
            absent.append(sentence(f"The pod {pod.name} does not run: {pod.waiting_reason}"))
    if len(absent) > ABSENT_SHOWN_MAX:
        more = len(absent) - ABSENT_SHOWN_MAX
        absent[ABSENT_SHOWN_MAX:] = [f"{_count(more, 'more pod')} {'does' if more == 1 else 'do'} not run."]
    return "".join(f" {one}" for one in absent)


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
