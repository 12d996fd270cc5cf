"""An image as bytes, for the snapshots of the metadata log.

The encoding is that of commands (`commands`): MessagePack maps, defaults left out, unknown fields
skipped. Derived fields are counted again, not stored. The same image gives the same
bytes in every process.
"""

from __future__ import annotations

import msgspec

from tidelog.model.access import AclRule
from tidelog.model.quotas import Quota
from tidelog_broker.core.metadata.apply import share_of
from tidelog_broker.core.metadata.image import BrokerImage, ClusterImage, SinkImage, StreamImage, TokenImage
from tidelog_broker.core.metadata.persistent import PersistentMap
from tidelog_broker.errors import DataDirectoryError


class _Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    cluster_id: bytes
    version: int
    feature_level: int
    next_producer_id: int
    brokers: list[BrokerImage] = []
    streams: list[StreamImage] = []
    throttle_bytes_per_second: int = 0
    sinks: list[SinkImage] = []
    next_sink_number: int = 1
    acl: tuple[AclRule, ...] = ()
    tokens: list[TokenImage] = []
    quotas: list[Quota] = []


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(_Snapshot)


def encode_image(image: ClusterImage) -> bytes:
    return _encoder.encode(
        _Snapshot(
            cluster_id=image.cluster_id,
            version=image.version,
            feature_level=image.feature_level,
            next_producer_id=image.next_producer_id,
            brokers=list(image.brokers.values()),
            streams=sorted(image.streams.values(), key=lambda stream: stream.id),
            throttle_bytes_per_second=image.throttle_bytes_per_second,
            sinks=sorted(image.sinks.values(), key=lambda sink: sink.number),
            next_sink_number=image.next_sink_number,
            acl=image.acl,
            tokens=sorted(image.tokens.values(), key=lambda token: token.hash),
            quotas=sorted(image.quotas.values(), key=lambda quota: quota.principal),
        )
    )


def decode_image(data: bytes) -> ClusterImage:
    """Raises `DataDirectoryError` for an image of a later version."""
    try:
        found = _decoder.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise DataDirectoryError(
            f"the metadata snapshot cannot be read by this version ({error}); "
            "start the version of tidelog-broker that wrote it, or a later one"
        ) from error
    return ClusterImage(
        cluster_id=found.cluster_id,
        version=found.version,
        feature_level=found.feature_level,
        next_producer_id=found.next_producer_id,
        throttle_bytes_per_second=found.throttle_bytes_per_second,
        brokers={broker.id: broker for broker in found.brokers},
        streams=PersistentMap.of({stream.id: stream for stream in found.streams}),
        names=PersistentMap.of({stream.name: stream.id for stream in found.streams}),
        shares=share_of(found.streams),
        partition_count=sum(len(stream.partitions) for stream in found.streams),
        sinks=PersistentMap.of({sink.name: sink for sink in found.sinks}),
        sink_names={sink.number: sink.name for sink in found.sinks},
        next_sink_number=found.next_sink_number,
        acl=found.acl,
        tokens=PersistentMap.of({token.hash: token for token in found.tokens}),
        quotas={quota.principal: quota for quota in found.quotas},
    )
