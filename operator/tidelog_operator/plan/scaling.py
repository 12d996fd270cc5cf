"""Plans the number of brokers. New brokers are added at once; brokers are removed only when they hold
nothing.

The brokers with the highest ids are removed, because a StatefulSet removes its last pods. They are cordoned,
drained a few partitions at a time, lose their votes (the brokers do that), and are unregistered. Only then
the StatefulSet loses one pod, and then the next one. A change of the desired number meanwhile takes effect at
once: a broker that should stay after all is uncordoned. While the brokers have no controller, nothing is
removed, and no broker is changed.

A broker can lose its pod although it holds replicas: a former operator that was suspended gave them to it at
the last moment, or another client removed the pod. Its replicas move away too, as long as other brokers have
the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidelog.errors import InvalidRequest
from tidelog.model import BrokerStanding, PartitionDescription
from tidelog.placement import BrokerLoad, drain
from tidelog.wording import listed
from tidelog_operator.actions import (
    BrokerAction,
    CordonBroker,
    Reassign,
    SetBrokerCount,
    UncordonBroker,
    UnregisterBroker,
)
from tidelog_operator.plan.placement import BrokersView, Placement, move
from tidelog_operator.resources.stateful_set import Pods

ScalingAction: TypeAlias = BrokerAction | SetBrokerCount

FENCED: Final = "fenced"
DRAIN_BROKERS: Final = "to drain brokers that will be removed"
DRAIN_STRANDED: Final = "to drain brokers that have no pods"


@dataclass(frozen=True, slots=True)
class Scaling:
    actions: tuple[ScalingAction, ...] = ()
    problem: str = ""
    """Why the number of brokers cannot be reduced as desired; empty: it can."""


def plan_scaling(wanted: int, pods: Pods, view: BrokersView | None, moves_at_once: int) -> Scaling:
    """Plans the way from `pods.count` pods to `wanted` brokers; `moves_at_once` partitions move at the same
    time. `view` None: the brokers do not answer."""
    if view is None or view.cluster.controller is None:
        more = wanted > pods.count and not pods.draining
        return Scaling((SetBrokerCount(pods.count, wanted, ()),) if more else ())
    found = _steps(wanted, pods, view, moves_at_once)
    unexpected = _unexpected(max(wanted, pods.count), view)
    empty = tuple(one for one in unexpected if not one.replicas and one.broker_id not in view.cluster.voters)
    unregistered = (UnregisterBroker(one.broker_id, one.version) for one in empty)
    stranded = [one.broker_id for one in unexpected if one not in empty]
    drained = _drain_stranded(stranded, found, view, moves_at_once)
    return Scaling((*found.actions, *unregistered, *drained.actions), found.problem or drained.problem)


def _drain_stranded(
    stranded: Sequence[int], found: Scaling, view: BrokersView, moves_at_once: int
) -> Scaling:
    """Plans moves away from brokers without pods, after the moves that are `found` already."""
    stuck = [one for one in stranded if one in view.cluster.voters or _holds_without_leader(one, view)]
    if found.problem or any(isinstance(one, Reassign) for one in found.actions):
        return Scaling(problem=_stranded(stuck))
    try:
        moves = _drain(tuple(stranded), view, moves_at_once, DRAIN_STRANDED)
    except InvalidRequest:
        # There are too few other brokers.
        return Scaling(problem=_stranded(stranded))
    return Scaling(tuple(moves), _stranded(stuck))


def _holds_without_leader(broker: int, view: BrokersView) -> bool:
    """Whether the broker holds a replica of a partition that no other broker can lead."""
    return any(
        one.leader is None and broker in one.replicas
        for stream in view.streams.values()
        for one in stream.partitions
    )


def _steps(wanted: int, pods: Pods, view: BrokersView, moves_at_once: int) -> Scaling:
    back: list[ScalingAction] = [
        # Independent of the observed state: this invalidates a request that another operator may be about to
        # send.
        UncordonBroker(broker, view.version_of(broker))
        for broker in _registered(pods.draining, view)
        if broker < wanted
    ]
    if _is_half_removed(pods, view):
        return Scaling((*back, *_remove_last(pods, view)))
    if wanted >= pods.count:
        if wanted > pods.count or pods.draining:
            back.append(SetBrokerCount(pods.count, wanted, ()))
        return Scaling(tuple(back))
    leaving = tuple(range(wanted, pods.count))
    cordoned = {one.broker_id for one in view.cluster.standings if one.cordoned}
    problem = _why_not(wanted, cordoned, view)
    if problem:
        still = tuple(broker for broker in pods.draining if broker >= wanted)
        if still != pods.draining:
            back.append(SetBrokerCount(pods.count, pods.count, still))
        return Scaling(tuple(back), problem)
    if pods.draining != leaving:
        # Recorded before a broker is cordoned, so that the next operator knows which brokers to uncordon.
        return Scaling((*back, SetBrokerCount(pods.count, pods.count, leaving)))
    try:
        drained = _drain(leaving, view, moves_at_once, DRAIN_BROKERS)
    except InvalidRequest as error:
        return Scaling(tuple(back), f"The brokers that will be removed cannot be drained now: {error}")
    schedulable = [one for one in _registered(leaving, view) if one not in cordoned]
    actions = [*back, *(CordonBroker(one, view.version_of(one)) for one in schedulable)]
    return Scaling((*actions, *drained, *_remove_if_drained(leaving[-1], pods, view)))


def _why_not(wanted: int, cordoned: set[int], view: BrokersView) -> str:
    staying = [one.broker_id for one in view.cluster.brokers if one.broker_id < wanted]
    usable = [broker for broker in staying if broker not in cordoned]
    for name in sorted(view.streams):
        factor = max((len(one.target) for one in view.streams[name].partitions), default=1)
        if factor > len(usable):
            return (
                f"The stream {name} has {factor} replicas of each partition, but only "
                f"{_brokers(len(usable))} would remain to hold them. Lower its replicationFactor first."
            )
    voters, odd = len(view.cluster.voters), len(usable) - 1 + len(usable) % 2
    # While a vote moves to another broker, there is one more voter.
    if len(usable) < voters - 1 + voters % 2:
        return (
            f"{voters} brokers vote on the metadata, but only {_brokers(len(usable))} that can vote would "
            f"remain. Set voters to {max(1, odd)} first."
        )
    return ""


def _brokers(count: int) -> str:
    return f"{count} broker{'' if count == 1 else 's'}"


def _registered(brokers: Sequence[int], view: BrokersView) -> list[int]:
    known = {one.broker_id for one in view.cluster.brokers}
    return [broker for broker in brokers if broker in known]


def _drain(leaving: tuple[int, ...], view: BrokersView, moves_at_once: int, why: str) -> list[ScalingAction]:
    """Returns the next moves away from the leaving brokers, up to `moves_at_once` together with the running
    ones. A partition without a leader waits: nothing can be copied from it. Raises `InvalidRequest` if too
    few brokers may get replicas now."""
    parts = [
        (stream, one)
        for _, stream in sorted(view.streams.items())
        for one in stream.partitions
        if one.leader is not None and any(broker in leaving for broker in one.target)
    ]
    moving = sum(_moves(one) for stream in view.streams.values() for one in stream.partitions)
    room = max(0, moves_at_once - moving)
    # A replica that moves to a leaving broker is redirected at once; that does not count as another move.
    begin = [pair for pair in parts if set(pair[1].adding).intersection(leaving)]
    begin += [pair for pair in parts if not _moves(pair[1])][:room]
    sizes = [view.size_of(stream.name, one.partition) for stream, one in begin]
    targets = _drain_targets([one.target for _, one in begin], sizes, leaving, view)
    moves = tuple(move(stream, one, target) for (stream, one), target in zip(begin, targets, strict=True))
    return [Reassign(moves, why)] if moves else []


def _drain_targets(
    targets: list[tuple[int, ...]], sizes: list[int], leaving: Sequence[int], view: BrokersView
) -> list[tuple[int, ...]]:
    staying: list[BrokerLoad] = [one for one in Placement(view).loads if one.broker_id not in leaving]
    for broker in leaving:
        targets = drain(staying, targets, broker, racks=view.zones, sizes=sizes)
    return targets


def _moves(one: PartitionDescription) -> bool:
    return bool(one.adding or one.removing)


def _remove_if_drained(last: int, pods: Pods, view: BrokersView) -> list[ScalingAction]:
    """Removes the last pod if its broker holds nothing and does not vote."""
    standing = next((one for one in view.cluster.standings if one.broker_id == last), None)
    if standing is not None and (standing.replicas or last in view.cluster.voters or not standing.cordoned):
        return []
    return _remove_last(pods, view)


def _remove_last(pods: Pods, view: BrokersView) -> list[ScalingAction]:
    """Unregisters the broker even if it seems not to be registered: it may have registered a moment ago."""
    last = pods.count - 1
    return [
        UnregisterBroker(last, view.version_of(last)),
        SetBrokerCount(pods.count, last, pods.draining[:-1]),
    ]


def _is_half_removed(pods: Pods, view: BrokersView) -> bool:
    """Whether the last broker is unregistered but its pod still exists. The pod is removed; if the broker
    should stay after all, it comes back with another volume."""
    last = pods.count - 1
    return pods.draining[-1:] == (last,) and not _registered((last,), view)


def _unexpected(count: int, view: BrokersView) -> list[BrokerStanding]:
    """Returns brokers without pods: they registered again while they stopped, or another client removed their
    pods."""
    return [one for one in view.cluster.standings if one.broker_id >= count and one.state == FENCED]


def _stranded(brokers: Sequence[int]) -> str:
    if not brokers:
        return ""
    return (
        "Brokers without pods still hold votes, or replicas that no other broker can take over: "
        f"{listed(brokers)}. Set brokers to {max(brokers) + 1}, wait until all brokers are ready, and then "
        "set the number that you want."
    )
