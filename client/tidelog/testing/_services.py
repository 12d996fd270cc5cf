"""The answers of a broker in memory: the rules of a real broker that a client can see.

Requests and answers are the messages of the real interface. A refused request raises a `TidelogError`, which
`_connection` and `_calls` carry as gRPC does.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from tidelog import wire
from tidelog.errors import (
    InvalidRequest,
    NotEnoughReplicas,
    NotLeader,
    PartitionNotFound,
    TidelogError,
)
from tidelog.model import (
    BrokerDescription,
    Listener,
    PartitionDescription,
    Position,
    Receipt,
)
from tidelog.records import validate_batch
from tidelog.records.limits import BatchLimits
from tidelog.testing._administration import Administration
from tidelog.testing._log import WINDOW_BATCHES, MemoryLog, check_producer_id
from tidelog.testing._state import State
from tidelog_proto import common_pb2, log_pb2, metadata_pb2

PORT: Final = 9210


class Services:
    """The services of one broker."""

    def __init__(self, state: State, broker_id: int) -> None:
        self._state = state
        self._broker_id = broker_id
        administration = Administration(state, broker_id, self.descriptions)
        self.log: dict[str, Callable[[Any], Any]] = {
            "InitProducer": self._init_producer,
            "Offsets": self._offsets,
            "DeleteRecords": self._delete_records,
        }
        self.metadata: dict[str, Callable[[Any], Any]] = {"Resolve": self._resolve}
        self.admin = administration.handlers

    @property
    def changed(self) -> Any:
        return self._state.changed

    # --- for the calls that carry batches

    def led(self, stream_id: bytes, partition: int) -> tuple[PartitionDescription, MemoryLog]:
        """The partition, if this broker leads it; raises the error of a real broker if not."""
        stream = self._state.stream_with_id(wire.id_from_proto(stream_id))
        count = len(stream.partitions)
        if partition >= count:
            raise PartitionNotFound.numbered(partition, stream=stream.name, count=count)
        found = stream.partitions[partition]
        if found.leader != self._broker_id:
            error = NotLeader(f"this broker does not lead {stream.name}/{partition}", retry_after_ms=50)
            if found.leader is not None:
                error.details["leader"] = str(found.leader)
            raise error
        return found, self.log_of(stream_id, partition)

    def log_of(self, stream_id: bytes, partition: int) -> MemoryLog:
        return self._state.log(stream_id, partition)

    def start_of(self, log: MemoryLog, wanted: log_pb2.FetchPartition) -> Position:
        """The position of the start in a request."""
        match wanted.WhichOneof("start"):
            case "position":
                position = wire.position_from_proto(wanted.position)
                log.check_position(position)
                if position.leader_epoch is not None:
                    return position
                offset = position.offset
            case "latest":
                offset = log.end
            case "after_bytes":
                start = wire.position_from_proto(wanted.after_bytes.start)
                log.check_position(start)
                offset = log.after_bytes(start.offset, wanted.after_bytes.bytes)
            case "timestamp_us":
                offset = log.find_time(wanted.timestamp_us)
            case _:
                return Position(log.start)
        return Position(offset, log.epoch_before(offset))

    def append(self, request: log_pb2.ProduceRequest) -> Receipt:
        """One batch of a Produce call."""
        leadership, log = self.led(request.stream_id, request.partition)
        config = self._state.stream_with_id(request.stream_id).config
        now_us = time.time_ns() // 1000
        header = validate_batch(
            request.batch,
            BatchLimits(batch_bytes_max=config.batch_bytes_max),
            now_us=now_us,
            timestamp_ahead_us_max=config.timestamp_ahead_ms_max * 1000,
        )
        check_producer_id(header.producer_id, self._state.next_producer_id)
        expected = request.expected_offset if request.HasField("expected_offset") else None
        repeat = log.check(header, expected)
        if repeat is not None:
            return repeat
        if request.acks == common_pb2.ACKS_ALL and len(leadership.isr) < config.min_insync_effective:
            raise NotEnoughReplicas(
                f"only {len(leadership.isr)} of {config.min_insync_effective} required replicas are in sync"
            )
        receipt = log.append(request.batch, leader_epoch=leadership.leader_epoch, now_us=now_us)
        self._state.notify()
        return receipt

    # --- unary calls

    def _init_producer(self, request: log_pb2.InitProducerRequest) -> log_pb2.InitProducerResponse:
        if request.HasField("producer_id"):
            raise InvalidRequest("InitProducer with a producer id is not implemented; call it without one")
        self._state.next_producer_id += 1
        return log_pb2.InitProducerResponse(
            producer_id=self._state.next_producer_id - 1,
            producer_epoch=0,
            inflight_batches_max=WINDOW_BATCHES,
        )

    def _offsets(self, request: log_pb2.OffsetsRequest) -> log_pb2.OffsetsResponse:
        return log_pb2.OffsetsResponse(partitions=[self._one_offset(wanted) for wanted in request.partitions])

    def _one_offset(self, wanted: log_pb2.FetchPartition) -> log_pb2.PartitionOffsets:
        try:
            leadership, log = self.led(wanted.stream_id, wanted.partition)
            position = self.start_of(log, wanted)
        except TidelogError as error:
            return log_pb2.PartitionOffsets(error=wire.error_to_proto(error))
        return log_pb2.PartitionOffsets(
            log_start_offset=log.start,
            high_watermark=log.end,
            log_end_offset=log.end,
            leader_epoch=leadership.leader_epoch,
            position=wire.position_to_proto(position),
        )

    def _delete_records(self, request: log_pb2.DeleteRecordsRequest) -> log_pb2.DeleteRecordsResponse:
        _, log = self.led(request.stream_id, request.partition)
        before = request.before_offset if request.HasField("before_offset") else log.end
        if before > log.end:
            raise InvalidRequest(f"before_offset is {before}; the high watermark is {log.end}")
        log.forget_below(before)
        self._state.notify()
        return log_pb2.DeleteRecordsResponse(log_start_offset=log.start)

    def _resolve(self, request: metadata_pb2.ResolveRequest) -> metadata_pb2.ResolveResponse:
        streams = self._state.streams
        return metadata_pb2.ResolveResponse(
            cluster_id=self._state.cluster_id,
            version=self._state.version,
            brokers=[wire.broker_to_proto(broker) for broker in self.descriptions()],
            streams=[wire.stream_to_proto(streams[name]) for name in request.names if name in streams],
            missing=[name for name in request.names if name not in streams],
        )

    def descriptions(self) -> list[BrokerDescription]:
        """The brokers in the metadata."""
        return [
            BrokerDescription(
                broker_id=broker_id,
                incarnation=uuid.UUID(int=broker_id).bytes,
                directory_id=uuid.UUID(int=broker_id).bytes,
                listeners=(Listener("client", host(broker_id), PORT),),
                state="active" if alive else "fenced",
            )
            for broker_id, alive in self._state.alive.items()
        ]


def host(broker_id: int) -> str:
    """The host name of a broker in memory."""
    return f"broker-{broker_id}.memory"
