"""The Admin service of brokers in memory: it creates, changes and describes streams."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from tidelog import wire
from tidelog.errors import InvalidRequest, StreamExists, StreamNotFound, VersionConflict
from tidelog.model import (
    BrokerDescription,
    StreamDescription,
    validate_labels,
    validate_stream_name,
)
from tidelog.testing._state import State
from tidelog_proto import admin_pb2

PAGE_SIZE_DEFAULT: Final = 100


class Administration:
    """The handlers of one broker. As in a real cluster, a broker describes only its own replicas."""

    def __init__(self, state: State, broker_id: int, brokers: Callable[[], list[BrokerDescription]]) -> None:
        self._state = state
        self._broker_id = broker_id
        self._brokers = brokers
        self.handlers: dict[str, Callable[[Any], Any]] = {
            "CreateStream": self._create,
            "AlterStream": self._alter,
            "DeleteStream": self._delete,
            "DescribeStream": self._describe,
            "ListStreams": self._list,
            "DescribeCluster": self._describe_cluster,
            "DescribeReplicas": self._describe_replicas,
        }

    def _create(self, request: admin_pb2.CreateStreamRequest) -> admin_pb2.CreateStreamResponse:
        validate_stream_name(request.name)
        validate_labels(dict(request.labels))
        settings = wire.settings_from_proto(request.config)
        config = settings.for_new_stream(len(self._state.alive))
        existing = self._state.streams.get(request.name)
        if existing is not None:
            differing = settings.differing(existing.config)
            if differing or (request.labels and dict(request.labels) != dict(existing.labels)):
                raise StreamExists(
                    f"stream {request.name!r} is there, with other settings: {', '.join(differing)}",
                    name=request.name,
                )
            if request.owner and request.owner != existing.owner:
                raise StreamExists(
                    f"stream {request.name!r} is there, of another owner: {existing.owner or 'nobody'}",
                    name=request.name,
                )
            return admin_pb2.CreateStreamResponse(stream=wire.stream_to_proto(existing), created=False)
        if config.replication_factor > len(self._state.alive):
            raise InvalidRequest(
                f"replication_factor is {config.replication_factor}, but there are only "
                f"{len(self._state.alive)} brokers",
                field="replication_factor",
            )
        if request.validate_only:
            planned = StreamDescription(
                request.name, bytes(16), config, 0, 0, (), dict(request.labels), request.owner
            )
            return admin_pb2.CreateStreamResponse(stream=wire.stream_to_proto(planned), created=False)
        stream = self._state.create(
            request.name, config, dict(request.labels), request.owner, _replicas(request.replicas)
        )
        return admin_pb2.CreateStreamResponse(stream=wire.stream_to_proto(stream), created=True)

    def _alter(self, request: admin_pb2.AlterStreamRequest) -> admin_pb2.AlterStreamResponse:
        stream = self._existing(request)
        config = wire.settings_from_proto(request.config).on(stream.config)
        if config.partitions < len(stream.partitions):
            raise InvalidRequest(
                f"stream {stream.name!r} has {len(stream.partitions)} partitions and {config.partitions} "
                "were asked for; partitions only grow, because records never move between them",
                field="partitions",
            )
        owner = request.owner if request.HasField("owner") else stream.owner
        if (config, owner) != (stream.config, stream.owner):
            changed = replace(stream, version=stream.version + 1, owner=owner)
            stream = self._state.grow(changed, config, _replicas(request.new_replicas))
        return admin_pb2.AlterStreamResponse(stream=wire.stream_to_proto(stream))

    def _delete(self, request: admin_pb2.DeleteStreamRequest) -> admin_pb2.DeleteStreamResponse:
        stream = self._existing(request)
        self._state.delete(stream.name)
        return admin_pb2.DeleteStreamResponse(stream_id=stream.stream_id)

    def _describe(self, request: admin_pb2.DescribeStreamRequest) -> admin_pb2.DescribeStreamResponse:
        stream = self._state.stream(request.name)
        return admin_pb2.DescribeStreamResponse(stream=wire.stream_to_proto(stream))

    def _list(self, request: admin_pb2.ListStreamsRequest) -> admin_pb2.ListStreamsResponse:
        try:
            pattern = re.compile(request.pattern or ".*")
        except re.error as error:
            raise InvalidRequest(f"{request.pattern!r} is not a regular expression: {error}") from None
        names = [name for name in sorted(self._state.streams) if pattern.fullmatch(name)]
        rest = [name for name in names if name > request.page_token]
        page = rest[: request.page_size or PAGE_SIZE_DEFAULT]
        return admin_pb2.ListStreamsResponse(
            streams=[wire.stream_to_proto(self._state.streams[name]) for name in page],
            next_page_token=page[-1] if len(page) < len(rest) else "",
        )

    def _describe_cluster(
        self, request: admin_pb2.DescribeClusterRequest
    ) -> admin_pb2.DescribeClusterResponse:
        alive = [broker_id for broker_id, up in self._state.alive.items() if up]
        streams = self._state.streams.values()
        return admin_pb2.DescribeClusterResponse(
            cluster_id=self._state.cluster_id,
            metadata_version=self._state.version,
            controller=alive[0] if alive else None,
            voters=list(self._state.alive),
            brokers=[wire.broker_to_proto(broker) for broker in self._brokers()],
            software_version="in memory",
            stream_count=len(streams),
            partition_count=sum(len(stream.partitions) for stream in streams),
        )

    def _describe_replicas(
        self, request: admin_pb2.DescribeReplicasRequest
    ) -> admin_pb2.DescribeReplicasResponse:
        streams = [self._state.stream(request.name)] if request.name else self._state.streams.values()
        found = [
            _replica(self._state, stream, number, self._broker_id)
            for stream in streams
            for number, part in enumerate(stream.partitions)
            if self._broker_id in part.replicas
        ]
        return admin_pb2.DescribeReplicasResponse(replicas=found)

    def _existing(
        self, request: admin_pb2.AlterStreamRequest | admin_pb2.DeleteStreamRequest
    ) -> StreamDescription:
        stream = self._state.stream(request.name)
        if request.HasField("stream_id") and request.stream_id != stream.stream_id:
            raise StreamNotFound(
                f"stream {stream.name!r} is not the one that was asked for, which was deleted",
                name=stream.name,
            )
        if request.HasField("expected_version") and request.expected_version != stream.version:
            raise VersionConflict(
                f"stream {stream.name!r} is at version {stream.version}, not at {request.expected_version}",
                name=stream.name,
            )
        return stream


def _replica(
    state: State, stream: StreamDescription, number: int, broker_id: int
) -> admin_pb2.ReplicaDescription:
    log = state.log(stream.stream_id, number)
    return admin_pb2.ReplicaDescription(
        name=stream.name,
        stream_id=stream.stream_id,
        partition=number,
        broker_id=broker_id,
        leader=stream.partitions[number].leader == broker_id,
        role="leader" if stream.partitions[number].leader == broker_id else "follower",
        leader_epoch=stream.partitions[number].leader_epoch,
        in_sync=broker_id in stream.partitions[number].isr,
        state="online",
        log_start_offset=log.start,
        high_watermark=log.end,
        log_end_offset=log.end,
        durable_offset=log.end,
        bytes=sum(len(stored.data) for stored in log.batches),
        segments=1,
    )


def _replicas(given: Iterable[admin_pb2.Replicas]) -> list[tuple[int, ...]]:
    return [tuple(one.brokers) for one in given]
