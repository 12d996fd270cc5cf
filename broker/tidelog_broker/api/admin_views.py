"""The rpcs of the `Admin` service that describe the cluster, from what this broker knows, without forwarding.

Each broker describes its own replicas. A client that wants the replicas of all brokers asks all brokers; it
can reach them anyway to write and read. If a broker collected them, another broker that hangs would delay the
whole answer, and the control connections would carry data for which they are not made.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from tidelog import cluster_wire
from tidelog.errors import InvalidRequest
from tidelog.model import ClusterDescription, ReplicaDescription
from tidelog_broker.api.access import ACCESS
from tidelog_broker.api.admin_replicas import streams_of
from tidelog_broker.api.admin_streams import named
from tidelog_broker.api.described import counted, describe_into
from tidelog_broker.api.metadata_service import compiled_pattern
from tidelog_broker.core.metadata.decisions.standing import cluster_standing, standing_of
from tidelog_broker.core.metadata.image import PartitionImage, StreamImage
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_broker.writing.partition import Partition
from tidelog_proto import admin_pb2, common_pb2

PAGE_SIZE_DEFAULT = 1000
PAGE_SIZE_MAX = 10_000


class AdminViews:
    """The rpcs that only read; every method raises `TidelogError`."""

    def __init__(self, broker: Broker, quorum: QuorumController) -> None:
        self._broker = broker
        self._quorum = quorum

    async def describe_stream(
        self, request: admin_pb2.DescribeStreamRequest
    ) -> admin_pb2.DescribeStreamResponse:
        found: list[common_pb2.StreamDescription] = []
        await describe_into(found, [named(self._quorum.image, request.name)])
        return admin_pb2.DescribeStreamResponse(stream=found[0])

    async def list_streams(self, request: admin_pb2.ListStreamsRequest) -> admin_pb2.ListStreamsResponse:
        if request.page_size > PAGE_SIZE_MAX:
            raise InvalidRequest(f"page_size is {request.page_size}; give at most {PAGE_SIZE_MAX}")
        image, access = self._quorum.image, ACCESS.get()
        pattern = compiled_pattern(request.pattern) if request.pattern else None
        names = sorted(
            name
            for name in image.names
            if name > request.page_token
            and (pattern is None or pattern.fullmatch(name))
            and access.sees(name)
        )
        size = request.page_size or PAGE_SIZE_DEFAULT
        page = names[:size]
        response = admin_pb2.ListStreamsResponse(next_page_token=page[-1] if len(names) > size else "")
        await describe_into(response.streams, (named(image, name) for name in page))
        return response

    def list_reassignments(
        self, request: admin_pb2.ListReassignmentsRequest
    ) -> admin_pb2.ListReassignmentsResponse:
        return admin_pb2.ListReassignmentsResponse(
            partitions=[
                cluster_wire.partition_standing_to_proto(standing_of(stream, number))
                for stream in streams_of(self._quorum.image, request.names)
                for number, partition in enumerate(stream.partitions)
                if partition.reassigning
            ]
        )

    def describe_cluster(
        self, request: admin_pb2.DescribeClusterRequest
    ) -> admin_pb2.DescribeClusterResponse:
        image, voters = self._quorum.image, self._quorum.voters
        found = cluster_standing(image, voters)
        description = ClusterDescription(
            cluster_id=image.cluster_id,
            metadata_version=image.version,
            # Without a session the leader, and all the rest of the image, may be out of date.
            controller=self._quorum.leader if self._quorum.session.session_good() else None,
            voters=voters,
            brokers=tuple(broker.describe() for _, broker in sorted(image.brokers.items())),
            software_version=_software_version(),
            stream_count=len(image.streams),
            partition_count=image.partition_count,
            standings=found.standings,
            under_replicated_count=found.under_replicated,
            leaderless_count=found.leaderless,
            below_minimum_count=found.below_minimum,
            reassigning_count=found.reassigning,
            troubled=found.troubled,
            throttle_bytes_per_second=image.throttle_bytes_per_second,
        )
        return cluster_wire.cluster_to_proto(description)

    async def describe_replicas(
        self, request: admin_pb2.DescribeReplicasRequest
    ) -> admin_pb2.DescribeReplicasResponse:
        broker, image = self._broker, self._quorum.image
        only = named(image, request.name).id if request.name else None
        found, done = list[ReplicaDescription](), 0
        for key, partition in list(broker.partitions.items()):
            if only is None or key[0] == only:
                found.append(self._replica(partition, image.partition(*key)))
                done = await counted(done)
        found += [
            self._lost_replica(image.streams[key[0]], key[1])
            for key in broker.lost
            if key[0] in image.streams and (only is None or key[0] == only)
        ]
        found.sort(key=lambda replica: (replica.name, replica.partition))
        response = admin_pb2.DescribeReplicasResponse()
        for replica in found:
            response.replicas.append(cluster_wire.replica_to_proto(replica))
            done = await counted(done)
        return response

    def _replica(self, partition: Partition, placed: PartitionImage | None) -> ReplicaDescription:
        log, me = partition.log, self._broker.broker_id
        return ReplicaDescription(
            name=partition.name,
            stream_id=partition.stream_id,
            partition=partition.partition,
            broker_id=me,
            leader=partition.leads,
            state="damaged" if log.damaged else "online",
            log_start_offset=log.start_offset,
            high_watermark=partition.high_watermark,
            log_end_offset=log.end_offset,
            durable_offset=log.durable_offset,
            bytes=log.bytes,
            segments=len(log.segments),
            damaged=tuple((damage.start, damage.end) for damage in log.damaged),
            suspect=log.suspect,
            role="leader" if partition.leads else "idle" if partition.replica.role is None else "follower",
            leader_epoch=partition.leader_epoch,
            in_sync=placed is not None and me in placed.isr,
        )

    def _lost_state(self, key: tuple[bytes, int]) -> str:
        if key in self._broker.uncreated:
            return "uncreated"
        return "halted" if key in self._broker.halted else "quarantined"

    def _lost_replica(self, stream: StreamImage, number: int) -> ReplicaDescription:
        return ReplicaDescription(
            name=stream.name,
            stream_id=stream.id,
            partition=number,
            broker_id=self._broker.broker_id,
            leader=False,
            state=self._lost_state((stream.id, number)),
            log_start_offset=0,
            high_watermark=0,
            log_end_offset=0,
            durable_offset=0,
            bytes=0,
            segments=0,
            role="lost",
        )


def _software_version() -> str:
    try:
        return version("tidelog")
    except PackageNotFoundError:  # run from its source folder, without having been installed
        return "unknown"
