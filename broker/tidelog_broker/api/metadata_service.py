"""The `Metadata` service: which streams exist, and which brokers lead their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import re2
from msgspec import structs

from tidelog import wire
from tidelog.errors import InvalidRequest, ResourceExhausted
from tidelog_broker.api.access import ACCESS, Access
from tidelog_broker.api.described import describe_into
from tidelog_broker.core.metadata.delta import ImageDelta, delta_between
from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage, StreamImage
from tidelog_broker.quorum.controller import Controller
from tidelog_broker.quorum.transport import PEER_LISTENER
from tidelog_proto import common_pb2, metadata_pb2

NAMES_MAX = 10_000
"""Names in one Resolve."""

PATTERN_BYTES_MAX = 1000
WATCHES_MAX = 5_000
"""Watch calls at a time."""


# RE2 matches in linear time: a client's pattern cannot hang the broker.
_QUIET = re2.Options()
_QUIET.log_errors = False


def compiled_pattern(pattern: str) -> re2._Regexp:
    """A pattern (RE2 syntax) for whole stream names; raises `InvalidRequest`."""
    if len(pattern) > PATTERN_BYTES_MAX:
        raise InvalidRequest(f"the pattern has {len(pattern)} characters; give at most {PATTERN_BYTES_MAX}")
    try:
        return re2.compile(pattern, _QUIET)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise InvalidRequest(f"{pattern!r} is not a regular expression: {reason}") from None


class MetadataService:
    """The rpcs of the service; every method raises `TidelogError`."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._watches = 0

    async def resolve(self, request: metadata_pb2.ResolveRequest) -> metadata_pb2.ResolveResponse:
        if len(request.names) > NAMES_MAX:
            raise InvalidRequest(f"the request has {len(request.names)} names; give at most {NAMES_MAX}")
        image, access = self._controller.image, ACCESS.get()
        found: dict[bytes, StreamImage] = {}
        missing, denied = [], []
        for name in request.names:
            if not access.sees(name):
                denied.append(name)
                continue
            stream = image.stream_named(name)
            if stream is None:
                missing.append(name)
            else:
                found[stream.id] = stream
        if request.HasField("pattern"):
            pattern = compiled_pattern(request.pattern)
            found.update(
                (s.id, s) for s in image.streams.values() if pattern.fullmatch(s.name) and access.sees(s.name)
            )
        response = metadata_pb2.ResolveResponse(
            cluster_id=image.cluster_id,
            version=image.version,
            brokers=_brokers(image.brokers.values(), request.listener),
            missing=missing,
            denied=denied,
        )
        await describe_into(response.streams, found.values())
        return response

    async def watch(self, request: metadata_pb2.WatchRequest) -> AsyncIterator[metadata_pb2.WatchResponse]:
        if self._watches >= WATCHES_MAX:
            raise ResourceExhausted(
                f"{WATCHES_MAX} Watch calls run on this broker already; try again", retry_after_ms=1000
            )
        self._watches += 1
        changed = asyncio.Event()
        unwatch = self._controller.watch(lambda old, new: changed.set())
        access = ACCESS.get()
        try:
            # Changes that come while an answer is being sent are told together in the next one.
            sent, allowed = ClusterImage(), access.version
            while True:
                changed.clear()
                image = self._controller.image
                if access.version is not allowed:
                    # Streams appear or disappear for this caller: it is told everything again.
                    sent, allowed = ClusterImage(), access.version
                delta = _visible(delta_between(sent, image), access)
                if delta or sent.version == 0:
                    yield await _changes(delta, image, request.listener, full=sent.version == 0)
                sent = image
                await changed.wait()
        finally:
            unwatch()
            self._watches -= 1


def _visible(delta: ImageDelta, access: Access) -> ImageDelta:
    """The changes without those of hidden streams (A8)."""
    return structs.replace(
        delta,
        streams=tuple(stream for stream in delta.streams if access.sees(stream.name)),
        deleted=tuple(stream for stream in delta.deleted if access.sees(stream.name)),
    )


async def _changes(
    delta: ImageDelta, new: ClusterImage, listener: str, *, full: bool
) -> metadata_pb2.WatchResponse:
    response = metadata_pb2.WatchResponse(
        cluster_id=new.cluster_id,
        version=new.version,
        full=full,
        brokers=_brokers(delta.brokers, listener),
        deleted=[stream.id for stream in delta.deleted],
    )
    await describe_into(response.streams, delta.streams)
    return response


def _brokers(brokers: Iterable[BrokerImage], listener: str) -> list[common_pb2.BrokerDescription]:
    """Descriptions with the listener that was asked for, or all of them."""
    messages = []
    for broker in brokers:
        message = wire.broker_to_proto(broker.describe())
        # Not for clients.
        others = [entry for entry in message.listeners if entry.name != PEER_LISTENER]
        del message.listeners[:]
        message.listeners.extend(others)
        if listener and any(entry.name == listener for entry in message.listeners):
            kept = [entry for entry in message.listeners if entry.name == listener]
            del message.listeners[:]
            message.listeners.extend(kept)
        messages.append(message)
    return messages
