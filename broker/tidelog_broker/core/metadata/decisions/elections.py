"""R6: which broker leads a partition without a leader, and how leadership moves without a failure.

Each function reads an image and returns the changes for the next entry. `eligibility` says what
an election does to the ISR and the eligible replicas.

The order of preference: members of the ISR before eligible replicas; brokers that are not deprioritized
before those that are (`controller.deprioritized`); brokers that are neither stopping nor cordoned before
those that are; then the order of the replicas, the preferred leader first. An eligible replica comes last
because its election truncates the records that only the members of the ISR have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from tidelog.errors import InvalidRequest, PartitionNotFound, StreamNotFound
from tidelog.wording import listed
from tidelog_broker.core.metadata.commands import ChangePartitions, PartitionChange
from tidelog_broker.core.metadata.image import ClusterImage, PartitionImage, StreamImage

CHANGES_MAX = 50_000
"""Partitions in one entry. At some 60 bytes each that is 3 MB, far below what an entry may
hold, and ten times the 5,000 leaders that one broker of a large cluster loses at once (M4)."""

PartitionKey = tuple[bytes, int]
"""Stream id and partition."""

Deprioritized: TypeAlias = Mapping[int, int]
"""Broker → weight of its reason; a broker that is not in it is not deprioritized."""

DeprioritizedFor: TypeAlias = Callable[[ClusterImage, PartitionKey], Deprioritized]
"""The deprioritized brokers of a partition."""

_NONE_DEPRIORITIZED: Final[Deprioritized] = MappingProxyType({})


def none_deprioritized(image: ClusterImage, key: PartitionKey) -> Deprioritized:
    return _NONE_DEPRIORITIZED


def candidates(
    image: ClusterImage,
    partition: PartitionImage,
    *,
    without: Collection[int] = (),
    deprioritized: Deprioritized = _NONE_DEPRIORITIZED,
) -> list[int]:
    """The brokers that may be elected without loss and are not fenced, the best first."""
    ranked = []
    for clean, members in ((0, partition.isr), (1, partition.eligible)):
        for member in members:
            broker = image.brokers.get(member)
            if broker is not None and not broker.fenced and member not in without:
                rank = (clean, deprioritized.get(member, 0), not broker.welcome, _place_of(partition, member))
                ranked.append((*rank, member))
    ranked.sort()
    return [member for *_, member in ranked]


def elect(
    image: ClusterImage,
    partitions: Iterable[PartitionKey] | None = None,
    *,
    deprioritized: DeprioritizedFor = none_deprioritized,
    changes_max: int = CHANGES_MAX,
) -> tuple[PartitionChange, ...]:
    """Elects a leader for each partition that has none, where a candidate exists; None: all partitions."""
    changes: list[PartitionChange] = []
    for stream, number, partition in _selected(image, partitions):
        if partition.leader is None:
            change = _election(image, stream, number, partition, deprioritized(image, (stream.id, number)))
            if change is not None:
                changes.append(change)
                if len(changes) >= changes_max:
                    break
    return tuple(changes)


def elect_unclean(image: ClusterImage, stream_id: bytes, number: int, broker: int) -> ChangePartitions:
    """Elects `broker` although its log may lack committed records; only by command.

    Raises `InvalidRequest` while a broker is there that has everything committed, or if `broker` cannot
    lead; `StreamNotFound`, `PartitionNotFound`.
    """
    stream, partition = existing_partition(image, stream_id, number)
    clean = candidates(image, partition)
    if clean:
        raise InvalidRequest(
            f"the metadata counts broker {clean[0]}, which is alive, among those that have everything that "
            f"was committed to {stream.name}/{number}; an unclean election would lose records for nothing. "
            f"If `tidelog cluster replicas` says that the replica on broker {clean[0]} is quarantined or "
            'halted, no election of that broker helps: do what "When something is wrong" in '
            "docs/operations.md says",
            field="broker",
        )
    there = image.brokers.get(broker)
    if broker not in partition.replicas or there is None or there.fenced:
        raise InvalidRequest(
            f"broker {broker} cannot lead {stream.name}/{number}: the leader must be one of its replicas "
            f"{listed(partition.replicas)}, registered and not fenced",
            field="broker",
        )
    return ChangePartitions((PartitionChange(stream_id, number, leader=broker, unclean=True),))


def preferred(
    image: ClusterImage,
    partitions: Iterable[PartitionKey] | None = None,
    *,
    deprioritized: DeprioritizedFor = none_deprioritized,
    changes_max: int = CHANGES_MAX,
) -> tuple[PartitionChange, ...]:
    """Moves leadership to the preferred leaders that are in sync and may lead; None: of all partitions.

    A deprioritized preferred leader gets no leadership: it would hand over again.
    """
    changes: list[PartitionChange] = []
    for stream, number, partition in _selected(image, partitions):
        first = partition.replicas[0]
        if partition.leader in (None, first) or first not in partition.isr:
            continue
        broker = image.brokers.get(first)
        if broker is not None and broker.welcome and first not in deprioritized(image, (stream.id, number)):
            changes.append(PartitionChange(stream.id, number, leader=first))
            if len(changes) >= changes_max:
                break
    return tuple(changes)


def hand_over(
    image: ClusterImage,
    broker: int,
    *,
    deprioritized: DeprioritizedFor = none_deprioritized,
    changes_max: int = CHANGES_MAX,
) -> tuple[PartitionChange, ...]:
    """Moves every leadership of `broker` to another member of the ISR that is not stopping; the ISR stays.

    An eligible replica gets no leadership: nothing forces the change, and it would truncate records.
    """
    changes: list[PartitionChange] = []
    for stream, number, partition in _selected(image, None):
        if partition.leader == broker:
            next_leader = successor(image, partition, deprioritized=deprioritized(image, (stream.id, number)))
            if next_leader is not None:
                changes.append(PartitionChange(stream.id, number, leader=next_leader))
                if len(changes) >= changes_max:
                    break
    return tuple(changes)


def successor(
    image: ClusterImage, partition: PartitionImage, *, deprioritized: Deprioritized = _NONE_DEPRIORITIZED
) -> int | None:
    """The member of the ISR that takes over from a leader that steps back; None: there is no such member."""
    without = (partition.leader,) if partition.leader is not None else ()
    for member in candidates(image, partition, without=without, deprioritized=deprioritized):
        if member in partition.isr and not image.brokers[member].stopping:
            return member
    return None


def existing_partition(
    image: ClusterImage, stream_id: bytes, number: int
) -> tuple[StreamImage, PartitionImage]:
    """Raises `StreamNotFound`, `PartitionNotFound`."""
    stream = image.streams.find(stream_id)
    if stream is None:
        raise StreamNotFound(f"there is no stream with the id {stream_id.hex()}")
    if not 0 <= number < len(stream.partitions):
        raise PartitionNotFound.numbered(number, stream=stream.name, count=len(stream.partitions))
    return stream, stream.partitions[number]


def _election(
    image: ClusterImage,
    stream: StreamImage,
    number: int,
    partition: PartitionImage,
    deprioritized: Deprioritized,
) -> PartitionChange | None:
    clean = candidates(image, partition, deprioritized=deprioritized)
    if clean:
        return PartitionChange(stream.id, number, leader=clean[0])
    if partition.isr or partition.eligible or not partition.last_known:
        # A replica with everything committed may return, or no replica has reported its log.
        return None
    best = max(
        partition.last_known,
        key=lambda known: (known.leader_epoch, known.log_end_offset, -_place_of(partition, known.broker)),
    )
    broker = image.brokers.get(best.broker)
    if broker is None or broker.fenced:
        # Another replica would lose more. An administrator may still use `elect_unclean` or unregister the
        # best one.
        return None
    return PartitionChange(stream.id, number, leader=best.broker, unclean=True)


def _place_of(partition: PartitionImage, broker: int) -> int:
    replicas = partition.replicas
    return replicas.index(broker) if broker in replicas else len(replicas)


def _selected(
    image: ClusterImage, partitions: Iterable[PartitionKey] | None
) -> Iterator[tuple[StreamImage, int, PartitionImage]]:
    if partitions is None:
        for stream in image.streams.values():
            for number, partition in enumerate(stream.partitions):
                yield stream, number, partition
        return
    for stream_id, number in partitions:
        found, partition_image = image.streams.find(stream_id), image.partition(stream_id, number)
        if found is not None and partition_image is not None:
            yield found, number, partition_image
