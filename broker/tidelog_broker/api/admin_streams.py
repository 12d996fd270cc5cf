"""The rpcs of the `Admin` service that create, alter and delete streams, on the controller (`forwarding`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog import wire
from tidelog.errors import InvalidRequest
from tidelog.model import StreamSettings
from tidelog.records.limits import ENVELOPE_BYTES_MAX
from tidelog_broker.core.metadata.apply import apply
from tidelog_broker.core.metadata.commands import AlterStream, CreateStream, DeleteStream
from tidelog_broker.core.metadata.decisions import streams as decide
from tidelog_broker.core.metadata.image import ClusterImage, StreamImage
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.quorum.quorum_controller import QuorumController
from tidelog_proto import admin_pb2


class StreamRequests:
    """The rpcs that change streams; every method raises `TidelogError`."""

    def __init__(self, broker: Broker, quorum: QuorumController, new_id: Callable[[], bytes]) -> None:
        """`new_id` gives a stream its id."""
        self._new_id = new_id
        self._broker = broker
        self._quorum = quorum

    async def create(self, request: admin_pb2.CreateStreamRequest) -> admin_pb2.CreateStreamResponse:
        settings = wire.settings_from_proto(request.config)
        self._check_batches_can_be_sent(settings)
        labels, replicas = dict(request.labels), _replicas(request.replicas)
        stream_id, now_us = self._new_id(), self._broker.clock.append_us()

        def command(image: ClusterImage) -> CreateStream | None:
            return decide.create_stream(
                image,
                request.name,
                settings,
                stream_id=stream_id,
                created_us=now_us,
                labels=labels,
                owner=request.owner,
                replicas=replicas,
            )

        if request.validate_only:
            image = self._quorum.image
            created = command(image)
            after = image if created is None else apply(image, created, image.version + 1)
            stream = after.streams[after.names[request.name]]
            return admin_pb2.CreateStreamResponse(
                stream=wire.stream_to_proto(stream.describe()), created=created is not None
            )
        change = await self._quorum.change(command)
        stream = await self._settled(change.image, request.name)
        return admin_pb2.CreateStreamResponse(
            stream=wire.stream_to_proto(stream.describe()), created=change.command is not None
        )

    async def alter(self, request: admin_pb2.AlterStreamRequest) -> admin_pb2.AlterStreamResponse:
        settings, new_replicas = wire.settings_from_proto(request.config), _replicas(request.new_replicas)
        self._check_batches_can_be_sent(settings)
        if not settings.given() and not request.HasField("owner"):
            raise InvalidRequest("the request changes nothing; give at least one setting")

        def command(image: ClusterImage) -> AlterStream | None:
            return decide.alter_stream(
                image,
                request.name,
                settings,
                expected_version=_given(request, "expected_version"),
                stream_id=_given(request, "stream_id"),
                owner=_given(request, "owner"),
                new_replicas=new_replicas,
            )

        change = await self._quorum.change(command)
        stream = await self._settled(change.image, request.name)
        return admin_pb2.AlterStreamResponse(stream=wire.stream_to_proto(stream.describe()))

    async def delete(self, request: admin_pb2.DeleteStreamRequest) -> admin_pb2.DeleteStreamResponse:
        def command(image: ClusterImage) -> DeleteStream:
            return decide.delete_stream(
                image,
                request.name,
                expected_version=_given(request, "expected_version"),
                stream_id=_given(request, "stream_id"),
            )

        change = await self._quorum.change(command)
        await self._broker.applied(change.image.version)
        assert isinstance(change.command, DeleteStream), "a deletion is either decided or refused"
        return admin_pb2.DeleteStreamResponse(stream_id=change.command.stream_id)

    def _check_batches_can_be_sent(self, settings: StreamSettings) -> None:
        """Raises `InvalidRequest`: gRPC would end calls with larger messages, and say no more than that."""
        size, message_bytes_max = settings.batch_bytes_max or 0, self._broker.limits.message_bytes_max
        if size + ENVELOPE_BYTES_MAX > message_bytes_max:
            raise InvalidRequest(
                f"batch_bytes_max is {size}. A message with this batch may need {ENVELOPE_BYTES_MAX} bytes "
                f"more, and brokers accept messages of at most {message_bytes_max} bytes "
                "(message_bytes_max). Give less, or raise message_bytes_max on all brokers",
                field="batch_bytes_max",
            )

    async def _settled(self, image: ClusterImage, name: str) -> StreamImage:
        """The stream, once the partitions on this broker are as the image says."""
        await self._broker.applied(image.version)
        return named(image, name)


def named(image: ClusterImage, name: str, stream_id: bytes | None = None) -> StreamImage:
    """The stream of that name, if it is the one with this id. Raises `StreamNotFound`."""
    return decide.existing_stream(image, name, stream_id)


def _replicas(given: Iterable[admin_pb2.Replicas]) -> list[tuple[int, ...]]:
    return [tuple(one.brokers) for one in given]


def _given(request: admin_pb2.AlterStreamRequest | admin_pb2.DeleteStreamRequest, field: str):  # type: ignore[no-untyped-def]
    return getattr(request, field) if request.HasField(field) else None  # type: ignore[arg-type]
