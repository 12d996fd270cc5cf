"""Resolves the start of a request to the offset at which a reader of a partition begins (R13, R15)."""

from __future__ import annotations

from tidelog.errors import InvalidRequest, Unavailable
from tidelog_broker.core.replication.positions import check_position
from tidelog_broker.hosting.broker import Broker
from tidelog_broker.writing.partition import Partition
from tidelog_proto import log_pb2


async def resolve_start(
    broker: Broker, partition: Partition, wanted: log_pb2.FetchPartition
) -> tuple[int, int | None]:
    """The offset that a request's start means, and the epoch of the record before it.

    A position is checked against the log's history (R13). Raises `OffsetOutOfRange`,
    `LogTruncated`, and `Unavailable` for what a new leader does not know yet (R15).
    """
    log = partition.log
    kind = wanted.WhichOneof("start")
    if kind == "position":
        epoch = _checked_epoch(partition, wanted.position)
        offset = wanted.position.offset
        return offset, _epoch_before(partition, offset) if epoch is None else epoch
    if kind == "after_bytes":
        offset = await _after_bytes(broker, partition, wanted.after_bytes)
        return offset, _epoch_before(partition, offset)
    if kind == "latest":
        check_newest_known(partition)
        return partition.high_watermark, _epoch_before(partition, partition.high_watermark)
    if kind == "timestamp_us":
        found = await broker.in_catch_up_thread(
            log.reader.find_time, wanted.timestamp_us, partition.high_watermark
        )
        if found is None:
            check_newest_known(partition)
        offset = partition.high_watermark if found is None else found
        return offset, _epoch_before(partition, offset)
    return log.start_offset, None


def _checked_epoch(partition: Partition, position: log_pb2.Position) -> int | None:
    """The epoch of a position that agrees with the log's history (R13), if it has one."""
    log = partition.log
    epoch = position.leader_epoch if position.HasField("leader_epoch") else None
    check_position(
        position.offset,
        epoch,
        first=log.epochs.first,
        end_of_epoch=None if epoch is None else log.epochs.end_of(epoch, log.end_offset),
        log_start_offset=log.start_offset,
        log_end_offset=log.end_offset,
    )
    return epoch


async def _after_bytes(broker: Broker, partition: Partition, wanted: log_pb2.AfterBytes) -> int:
    """The first offset behind about so many bytes (`LogReader.after_bytes`)."""
    if not wanted.HasField("start"):
        raise InvalidRequest("after_bytes has no position to count from; give `start`")
    if not wanted.bytes:
        raise InvalidRequest("after_bytes.bytes is 0; give at least 1")
    _checked_epoch(partition, wanted.start)
    found: int = await broker.in_catch_up_thread(
        partition.log.reader.after_bytes, wanted.start.offset, wanted.bytes, partition.high_watermark
    )
    if found >= partition.high_watermark:
        check_newest_known(partition)
    return found


def check_newest_known(partition: Partition) -> None:
    """R15: raises `Unavailable` while a new leader does not know how far its log is committed."""
    if partition.leads and not partition.replica.may_answer_latest:
        raise Unavailable(
            f"the leader of {partition.name}/{partition.partition} is new and does not know the high "
            f"watermark yet",
            retry_after_ms=50,
        )


def _epoch_before(partition: Partition, offset: int) -> int | None:
    log = partition.log
    return log.epochs.epoch_at(offset - 1) if offset > log.start_offset else None
