"""Conditions of objects: how they are told, timed, and kept when nobody can be asked. Pure.

A condition's time is that of its last change of status, so a status is made from the one before. Whatever
did not change gives the same value, and is not written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog_operator.model import Manifest

Status = dict[str, Any]


def condition(kind: str, holds: bool | None, reason: str, message: str) -> Status:
    """`holds` None: nobody knows."""
    status = "Unknown" if holds is None else str(holds)
    return {"type": kind, "status": status, "reason": reason, "message": message}


def kept(before: Manifest, kind: str) -> Status | None:
    """The condition as it was last known, unknown now."""
    last = _before(before, kind)
    if last is None:
        return None
    if last["status"] == "Unknown":
        return condition(kind, None, last["reason"], last["message"])
    message = f"it was {last['status']} when the brokers answered last"
    return condition(kind, None, "BrokersUnreachable", message)


def timed(one: Status, status: Manifest, generation: int, now: str) -> Status:
    """With the time of its last change: `status` is the one before."""
    before = _before(status, one["type"])
    same = before is not None and before["status"] == one["status"]
    since = before["lastTransitionTime"] if same and before is not None else now
    return {**one, "observedGeneration": generation, "lastTransitionTime": since}


def _before(status: Manifest, kind: str) -> Mapping[str, Any] | None:
    return next((one for one in status.get("conditions", ()) if one["type"] == kind), None)
