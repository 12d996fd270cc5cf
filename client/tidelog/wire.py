"""Converts model values to protobuf messages and back, for client and broker; nothing else.

Requests carry `StreamSettings` (absent fields say nothing), answers a whole
`StreamConfig`. What arrives is checked for shape here (enum values, identifiers) and for
sense by `tidelog.model`. What a cluster says of its brokers and replicas: `cluster_wire`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from tidelog import errors, model
from tidelog_proto import common_pb2, log_pb2

_T = TypeVar("_T")
_DURABILITY = {model.Durability.FSYNC: common_pb2.FSYNC, model.Durability.PAGE_CACHE: common_pb2.PAGE_CACHE}
_DURABILITY_FROM = {number: value for value, number in _DURABILITY.items()}
_NATS_ACK = {model.NatsAck.ALWAYS: common_pb2.NATS_ACK_ALWAYS, model.NatsAck.NEVER: common_pb2.NATS_ACK_NEVER}
_NATS_ACK_FROM = {number: value for value, number in _NATS_ACK.items()}
_PLAIN_SETTINGS = (
    "subject",
    "partitions",
    "replication_factor",
    "min_insync_replicas",
    "segment_bytes",
    "segment_age_ms",
    "batch_bytes_max",
    "timestamp_ahead_ms_max",
    "dedupe_window_ms",
    "dedupe_count_max",
)


def id_from_proto(identifier: bytes) -> bytes:
    """The id of a stream; raises `InvalidRequest` unless it has 16 bytes."""
    if len(identifier) != 16:
        raise errors.InvalidRequest(
            f"stream_id has {len(identifier)} bytes; it must have 16", field="stream_id"
        )
    return identifier


def settings_to_proto(settings: model.StreamSettings) -> common_pb2.StreamConfig:
    message = common_pb2.StreamConfig()
    for name in _PLAIN_SETTINGS:
        value = getattr(settings, name)
        if value is not None:
            _set_number(message, name, value)
    if settings.durability is not None:
        message.durability = _DURABILITY[settings.durability]
    if settings.nats_ack is not None:
        message.nats_ack = _NATS_ACK[settings.nats_ack]
    if settings.retention is not None:
        _fill_retention(message.retention, settings.retention)
    return message


def settings_from_proto(message: common_pb2.StreamConfig) -> model.StreamSettings:
    """The settings in a request; raises `InvalidRequest` for an enum value of another version."""
    given: dict[str, object] = {
        name: getattr(message, name)
        for name in _PLAIN_SETTINGS
        if message.HasField(name)  # type: ignore[arg-type]
    }
    if message.durability:
        given["durability"] = _known(_DURABILITY_FROM, message.durability, "durability")
    if message.nats_ack:
        given["nats_ack"] = _known(_NATS_ACK_FROM, message.nats_ack, "nats_ack")
    if message.HasField("retention"):
        given["retention"] = _retention(message.retention)
    return model.StreamSettings(**given)  # type: ignore[arg-type]


def config_to_proto(config: model.StreamConfig) -> common_pb2.StreamConfig:
    message = common_pb2.StreamConfig(
        durability=_DURABILITY[config.durability], nats_ack=_NATS_ACK[config.nats_ack]
    )
    for name in _PLAIN_SETTINGS:
        setattr(message, name, getattr(config, name))
    _fill_retention(message.retention, config.retention)
    return message


def config_from_proto(message: common_pb2.StreamConfig) -> model.StreamConfig:
    """A complete configuration; settings that an older broker did not know have their defaults."""
    given = settings_from_proto(message).given()
    return model.StreamConfig(**given)  # type: ignore[arg-type]


def _set_number(message: common_pb2.StreamConfig, name: str, value: object) -> None:
    try:
        setattr(message, name, value)
    except (ValueError, TypeError):
        raise errors.InvalidRequest(f"{name} is {value!r}, which is not allowed", field=name) from None


def _fill_retention(message: common_pb2.Retention, retention: model.Retention) -> None:
    message.SetInParent()
    for name in ("age_ms", "bytes", "messages"):
        value = getattr(retention, name)
        if value is None:
            continue
        try:
            setattr(message, name, value)
        except (ValueError, TypeError):
            field = f"retention.{name}"
            raise errors.InvalidRequest(f"{field} is {value!r}, which is not allowed", field=field) from None


def _retention(message: common_pb2.Retention) -> model.Retention:
    return model.Retention(
        age_ms=message.age_ms if message.HasField("age_ms") else None,
        bytes=message.bytes if message.HasField("bytes") else None,
        messages=message.messages if message.HasField("messages") else None,
    )


def _known(values: Mapping[Any, _T], number: int, name: str) -> _T:
    found = values.get(number)
    if found is None:
        raise errors.InvalidRequest(
            f"{name} has the value {number}, which this version does not know", field=name
        )
    return found


def listener_to_proto(listener: model.Listener) -> common_pb2.Listener:
    return common_pb2.Listener(name=listener.name, host=listener.host, port=listener.port)


def listener_from_proto(message: common_pb2.Listener) -> model.Listener:
    return model.Listener(name=message.name, host=message.host, port=message.port)


def broker_to_proto(broker: model.BrokerDescription) -> common_pb2.BrokerDescription:
    return common_pb2.BrokerDescription(
        broker_id=broker.broker_id,
        incarnation=broker.incarnation,
        directory_id=broker.directory_id,
        listeners=[listener_to_proto(listener) for listener in broker.listeners],
        rack=broker.rack,
        state=broker.state,
    )


def broker_from_proto(message: common_pb2.BrokerDescription) -> model.BrokerDescription:
    return model.BrokerDescription(
        broker_id=message.broker_id,
        incarnation=message.incarnation,
        directory_id=message.directory_id,
        listeners=tuple(listener_from_proto(listener) for listener in message.listeners),
        rack=message.rack,
        state=message.state,
    )


def partition_to_proto(partition: model.PartitionDescription) -> common_pb2.PartitionDescription:
    return common_pb2.PartitionDescription(
        partition=partition.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        eligible=partition.eligible,
        adding=partition.adding,
        removing=partition.removing,
    )


def partition_from_proto(message: common_pb2.PartitionDescription) -> model.PartitionDescription:
    return model.PartitionDescription(
        partition=message.partition,
        leader=message.leader if message.HasField("leader") else None,
        leader_epoch=message.leader_epoch,
        partition_epoch=message.partition_epoch,
        replicas=tuple(message.replicas),
        isr=tuple(message.isr),
        eligible=tuple(message.eligible),
        adding=tuple(message.adding),
        removing=tuple(message.removing),
    )


def stream_to_proto(stream: model.StreamDescription) -> common_pb2.StreamDescription:
    return common_pb2.StreamDescription(
        name=stream.name,
        stream_id=stream.stream_id,
        config=config_to_proto(stream.config),
        version=stream.version,
        labels=stream.labels,
        created_us=stream.created_us,
        partitions=[partition_to_proto(partition) for partition in stream.partitions],
        owner=stream.owner,
    )


def stream_from_proto(message: common_pb2.StreamDescription) -> model.StreamDescription:
    return model.StreamDescription(
        name=message.name,
        stream_id=message.stream_id,
        config=config_from_proto(message.config),
        version=message.version,
        created_us=message.created_us,
        partitions=tuple(partition_from_proto(partition) for partition in message.partitions),
        labels=dict(message.labels),
        owner=message.owner,
    )


def receipt_to_proto(receipt: model.Receipt) -> log_pb2.ProduceReceipt:
    return log_pb2.ProduceReceipt(
        base_offset=receipt.offset,
        last_offset=receipt.last_offset,
        leader_epoch=receipt.leader_epoch,
        append_time_us=receipt.append_time_us,
        duplicate=receipt.duplicate,
    )


def receipt_from_proto(message: log_pb2.ProduceReceipt, partition: int) -> model.Receipt:
    """The receipt of a batch that was sent to `partition`; the message does not contain the partition."""
    return model.Receipt(
        partition=partition,
        offset=message.base_offset,
        last_offset=message.last_offset,
        leader_epoch=message.leader_epoch,
        append_time_us=message.append_time_us,
        duplicate=message.duplicate,
    )


def position_to_proto(position: model.Position) -> log_pb2.Position:
    return log_pb2.Position(offset=position.offset, leader_epoch=position.leader_epoch)


def position_from_proto(message: log_pb2.Position) -> model.Position:
    epoch = message.leader_epoch if message.HasField("leader_epoch") else None
    return model.Position(message.offset, epoch)


def projection_to_proto(projection: model.Projection) -> log_pb2.Projection:
    return log_pb2.Projection(
        columns=projection.columns, subject_filter=projection.subject_filter, keys=projection.keys
    )


def projection_from_proto(message: log_pb2.Projection) -> model.Projection:
    """The projection of a request; raises `InvalidRequest`."""
    return model.Projection(tuple(message.columns), tuple(message.subject_filter), tuple(message.keys))


def headers_to_proto(headers: model.Headers) -> list[common_pb2.Header]:
    return [common_pb2.Header(name=name, value=value) for name, value in headers]


def headers_from_proto(messages: Iterable[common_pb2.Header]) -> model.Headers:
    return tuple((item.name, item.value if item.HasField("value") else None) for item in messages)


def record_to_proto(record: model.Record) -> log_pb2.FetchedRecord:
    return log_pb2.FetchedRecord(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        append_time_us=record.append_time_us,
        record=common_pb2.Record(
            key=record.key,
            value=record.value,
            headers=headers_to_proto(record.headers),
            subject=record.subject,
            timestamp_us=record.timestamp_us,
        ),
    )


def record_from_proto(message: log_pb2.FetchedRecord, stream: str, partition: int) -> model.Record:
    record = message.record
    return model.Record(
        offset=message.offset,
        key=record.key if record.HasField("key") else None,
        value=record.value if record.HasField("value") else None,
        headers=headers_from_proto(record.headers),
        subject=record.subject if record.HasField("subject") else None,
        timestamp_us=record.timestamp_us,
        leader_epoch=message.leader_epoch,
        append_time_us=message.append_time_us,
        stream=stream,
        partition=partition,
    )


def error_to_proto(error: errors.TidelogError) -> common_pb2.Error:
    return common_pb2.Error(
        code=common_pb2.ErrorCode.Value(error.code),
        message=error.message,
        retriable=error.retriable,
        definite=error.definite,
        details=error.details,
        retry_after_ms=error.retry_after_ms,
    )


def error_from_proto(message: common_pb2.Error) -> errors.TidelogError:
    """The typed error; a code of a later version becomes an `InternalError` with the same message."""
    known = message.code in common_pb2.ErrorCode.values()
    code = common_pb2.ErrorCode.Name(message.code) if known else f"code {message.code}"
    retry = message.retry_after_ms if message.HasField("retry_after_ms") else None
    return errors.error_from_code(code, message.message, dict(message.details), retry)
