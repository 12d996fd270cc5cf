"""What brokers answer when a client asks for positions in many partitions at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.errors import TidelogError
from tidelog.model.record import Position


@dataclass(frozen=True, slots=True)
class FoundPosition:
    """The position of one start in one partition, and the bounds of its log."""

    position: Position
    """Its epoch is that of the record before it, if the leader knows it."""
    log_start_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class FoundPositions:
    """The positions in the partitions of one stream."""

    name: str
    stream_id: bytes
    partition_count: int
    """All partitions of the stream, asked for or not."""
    positions: Mapping[int, FoundPosition] = field(default_factory=dict)
    errors: Mapping[int, TidelogError] = field(default_factory=dict)
    """Partitions where the start is no position: `OffsetOutOfRange`, `LogTruncated` or `PartitionNotFound`,
    or where the leader cannot read its log."""
