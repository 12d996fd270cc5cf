"""The rpcs of the `Admin` service that elect leaders, move replicas, and cancel moves.

They run on the controller (`forwarding`). `core.metadata` decides; this module turns names into ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from tidelog import cluster_wire
from tidelog.errors import InvalidRequest, PartitionNotFound
from tidelog_broker.api.admin_streams import named
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import ChangePartitions, PartitionChange
from tidelog_broker.core.metadata.decisions import elections, reassignment, spreading
from tidelog_broker.core.metadata.decisions.elections import PartitionKey
from tidelog_broker.core.metadata.decisions.standing import standing_of
from tidelog_broker.core.metadata.image import ClusterImage, StreamImage
from tidelog_broker.quorum.controller import Change
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_proto import admin_pb2 as pb

NAMES_MAX: Final = 10_000
"""Streams or partitions in one request."""

ELECT_MS_MAX: Final = 5_000
"""How long one request waits for leaders to settle; a leader that is silent is deposed within that time."""

ELECT_LOOK_SECONDS: Final = 0.05
"""How often it looks which have."""


class ReplicaRequests:
    """The rpcs that change replicas; every method raises `TidelogError`."""

    def __init__(self, quorum: QuorumController) -> None:
        self._quorum = quorum

    async def elect(self, request: pb.ElectLeadersRequest) -> pb.ElectLeadersResponse:
        if request.HasField("unclean"):
            change = await self._quorum.change(lambda image: _unclean(image, request))
            return pb.ElectLeadersResponse(elected=_changed(change))
        return await self._elect_preferred(request.names)

    async def _elect_preferred(self, names: Sequence[str]) -> pb.ElectLeadersResponse:
        """Each once its leader has settled (N5), and not twice; the client asks again for the rest."""
        elected: dict[PartitionKey, None] = {}
        left = 0

        def command(image: ClusterImage) -> ChangePartitions | None:
            nonlocal left
            active = self._quorum.active
            assert active is not None, "only the controller decides"
            partitions = _partitions(streams_of(image, names)) if names else None
            wanted = [
                change
                for change in elections.preferred(image, partitions, deprioritized=active.deprioritized.of)
                if (change.stream_id, change.partition) not in elected
            ]
            due = active.handovers.due(image, wanted, self._quorum.now_ms)
            left = len(wanted) - len(due)
            return ChangePartitions(due) if due else None

        give_up_ms = self._quorum.now_ms + ELECT_MS_MAX
        while True:
            change = await self._quorum.change(command)
            elected.update(dict.fromkeys(_changed_keys(change)))
            if not left or self._quorum.now_ms >= give_up_ms:
                return pb.ElectLeadersResponse(elected=_standings(change.image, elected), left=left)
            await asyncio.sleep(ELECT_LOOK_SECONDS)

    async def reassign(self, request: pb.ReassignRequest) -> pb.ReassignResponse:
        if bool(request.targets) == request.HasField("spread"):
            raise InvalidRequest(
                "give either targets (the replicas of each partition) or spread (the controller computes "
                "them)"
            )

        def command(image: ClusterImage) -> ChangePartitions | None:
            return reassignment.reassign_all(image, *_targets(image, request))

        if request.validate_only:
            image = self._quorum.image
            decided = command(image)
            after = image if decided is None else apply(image, decided, image.version + 1)
            return pb.ReassignResponse(begun=_changed(Change(after, decided)))
        return pb.ReassignResponse(begun=_changed(await self._quorum.change(command)))

    async def cancel(self, request: pb.CancelReassignmentRequest) -> pb.CancelReassignmentResponse:
        _check_count(request.partitions)

        def command(image: ClusterImage) -> ChangePartitions | None:
            changes: list[PartitionChange] = []
            for stream_id, numbers in _cancelled(image, request).items():
                decided = reassignment.cancel(image, stream_id, numbers)
                changes += () if decided is None else decided.changes
            return ChangePartitions(tuple(changes)) if changes else None

        return pb.CancelReassignmentResponse(cancelled=_changed(await self._quorum.change(command)))

    async def throttle(self, request: pb.ThrottleRequest) -> pb.ThrottleResponse:
        if not request.HasField("bytes_per_second"):
            raise InvalidRequest(
                "the request has no rate; give bytes_per_second, or 0 for the setting of each broker",
                field="bytes_per_second",
            )
        await self._quorum.change(lambda image: reassignment.throttle(image, request.bytes_per_second))
        return pb.ThrottleResponse()


def streams_of(image: ClusterImage, names: Sequence[str]) -> list[StreamImage]:
    """The streams of these names, or all, by name. Raises `StreamNotFound`."""
    _check_count(names)
    if names:
        return [named(image, name) for name in dict.fromkeys(names)]
    return sorted(image.streams.values(), key=lambda stream: stream.name)


def _check_count(given: Sequence[object]) -> None:
    if len(given) > NAMES_MAX:
        raise InvalidRequest(f"the request has {len(given)} names; give at most {NAMES_MAX}")


def _partitions(streams: Iterable[StreamImage]) -> list[PartitionKey]:
    return [(stream.id, number) for stream in streams for number in range(len(stream.partitions))]


def _unclean(image: ClusterImage, request: pb.ElectLeadersRequest) -> ChangePartitions:
    asked = request.unclean
    if request.names:
        raise InvalidRequest("an unclean election concerns one partition; leave names out", field="names")
    for field in ("partition", "broker_id"):
        if not asked.HasField(field):
            raise InvalidRequest(f"an unclean election needs {field}; give it", field=field)
    stream = named(image, asked.name)
    return elections.elect_unclean(image, stream.id, asked.partition, asked.broker_id)


def _targets(
    image: ClusterImage, request: pb.ReassignRequest
) -> tuple[spreading.Targets, dict[PartitionKey, int]]:
    """And the partition epochs on which they rest, as far as the request says."""
    if request.targets:
        _check_count(request.targets)
        targets: spreading.Targets = {}
        epochs: dict[PartitionKey, int] = {}
        for target in request.targets:
            wanted_id = target.stream_id if target.HasField("stream_id") else None
            key = (named(image, target.name, wanted_id).id, target.partition)
            if key in targets:
                raise InvalidRequest(
                    f"partition {target.name}/{target.partition} appears twice in the request; give it once",
                    field="targets",
                )
            targets[key] = tuple(target.replicas)
            if target.HasField("partition_epoch"):
                epochs[key] = target.partition_epoch
        return targets, epochs
    wish = request.spread
    moves_max = wish.moves_max if wish.HasField("moves_max") else None
    streams = streams_of(image, wish.names)
    return spreading.spread(image, streams, wish.brokers or None, moves_max=moves_max), {}


def _cancelled(image: ClusterImage, request: pb.CancelReassignmentRequest) -> dict[bytes, list[int]]:
    """Partition numbers by stream id: those that are named, or all that are on their way."""
    found: dict[bytes, list[int]] = {}
    for asked in request.partitions:
        stream = named(image, asked.name)
        if not asked.HasField("partition"):
            found.setdefault(stream.id, []).extend(range(len(stream.partitions)))
        elif asked.partition >= len(stream.partitions):
            raise PartitionNotFound.numbered(
                asked.partition, stream=stream.name, count=len(stream.partitions)
            )
        else:
            found.setdefault(stream.id, []).append(asked.partition)
    if not request.partitions:
        for stream in image.streams.values():
            numbers = [number for number, one in enumerate(stream.partitions) if one.reassigning]
            if numbers:
                found[stream.id] = numbers
    return found


def _changed(change: Change) -> list[pb.PartitionStanding]:
    """The partitions that a change touched, as they are after it."""
    return _standings(change.image, _changed_keys(change))


def _changed_keys(change: Change) -> list[PartitionKey]:
    if change.command is None:
        return []
    assert isinstance(change.command, ChangePartitions), change.command
    return [(one.stream_id, one.partition) for one in change.command.changes]


def _standings(image: ClusterImage, keys: Iterable[PartitionKey]) -> list[pb.PartitionStanding]:
    """As far as their streams are still there."""
    streams = [(image.streams.find(stream_id), number) for stream_id, number in keys]
    found = [standing_of(stream, number) for stream, number in streams if stream is not None]
    found.sort(key=lambda one: (one.name, one.partition.partition))
    return [cluster_wire.partition_standing_to_proto(one) for one in found]
