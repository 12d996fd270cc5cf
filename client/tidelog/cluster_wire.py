"""Converts descriptions of a cluster to protobuf messages and back: brokers, partitions, replicas.

For client and broker alike, like `wire`, which has the rest.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message

from tidelog import model, wire
from tidelog_proto import admin_pb2

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)


def cluster_to_proto(cluster: model.ClusterDescription) -> admin_pb2.DescribeClusterResponse:
    return admin_pb2.DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        metadata_version=cluster.metadata_version,
        controller=cluster.controller,
        voters=cluster.voters,
        brokers=[wire.broker_to_proto(broker) for broker in cluster.brokers],
        software_version=cluster.software_version,
        stream_count=cluster.stream_count,
        partition_count=cluster.partition_count,
        standings=[_plain_to_proto(admin_pb2.BrokerStanding, one) for one in cluster.standings],
        under_replicated_count=cluster.under_replicated_count,
        leaderless_count=cluster.leaderless_count,
        below_minimum_count=cluster.below_minimum_count,
        reassigning_count=cluster.reassigning_count,
        troubled=[partition_standing_to_proto(one) for one in cluster.troubled],
        throttle_bytes_per_second=cluster.throttle_bytes_per_second,
    )


def cluster_from_proto(message: admin_pb2.DescribeClusterResponse) -> model.ClusterDescription:
    return model.ClusterDescription(
        cluster_id=message.cluster_id,
        metadata_version=message.metadata_version,
        controller=message.controller if message.HasField("controller") else None,
        voters=tuple(message.voters),
        brokers=tuple(wire.broker_from_proto(broker) for broker in message.brokers),
        software_version=message.software_version,
        stream_count=message.stream_count,
        partition_count=message.partition_count,
        standings=tuple(_plain_from_proto(model.BrokerStanding, one) for one in message.standings),
        under_replicated_count=message.under_replicated_count,
        leaderless_count=message.leaderless_count,
        below_minimum_count=message.below_minimum_count,
        reassigning_count=message.reassigning_count,
        troubled=tuple(partition_standing_from_proto(one) for one in message.troubled),
        throttle_bytes_per_second=message.throttle_bytes_per_second,
    )


def partition_standing_to_proto(standing: model.PartitionStanding) -> admin_pb2.PartitionStanding:
    return admin_pb2.PartitionStanding(
        name=standing.name,
        stream_id=standing.stream_id,
        partition=wire.partition_to_proto(standing.partition),
        min_insync=standing.min_insync,
    )


def partition_standing_from_proto(message: admin_pb2.PartitionStanding) -> model.PartitionStanding:
    return model.PartitionStanding(
        name=message.name,
        stream_id=message.stream_id,
        partition=wire.partition_from_proto(message.partition),
        min_insync=message.min_insync,
    )


def stop_answer_to_proto(answer: model.StopAnswer) -> admin_pb2.PrepareStopResponse:
    return admin_pb2.PrepareStopResponse(
        ready=answer.ready,
        hindrances=[_plain_to_proto(admin_pb2.StopHindrance, one) for one in answer.hindrances],
        hindrance_count=answer.hindrance_count,
    )


def stop_answer_from_proto(message: admin_pb2.PrepareStopResponse) -> model.StopAnswer:
    return model.StopAnswer(
        ready=message.ready,
        hindrances=tuple(_plain_from_proto(model.StopHindrance, one) for one in message.hindrances),
        hindrance_count=message.hindrance_count,
    )


def replica_to_proto(replica: model.ReplicaDescription) -> admin_pb2.ReplicaDescription:
    return admin_pb2.ReplicaDescription(
        name=replica.name,
        stream_id=replica.stream_id,
        partition=replica.partition,
        broker_id=replica.broker_id,
        leader=replica.leader,
        state=replica.state,
        log_start_offset=replica.log_start_offset,
        high_watermark=replica.high_watermark,
        log_end_offset=replica.log_end_offset,
        durable_offset=replica.durable_offset,
        bytes=replica.bytes,
        segments=replica.segments,
        damaged=[admin_pb2.OffsetRange(start=start, end=end) for start, end in replica.damaged],
        suspect=replica.suspect,
        role=replica.role,
        leader_epoch=replica.leader_epoch,
        in_sync=replica.in_sync,
    )


def replica_from_proto(message: admin_pb2.ReplicaDescription) -> model.ReplicaDescription:
    return model.ReplicaDescription(
        name=message.name,
        stream_id=message.stream_id,
        partition=message.partition,
        broker_id=message.broker_id,
        leader=message.leader,
        state=message.state,
        log_start_offset=message.log_start_offset,
        high_watermark=message.high_watermark,
        log_end_offset=message.log_end_offset,
        durable_offset=message.durable_offset,
        bytes=message.bytes,
        segments=message.segments,
        damaged=tuple((span.start, span.end) for span in message.damaged),
        suspect=message.suspect,
        role=message.role,
        leader_epoch=message.leader_epoch,
        in_sync=message.in_sync,
    )


def _plain_to_proto(kind: type[_M], value: object) -> _M:
    """A message whose fields have the names and values of those of `value`."""
    return kind(**{name: getattr(value, name) for name in kind.DESCRIPTOR.fields_by_name})


def _plain_from_proto(kind: type[_T], message: Message) -> _T:
    return kind(**{name: getattr(message, name) for name in message.DESCRIPTOR.fields_by_name})
