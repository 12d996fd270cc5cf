"""Replicas move: to other brokers, away from a drained broker, or back (KIP-455).

A reassignment names the target replicas. Until it ends, the partition has the target replicas and
the replicas that will be removed; `PartitionImage.adding` and `removing` say which. The new replicas
follow and join the ISR like any follower (R4). When all have joined, one entry ends the reassignment: the
others leave the ISR and the replicas. No step here may take an ISR below its minimum, because a
broker without a replica cannot be eligible (R6).

The target may have more or fewer replicas than before: the stream's replication factor follows
(`replication_factor`).

`tidelog.placement` chooses the target brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import UNSET, UnsetType

from tidelog.errors import InvalidRequest, Unavailable, VersionConflict
from tidelog.model import REPLICATION_FACTOR_MAX
from tidelog.placement import BrokerLoad
from tidelog.placement import drain as drained
from tidelog.wording import listed
from tidelog_broker.core.metadata.commands import ChangeBroker, ChangePartitions, PartitionChange, SetThrottle
from tidelog_broker.core.metadata.decisions.brokers import check_version, registered
from tidelog_broker.core.metadata.decisions.elections import PartitionKey, candidates, existing_partition
from tidelog_broker.core.metadata.eligibility import is_below_minimum
from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage, PartitionImage, Share, StreamImage

MOVES_MAX = 10_000
"""Partitions that one entry begins to move; a drain of more must be requested again."""

THROTTLE_BYTES_MIN = 64 << 10
"""Bytes a second; at a lower rate a partition with writes never catches up."""

NO_EPOCHS: Mapping[PartitionKey, int] = MappingProxyType({})


def reassign(
    image: ClusterImage, stream_id: bytes, targets: Mapping[int, Sequence[int]]
) -> ChangePartitions | None:
    """Moves each partition to its target replicas, the preferred leader first; None: nothing changes.

    It replaces a reassignment that is in progress. Raises `InvalidRequest`,
    `Unavailable`, `StreamNotFound`, `PartitionNotFound`.
    """
    return reassign_all(image, {(stream_id, number): target for number, target in sorted(targets.items())})


def reassign_all(
    image: ClusterImage,
    targets: Mapping[PartitionKey, Sequence[int]],
    epochs: Mapping[PartitionKey, int] = NO_EPOCHS,
) -> ChangePartitions | None:
    """`reassign` for several streams at once: everything or nothing.

    `epochs`: the partition epochs that the request rests on; a partition may be left out. Raises
    `VersionConflict` if one has changed, unless the target is set already: so a request may be repeated.
    """
    if len(targets) > MOVES_MAX:
        raise InvalidRequest(
            f"{len(targets)} partitions would begin to move at once, but at most {MOVES_MAX} may; "
            "move them in steps",
        )
    changes = []
    for (stream_id, number), target in targets.items():
        stream, partition = existing_partition(image, stream_id, number)
        if tuple(target) == partition.target:
            continue
        _check_epoch(stream, number, partition, epochs.get((stream_id, number)))
        _check(image, stream, number, partition, tuple(target))
        change = _towards(image, stream, number, partition, tuple(target))
        if change is not None:
            changes.append(change)
    return ChangePartitions(tuple(changes)) if changes else None


def throttle(image: ClusterImage, bytes_per_second: int) -> SetThrottle | None:
    """Sets the rate of replicas that move; None: it is set already. Raises `InvalidRequest`."""
    if bytes_per_second and bytes_per_second < THROTTLE_BYTES_MIN:
        raise InvalidRequest(
            f"bytes_per_second is {bytes_per_second}; it must be at least {THROTTLE_BYTES_MIN}, or 0 for "
            "the setting of each broker",
            field="bytes_per_second",
        )
    return None if image.throttle_bytes_per_second == bytes_per_second else SetThrottle(bytes_per_second)


def cancel(image: ClusterImage, stream_id: bytes, partitions: Iterable[int]) -> ChangePartitions | None:
    """Moves partitions back to the replicas before their reassignment; None: no reassignment is in progress.

    Raises `Unavailable` if that would remove replicas that the partition
    needs now; `StreamNotFound`, `PartitionNotFound`.
    """
    changes = []
    for number in sorted(set(partitions)):
        stream, partition = existing_partition(image, stream_id, number)
        change = (
            _towards(image, stream, number, partition, partition.origin) if partition.reassigning else None
        )
        if change is not None:
            changes.append(change)
    return ChangePartitions(tuple(changes)) if changes else None


def cordon(
    image: ClusterImage, broker: int, cordoned: bool, *, expected_version: int | None = None
) -> ChangeBroker | None:
    """Stops or allows new replicas on `broker`; None: it is so already. Raises `InvalidRequest`.

    With `expected_version` it raises `VersionConflict` if an administrator changed the broker since. Then it
    makes an entry even without a change: the new version invalidates decisions that others made meanwhile.
    """
    found = registered(image, broker)
    if expected_version is None:
        return None if found.cordoned == cordoned else ChangeBroker(broker, cordoned=cordoned)
    check_version(found, expected_version)
    return ChangeBroker(broker, cordoned=cordoned)


def drain(image: ClusterImage, broker: int, moves_max: int = MOVES_MAX) -> ChangeBroker | None:
    """Cordons `broker` and begins to move its replicas away; None: no replica is left to move.

    Raises `InvalidRequest` if there are too few other brokers that may get replicas now.
    """
    found = registered(image, broker)
    if len(image.brokers) == 1:
        raise InvalidRequest(
            f"broker {broker} is the only broker, so its replicas cannot move; add another broker first",
            field="broker",
        )
    held = [
        (stream, number, partition)
        for stream in image.streams.values()
        for number, partition in enumerate(stream.partitions)
        if broker in partition.target
    ][:moves_max]
    if not held:
        return None if found.cordoned else ChangeBroker(broker, cordoned=True)
    targets = drained(
        _loads(image, without=broker),
        [partition.target for _, _, partition in held],
        broker,
        racks={other.id: other.rack for other in image.brokers.values()},
    )
    changes = []
    for (stream, number, partition), target in zip(held, targets, strict=True):
        _check(image, stream, number, partition, target)
        change = _towards(image, stream, number, partition, target)
        if change is not None:
            changes.append(change)
    return ChangeBroker(broker, cordoned=True, changes=tuple(changes))


def finished(
    image: ClusterImage, stream: StreamImage, number: int, partition: PartitionImage
) -> PartitionChange | None:
    """The change that ends a partition's reassignment; None: there is none, or it is not complete.

    A reassignment ends when every new replica is in the ISR, and the ISR without the removed replicas
    is not below its minimum.
    """
    if not partition.reassigning or any(broker not in partition.isr for broker in partition.adding):
        return None
    target = partition.target
    isr = tuple(broker for broker in partition.isr if broker in target)
    if is_below_minimum(stream, isr):
        return None
    leader: int | UnsetType | None = UNSET
    if partition.leader is not None and partition.leader not in isr:
        leader = _next_leader(image, partition, isr)
        if leader is None:
            return None
    return PartitionChange(
        stream.id,
        number,
        replicas=target,
        adding=(),
        removing=(),
        isr=UNSET if isr == partition.isr else isr,
        leader=leader,
    )


def _towards(
    image: ClusterImage,
    stream: StreamImage,
    number: int,
    partition: PartitionImage,
    target: tuple[int, ...],
) -> PartitionChange | None:
    """The change that moves the partition from its current state towards `target`. Raises `Unavailable`."""
    origin = partition.origin
    adding = tuple(broker for broker in target if broker not in origin)
    removing = tuple(broker for broker in origin if broker not in target)
    replicas = (*target, *removing)
    if (replicas, adding, removing) == (partition.replicas, partition.adding, partition.removing):
        return None
    isr = tuple(broker for broker in partition.isr if broker in replicas)
    dropped = [broker for broker in (*partition.isr, *partition.eligible) if broker not in replicas]
    leader: int | UnsetType | None = UNSET
    if partition.leader is not None and partition.leader not in isr:
        leader = _next_leader(image, partition, isr)
    # The minimum after the change: while replicas are added it may be higher than the current minimum.
    minimum = min(stream.config.min_insync_replicas, len(origin), len(target))
    if dropped and (len(isr) < minimum or leader is None):
        raise Unavailable(
            f"{stream.name}/{number} still needs its replicas on these brokers: {listed(sorted(dropped))}; "
            f"without them fewer than {minimum} replicas would be in sync; wait until other "
            "replicas have caught up",
            retry_after_ms=1000,
        )
    return PartitionChange(
        stream.id,
        number,
        replicas=replicas,
        adding=adding,
        removing=removing,
        isr=UNSET if isr == partition.isr else isr,
        leader=leader,
    )


def _next_leader(image: ClusterImage, partition: PartitionImage, isr: tuple[int, ...]) -> int | None:
    return next((broker for broker in candidates(image, partition) if broker in isr), None)


def _check_epoch(stream: StreamImage, number: int, partition: PartitionImage, expected: int | None) -> None:
    if expected is not None and expected != partition.partition_epoch:
        raise VersionConflict(
            f"{stream.name}/{number} is in partition epoch {partition.partition_epoch}, not in {expected}; "
            "read it again",
            name=stream.name,
            version=partition.partition_epoch,
        )


def _check(
    image: ClusterImage, stream: StreamImage, number: int, partition: PartitionImage, target: tuple[int, ...]
) -> None:
    where = f"{stream.name}/{number}"
    if len(set(target)) != len(target) or not 1 <= len(target) <= REPLICATION_FACTOR_MAX:
        raise InvalidRequest(
            f"the replicas of {where} must be 1 to {REPLICATION_FACTOR_MAX} different brokers, "
            f"not {listed(target)}",
            field="replicas",
        )
    for broker in target:
        found = registered(image, broker)
        if broker in partition.origin:
            continue
        if found.cordoned:
            raise InvalidRequest(
                f"broker {broker} is cordoned and gets no new replicas; uncordon it, or choose another",
                field="replicas",
            )
        if not found.may_join:
            raise Unavailable(
                f"broker {broker} is {found.state.value}; it can get a replica of {where} once it is active",
                retry_after_ms=1000,
            )


def _loads(image: ClusterImage, *, without: int) -> list[BrokerLoad]:
    return [
        _load(image, broker) for broker in image.brokers.values() if broker.welcome and broker.id != without
    ]


def _load(image: ClusterImage, broker: BrokerImage) -> BrokerLoad:
    share = image.shares.get(broker.id, Share())
    return BrokerLoad(broker.id, broker.rack, share.replicas, share.leaders)
