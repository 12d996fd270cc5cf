"""The status of a Stream: from the brokers' description of its stream, the decision of the plan, and the
errors of actions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.model import PartitionDescription, StreamDescription, id_text
from tidelog.wording import listed
from tidelog_operator.model import Manifest, StreamObject
from tidelog_operator.plan.streams import Finding
from tidelog_operator.reporting.conditions import Status, condition, kept, timed

PARTITIONS_SHOWN_MAX: Final = 200
NAMED_MAX: Final = 5
"""Partitions that a message names."""


def stream_status(
    one: StreamObject,
    before: Manifest,
    existing: StreamDescription | None,
    *,
    finding: Finding | None,
    error: str,
    unreachable: str,
    now: str,
) -> Status:
    """Returns the new status of a Stream; `before` is the previous one. `existing`: the stream, if this
    object owns it.

    `finding`: what prevents the desired state; `error`: of an action, which is tried again; `unreachable`:
    why the brokers do not answer. An empty text means none. `now`: RFC 3339.
    """
    ready, in_sync, phase = _conditions(one, before, existing, finding, error, unreachable)
    status: Status = {
        "observedGeneration": one.generation,
        "phase": phase,
        "conditions": [timed(each, before, one.generation, now) for each in (ready, in_sync) if each],
    }
    if existing is not None:
        status |= _facts(existing)
    elif unreachable:
        # Keep what was last known; the conditions say that the brokers do not answer.
        known = ("streamId", "partitionCount", "replicationFactor", "moving", "partitions")
        status |= {name: before[name] for name in known if name in before}
    return status


def _facts(existing: StreamDescription) -> Status:
    return {
        "streamId": id_text(existing.stream_id),
        "partitionCount": len(existing.partitions),
        "replicationFactor": existing.config.replication_factor,
        "moving": sum(_moves(one) for one in existing.partitions),
        "partitions": [_partition(one) for one in existing.partitions[:PARTITIONS_SHOWN_MAX]],
    }


def _partition(one: PartitionDescription) -> Status:
    leader = {} if one.leader is None else {"leader": one.leader}
    return {"id": one.partition, **leader, "replicas": list(one.replicas), "isr": list(one.isr)}


def _moves(one: PartitionDescription) -> bool:
    return bool(one.adding or one.removing)


def _conditions(
    one: StreamObject,
    before: Manifest,
    existing: StreamDescription | None,
    finding: Finding | None,
    error: str,
    unreachable: str,
) -> tuple[Status, Status | None, str]:
    """Returns Ready, InSync (None: not known), and the phase."""
    if unreachable:
        ready = condition("Ready", None, "BrokersUnreachable", unreachable)
        phase = "Unreachable" if "streamId" in before else "Pending"
        return ready, kept(before, "InSync"), "Deleting" if one.deleting else phase
    if one.deleting:
        why = error or "The Stream is being deleted."
        return condition("Ready", False, "Deleting", why), None, "Deleting"
    if existing is None:
        if finding is not None:
            return condition("Ready", False, finding.reason, finding.message), None, _stuck(finding)
        return condition("Ready", False, "Creating", error or "The stream is being created."), None, "Pending"
    ready, in_sync = _readiness(existing), _sync(existing)
    phase = "Ready"
    if ready["status"] == "False" or in_sync["status"] == "False":
        phase = "Degraded"
    if any(_moves(partition) for partition in existing.partitions):
        phase = "Moving"
    if finding is not None or error:
        # The stream exists, but does not match the spec.
        reason, message = (finding.reason, finding.message) if finding else ("CannotChange", error)
        ready = condition("Ready", False, reason, message)
        phase = _stuck(finding) if finding else "Degraded"
    return ready, in_sync, phase


def _readiness(existing: StreamDescription) -> Status:
    needed = existing.config.min_insync_effective
    leaderless = [one.partition for one in existing.partitions if one.leader is None]
    short = [one.partition for one in existing.partitions if len(one.isr) < needed]
    if leaderless:
        message = f"{_have(leaderless)} no leader and can be neither written nor read."
        return condition("Ready", False, "NoLeader", message)
    if short:
        message = (
            f"{_have(short)} fewer than {needed} in-sync replicas (minInsyncReplicas) and can be read, but "
            "not written until more replicas have caught up."
        )
        return condition("Ready", False, "TooFewInSync", message)
    count = len(existing.partitions)
    partitions = "The partition" if count == 1 else f"All {count} partitions"
    return condition("Ready", True, "Serving", f"{partitions} can be written and read.")


def _sync(existing: StreamDescription) -> Status:
    behind = [one.partition for one in existing.partitions if one.lagging]
    if behind:
        return condition("InSync", False, "CatchingUp", f"{_have(behind)} a replica that is behind.")
    return condition("InSync", True, "InSync", "All replicas are in sync.")


def _have(partitions: Sequence[int]) -> str:
    if len(partitions) == 1:
        return f"Partition {partitions[0]} has"
    return f"Partitions {listed(partitions, at_most=NAMED_MAX)} have"


def _stuck(finding: Finding) -> str:
    return {"Conflict": "Conflict", "Invalid": "Invalid"}.get(finding.reason, "Pending")
