"""What a Stream is told of itself: from what is there, what was decided and what went wrong. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.model import PartitionDescription, StreamDescription, id_text
from tidelog_operator.model import Manifest, StreamObject
from tidelog_operator.plan.streams import Finding
from tidelog_operator.reporting.conditions import Status, condition, kept, timed

PARTITIONS_SHOWN_MAX: Final = 200
NAMED_MAX: Final = 5
"""Partitions that a sentence names."""


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
        "conditions": [timed(each, before, one.generation, now) for each in (ready, in_sync) if each],
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
        ready = condition("Ready", None, "BrokersUnreachable", unreachable)
        phase = "Unreachable" if "streamId" in before else "Pending"
        return ready, kept(before, "InSync"), "Deleting" if one.deleting else phase
    if one.deleting:
        why = error or "the stream is let go"
        return condition("Ready", False, "Deleting", why), None, "Deleting"
    if existing is None:
        if finding is not None:
            return condition("Ready", False, finding.reason, finding.message), None, _stuck(finding)
        return condition("Ready", False, "Creating", error or "the stream is being made"), None, "Pending"
    ready, in_sync = _readiness(existing), _sync(existing)
    phase = "Ready"
    if ready["status"] == "False" or in_sync["status"] == "False":
        phase = "Degraded"
    if any(_moves(partition) for partition in existing.partitions):
        phase = "Moving"
    if finding is not None or error:
        # It is there, and not as it is to be.
        reason, message = (finding.reason, finding.message) if finding else ("CannotChange", error)
        ready = condition("Ready", False, reason, message)
        phase = _stuck(finding) if finding else "Degraded"
    return ready, in_sync, phase


def _readiness(existing: StreamDescription) -> Status:
    needed = existing.config.min_insync_effective
    leaderless = [one.partition for one in existing.partitions if one.leader is None]
    short = [one.partition for one in existing.partitions if len(one.isr) < needed]
    if leaderless:
        message = f"{_listed(leaderless)} has no leader: it can be neither written nor read now"
        return condition("Ready", False, "NoLeader", message)
    if short:
        message = (
            f"{_listed(short)} has fewer than {needed} copies in sync (minInsyncReplicas): it can be read, "
            "and is not written to until more have caught up"
        )
        return condition("Ready", False, "TooFewInSync", message)
    count = len(existing.partitions)
    partitions = "its partition is" if count == 1 else f"all {count} partitions are"
    return condition("Ready", True, "Serving", f"{partitions} written and read")


def _sync(existing: StreamDescription) -> Status:
    behind = [one.partition for one in existing.partitions if one.lagging]
    if behind:
        return condition("InSync", False, "CatchingUp", f"{_listed(behind)} has a copy that is behind")
    return condition("InSync", True, "InSync", "every copy has everything")


def _listed(partitions: Sequence[int]) -> str:
    shown = ", ".join(map(str, partitions[:NAMED_MAX]))
    more = len(partitions) - NAMED_MAX
    noun = "partition" if len(partitions) == 1 else "each of the partitions"
    return f"{noun} {shown}" + (f" and {more} more" if more > 0 else "")


def _stuck(finding: Finding) -> str:
    return {"Conflict": "Conflict", "Invalid": "Invalid"}.get(finding.reason, "Pending")
