"""What objects are told of themselves: from what is there, what was decided and what went wrong. Pure.

A condition's time is that of its last change of status, so a status is made from the one before. Whatever
did not change gives the same value, and is not written again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidelog.model import PartitionDescription, StreamDescription, id_text
from tidelog_operator.model import Manifest, StreamObject
from tidelog_operator.plan.streams import Finding

PARTITIONS_SHOWN_MAX: Final = 200
NAMED_MAX: Final = 5
"""Partitions that a sentence names."""

Status = dict[str, Any]


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
    """Of a Stream that was told `before`. `existing`: as the brokers have it, if it is this object's.

    `finding`: what keeps it from being as it is to be; `error`: what went wrong when it was tried, and is
    tried again; `unreachable`: why nobody could be asked. Empty: nothing. `now`: RFC 3339.
    """
    ready, in_sync, phase = _conditions(one, before, existing, finding, error, unreachable)
    status: Status = {
        "observedGeneration": one.generation,
        "phase": phase,
        "conditions": [
            _timed(condition, before, one.generation, now) for condition in (ready, in_sync) if condition
        ],
    }
    if existing is not None:
        status |= _facts(existing)
    elif unreachable:
        # The last that was known; that nobody could be asked is said.
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
    """Ready, InSync (None: nothing is known), and the phase."""
    if unreachable:
        ready = _condition("Ready", None, "BrokersUnreachable", unreachable)
        return (
            ready,
            _kept(before, "InSync"),
            "Deleting" if one.deleting else str(before.get("phase", "Pending")),
        )
    if one.deleting:
        why = error or "the stream is let go"
        return _condition("Ready", False, "Deleting", why), None, "Deleting"
    if existing is None:
        if finding is not None:
            return _condition("Ready", False, finding.reason, finding.message), None, _stuck(finding)
        return _condition("Ready", False, "Creating", error or "the stream is being made"), None, "Pending"
    ready, in_sync = _readiness(existing), _sync(existing)
    phase = "Ready"
    if ready["status"] == "False" or in_sync["status"] == "False":
        phase = "Degraded"
    if any(_moves(partition) for partition in existing.partitions):
        phase = "Moving"
    if finding is not None or error:
        # It is there, and not as it is to be.
        reason, message = (finding.reason, finding.message) if finding else ("CannotChange", error)
        ready = _condition("Ready", False, reason, message)
        phase = _stuck(finding) if finding else "Degraded"
    return ready, in_sync, phase


def _readiness(existing: StreamDescription) -> Status:
    needed = existing.config.min_insync_effective
    leaderless = [one.partition for one in existing.partitions if one.leader is None]
    short = [one.partition for one in existing.partitions if len(one.isr) < needed]
    if leaderless:
        message = f"{_named(leaderless)} has no leader: it can be neither written nor read now"
        return _condition("Ready", False, "NoLeader", message)
    if short:
        message = (
            f"{_named(short)} has fewer than {needed} copies in sync (minInsyncReplicas): it can be read, "
            "and is not written to until more have caught up"
        )
        return _condition("Ready", False, "TooFewInSync", message)
    count = len(existing.partitions)
    partitions = "its partition is" if count == 1 else f"all {count} partitions are"
    return _condition("Ready", True, "Serving", f"{partitions} written and read")


def _sync(existing: StreamDescription) -> Status:
    behind = [one.partition for one in existing.partitions if one.lagging]
    if behind:
        return _condition("InSync", False, "CatchingUp", f"{_named(behind)} has a copy that is behind")
    return _condition("InSync", True, "InSync", "every copy has everything")


def _named(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:NAMED_MAX]))
    more = len(partitions) - NAMED_MAX
    noun = "partition" if len(partitions) == 1 else "each of the partitions"
    return f"{noun} {shown}" + (f" and {more} more" if more > 0 else "")


def _stuck(finding: Finding) -> str:
    return {"Conflict": "Conflict", "Invalid": "Invalid"}.get(finding.reason, "Pending")


def _kept(before: Manifest, kind: str) -> Status | None:
    """The condition as it was last known, unknown now."""
    last = _before(before, kind)
    if last is None:
        return None
    if last["status"] == "Unknown":
        return _condition(kind, None, last["reason"], last["message"])
    message = f"it was {last['status']} when the brokers answered last"
    return _condition(kind, None, "BrokersUnreachable", message)


def _condition(kind: str, holds: bool | None, reason: str, message: str) -> Status:
    status = "Unknown" if holds is None else str(holds)
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _before(status: Manifest, kind: str) -> Mapping[str, Any] | None:
    return next((one for one in status.get("conditions", ()) if one["type"] == kind), None)


def _timed(condition: Status, status: Manifest, generation: int, now: str) -> Status:
    before = _before(status, condition["type"])
    same = before is not None and before["status"] == condition["status"]
    since = before["lastTransitionTime"] if same and before is not None else now
    return {**condition, "observedGeneration": generation, "lastTransitionTime": since}
