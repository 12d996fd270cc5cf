"""The `Admin` service: streams and brokers, for those who run them.

What changes the metadata only the controller can do. A request that comes to another broker goes to
it verbatim, over the control connection of the two brokers, and errors come back with their type;
the answer is given when this broker's own image shows the change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import uuid4

from google.protobuf.message import DecodeError, Message

from tidelog import wire
from tidelog.errors import InvalidRequest, StreamNotFound, TimedOut
from tidelog.model import ClusterDescription, ReplicaDescription
from tidelog_broker.api.metadata_service import compiled_pattern
from tidelog_broker.core.metadata import decide
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import AlterStream, CreateStream, DeleteStream
from tidelog_broker.core.metadata.image import ClusterImage, StreamImage
from tidelog_broker.errors import NotController
from tidelog_broker.runtime.broker import Broker
from tidelog_broker.runtime.control_wire import Call, Called
from tidelog_broker.runtime.partition import Partition
from tidelog_broker.runtime.quorum_controller import QuorumController
from tidelog_proto import admin_pb2

PAGE_SIZE_DEFAULT = 1000
PAGE_SIZE_MAX = 10_000

FORWARD_SECONDS_MAX = 15.0
"""How long a forwarded request may take, and then this broker to hear of the change."""


class AdminService:
    """See the module; every method raises `TidelogError`."""

    def __init__(self, broker: Broker, quorum: QuorumController) -> None:
        self._broker = broker
        self._controller = quorum
        self._forwarded: dict[str, tuple[type[Message], Callable[[Any], Awaitable[Message]]]] = {
            "CreateStream": (admin_pb2.CreateStreamRequest, self._create_stream),
            "AlterStream": (admin_pb2.AlterStreamRequest, self._alter_stream),
            "DeleteStream": (admin_pb2.DeleteStreamRequest, self._delete_stream),
        }
        """What the controller does for other brokers, by rpc."""

    async def create_stream(self, request: admin_pb2.CreateStreamRequest) -> admin_pb2.CreateStreamResponse:
        try:
            return await self._create_stream(request)
        except NotController:
            return admin_pb2.CreateStreamResponse.FromString(await self._forward("CreateStream", request))

    async def alter_stream(self, request: admin_pb2.AlterStreamRequest) -> admin_pb2.AlterStreamResponse:
        try:
            return await self._alter_stream(request)
        except NotController:
            return admin_pb2.AlterStreamResponse.FromString(await self._forward("AlterStream", request))

    async def delete_stream(self, request: admin_pb2.DeleteStreamRequest) -> admin_pb2.DeleteStreamResponse:
        try:
            return await self._delete_stream(request)
        except NotController:
            return admin_pb2.DeleteStreamResponse.FromString(await self._forward("DeleteStream", request))

    async def serve_call(self, rpc: str, body: bytes) -> bytes:
        """What another broker forwards, done here and nowhere else. Raises `TidelogError`."""
        if rpc not in self._forwarded:
            raise InvalidRequest(f"the controller takes no {rpc[:100]!r} from other brokers", field="rpc")
        request_class, serve = self._forwarded[rpc]
        try:
            request = request_class.FromString(body)
        except DecodeError as error:
            raise InvalidRequest(f"a forwarded {rpc} cannot be read: {error}", field="request") from None
        return (await serve(request)).SerializeToString()

    async def _forward(self, rpc: str, request: Message) -> bytes:
        called = await self._controller.ask(Call(rpc, request.SerializeToString()), FORWARD_SECONDS_MAX)
        assert isinstance(called, Called), called
        try:
            await self._controller.until(
                lambda: self._controller.image.version >= called.version, FORWARD_SECONDS_MAX
            )
        except TimeoutError:
            raise TimedOut("the change is made, and this broker has not heard of it yet") from None
        await self._broker.applied(called.version)
        return called.response

    async def _create_stream(self, request: admin_pb2.CreateStreamRequest) -> admin_pb2.CreateStreamResponse:
        settings = wire.settings_from_proto(request.config)
        labels = dict(request.labels)
        stream_id, now_us = uuid4().bytes, self._broker.clock()

        def command(image: ClusterImage) -> CreateStream | None:
            return decide.create_stream(
                image,
                request.name,
                settings,
                stream_id=stream_id,
                created_us=now_us,
                labels=labels,
            )

        if request.validate_only:
            image = self._controller.image
            created = command(image)
            after = image if created is None else apply(image, created, image.version + 1)
            stream = after.streams[after.names[request.name]]
            return admin_pb2.CreateStreamResponse(
                stream=wire.stream_to_proto(stream.describe()), created=created is not None
            )
        change = await self._controller.change(command)
        stream = await self._settled(change.image, request.name)
        return admin_pb2.CreateStreamResponse(
            stream=wire.stream_to_proto(stream.describe()), created=change.command is not None
        )

    async def _alter_stream(self, request: admin_pb2.AlterStreamRequest) -> admin_pb2.AlterStreamResponse:
        settings = wire.settings_from_proto(request.config)
        if not settings.given():
            raise InvalidRequest("the request changes nothing; give at least one setting")

        def command(image: ClusterImage) -> AlterStream | None:
            return decide.alter_stream(
                image,
                request.name,
                settings,
                expected_version=_given(request, "expected_version"),
                stream_id=_given(request, "stream_id"),
            )

        change = await self._controller.change(command)
        stream = await self._settled(change.image, request.name)
        return admin_pb2.AlterStreamResponse(stream=wire.stream_to_proto(stream.describe()))

    async def _delete_stream(self, request: admin_pb2.DeleteStreamRequest) -> admin_pb2.DeleteStreamResponse:
        def command(image: ClusterImage) -> DeleteStream:
            return decide.delete_stream(
                image,
                request.name,
                expected_version=_given(request, "expected_version"),
                stream_id=_given(request, "stream_id"),
            )

        change = await self._controller.change(command)
        await self._broker.applied(change.image.version)
        assert isinstance(change.command, DeleteStream), "a deletion is decided or refused"
        return admin_pb2.DeleteStreamResponse(stream_id=change.command.stream_id)

    async def describe_stream(
        self, request: admin_pb2.DescribeStreamRequest
    ) -> admin_pb2.DescribeStreamResponse:
        stream = _named(self._controller.image, request.name)
        return admin_pb2.DescribeStreamResponse(stream=wire.stream_to_proto(stream.describe()))

    async def list_streams(self, request: admin_pb2.ListStreamsRequest) -> admin_pb2.ListStreamsResponse:
        if request.page_size > PAGE_SIZE_MAX:
            raise InvalidRequest(f"page_size is {request.page_size}; it is {PAGE_SIZE_MAX} at most")
        image = self._controller.image
        pattern = compiled_pattern(request.pattern) if request.pattern else None
        names = sorted(
            name
            for name in image.names
            if name > request.page_token and (pattern is None or pattern.fullmatch(name))
        )
        size = request.page_size or PAGE_SIZE_DEFAULT
        page = names[:size]
        return admin_pb2.ListStreamsResponse(
            streams=[wire.stream_to_proto(_named(image, name).describe()) for name in page],
            next_page_token=page[-1] if len(names) > size else "",
        )

    async def describe_cluster(
        self, request: admin_pb2.DescribeClusterRequest
    ) -> admin_pb2.DescribeClusterResponse:
        image = self._controller.image
        description = ClusterDescription(
            cluster_id=image.cluster_id,
            metadata_version=image.version,
            controller=self._controller.leader,
            voters=self._controller.voters,
            brokers=tuple(broker.describe() for _, broker in sorted(image.brokers.items())),
            software_version=_software_version(),
            stream_count=len(image.streams),
            partition_count=image.partition_count,
        )
        return wire.cluster_to_proto(description)

    async def describe_replicas(
        self, request: admin_pb2.DescribeReplicasRequest
    ) -> admin_pb2.DescribeReplicasResponse:
        broker = self._broker
        image = self._controller.image
        only = _named(image, request.name).id if request.name else None
        found = [
            self._replica(partition)
            for key, partition in broker.partitions.items()
            if only is None or key[0] == only
        ]
        found += [
            self._lost_replica(image.streams[key[0]], key[1])
            for key in broker.lost
            if key[0] in image.streams and (only is None or key[0] == only)
        ]
        found.sort(key=lambda replica: (replica.name, replica.partition))
        return admin_pb2.DescribeReplicasResponse(
            replicas=[wire.replica_to_proto(replica) for replica in found]
        )

    def _replica(self, partition: Partition) -> ReplicaDescription:
        log = partition.log
        return ReplicaDescription(
            name=partition.name,
            stream_id=partition.stream_id,
            partition=partition.partition,
            broker_id=self._broker.broker_id,
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
        )

    def _lost_replica(self, stream: StreamImage, number: int) -> ReplicaDescription:
        return ReplicaDescription(
            name=stream.name,
            stream_id=stream.id,
            partition=number,
            broker_id=self._broker.broker_id,
            leader=False,
            state="uncreated" if (stream.id, number) in self._broker.uncreated else "quarantined",
            log_start_offset=0,
            high_watermark=0,
            log_end_offset=0,
            durable_offset=0,
            bytes=0,
            segments=0,
        )

    async def _settled(self, image: ClusterImage, name: str) -> StreamImage:
        """The stream, once the partitions on this broker are as the image says."""
        await self._broker.applied(image.version)
        return _named(image, name)


def _software_version() -> str:
    try:
        return version("tidelog")
    except PackageNotFoundError:  # run from its source folder, without having been installed
        return "unknown"


def _named(image: ClusterImage, name: str) -> StreamImage:
    stream = image.stream_named(name)
    if stream is None:
        raise StreamNotFound(f"there is no stream {name[:200]!r}", name=name[:200])
    return stream


def _given(request: admin_pb2.AlterStreamRequest | admin_pb2.DeleteStreamRequest, field: str):  # type: ignore[no-untyped-def]
    return getattr(request, field) if request.HasField(field) else None  # type: ignore[arg-type]
