"""Which Ingestions use the same checkpoint or the same sink: only the oldest of them may run, and only when
no driver of another Ingestion writes there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog_operator.ingestions import IngestionObject, IngestionSpec
from tidelog_operator.model import ObjectKey
from tidelog_operator.resources.path_claims import Identity, PathClaim, path_claims


class Conflict(NamedTuple):
    reason: str
    """Of a condition."""
    message: str


@dataclass(frozen=True, slots=True)
class Holder:
    """An object that stands for a driver that runs or may run: a Job or a pod that has not ended, or a
    CronJob that is not suspended. It holds its paths although its Ingestion may be gone."""

    kind: str
    key: ObjectKey
    ingestion: ObjectKey
    """The Ingestion that it was made for. Another one may have the name now."""
    created: str
    """RFC 3339."""
    owners: frozenset[str]
    """Their uids."""
    paths: frozenset[Identity]


def conflict_of(
    one: IngestionObject, spec: IngestionSpec, ingestions: Sequence[IngestionObject]
) -> Conflict | None:
    """Returns the conflict with an older Ingestion; None: there is none."""
    mine = {claim.identity: claim for claim in path_claims(one, spec)}
    for other in sorted(ingestions, key=lambda each: each.age_rank):
        if other.uid == one.uid or other.spec is None or other.age_rank > one.age_rank:
            continue
        for theirs in path_claims(other, other.spec):
            claim = mine.get(theirs.identity)
            if claim is not None:
                return Conflict(claim.reason, _message(claim, one, other))
    return None


def waits_for(
    one: IngestionObject, spec: IngestionSpec, mine: frozenset[str], holders: Sequence[Holder]
) -> str:
    """Says which driver must end before a run of this Ingestion begins; empty: none. `mine`: the uids of this
    Ingestion, its CronJob and its Jobs."""
    claims = {claim.identity: claim for claim in path_claims(one, spec)}
    for holder in holders:
        if _is_mine(holder, one, spec, mine):
            continue
        shared = next((claims[each] for each in sorted(holder.paths) if each in claims), None)
        if shared is not None:
            return _waiting(shared, one, holder)
    return ""


def _is_mine(holder: Holder, one: IngestionObject, spec: IngestionSpec, mine: frozenset[str]) -> bool:
    if holder.owners & mine:
        return True
    if holder.ingestion != one.key:
        return False
    if holder.kind == "CronJob":
        # The plan suspends, changes or deletes what has this name.
        return True
    # Jobs and pods have watches of their own: the pod of a run may be seen before the Job that the CronJob's
    # controller made. The Jobs of a continuous Ingestion are always known, because the operator makes them.
    return holder.kind == "Pod" and spec.timetable is not None and holder.created > one.created


def _message(claim: PathClaim, one: IngestionObject, other: IngestionObject) -> str:
    name = _shown(other.key, one)
    return (
        f"The older Ingestion {name} has the same {claim.what}, {claim.path}. With two drivers neither would "
        f"write each record once. Choose another {claim.what}, or delete one of the two Ingestions."
    )


def _waiting(claim: PathClaim, one: IngestionObject, holder: Holder) -> str:
    kind = "pod" if holder.kind == "Pod" else holder.kind
    what = "is not suspended" if holder.kind == "CronJob" else "has not ended"
    asked = f"`kubectl describe {holder.kind.lower()} {holder.key.name}` says why"
    if holder.ingestion == one.key:
        owner, then = f"an earlier Ingestion {one.key.name}", f"If this takes minutes, {asked}."
    else:
        owner = f"the Ingestion {_shown(holder.ingestion, one)}"
        then = f"If this takes minutes, suspend that Ingestion or delete it; if it is gone, {asked}."
    return (
        f"The {kind} {_shown(holder.key, one)} of {owner} {what}. It has the same {claim.what}, "
        f"{claim.path}. With two drivers neither would write each record once, so no run begins before that. "
        f"{then}"
    )


def _shown(key: ObjectKey, one: IngestionObject) -> str:
    return key.name if key.namespace == one.key.namespace else str(key)
