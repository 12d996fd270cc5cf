"""One `PartitionChange` applied to one partition: what `apply` does for each change of an entry.

Decisions use it as well, to see the result of the changes that they have made so far. `eligibility` says
which replicas are eligible afterwards; this module applies the steps in their order: replicas, ISR,
leader.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from tidelog_broker.core.metadata import eligibility
from tidelog_broker.core.metadata.commands import PartitionChange
from tidelog_broker.core.metadata.feature_levels import ASSIGNMENTS
from tidelog_broker.core.metadata.image import PartitionImage, StreamImage


def after_change(
    stream: StreamImage, partition: PartitionImage, change: PartitionChange, feature_level: int
) -> PartitionImage:
    """`partition` after `change`; unchanged if the change is not valid for it. `feature_level` is the
    image's.

    A change is decided on the image that it is applied to, so an invalid change is a
    bug elsewhere. It must not break an invariant that every broker relies on, nor end all brokers at once.
    """
    after = partition
    if change.replicas is not UNSET or change.adding is not UNSET or change.removing is not UNSET:
        after = replace(
            after,
            replicas=after.replicas if change.replicas is UNSET else change.replicas,
            adding=after.adding if change.adding is UNSET else change.adding,
            removing=after.removing if change.removing is UNSET else change.removing,
        )
        after = replace(after, assignments=_assigned(partition, after.replicas, feature_level))
    if change.isr is not UNSET and change.isr != after.isr:
        after = eligibility.with_isr(stream, after, change.isr)
    if change.leader is None:
        after = replace(after, leader=None)
    elif change.leader is not UNSET:
        clean = change.leader in after.isr or change.leader in after.eligible
        if not clean and not change.unclean:
            return partition
        after = eligibility.elected(stream, after, change.leader, unclean=change.unclean)
    if after.replicas is not partition.replicas:
        after = _only_replicas(after)
    if not set(after.isr) <= set(after.replicas):
        return partition
    return replace(after, partition_epoch=partition.partition_epoch + 1)


def _assigned(before: PartitionImage, replicas: tuple[int, ...], feature_level: int) -> tuple[int, ...]:
    """R16: a broker that stays keeps its assignment; an added broker gets one that it never had here before.

    Below the feature level all stay 0: snapshots of brokers of earlier versions would not have the numbers,
    and images would differ.
    """
    new = before.partition_epoch + 1 if feature_level >= ASSIGNMENTS else 0
    found = tuple(before.assignment_of(one) if one in before.replicas else new for one in replicas)
    return found if any(found) else ()


def _only_replicas(partition: PartitionImage) -> PartitionImage:
    """Removes brokers without a replica from the eligible and the last-known replicas."""
    return replace(
        partition,
        eligible=tuple(broker for broker in partition.eligible if broker in partition.replicas),
        last_known=tuple(known for known in partition.last_known if known.broker in partition.replicas),
    )
