"""Conditions: built, kept while the brokers do not answer, and stamped with the time of their last
transition. Pure.

The time of a condition is that of the last change of its status, so a status is made from the previous one. A
status that has not changed gives the same value, and is not written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog_operator.model import Manifest

Status = dict[str, Any]


def condition(kind: str, holds: bool | None, reason: str, message: str) -> Status:
    """Returns a condition; `holds` None: unknown. `message` is a whole sentence."""
    status = "Unknown" if holds is None else str(holds)
    return {"type": kind, "status": status, "reason": reason, "message": message}


def kept(before: Manifest, kind: str) -> Status | None:
    """Returns the last known condition as unknown; None: there is none."""
    last = _before(before, kind)
    if last is None:
        return None
    if last["status"] == "Unknown":
        return condition(kind, None, last["reason"], last["message"])
    message = f"The brokers do not answer. When they answered last, this condition was {last['status']}."
    return condition(kind, None, "BrokersUnreachable", message)


def timed(one: Status, status: Manifest, generation: int, now: str) -> Status:
    """Adds the generation and the time of the last transition; `status` is the previous status."""
    before = _before(status, one["type"])
    same = before is not None and before["status"] == one["status"]
    since = before["lastTransitionTime"] if same and before is not None else now
    return {**one, "observedGeneration": generation, "lastTransitionTime": since}


def _before(status: Manifest, kind: str) -> Mapping[str, Any] | None:
    return next((one for one in status.get("conditions", ()) if one["type"] == kind), None)


def sentence(text: str) -> str:
    """Ends `text` with a full stop, so that another sentence can follow it."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."
