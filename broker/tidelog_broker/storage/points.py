"""Places in a log that are saved: the key of its partition, where it is durable, where it ended."""

from __future__ import annotations

from typing import NamedTuple

PartitionKey = tuple[bytes, int]
"""Stream id (16 bytes) and partition number."""


class RecoveryPoint(NamedTuple):
    """Everything below is on disk: an offset and its place."""

    offset: int
    segment_base: int
    position: int
    """Bytes into the segment."""


class CleanEnd(NamedTuple):
    """Where a log ended at a clean stop."""

    log_end_offset: int
    segment_base: int
    size: int
