"""Plans the Streams of a Cluster: compares their specs with the streams of the brokers, and creates, adopts,
changes, retains or deletes streams.

A stream belongs to one object at a time: its owner among the brokers is the claim of that object. If another
object owns the stream, a Stream reports a conflict, and the operator changes nothing. A claim of an object
that no longer exists counts for nothing. So an object that leaves its stream behind can be deleted without
the operator, which updates the owner afterwards. Only an object that takes its stream with it waits for the
operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tidelog.errors import InvalidRequest
from tidelog.model import PartitionDescription, StreamConfig, StreamDescription, StreamSettings
from tidelog_operator.actions import (
    AddFinalizer,
    AlterStream,
    CreateStream,
    DeleteStream,
    MovePartition,
    Reassign,
    RemoveFinalizer,
    RetainStream,
    StreamAction,
)
from tidelog_operator.model import CLAIM_PREFIX, STREAM, StreamClaim, StreamObject, read_claim
from tidelog_operator.plan.placement import BrokersView, Placement, move

RETAINED_PREFIX: Final = "retained:"
"""Prefix of the owner of a stream whose object was deleted; any object may adopt the stream."""

RETAINED_AT_ONCE_MAX: Final = 50
"""Streams of deleted objects that one reconciliation updates: no user waits for them, but every user waits
for the reconciliation."""


class Reason(StrEnum):
    """Why a Stream does not match its spec: the reasons of its conditions."""

    CONFLICT = "Conflict"
    """Another owner has the stream."""
    INVALID = "Invalid"
    """The spec can never be fulfilled."""
    WAITING = "WaitingForBrokers"
    """The spec will be fulfilled when more brokers are available."""


@dataclass(frozen=True, slots=True)
class Finding:
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions for one object, in this order, and what prevents its desired state."""

    object: StreamObject
    actions: tuple[StreamAction, ...] = ()
    finding: Finding | None = None


def plan_streams(objects: Sequence[StreamObject], cluster: str, view: BrokersView) -> list[Decision]:
    """Plans each object that names `cluster`. `objects` are all Streams of the namespace: their claims are
    valid."""
    alive = {one.uid for one in objects}
    mine = sorted((one for one in objects if one.cluster == cluster), key=lambda one: one.age_rank)
    placement, first = Placement(view), _first_of(mine, view)
    decisions = []
    for one in mine:
        existing = view.streams.get(one.stream_name)
        if one.deleting:
            decisions.append(_deleted(one, existing))
        elif one.unreadable:
            decisions.append(Decision(one, finding=Finding(Reason.INVALID, one.unreadable)))
        elif first[one.stream_name] is not one:
            decisions.append(_with_finalizer(_conflict(one, first[one.stream_name]), existing))
        else:
            decisions.append(_with_finalizer(_reconcile(one, existing, alive, view, placement), existing))
    return decisions


def plan_retained(
    objects: Sequence[StreamObject], namespace: str, view: BrokersView, decisions: Sequence[Decision]
) -> tuple[RetainStream, ...]:
    """Plans the streams that deleted objects of this namespace claimed, except those that `decisions` give to
    another object.

    `objects` are all Streams of the namespace. Claims of other namespaces stay: their objects are not known
    here. `apply` checks that the object no longer exists.
    """
    alive = {one.uid for one in objects}
    taken = {each.name for one in decisions for each in one.actions if isinstance(each, AlterStream)}
    found = []
    for name, existing in sorted(view.streams.items()):
        claim = read_claim(existing.owner)
        if claim is None or claim.key.namespace != namespace or claim.uid in alive or name in taken:
            continue
        owner = f"{RETAINED_PREFIX}{claim.key}"
        found.append(RetainStream(claim, name, existing.stream_id, existing.version, owner))
    return tuple(found[:RETAINED_AT_ONCE_MAX])


def plan_without_cluster(objects: Sequence[StreamObject], cluster: str) -> list[Decision]:
    """Plans Streams whose Cluster does not exist: without brokers, the finalizer of a deleted Stream is
    removed at once."""
    mine = [one for one in objects if one.cluster == cluster]
    return [_release(one) for one in mine if one.finalized and (one.deleting or one.needs_no_operator)]


def plan_without_brokers(objects: Sequence[StreamObject], cluster: str) -> list[Decision]:
    """Plans Streams whose brokers do not answer: removes the finalizer of those that need nothing from the
    brokers."""
    mine = [one for one in objects if one.cluster == cluster]
    return [_release(one) for one in mine if one.finalized and one.needs_no_operator]


def _first_of(objects: Sequence[StreamObject], view: BrokersView) -> Mapping[str, StreamObject]:
    """Returns which object gets each stream name: of the objects that are not being deleted the owner of the
    stream, else the oldest.

    Creation times are in seconds, so an owner may look as old as an object that came after it.
    """

    def rank(one: StreamObject) -> tuple[bool, bool, tuple[str, str]]:
        existing = view.streams.get(one.stream_name)
        owns = existing is not None and existing.owner == one.claim
        return (one.deleting, not owns, one.age_rank)

    first: dict[str, StreamObject] = {}
    for one in sorted(objects, key=rank):
        first.setdefault(one.stream_name, one)
    return first


def _deleted(one: StreamObject, existing: StreamDescription | None) -> Decision:
    if not one.finalized:
        return Decision(one)
    if one.needs_no_operator or existing is None or existing.owner != one.claim:
        return _release(one)
    delete = DeleteStream(one.key, existing.name, existing.stream_id, existing.version)
    return Decision(one, (delete, RemoveFinalizer(STREAM, one.key)))


def _with_finalizer(decision: Decision, existing: StreamDescription | None) -> Decision:
    """Adds or removes the finalizer before all other actions.

    An object that owns its stream and must delete it gets the finalizer even if something else prevents its
    desired state.
    """
    one = decision.object
    action: StreamAction
    if one.needs_no_operator:
        if not one.finalized:
            return decision
        action = RemoveFinalizer(STREAM, one.key)
    else:
        owns = existing is not None and existing.owner == one.claim
        if one.finalized or (decision.finding is not None and not owns):
            return decision
        action = AddFinalizer(STREAM, one.key)
    return replace(decision, actions=(action, *decision.actions))


def _release(one: StreamObject) -> Decision:
    return Decision(one, (RemoveFinalizer(STREAM, one.key),))


def _conflict(one: StreamObject, first: StreamObject) -> Decision:
    return Decision(
        one,
        finding=Finding(
            Reason.CONFLICT,
            f"The stream {one.stream_name} belongs to the Stream {first.key.name}, which claimed it first. "
            "Delete one of the two Streams, or create this one with another streamName.",
        ),
    )


def _reconcile(
    one: StreamObject,
    existing: StreamDescription | None,
    alive: set[str],
    view: BrokersView,
    placement: Placement,
) -> Decision:
    try:
        one.settings.on(StreamConfig())
        if existing is None:
            actions: list[StreamAction] = [_create(one, view, placement)]
        elif _is_owned_by_other(existing.owner, one.claim, alive):
            return Decision(one, finding=_owned_by_other(existing))
        else:
            _check_adoptable(one, existing)
            actions = _changes(one, existing, placement)
    except InvalidRequest as error:
        return Decision(one, finding=Finding(Reason.INVALID, str(error)))
    except _TooFewBrokers as error:
        return Decision(one, finding=Finding(Reason.WAITING, str(error)))
    return Decision(one, tuple(actions))


class _TooFewBrokers(Exception):
    """Too few brokers can take replicas now."""


def _create(one: StreamObject, view: BrokersView, placement: Placement) -> CreateStream:
    config = one.settings.for_new_stream(len(view.expected))
    factor = config.replication_factor
    _check_enough(factor, placement)
    # Brokers reject a minimum above the replication factor.
    minimum = min(config.min_insync_replicas, factor)
    return CreateStream(
        one.key,
        one.stream_name,
        replace(one.settings, replication_factor=factor, min_insync_replicas=minimum),
        one.claim,
        placement.new(config.partitions, factor),
    )


def _is_owned_by_other(owner: str, claim: str, alive: set[str]) -> bool:
    if owner in ("", claim) or owner.startswith(RETAINED_PREFIX):
        return False
    return not owner.startswith(CLAIM_PREFIX) or owner.rpartition("/")[2] in alive


def _owned_by_other(existing: StreamDescription) -> Finding:
    return Finding(
        Reason.CONFLICT,
        f"The stream {existing.name} belongs to {existing.owner}. The operator changes it only after its "
        "owner has released it.",
    )


def _check_adoptable(one: StreamObject, existing: StreamDescription) -> None:
    partitions = one.settings.partitions
    if partitions is not None and partitions < len(existing.partitions):
        raise InvalidRequest(
            f"The stream {existing.name} has {len(existing.partitions)} partitions, but this Stream asks "
            f"for {partitions}. Partitions cannot be removed: set partitions to {len(existing.partitions)} "
            "or more.",
            field="partitions",
        )


def _changes(one: StreamObject, existing: StreamDescription, placement: Placement) -> list[StreamAction]:
    actions: list[StreamAction] = []
    differing = {
        name: asked
        for name, (_, asked) in one.settings.differing(existing.config).items()
        if name != "replication_factor"
    }
    if one.settings.replication_factor is None and _has_minimum(one.settings, existing.config):
        differing.pop("min_insync_replicas", None)
    owner = None if existing.owner == one.claim else one.claim
    if differing or owner is not None:
        settings = StreamSettings(**differing)  # type: ignore[arg-type]
        more = max(0, (settings.partitions or 0) - len(existing.partitions))
        factor = existing.config.replication_factor
        if more:
            _check_enough(factor, placement)
        actions.append(
            AlterStream(
                one.key,
                existing.name,
                existing.stream_id,
                existing.version,
                settings,
                owner,
                placement.new(more, factor) if more else (),
                _former(one, existing),
            )
        )
    wanted = one.settings.replication_factor
    moves = [] if wanted is None else _resized(existing, wanted, placement)
    if moves:
        actions.append(
            Reassign(
                tuple(moves), f"to change the replicationFactor of the stream {existing.name} to {wanted}"
            )
        )
    return actions


def _former(one: StreamObject, existing: StreamDescription) -> StreamClaim | None:
    """Returns the claim of the previous owner; None if there is none. An object of another namespace cannot
    use these brokers, so such a claim counts as none."""
    claim = read_claim(existing.owner)
    if claim is None or existing.owner == one.claim or claim.key.namespace != one.key.namespace:
        return None
    return claim


def _has_minimum(settings: StreamSettings, config: StreamConfig) -> bool:
    """Whether both minimums require the same number of in-sync replicas for this replication factor."""
    asked = settings.min_insync_replicas
    return asked is not None and min(asked, config.replication_factor) == config.min_insync_effective


def _resized(existing: StreamDescription, factor: int, placement: Placement) -> list[MovePartition]:
    """Returns moves for all partitions that do not have, and will not have, this number of replicas."""
    other: list[PartitionDescription] = [one for one in existing.partitions if len(one.target) != factor]
    if not other:
        return []
    if any(len(one.target) < factor for one in other):
        _check_enough(factor, placement)
    targets = placement.resized(existing.name, other, factor)
    return [move(existing, one, target) for one, target in zip(other, targets, strict=True)]


def _check_enough(factor: int, placement: Placement) -> None:
    there = len(placement.loads)
    if there < factor:
        raise _TooFewBrokers(
            f"{factor} replicas of each partition need {factor} brokers, but only {there} can take replicas "
            "now. The operator continues when more brokers are available."
        )
